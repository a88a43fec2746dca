"""Checks of a program before the gate: its unit, and its dependence on nothing but the map.

The unit is checked by experiment. If slides are made twice as large (cells, outlines,
columns, and parameters, each according to its unit), a length must double and a density
per mm² must drop to a quarter. A length hard-coded as a plain number fails this check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mcp_servers.measures.maps import CellMap, Column, ObjectMap, RegionMap, ShapeMap, SlideMaps
from mcp_servers.measures.units import read_unit
from mcp_servers.slides.arrays import AnyArray
from sage.core.seeds import generator
from sage_programs.contract import Program
from sage_programs.running import run_program
from sandbox.types import Sandbox

FACTOR = 2.0
SAME = 1e-6
LEAST = 3
"""Minimum number of slides with a value needed for the checks."""
SUFFIXES = {"_per_um2": -2, "_per_mm2": -2, "_per_um": -1, "_um2": 2, "_mm2": 2, "_um": 1, "_mm": 1}
"""Power of length in a parameter's unit, by the suffix of its name."""


def check_values(program: Program, slides: Sequence[SlideMaps], box: Sandbox) -> list[str]:
    """List objections to a program, based on these slides.

    Raises
    ------
    InputError
        If a run in the sandbox failed.
    """
    plain = run_program(program, slides, box)
    known = [place for place, value in enumerate(plain) if isinstance(value, float)]
    if len(known) < LEAST:
        why = {value for value in plain if isinstance(value, str)}
        return [f"a value on only {len(known)} of {len(slides)} slides: {'; '.join(sorted(why))}"]
    chosen = [slides[place] for place in known]
    before = np.array([plain[place] for place in known], dtype=np.float64)
    found = []
    turned = [_shuffle(maps, seed) for seed, maps in enumerate(chosen)][::-1]
    if not _agree(before, run_program(program, turned, box)[::-1]):
        found.append(
            "the value changes with the order of the cells or of the slides, or from run to run"
        )
    power = dict(read_unit(program.contract.unit).powers).get("µm", 0)
    larger = [scale_slide(maps, FACTOR) for maps in chosen]
    parameters = {
        name: value * FACTOR ** _power(name) for name, value in program.contract.parameters.items()
    }
    after = run_program(program, larger, box, parameters)
    wanted = before * FACTOR**power
    for place, value in enumerate(after):
        if not _agree(wanted[[place]], [value]):
            shown = value if isinstance(value, str) else f"{value:.6g}"
            found.append(
                f"unit {program.contract.unit}: on slides twice as large, {before[place]:.6g} "
                f"should be {wanted[place]:.6g} but is {shown}; either the unit is wrong, or a "
                "length is in the code instead of in `parameters`"
            )
            break
    return found


def scale_slide(maps: SlideMaps, factor: float) -> SlideMaps:
    """Multiply all of a slide's lengths by a factor, and columns by the powers of their units."""
    cells = maps.cells
    if cells is not None:
        columns = {
            name: Column(
                column.values * factor ** dict(read_unit(column.unit).powers).get("µm", 0),
                column.unit,
            )
            for name, column in cells.columns.items()
        }
        cells = replace(cells, x_um=cells.x_um * factor, y_um=cells.y_um * factor, columns=columns)
    return replace(
        maps,
        window=None if maps.window is None else _larger(np.array([maps.window]), factor)[0],
        cells=cells,
        objects=_scaled_shapes(ObjectMap, maps.objects, factor),
        regions=_scaled_shapes(RegionMap, maps.regions, factor),
        coded={},
    )


def _scaled_shapes(kind: Any, held: ShapeMap | None, factor: float) -> Any:
    if held is None:
        return None
    return kind(_larger(held.shapes, factor), held.kinds, held.codes)


def _larger(shapes: AnyArray, factor: float) -> AnyArray:
    import shapely

    return np.asarray(shapely.transform(shapes, lambda xy: xy * factor), dtype=object)


def _shuffle(maps: SlideMaps, seed: int) -> SlideMaps:
    cells: CellMap | None = maps.cells
    if cells is not None:
        cells = cells.take(generator(seed).permutation(len(cells)))
    return replace(maps, cells=cells, coded={})


def _agree(wanted: AnyArray, found: Sequence[float | str]) -> bool:
    if any(isinstance(value, str) for value in found):
        return False
    values = np.array(found, dtype=np.float64)
    return bool(np.allclose(values, wanted, rtol=SAME, atol=SAME))


def _power(name: str) -> int:
    return next((power for end, power in SUFFIXES.items() if name.endswith(end)), 0)
