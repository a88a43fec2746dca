"""Maps of a reading's findings, from which measurements count the concepts shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.measures.maps import CellMap, Column, ObjectMap, SlideMaps
from mcp_servers.measures.places import INSPECTED, READ
from mcp_servers.workers.cohort import parse_patient
from sage.core.errors import InputError
from sage_slide_reading.reader.computed import NUCLEI_FROM
from sage_slide_reading.reader.concepts import Concept, meaning, out_of_reach
from sage_slide_reading.reader.rules import showing
from sage_slide_reading.reader.types import UNITS, Described, FindingName, Question, Reading

LEAST_NUCLEI = 10
"""Minimum number of nuclei in a region for estimating their usual area and spread."""


def concept_of(question: Question) -> Concept:
    """Return the concept in a question that is asked about every slide in a cohort.

    Raises `InputError` if this backend cannot answer the question on any slide.
    """
    asked = meaning(question)
    if why := out_of_reach(question, asked):
        raise InputError(f'"{question.text}": {why}')
    if not asked.concepts:
        raise InputError(
            f'"{question.text}" mentions nothing that can be measured without a model; ask about '
            f"one of: {', '.join(Concept)}"
        )
    return asked.concepts[0]


def findings_of(
    readings: Sequence[Reading], window: Any = None, *, patient: str | None = None
) -> SlideMaps:
    """Convert readings of a slide, each about a different concept, to typed maps.

    Inspected regions that show a reading's concept become objects `read_tumor`, `read_tls` ...,
    with neighbors joined; `read_mitosis` objects are points. With the tissue's `window`, a
    shapely multipolygon in µm, all inspected regions are also "cells" of the type
    `inspected_tumor` ..., with findings as columns with units. If a reading abstains, it has
    neither, and `withheld` gives the reason.

    The values depend on the question, which determines where the reader looked, so ask the same
    question about every slide in a cohort.
    """
    first = readings[0]
    types: list[str] = []
    shapes: dict[str, list[object]] = {}
    looks: list[tuple[int, Described]] = []
    withheld: dict[str, str] = {}
    for reading in readings:
        concept = concept_of(reading.question)
        fine = _fine(reading)
        if reading.answer is None or not fine:
            why = f"the reader abstained: {reading.reasoning}"[:500]
            withheld |= {f"{INSPECTED}{concept}": why, f"{READ}{concept}": why}
            continue
        types.append(f"{INSPECTED}{concept}")
        looks += [(len(types) - 1, seen) for seen in fine]
        if concept not in (Concept.MARGIN, Concept.CELLULARITY):
            shapes[f"{READ}{concept}"] = _shapes(fine, concept, reading.mpp)
    made = f"readings by {first.eyes} eyes: " + "; ".join(r.question.text[:200] for r in readings)
    held = np.array([None, *(shape for own in shapes.values() for shape in own)], dtype=object)
    codes = np.repeat(np.arange(len(shapes)), [len(own) for own in shapes.values()])
    maps = SlideMaps(
        slide=first.slide,
        patient=patient or parse_patient(Path(first.slide)),
        objects=ObjectMap(held[1:], tuple(shapes), codes.astype(np.int64)),
        mpp=first.mpp,
        provenance={"objects": made},
        withheld=withheld,
    )
    if window is None:
        return maps
    boxes = np.array([_bounds(seen) for _, seen in looks], dtype=np.float64).reshape(-1, 4)
    cells = CellMap(
        (boxes[:, 0] + boxes[:, 2]) / 2,
        (boxes[:, 1] + boxes[:, 3]) / 2,
        tuple(types),
        np.array([code for code, _ in looks], dtype=np.int64),
        columns={
            name: Column(np.array([_measured_value(seen, name) for _, seen in looks]), unit)
            for name, (_, unit) in UNITS.items()
        },
    )
    provenance = {"window": "tissue_mask", "cells": made, "objects": made}
    return replace(maps, window=window, cells=cells, provenance=provenance)


def _measured_value(seen: Described, name: FindingName) -> float:
    """Return a finding's value, or NaN if it is absent or based on too few nuclei."""
    value = seen.value(name)
    if value is None or (name == "edge_distance" and value < 0):
        return float("nan")
    if name in ("nuclear_area", "pleomorphism", "lymphoid_share", "epithelial_share"):
        nuclei = (seen.value("cellularity") or 0.0) * seen.region.um[2] * seen.region.um[3] / 1e6
        return value if nuclei >= LEAST_NUCLEI and value >= 0 else float("nan")
    return value


def _fine(reading: Reading) -> list[Described]:
    return [
        seen
        for seen in reading.regions().values()
        if seen.region.magnification >= NUCLEI_FROM or seen.edited
    ]


def _shapes(fine: list[Described], concept: Concept, mpp: float) -> list[object]:
    """Join the outlines, in µm, of regions that show a concept; mitoses become points."""
    import shapely

    if concept is Concept.MITOSIS:
        return [shapely.Point(x, y) for x, y in _mitoses(fine, mpp)]
    boxes = [shapely.box(*_bounds(seen)) for seen in showing(fine, concept)]
    return list(shapely.get_parts(shapely.union_all(boxes, grid_size=0.5))) if boxes else []


def _bounds(seen: Described) -> tuple[float, float, float, float]:
    x, y, width, height = seen.region.um
    return x, y, x + width, y + height


def _mitoses(fine: list[Described], mpp: float) -> list[tuple[float, float]]:
    """Return mitotic figures in µm, counting figures in two regions only once."""
    points = {
        (round(x * mpp, 1), round(y * mpp, 1))
        for seen in fine
        for found in seen.findings
        if found.name == "mitosis_like"
        for x, y in found.points
    }
    return sorted(points)
