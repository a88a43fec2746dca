"""Matching label files to slides by their full name, never by guessing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sage.core.errors import InputError

IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".svs", ".ndpi", ".mrxs", ".scn", ".bif")
"""File name extensions of training images."""


def bare(name: str) -> str:
    """Strip an image extension from a name; other dots are kept."""
    for ending in (".ome.tif", ".ome.tiff", *IMAGES):
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return name


def pair(outlines: Iterable[Path], slides: Iterable[Path], place: str) -> dict[Path, Path]:
    """Find the slide for each outline file.

    The names must match (P1.s1.geojson or P1.s1.svs.geojson, P1.s1.svs). The part before the
    first dot is enough if exactly one slide and one outline file share it. `place` is the
    name of the slide folder in messages.

    Raises
    ------
    InputError
        If there is no such slide, more than one, or another file also has its outlines.
    """
    files, found = sorted(outlines), [s for s in sorted(slides) if s.suffix.lower() in IMAGES]
    whole: dict[str, list[Path]] = defaultdict(list)
    first: dict[str, list[Path]] = defaultdict(list)
    for slide in found:
        whole[slide.name].append(slide)
        whole[bare(slide.name)].append(slide)
        first[_first(slide)].append(slide)
    siblings: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        siblings[_first(file)].append(file)
    out: dict[Path, Path] = {}
    owner: dict[Path, Path] = {}
    for file in files:
        name = file.name.removesuffix(".geojson") if file.suffix == ".geojson" else file.stem
        own = whole.get(name) or whole.get(bare(name), [])
        if len(own) > 1:
            raise InputError(
                f"{file}: matches both {own[0].name} and {own[1].name}; keep one of them"
            )
        if not own:
            near, beside = first.get(_first(file), []), siblings[_first(file)]
            if len(near) == 1 and len(beside) > 1:
                raise InputError(
                    f"{beside[0]} and {beside[1].name}: two outline files for one slide "
                    f"({near[0].name}); keep one of them"
                )
            if len(near) != 1:
                names = ", ".join(s.name for s in near[:2])
                raise InputError(
                    f"{file}: no slide with this name in {place}"
                    + (
                        f"; {names} only start with this name, so rename the file to match its "
                        "slide"
                        if near
                        else ""
                    )
                )
            own = near
        slide = own[0]
        if slide in owner:
            raise InputError(
                f"{owner[slide]} and {file.name}: two outline files for one slide "
                f"({slide.name}); keep one of them"
            )
        out[file], owner[slide] = slide, file
    return out


def _first(file: Path) -> str:
    return file.name.split(".")[0]


def read_patients(path: Path, shown: str) -> dict[str, str]:
    """Read each slide's patient from a CSV with these columns, removing image extensions.

    Raises
    ------
    InputError
        If the file cannot be read, lacks a column, or gives a slide two patients.
    """
    import pandas as pd

    try:
        table: Any = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (ValueError, OSError) as error:
        raise InputError(f"{shown}: not a readable CSV file: {error}") from error
    if not {"slide", "patient"} <= set(table.columns):
        raise InputError(f"{shown}: columns slide and patient are required")
    out: dict[str, str] = {}
    rows: dict[str, int] = {}
    for row, (slide, patient) in enumerate(zip(table["slide"], table["patient"], strict=True), 2):
        name = bare(slide)
        if out.setdefault(name, patient) != patient:
            raise InputError(
                f'{shown}: rows {rows[name]} and {row} give slide "{name}" two different '
                f'patients, "{out[name]}" and "{patient}"; keep one of them'
            )
        rows.setdefault(name, row)
    return out
