"""Sandbox runner that passes a program one slide after another and writes its numbers.

This file is copied as text, and no SAGE code can be imported where it runs. A program
that modifies it changes only its own numbers, which are checked again outside.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass
class Cells:
    """A slide's cells.

    `x_um` and `y_um` are (n,) arrays, `types` (n,) names ("" for none), and `columns` (n,)
    arrays by name.
    """

    x_um: Any
    y_um: Any
    types: Any
    columns: dict[str, Any] = field(default_factory=dict)


@dataclass
class Shapes:
    """Objects or regions of one kind; each shape is a list of rings (k, 2) in µm, the outer first.

    A shape whose outline is unknown has a ring with a single point.
    """

    rings: list[list[Any]]


@dataclass
class Slide:
    """A program's view of a slide.

    It has `window` and `area_um2` if the program reads the tissue.
    """

    cells: Cells | None
    objects: dict[str, Shapes]
    regions: dict[str, Shapes]
    window: Shapes | None
    area_um2: float | None


def shapes_of(held: Any, prefix: str) -> Shapes:
    """Build shapes from flat arrays of points, each point's ring, and each ring's shape."""
    points, ring_of = held[f"{prefix}:points"], held[f"{prefix}:ring"]
    shape_of = held[f"{prefix}:shape"]
    rings: list[list[Any]] = [[] for _ in range(int(held[f"{prefix}:count"]))]
    starts = np.searchsorted(ring_of, np.arange(len(shape_of) + 1))
    for number, shape in enumerate(shape_of):
        rings[int(shape)].append(points[starts[number] : starts[number + 1]])
    return Shapes(rings)


def read_slide(path: Path) -> Slide:
    """Build a slide's view from its arrays."""
    with np.load(path, allow_pickle=False) as held:
        names = set(held.files)
        cells = None
        if "cells:x" in names:
            columns = {n.removeprefix("column:"): held[n] for n in names if n.startswith("column:")}
            cells = Cells(held["cells:x"], held["cells:y"], held["cells:types"], columns)
        kinds: dict[str, dict[str, Shapes]] = {"objects": {}, "regions": {}}
        for name in sorted(names):
            source, _, rest = name.partition(":")
            if source in kinds and rest.endswith(":count"):
                kind = rest.removesuffix(":count")
                kinds[source][kind] = shapes_of(held, f"{source}:{kind}")
        window = shapes_of(held, "window:tissue") if "window:tissue:count" in names else None
        area = float(held["area_um2"]) if "area_um2" in names else None
    return Slide(cells, kinds["objects"], kinds["regions"], window, area)


def as_number(value: Any) -> dict[str, Any]:
    """Return a value as a finite number, or the reason why it is not one."""
    if value is None:
        return {"why": "none"}
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return {"why": "shape"}
    if isinstance(value, complex | np.complexfloating):
        return {"why": "shape"}
    number = float(value)
    return {"value": number} if math.isfinite(number) else {"why": "finite"}


def main() -> None:
    """Measure every slide, in numerical order."""
    inputs, output = Path(os.environ["SAGE_INPUTS"]), Path(os.environ["SAGE_OUTPUT"])
    jobs = json.loads((inputs / "slides" / "jobs.json").read_text(encoding="utf-8"))
    from program import measure  # type: ignore[import-not-found]

    found = []
    for job in jobs:
        try:
            slide = read_slide(inputs / "slides" / job["file"])
            found.append(as_number(measure(slide, **job["parameters"])))
        except Exception:  # noqa: BLE001 - whatever the program raises, the slide has no value
            found.append({"why": "raised"})
    (output / "values.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
