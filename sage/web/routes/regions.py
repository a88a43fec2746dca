"""Routes for regions that people draw on slides, their measurements, and maps of values."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import Field, field_validator

from sage.core import clock
from sage.core.errors import InputError
from sage.core.files import write_bytes
from sage.core.hashes import hash_file
from sage.core.models import Strict
from sage.core.printable import clean_text
from sage.web.people import check_count, person
from sage.web.routes.slides import resolve_allowed, slide_file

if TYPE_CHECKING:
    from mcp_servers.measures.language import Measurement
    from mcp_servers.measures.maps import SlideMaps
    from sage.web.site import Site

router = APIRouter(prefix="/slides")
SAVING = threading.Lock()
READING = threading.Lock()
MOST_REGIONS = 500
MOST_CORNERS = 2000
MOST_MEASURED = 60
CARD = 12
"""Number of measurements shown until the user makes a selection."""
KEPT = 4
"""Number of maps cached in memory."""
FOLDER = ".regions"
MOST_MM2 = 4.0
"""Largest area in mm² for interactive nucleus detection, which takes about half a minute."""
SEARCHING = threading.Lock()


class Region(Strict):
    """A hand-drawn outline: its label and its corners in level-0 pixels, not closed."""

    label: str = Field(default="", max_length=80)
    corners: tuple[tuple[float, float], ...] = Field(min_length=3, max_length=MOST_CORNERS)

    @field_validator("corners")
    @classmethod
    def _is_plain(cls, corners: tuple[tuple[float, float], ...]) -> Any:
        import shapely

        if not all(abs(value) < 1e9 for corner in corners for value in corner):
            raise ValueError("a corner is off the slide")
        shape = shapely.Polygon(corners)
        if not shape.is_valid or shape.area < 1:
            raise ValueError("an outline intersects itself or is empty")
        return corners


class Drawn(Strict):
    """All regions of a slide, as saved by a person."""

    slide: str
    person: str = Field(default="", max_length=80)
    base: str = Field(default="", max_length=64, description="Hash of the file they began with")
    regions: tuple[Region, ...] = Field(max_length=MOST_REGIONS)


def regions_path(site: Site, slide: Path) -> Path:
    """Return the path to a slide's regions, outside its folder, which may be read-only."""
    digest = hashlib.sha256(str(slide).encode()).hexdigest()[:12]
    return site.settings.runs_dir / FOLDER / f"{slide.stem}.{digest}.geojson"


@router.get("/regions")
def regions(path: str, request: Request) -> dict[str, Any]:
    """Return a slide's regions, the file that contains them, and its hash."""
    from mcp_servers.formats.geojson import read_objects

    file = regions_path(request.app.state.site, slide_file(request, path))
    found = read_objects(file).objects if file.is_file() else ()
    return {
        "file": str(file),
        "base": _hash(file),
        "regions": [
            {"label": thing.label, "corners": polygon.exterior.tolist()}
            for thing in found
            for polygon in thing.polygons
        ],
    }


@router.post("/regions")
def save(drawn: Drawn, request: Request) -> dict[str, Any]:
    """Save a slide's regions as GeoJSON that QuPath and the tools can read.

    Raises
    ------
    InputError
        If a corner is outside the slide, or someone else has saved in the meantime; status
        422.
    """
    import numpy as np

    from mcp_servers.formats.geojson import feature
    from mcp_servers.slides.geometry import Polygon

    place = slide_file(request, drawn.slide)
    slide = request.app.state.tiles.slide(place)
    who = person(request, drawn.person)
    features = []
    for number, region in enumerate(drawn.regions, 1):
        ring = np.asarray(region.corners, dtype=np.float64)
        if (ring < 0).any() or (ring > (slide.width, slide.height)).any():
            raise InputError(f"region {number} is off the slide")
        item = feature(Polygon(ring, (), clean_text(region.label)))
        item["properties"] |= {"drawn_by": who, "saved": clock.stamp()}
        features.append(item)
    file = regions_path(request.app.state.site, place)
    collection = {"type": "FeatureCollection", "features": features}
    with SAVING:
        if _hash(file) != drawn.base:
            raise InputError(
                "the regions on this slide have changed in the meantime; reload the page"
            )
        _keep_authors(file, features)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, json.dumps(collection, ensure_ascii=False, allow_nan=False).encode())
        return {"file": str(file), "base": _hash(file)}


def _keep_authors(file: Path, features: list[dict[str, Any]]) -> None:
    """Keep the original author of each region left unchanged by this person."""
    before = json.loads(file.read_bytes())["features"] if file.is_file() else []
    for item in features:
        for old in before:
            same = old["geometry"] == item["geometry"]
            if same and old["properties"].get("classification") == item["properties"].get(
                "classification"
            ):
                item["properties"] |= {
                    key: old["properties"][key]
                    for key in ("drawn_by", "saved")
                    if key in old["properties"]
                }


def _hash(file: Path) -> str:
    return hash_file(file) if file.is_file() else ""


def _maps(request: Request, path: str) -> SlideMaps:
    """Load the maps in a folder below the roots, cached until they change."""
    from mcp_servers.measures.maps import MANIFEST, read_maps

    place = resolve_allowed(request.app.state.site, path, lambda at: (at / MANIFEST).is_file())
    key = (place, (place / MANIFEST).stat().st_mtime_ns)
    with READING:
        kept: dict[Any, SlideMaps] = request.app.state.maps
        if key not in kept:
            while len(kept) >= KEPT:
                kept.pop(next(iter(kept)))
            kept[key] = read_maps(place)
        return kept[key]


def _mpp(request: Request, slide: str, maps: SlideMaps) -> float:
    mpp = request.app.state.tiles.slide(slide_file(request, slide)).mpp or maps.mpp
    if not mpp:
        raise InputError("the pixel size is unknown: neither the slide nor the maps specify it")
    return float(mpp)


@router.get("/heat")
def heat(
    path: str, slide: str, request: Request, quantity: str = "density", kind: str = ""
) -> dict[str, Any]:
    """Compute values on a grid over a slide, in level-0 pixels, with their unit and range.

    Parameters
    ----------
    quantity : "density" of cells, or the "share" of a cell type
    kind : a cell type; empty for all types

    Raises
    ------
    InputError
        If the maps do not contain the requested values; returned to the client with status
        422.
    """
    import numpy as np

    from mcp_servers.measures.heat import heat as make

    maps = _maps(request, path)
    mpp = _mpp(request, slide, maps)
    if quantity not in ("density", "share"):
        raise InputError('a map must show the "density" or the "share" of cells')
    found = make(maps, "density" if quantity == "density" else "share", kind[:60])
    known = found.values[np.isfinite(found.values)]
    return {
        "words": found.words,
        "unit": found.unit.removeprefix("1"),
        "side_um": found.side_um,
        "side": found.side_um / mpp,
        "x": np.round(found.corners[:, 0] / mpp, 1).tolist(),
        "y": np.round(found.corners[:, 1] / mpp, 1).tolist(),
        "values": [float(f"{v:.4g}") if np.isfinite(v) else None for v in found.values],
        "low": 0.0,
        "high": float(np.quantile(known, 0.99)) or 1.0 if len(known) else 1.0,
        "most": float(known.max()) if len(known) else 0.0,
    }


class Asked(Strict):
    """A request for measurements on a slide's maps."""

    maps: str
    slide: str
    formulas: tuple[str, ...] = Field(default=(), max_length=MOST_MEASURED)
    regions: tuple[Region, ...] = Field(default=(), max_length=MOST_REGIONS)


@router.post("/measure")
def measure(asked: Asked, request: Request) -> dict[str, Any]:
    """Compute measurements of the whole slide and, if regions are given, within them.

    A measurement is computed as in `measure_maps`, with the same rules for undefined values.
    Nothing is stored.

    Returns
    -------
    For each measurement, its description, formula and unit, its value in the tissue and in
    the regions (null with the reason if undefined), and the field that contributes most to
    it; the other measurements that the maps allow; and the reason why values are not
    considered valid.

    Raises
    ------
    InputError
        If a formula cannot be parsed, or the regions contain no tissue; returned with status
        422.
    """
    import numpy as np

    from mcp_servers.measures.compute import compute
    from mcp_servers.measures.edit import area_of, part_of
    from mcp_servers.measures.formula import parse
    from mcp_servers.measures.picture import densest_field
    from mcp_servers.measures.prepared import Prepared

    check_count(request)
    maps = _maps(request, asked.maps)
    mpp = _mpp(request, asked.slide, maps)
    offered = _list_offered(maps)
    chosen = [parse(text[:2000]) for text in asked.formulas] or _card(offered)
    whole = Prepared(maps)
    here = None
    if asked.regions:
        rings = [np.asarray(region.corners) for region in asked.regions]
        here = Prepared(part_of(maps, area_of(rings, mpp)))
    rows = []
    for measurement in chosen:
        x, y, side = densest_field(measurement, maps)
        rows.append(
            {
                "formula": measurement.formula,
                "words": _words(measurement),
                "unit": measurement.unit.removeprefix("1"),
                "whole": compute(measurement, whole).model_dump(include={"value", "why_not"}),
                "here": compute(measurement, here).model_dump(include={"value", "why_not"})
                if here
                else None,
                "place": {"x": x / mpp, "y": y / mpp, "side": side / mpp},
            }
        )
    return {
        "rows": rows,
        "offered": [{"formula": item.formula, "words": _words(item)} for item in offered],
        "outside_card": list(maps.outside_card),
        "tissue_mm2": [_mm2(whole), _mm2(here)],
    }


class Searched(Strict):
    """A region to search for nuclei, and the pixel size if the file does not state it."""

    slide: str
    region: Region
    mpp: float | None = Field(default=None, gt=0, le=100)


@router.post("/nuclei")
def nuclei(asked: Searched, request: Request) -> dict[str, Any]:
    """Detect nuclei and their outlines within a region using the `nuclei` tool; store nothing.

    Returns
    -------
    Counts by type, the area searched, the method, warnings, and outlines in level-0 pixels
    with their types.

    Raises
    ------
    InputError
        If the person's slide quota for today is used up, the region is too large, or the
        pixel size is unknown; returned to the client with status 422.
    """
    import tempfile

    import numpy as np
    import shapely

    from mcp_servers.context import ToolContext
    from mcp_servers.formats.geojson import feature, read_objects
    from mcp_servers.pathology.nuclei import NucleiInput, segment_nuclei
    from mcp_servers.registry import execute
    from mcp_servers.roots import Roots
    from mcp_servers.slides.geometry import Polygon
    from mcp_servers.spec import ATTRIBUTE

    check_count(request)
    place = slide_file(request, asked.slide)
    slide = request.app.state.tiles.slide(place)
    mm2 = shapely.Polygon(asked.region.corners).area * ((asked.mpp or slide.need_mpp()) / 1000) ** 2
    if mm2 > MOST_MM2:
        raise InputError(
            f"the region covers {mm2:.3g} mm², but nuclei are detected in at most {MOST_MM2:g} mm² "
            "here; use `sage tools run nuclei` for larger regions"
        )
    ring = np.asarray(asked.region.corners, dtype=np.float64)
    with SEARCHING, tempfile.TemporaryDirectory(prefix="sage-nuclei-") as folder:
        drawn = {"type": "FeatureCollection", "features": [feature(Polygon(ring, (), "region"))]}
        file = Path(folder) / "region.geojson"
        write_bytes(file, json.dumps(drawn).encode())
        roots = Roots.resolve([*request.app.state.site.roots, folder], Path(folder) / "out")
        given = NucleiInput(slide=str(place), regions=str(file), mpp=asked.mpp)
        ran = execute(getattr(segment_nuclei, ATTRIBUTE), given, ToolContext(roots))
        found = ran.result
        outlined = found["geojson"] and roots.output / found["geojson"]
        shapes = [
            {"kind": thing.label, "rings": [polygon.exterior.tolist()]}
            for thing in (read_objects(outlined).objects if outlined else ())
            for polygon in thing.polygons
        ]
    counted = ("nuclei", "types", "area_mm2", "nuclei_per_mm2", "method", "at_mpp", "warnings")
    return {name: found[name] for name in counted} | {"shapes": shapes}


def _words(measurement: Measurement) -> str:
    words = measurement.of.words
    return words[:1].upper() + words[1:]


def _mm2(prepared: Any) -> float | None:
    area = prepared.maps.area_um2 if prepared else None
    return None if area is None else area / 1e6


def _list_offered(maps: SlideMaps) -> list[Measurement]:
    from mcp_servers.measures.enumeration import enumerate_measurements

    return enumerate_measurements(
        maps.cells.types if maps.cells else (),
        maps.objects.kinds if maps.objects else (),
        maps.regions.kinds if maps.regions else (),
        {name: column.unit for name, column in maps.cells.columns.items()} if maps.cells else {},
        "standard",
    )


def _card(offered: list[Measurement]) -> list[Measurement]:
    """Select the measurements that best describe a region: densities, shares and counts."""
    simple = [m for m in offered if m.of.formula.startswith(("density(", "share(", "count("))]
    tissue = [m for m in simple if "within=" not in m.formula]
    return (tissue or simple or offered)[:CARD]
