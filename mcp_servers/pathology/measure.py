"""Tools that make a slide's typed maps and compute measurements from maps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext, remove_path
from mcp_servers.describe import check_card
from mcp_servers.formats.geojson import read_objects
from mcp_servers.lazy import shapely
from mcp_servers.pathology.common import SUITE, Given, SlideResult, of_slide, open_slide
from mcp_servers.pathology.nuclei import (
    NO_TYPES,
    NUCLEI_VALIDITY,
    NUCLEUS,
    CellsSource,
    NucleiInput,
    find_cells,
    means_lymphocyte,
    segment_nuclei,
)
from mcp_servers.pathology.tissue import TissueInput, tissue_mask
from mcp_servers.pathology.tls import DOUBTFUL_CENTER, GERMINAL_CENTER, TlsInput, tls
from mcp_servers.pathology.tumor import (
    NEEDS_TUMOR,
    TumorInput,
    TumorModel,
    TumorSource,
    find_outlines,
    tumor,
    tumor_outlines,
)
from mcp_servers.roots import Roots
from mcp_servers.slides.geometry import Polygon
from mcp_servers.slides.slide import Slide
from mcp_servers.spec import ATTRIBUTE, InputPath, OutputName, Resources, Validity, tool
from mcp_servers.workers.cohort import parse_patient
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.measures.maps import CellMap, ObjectMap, RegionMap, SlideMaps

MAKERS = (tissue_mask, segment_nuclei, tls, tumor)
REGIONS = ("tumor", "rest")
TYPES = ("lymphoid", "neoplastic", "stromal")
"""Types of cells that have a reason instead of a value if the cells have no types."""


class MapsInput(TumorSource, CellsSource):
    """A slide, and the sources of its tumor outlines and of its typed cells."""


class MapsResult(SlideResult):
    """Folder of the maps, and their contents."""

    maps: OutputName = Field(
        description="maps.json, in the folder with cells, objects, regions and window"
    )
    files: list[OutputName]
    tissue_mm2: float
    cells: dict[str, int] = Field(description="Number of cells by type")
    objects: dict[str, int] = Field(description="Number of objects by kind: TLS, germinal centers")
    regions: dict[str, int] = Field(description="Number of regions by kind: tumor, rest")
    withheld: dict[str, str] = Field(
        description="Reasons why types, kinds or regions were not analyzed, by name"
    )
    outside_card: list[str] = Field(
        description="Reason why values on these maps count as not valid"
    )


def _makers(given: Any) -> str:
    """Return a string that changes whenever a tool that makes the maps changes."""
    specs = [getattr(maker, ATTRIBUTE) for maker in MAKERS]
    return " ".join(f"{spec.name} {spec.version}" for spec in specs)


@tool(
    "slide_maps",
    SUITE,
    "1.2.0",
    "Make the typed maps of a slide on which measurements are computed: cells with type and shape, "
    "TLS, germinal centers, tumor, tissue, in µm.",
    resources=Resources(
        cpu=2,
        memory_mb=1536,
        gpu=getattr(segment_nuclei, ATTRIBUTE).resources.gpu,
        seconds_per_item=40.0,
    ),
    validity=Validity(
        stain="H&E",
        mpp=NUCLEI_VALIDITY.mpp,
        organ="solid tumors",
        known_failures=("those of tissue_mask, nuclei, tls and tumor, which make the maps",),
    ),
    fingerprint=_makers,
    title="Make maps of a slide",
)
def slide_maps(given: MapsInput, context: ToolContext) -> MapsResult:
    """Run the tools that find tissue, nuclei, TLS and tumor, and combine their outputs."""
    from mcp_servers.measures.maps import write_maps

    slide = open_slide(given, context)
    slide.need_mpp()
    scratch = context.roots.write_path(f".{slide.name}.{context.tag}-scratch.part")
    inner = dataclasses.replace(context, roots=Roots(context.roots.inputs, scratch), written=[])
    try:
        scratch.mkdir()
        cells = find_cells(slide, given, context)
        found = _run_makers(given, cells, inner, context)
        drawn, outlines = find_outlines(slide, given, context), None
        if drawn is not None:
            outlines = tumor_outlines(drawn)[0]
        elif "tumor" in found:
            objects = read_objects(scratch / found["tumor"].geojson).objects
            outlines = [polygon for thing in objects for polygon in thing.polygons]
        table = cells or scratch / found["nuclei"].table
        maps = _gather(slide, outlines, _cells(table, slide.need_mpp()), found, scratch)
        folder = context.roots.write_path("maps/maps.json").parent
        write_maps(maps, folder)
    finally:
        remove_path(scratch)
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    for name in names:
        context.output(f"maps/{name}")
    return MapsResult(
        **of_slide(slide),
        warnings=list(dict.fromkeys(w for result in found.values() for w in result.warnings)),
        maps="maps/maps.json",
        files=[f"maps/{name}" for name in names],
        tissue_mm2=(maps.area_um2 or 0.0) / 1e6,
        cells=_counts(maps.cells, "types"),
        objects=_counts(maps.objects, "kinds"),
        regions=_counts(maps.regions, "kinds"),
        withheld=dict(maps.withheld),
        outside_card=list(maps.outside_card),
    )


def _run_makers(
    given: MapsInput, cells: Path | None, inner: ToolContext, context: ToolContext
) -> dict[str, Any]:
    """Run the tools and return their results: nuclei without `cells`, tumor with a model."""
    own: dict[str, Any] = {"slide": given.slide, "mpp": given.mpp}
    model = {name: getattr(given, name) for name in TumorModel.model_fields}
    steps: list[tuple[str, Any, BaseModel]] = [
        ("tissue", tissue_mask, TissueInput(**own)),
        ("tls", tls, TlsInput(**model, tumor_regions=given.tumor_regions)),
    ]
    if cells is None:
        own |= {"device": given.device, "outlines": False}
        steps.append(("nuclei", segment_nuclei, NucleiInput(**own)))
    if given.model is not None:
        steps.append(("tumor", tumor, TumorInput(**model)))
    found: dict[str, Any] = {}
    for number, (name, make, arguments) in enumerate(steps):
        low, high = number / len(steps), (number + 1) / len(steps)
        inner.on_progress = _part(context, low, high)
        found[name] = make(arguments, inner)
    return found


def _part(context: ToolContext, low: float, high: float) -> Any:
    def report(fraction: float, message: str) -> None:
        context.on_progress(low + (high - low) * fraction, message)

    return report


def _gather(
    slide: Slide,
    tumor_polygons: list[Polygon] | None,
    cells: CellMap,
    found: dict[str, Any],
    folder: Path,
) -> SlideMaps:
    from mcp_servers.measures.maps import ObjectMap, SlideMaps, multipolygon, shape_map

    mpp = slide.need_mpp()
    tissue = read_objects(folder / found["tissue"].geojson).objects
    window = multipolygon(_valid([p for thing in tissue for p in thing.polygons], mpp))
    if window.is_empty:
        raise InputError(f"{slide.path}: no tissue found to measure")
    objects: list[tuple[Any, str]] = []
    for thing in read_objects(folder / found["tls"].geojson).objects:
        if not thing.name.startswith(("rejected", DOUBTFUL_CENTER)):
            kind = "germinal_center" if thing.label == GERMINAL_CENTER else "tls"
            objects += [(shape, kind) for shape in _valid(list(thing.polygons), mpp)]
    sought = getattr(found["tls"], "germinal_centers", None) is not None
    kinds = ["tls", "germinal_center"] if sought else ["tls"]
    spec = getattr(segment_nuclei, ATTRIBUTE)
    outside = check_card(spec, {"warnings": [], "mpp": mpp}).get("warnings", [])
    outside += [slide.mpp_conflict] if slide.mpp_conflict else []
    regions = None if tumor_polygons is None else _regions(_valid(tumor_polygons, mpp), window)
    versions = {
        what: f"{getattr(maker, ATTRIBUTE).name} {getattr(maker, ATTRIBUTE).version}"
        for what, maker in zip(("window", "cells", "objects", "regions"), MAKERS, strict=True)
    }
    return SlideMaps(
        slide=slide.name,
        patient=parse_patient(slide.path),
        window=window,
        cells=cells,
        objects=shape_map(ObjectMap, [s for s, _ in objects], [k for _, k in objects], kinds),
        regions=regions,
        mpp=mpp,
        provenance=versions,
        outside_card=tuple(outside),
        withheld=dict.fromkeys(REGIONS if regions is None else (), NEEDS_TUMOR)
        | dict.fromkeys(() if cells.types else TYPES, NO_TYPES),
    )


UNITS = {"um2": "µm²", "um": "µm", "density": "OD", "od": "OD"}
"""Units of nuclei columns, by suffix or prefix of the column name.

Other columns are pure numbers.
"""


def _cells(table: Path, mpp: float) -> CellMap:
    """Read nuclei with their types from the `type` column, if there is one."""
    import pandas as pd

    from mcp_servers.measures.maps import CellMap, Column

    rows = pd.read_csv(table)
    titles = [str(title) for title in rows.columns]
    probabilities = None
    if "type" in titles:
        names = np.char.lower(rows["type"].to_numpy(dtype=str))
        shares = [title for title in titles if title.startswith("p_")]
        types = tuple(title.removeprefix("p_") for title in shares) or tuple(sorted(set(names)))
        # one name for lymphocytes, whatever the network calls them
        renamed = np.array(["lymphoid" if means_lymphocyte(kind) else kind for kind in types])
        names = np.array(["lymphoid" if means_lymphocyte(kind) else kind for kind in names])
        types = tuple(dict.fromkeys(renamed.tolist()))
        if shares:
            given = rows[shares].to_numpy(dtype=np.float64)
            probabilities = np.stack([given[:, renamed == kind].sum(axis=1) for kind in types], 1)
    else:
        types, names = (), np.full(len(rows), NUCLEUS)
    places = {kind: code for code, kind in enumerate(types)}
    left_out = {"x", "y", "type"}
    columns = {
        title: Column(rows[title].to_numpy(dtype=np.float64), _unit(title))
        for title in titles
        if title not in left_out and not title.startswith("p_") and rows[title].dtype.kind in "if"
    }
    return CellMap(
        rows["x"].to_numpy(dtype=np.float64) * mpp,
        rows["y"].to_numpy(dtype=np.float64) * mpp,
        types,
        np.array([places.get(str(name), -1) for name in names], dtype=np.int64),
        probabilities,
        columns,
    )


def _unit(column: str) -> str:
    parts = column.split("_")
    return UNITS.get(parts[-1]) or UNITS.get(parts[0]) or "1"


def _valid(polygons: list[Polygon], mpp: float) -> list[Any]:
    """Convert outlines in level-0 pixels to valid shapely polygons in µm."""
    shapes = [
        shapely.make_valid(shapely.Polygon(p.exterior * mpp, [hole * mpp for hole in p.holes]))
        for p in polygons
    ]
    return [part for part in shapely.get_parts(shapes) if part.geom_type == "Polygon"]


def _regions(tumor_shapes: list[Any], window: Any) -> RegionMap:
    """Divide the tissue into the tumor and the remaining tissue."""
    from mcp_servers.measures.maps import RegionMap, multipolygon, shape_map

    inside = shapely.intersection(multipolygon(tumor_shapes), window)
    names, shapes = [], []
    for name, area in zip(REGIONS, (inside, shapely.difference(window, inside)), strict=True):
        parts = [part for part in shapely.get_parts(area) if part.geom_type == "Polygon"]
        parts = [part for part in parts if not part.is_empty]
        names += [name] * len(parts)
        shapes += parts
    return shape_map(RegionMap, shapes, names, REGIONS)


def _counts(held: CellMap | ObjectMap | RegionMap | None, names: str) -> dict[str, int]:
    if held is None:
        return {}
    known = enumerate(getattr(held, names))
    found = {name: int((held.codes == code).sum()) for code, name in known}
    bare = int((held.codes < 0).sum())
    return found | ({"unclassified": bare} if bare else {})


class MeasureInput(Given):
    """Maps, and the measurements to compute on them."""

    maps: InputPath = Field(description="maps.json of a slide, or its folder")
    definitions: InputPath = Field(description="File of measurements, one formula per line")
    within: InputPath | None = Field(
        default=None,
        description="GeoJSON of regions, in level-0 pixels: only what is inside them is measured",
    )


class MeasureResult(BaseModel):
    """Values in a file, with the number of defined and valid values."""

    slide: str
    patient: str
    values: OutputName = Field(description="JSON lines, one value per measurement, in order")
    measurements: int
    defined: int
    valid: int
    warnings: list[str] = Field(default_factory=list)


@tool(
    "measure_maps",
    SUITE,
    "1.1.0",
    "Compute measurements (formulas over cells, objects and regions) on the maps of one slide.",
    resources=Resources(cpu=1, memory_mb=1024, seconds_per_item=2.0),
    title="Measure the maps of a slide",
)
def measure_maps(given: MeasureInput, context: ToolContext) -> MeasureResult:
    """Compute a value per line, in the order of the definitions."""
    from mcp_servers.measures.compute import compute
    from mcp_servers.measures.edit import part_of, read_area
    from mcp_servers.measures.formula import read_definitions
    from mcp_servers.measures.maps import MANIFEST, read_maps
    from mcp_servers.measures.prepared import Prepared

    path = context.input(given.maps)
    folder = path.parent if path.name == MANIFEST else path
    definitions = context.input(given.definitions, "file")
    key = ("definitions", str(definitions), definitions.stat().st_mtime_ns)
    measurements = context.share_handle(key, lambda: read_definitions(definitions))
    maps = read_maps(folder)
    warnings: list[str] = []
    if given.within is not None:
        area, warnings = read_area(context.input(given.within, "file"), maps.mpp)
        maps = part_of(maps, area)
    prepared = Prepared(maps)
    lines, defined, valid = [], 0, 0
    for number, measurement in enumerate(measurements):
        if number % 20 == 0:
            context.progress(number / len(measurements), maps.slide)
        value = compute(measurement, prepared)
        defined += value.value is not None
        valid += value.valid
        lines.append(value.model_dump_json(exclude_defaults=True) + "\n")
    with context.writing("values.jsonl") as target:
        target.write_text("".join(lines), encoding="utf-8")
    return MeasureResult(
        slide=maps.slide,
        patient=maps.patient,
        values="values.jsonl",
        measurements=len(measurements),
        defined=defined,
        valid=valid,
        warnings=warnings,
    )
