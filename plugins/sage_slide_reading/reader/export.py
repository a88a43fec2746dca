"""Files of a reading: JSON, GeoJSON regions, and the lock of the reader at work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp_servers.formats.geojson import feature, write_geojson
from sage.core.files import replacing, write_text
from sage.run.folder import RunFolder, find_holder, take_lock
from sage_slide_reading.reader.types import Reading, rectangle

COLORS = {"Overview": (86, 180, 233), "Inspected": (0, 114, 178), "Answer": (213, 94, 0)}
LOCK = "run.lock"
READING = "reading.json"


@contextmanager
def moving_view(folder: Path) -> Iterator[None]:
    """Lock a reading's folder until the block or this process ends.

    Raises `InputError` if another reader has locked it; the message identifies its process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with take_lock(folder / LOCK, f"the view in {folder}"):
        yield


def holder(folder: Path) -> int | None:
    """Return the process that has locked a reading's folder, or 0 if unknown; None without one."""
    found = find_holder(RunFolder(folder))
    process = re.match(r"process (\d+) ", found)
    return int(process[1]) if process else 0 if found else None


def geojson_name(slide: str) -> str:
    """Return the GeoJSON name for a slide's reading, shortened to fit file system limits."""
    kept = slide.encode()[:200].decode("utf-8", "ignore")
    return f"{kept}.reading.geojson"


def write_reading(reading: Reading, folder: Path) -> dict[str, str]:
    """Write a reading as JSON and GeoJSON, and return the file names by kind."""
    names = {"reading": READING, "geojson": geojson_name(reading.slide)}
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / names["geojson"]) as path:
        write_geojson(path, features(reading))
    write_text(folder / READING, reading.model_dump_json(indent=1) + "\n")
    return names


def features(reading: Reading) -> Iterator[dict[str, Any]]:
    """Build GeoJSON features for the regions in viewing order."""
    views = [(step, seen) for step in reading.steps for seen in step.seen]
    for number, (step, seen) in enumerate(views, 1):
        power, box = seen.region.magnification, seen.region.box
        kind = "Overview" if power <= reading.options.magnification else "Inspected"
        if seen.region.id in reading.rests_on:
            kind = "Answer"
        numbers = {f"{found.name} ({found.unit})": found.value for found in seen.findings}
        yield feature(
            rectangle(box.x, box.y, box.width, box.height),
            name=f"{number}: {seen.region.id} at {power:.3g}x, round {step.round}: "
            f"{seen.text[:300]}",
            classification=kind,
            color=COLORS[kind],
            measurements=numbers | {"Order": float(number), "Round": float(step.round)},
        )
