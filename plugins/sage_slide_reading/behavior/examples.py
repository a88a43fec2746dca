"""Training examples: a slide's thumbnail and the regions that readers visited on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mcp_servers.slides.arrays import U8
from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError
from sage_slide_reading.sessions.actions import Action, actions_of
from sage_slide_reading.sessions.format import SUFFIX, read_session

Visits = tuple[Action, ...]
"""The actions of one session, in order."""


@dataclass
class Example:
    """A slide and its sessions, grouped by behavior."""

    slide: str
    patient: str
    size: tuple[int, int]
    thumbnail: U8
    visits: dict[str, list[Visits]] = field(default_factory=lambda: defaultdict(list))


def thumbnail_of(slide: Slide, longest_px: int) -> U8:
    """Read the whole slide, scaled so that its longer side is exactly `longest_px` pixels."""
    import cv2

    image = slide.thumbnail(longest_px)
    scale = longest_px / max(slide.width, slide.height)
    size = (max(1, round(slide.width * scale)), max(1, round(slide.height * scale)))
    if image.shape[1::-1] == size:
        return image
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_LINEAR), dtype=np.uint8)


def read_examples(
    sessions: Path, slides: Path, thumbnail_px: int, patient: Callable[[str], str]
) -> list[Example]:
    """Read the slides for all sessions below a folder, sorted by name.

    Parameters
    ----------
    sessions : a session file, or a folder to search for session files
    slides : folder with the slides of the sessions
    thumbnail_px : longer side of the thumbnails
    patient : maps a slide's file name to its patient

    Raises `InputError` if there is no session, or if a slide is missing, ambiguous, or not of the
    recorded size.
    """
    files = [sessions] if sessions.is_file() else sorted(sessions.rglob(f"*{SUFFIX}"))
    if not files:
        raise InputError(f"{sessions}: no *{SUFFIX} found; record sessions with sage serve")
    found: dict[str, Example] = {}
    places: dict[str, list[Path]] = defaultdict(list)
    if not slides.is_dir():
        raise InputError(f"{slides}: slide folder not found")
    for path in sorted(slides.rglob("*")):
        if path.is_file() and not path.is_symlink():
            places[path.name].append(path)
    for path in files:
        session = read_session(path)
        header = session.header
        if header.slide not in found:
            here = places.get(header.slide, [])
            if len(here) != 1:
                what = "no such slide" if not here else "several slides with this name"
                raise InputError(f"{path}: {header.slide}: {what} in {slides}")
            with Slide.open(here[0], threads=1) as slide:
                size = (slide.width, slide.height)
                thumbnail = thumbnail_of(slide, thumbnail_px)
            found[header.slide] = Example(header.slide, patient(header.slide), size, thumbnail)
        example = found[header.slide]
        if example.size != (header.width, header.height):
            raise InputError(
                f"{path}: recorded on {header.width} x {header.height} pixels, but "
                f"{header.slide} has {example.size[0]} x {example.size[1]}"
            )
        visits = tuple(actions_of(session))
        if visits:
            example.visits[header.task or "looking"].append(visits)
    return [found[name] for name in sorted(found) if found[name].visits]
