"""A reading's findings as maps: what its regions show becomes objects that measurements count."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from agents.slide_reader.computed import NUCLEI_FROM, TELLING
from agents.slide_reader.concepts import Concept
from agents.slide_reader.rules import EVIDENCE, showing
from agents.slide_reader.types import Described, Reading
from mcp_servers.measures.maps import ObjectMap, SlideMaps
from mcp_servers.workers.cohort import patient_of


def maps_of(reading: Reading, *, patient: str | None = None) -> SlideMaps:
    """Objects `read_tumor`, `read_tls` ... where inspected regions speak for a finding.

    Neighboring regions of one finding are one object; `read_mitosis` are points. A kind that no
    region was measured for was not looked for, and is not among them. What is counted depends on
    the question, which says where the reader looked: ask the same of every slide of a cohort.

    Parameters
    ----------
    reading : of one slide
    patient : whose slide it is; what its name tells, if not given
    """
    import shapely

    fine = [
        seen
        for seen in reading.regions().values()
        if seen.region.magnification >= NUCLEI_FROM or seen.edited
    ]
    kinds: list[str] = []
    shapes: list[object] = []
    codes: list[int] = []
    for concept in sorted(EVIDENCE):
        if concept is Concept.MARGIN:
            continue
        if not any(seen.edited or seen.value(TELLING[concept]) is not None for seen in fine):
            continue
        kinds.append(f"read_{concept}")
        if concept is Concept.MITOSIS:
            own = [shapely.Point(x, y) for x, y in _mitoses(fine, reading.mpp)]
        else:
            boxes = [shapely.box(*_bounds(seen)) for seen in showing(fine, concept)]
            joined = shapely.union_all(boxes, grid_size=0.5) if boxes else None
            own = [] if joined is None else list(shapely.get_parts(joined))
        shapes += own
        codes += [len(kinds) - 1] * len(own)
    held = np.empty(len(shapes), dtype=object)
    held[:] = shapes
    found = ObjectMap(held, tuple(kinds), np.asarray(codes, dtype=np.int64))
    return SlideMaps(
        slide=reading.slide,
        patient=patient or patient_of(Path(reading.slide)),
        objects=found,
        mpp=reading.mpp,
        provenance={"objects": f"reading by {reading.eyes} eyes: {reading.question.text[:200]}"},
    )


def _bounds(seen: Described) -> tuple[float, float, float, float]:
    x, y, width, height = seen.region.um
    return x, y, x + width, y + height


def _mitoses(fine: list[Described], mpp: float) -> list[tuple[float, float]]:
    """Figures in µm, those that two regions show counted once."""
    points = {
        (round(x * mpp, 1), round(y * mpp, 1))
        for seen in fine
        for found in seen.findings
        if found.name == "mitosis_like"
        for x, y in found.points
    }
    return sorted(points)
