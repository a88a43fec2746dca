"""Export of a reading: JSON, JSON lines of steps, GeoJSON regions and path, and a conversation."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from mcp_servers.formats.geojson import feature, write_geojson
from mcp_servers.slides.geometry import Polygon
from sage.core.errors import InputError
from sage.core.files import replacing, write_text
from sage.core.printable import one_line
from sage_slide_reading.reader.types import Described, Reading

COLORS = {"Overview": (86, 180, 233), "Inspected": (0, 114, 178), "Answer": (213, 94, 0),
          "Path": (0, 0, 0)}  # fmt: skip

HOW = {"zoom": "inspect"}
TRIES = 5
LOCK = "view.lock"
HOLDER = re.compile(r"(.*) \(process (\d+)\)", re.DOTALL)


@contextmanager
def navigating(folder: Path, who: str) -> Iterator[None]:
    """Lock a view so that nobody else moves it until the block or this process ends.

    The lock is removed when the block ends, as are folders created for it if an error leaves
    them empty.

    Raises
    ------
    InputError
        If another reader has locked it; the message identifies the reader.
    """
    absent = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        with _lock_folder(folder) as handle:
            handle.truncate(0)
            handle.write(f"{one_line(who)[:200]} (process {os.getpid()})")
            handle.flush()
            try:
                yield
            finally:
                (folder / LOCK).unlink(missing_ok=True)
    except BaseException:
        with suppress(OSError):  # a folder that is not empty stays
            for place in absent:
                place.rmdir()
        raise


def _lock_folder(folder: Path) -> TextIO:
    """Open a folder's lock file, creating it if needed; closing it releases the lock."""
    path = folder / LOCK
    held = ""
    for _ in range(TRIES):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
        except FileNotFoundError:  # the process that created the folder has just removed it
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle.fileno()), path.stat()):
                return handle
        except FileNotFoundError:  # since it was removed, it no longer locks anyone out
            pass
        except OSError:
            held = handle.read(300).strip()
        handle.close()
        if held:
            break
        time.sleep(0.05)  # `holder` briefly checks the lock
    raise InputError(
        f"{folder}: {held or 'another reader'} is moving this view; wait for it, or choose "
        "another output"
    )


def holder(folder: Path) -> tuple[str, int] | None:
    """Return the name and process of the reader that locked a folder; None if it is not locked."""
    try:
        with (folder / LOCK).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = lock.read(300).decode("utf-8", "replace")
                found = HOLDER.fullmatch(text)
                return (found[1], int(found[2])) if found else ("another reader", 0)
            fcntl.flock(lock, fcntl.LOCK_UN)
    except OSError:
        return None
    return None


def geojson_name(slide: str) -> str:
    """Return the GeoJSON name for a slide's reading, shortened to fit file system limits."""
    kept = slide.encode()[:200].decode("utf-8", "ignore")
    return f"{kept}.reading.geojson"


def write_reading(reading: Reading, folder: Path) -> dict[str, str]:
    """Write a reading in all formats, and return the file names by kind."""
    names = {
        "reading": "reading.json",
        "steps": "steps.jsonl",
        "geojson": geojson_name(reading.slide),
        "conversation": "conversation.jsonl",
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / names["reading"], reading.model_dump_json(indent=1) + "\n")
    steps = "".join(step.model_dump_json() + "\n" for step in reading.steps)
    write_text(folder / names["steps"], steps)
    with replacing(folder / names["geojson"]) as path:
        write_geojson(path, features(reading))
    write_text(folder / names["conversation"], conversation(reading))
    return names


def features(reading: Reading) -> Iterator[dict[str, Any]]:
    """Build GeoJSON features for the regions in viewing order, and the path between them.

    The path is drawn as thin areas, which both QuPath and the slides page can show.
    """
    first = reading.options.magnification
    width = max(2.0, 0.0015 * max(reading.size))
    before: tuple[float, float] | None = None
    number = 0
    for step in reading.steps:
        for seen in step.seen:
            number += 1
            box = seen.region.box
            kind = "Overview" if seen.region.magnification <= first else "Inspected"
            if seen.region.id in reading.rests_on:
                kind = "Answer"
            here = box.center
            if before is not None and before != here:
                yield feature(
                    _segment(before, here, width), name=f"to {number}", classification="Path",
                    color=COLORS["Path"],
                )  # fmt: skip
            before = here
            yield feature(
                _rectangle(box.x, box.y, box.width, box.height),
                name=f"{number}: {seen.region.id} at {seen.region.magnification:.3g}x, round "
                f"{step.round}: {seen.text[:300]}",
                classification=kind,
                color=COLORS[kind],
                measurements=_numbers(seen) | {"Order": float(number), "Round": float(step.round)},
            )


def _numbers(seen: Described) -> dict[str, float]:
    return {f"{found.name} ({found.unit})": found.value for found in seen.findings}


def _rectangle(x: float, y: float, width: float, height: float) -> Polygon:
    ring = [[x, y], [x + width, y], [x + width, y + height], [x, y + height]]
    return Polygon(np.asarray(ring, dtype=np.float64))


def _segment(first: tuple[float, float], second: tuple[float, float], width: float) -> Polygon:
    start, end = np.asarray(first), np.asarray(second)
    along = (end - start) / max(float(np.hypot(*(end - start))), 1e-9)
    side = np.array([-along[1], along[0]]) * width / 2
    return Polygon(np.asarray([start + side, end + side, end - side, start - side]))


def conversation(reading: Reading) -> str:
    """Render the reading as a conversation in one line of JSON.

    The navigator and executor speak as the assistant, and the perceptor's descriptions as the user.
    """
    asked = reading.question.text
    if reading.question.options:
        asked += "\nOptions: " + "; ".join(reading.question.options)
    messages = [
        {"role": "system", "content": reading.statement},
        {"role": "user", "content": f"Slide {reading.slide}. {asked}"},
    ]
    for step in reading.steps:
        messages.append({
            "role": "assistant",
            "content": f"<{step.magnification:.3g}x-{HOW.get(step.action, 'scan')}>"
            f" Round {step.round}: looking for {step.looked_for}.",
        })  # fmt: skip
        messages.append({
            "role": "user",
            "content": "\n".join(
                f"{seen.region.id} ({seen.region.box.x}, {seen.region.box.y}): {seen.text}"
                + (" [edited by a person]" if seen.edited else "")
                for seen in step.seen
            ) or "nothing was seen",
        })  # fmt: skip
        messages.extend(
            {"role": "user", "content": f"Intervention: {note}"} for note in step.interventions
        )
        said = []
        if step.predicted is not None:
            so_far = step.predicted.answer if step.predicted.answer is not None else "I abstain"
            said.append(f"Answer so far: {so_far}. {step.predicted.thinking_steps}")
        if step.reflected is not None:
            said.append(f"Sufficient: {step.reflected.sufficient}. {step.reflected.reason}")
        said.append(step.why_next)
        messages.append({"role": "assistant", "content": "\n".join(said)})
    answer = reading.answer if reading.answer is not None else "I abstain."
    messages.append({"role": "assistant", "content": f"{answer}\n{reading.reasoning}"})
    return json.dumps({"messages": messages}, ensure_ascii=False) + "\n"
