"""Objects and regions from other programs: QuPath's GeoJSON and HookNet-TLS."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.measures.maps import (
    CellMap,
    Column,
    ObjectMap,
    RegionMap,
    SlideMaps,
    multipolygon,
    shape_map,
)
from sage.core.errors import InputError
from sage_exchange.maps.names import OBJECTS, REGIONS, TYPES, WINDOW, match_name, slug


def read_qupath_geojson(
    path: Path,
    *,
    mpp: float,
    slide: str,
    patient: str,
    types: Mapping[str, str] | None = None,
    notes: list[str],
) -> SlideMaps:
    """Read a slide's cells, objects, regions, and tissue from a QuPath object export.

    Detections and cells become cells, typed by their class. Depending on their class,
    annotations become the tissue (Tissue, Region*), objects (TLS, germinal center, gland,
    vessel), or regions; points of other classes become cells. Annotations without a class are
    omitted and counted. Shape measurements in px are converted to µm.

    Parameters
    ----------
    mpp : µm per pixel; QuPath's coordinates are level-0 pixels
    notes : notes on omissions are added to this list

    Raises
    ------
    InputError
        If the file is not GeoJSON, or none of its features is an area or a point.
    """
    import shapely

    from mcp_servers.formats.geojson import read_objects
    from sage_exchange.maps.tables import column_of

    own = dict(types or {})
    cells: list[tuple[float, float, str, Mapping[str, float]]] = []
    objects: list[tuple[Any, str]] = []
    regions: list[tuple[Any, str]] = []
    window: list[Any] = []
    drawing = read_objects(path)
    notes += drawing.notes
    bare = 0
    for thing in drawing.objects:
        shape = _shape(thing, mpp)
        if thing.kind in ("detection", "cell", "tile"):
            center = shapely.centroid(shape)
            cells.append((center.x, center.y, thing.label, thing.measurements))
        elif not thing.label:
            bare += 1
        elif slug(thing.label) in {slug(word) for word in WINDOW}:
            window.append(shape)
        elif (kind := match_name(thing.label, OBJECTS, own)) in OBJECTS:
            dots = shapely.points(thing.points * mpp)
            objects += [(shape, kind)] if thing.polygons else [(dot, kind) for dot in dots]
        elif not thing.polygons:  # from the points tool: each point is a cell
            cells += [(x, y, thing.label, {}) for x, y in thing.points * mpp]
        else:
            regions.append((shape, match_name(thing.label, REGIONS, own)))
    if bare:
        notes.append(f"{path.name}: {bare} annotations without a class left out; assign classes")
    return SlideMaps(
        slide=slide,
        patient=patient,
        window=multipolygon(window) if window else None,
        cells=_cells(cells, own, mpp, column_of) if cells else None,
        objects=shape_map(ObjectMap, *_columns(objects)) if objects else None,
        regions=shape_map(RegionMap, *_columns(repair_shapes(regions))) if regions else None,
        mpp=mpp,
        provenance=dict.fromkeys(("cells", "objects", "regions"), f"QuPath, {path.name}"),
    )


def _shape(thing: Any, mpp: float) -> Any:
    import shapely

    if not thing.polygons:
        return shapely.MultiPoint(thing.points * mpp).centroid
    parts = [
        shapely.Polygon(p.exterior * mpp, [hole * mpp for hole in p.holes]) for p in thing.polygons
    ]
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)


def repair_shapes(found: list[tuple[Any, str]]) -> list[tuple[Any, str]]:
    """Make invalid outlines valid, preserving the kind of each."""
    return [(shape if shape.is_valid else multipolygon([shape]), kind) for shape, kind in found]


def _columns(found: list[tuple[Any, str]]) -> tuple[list[Any], list[str]]:
    return [shape for shape, _ in found], [kind for _, kind in found]


def _cells(
    found: list[tuple[float, float, str, Mapping[str, float]]],
    own: Mapping[str, str],
    mpp: float,
    column_of: Any,
) -> CellMap:
    names = [match_name(label, TYPES, own) if label else None for _, _, label, _ in found]
    types = tuple(sorted({name for name in names if name is not None}))
    titles = dict.fromkeys(title for *_, measured in found for title in measured)
    columns = {}
    for title in titles:
        name, unit, factor = column_of(title, mpp)
        values = np.array([measured.get(title, np.nan) for *_, measured in found])
        if name not in columns:
            columns[name] = Column(values * factor, unit)
    places = np.array([[x, y] for x, y, *_ in found], dtype=np.float64)
    codes = [-1 if name is None else types.index(name) for name in names]
    return CellMap(
        places[:, 0], places[:, 1], types, np.array(codes, dtype=np.int64), None, columns
    )


def read_hooknet_table(
    path: Path, *, mpp: float, where: Mapping[str, str] | None = None
) -> Iterator[SlideMaps]:
    """Yield each slide's TLS and germinal centers as points from a CSV of name, label, x, and y.

    Slides without any findings have no rows, so they are not yielded.

    Parameters
    ----------
    mpp : µm per pixel of x and y
    where : column values of the rows to keep, such as {"source": "PRED"}

    Raises
    ------
    InputError
        If a column is missing, or a row has no coordinates.
    """
    import pandas as pd
    import shapely

    from mcp_servers.workers.cohort import parse_patient
    from sage_exchange.maps.tables import read_rows

    rows = read_rows(path, where or {}, ("name", "label", "x", "y"))
    for slide, own in rows.groupby("name", sort=True):
        places = own[["x", "y"]].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
        if not np.isfinite(places).all():
            raise InputError(f"{path}: slide {slide} has an object without x and y")
        kinds = [match_name(str(label), OBJECTS, {}) for label in own["label"]]
        held = own["bcr_patient_barcode"].iloc[0] if "bcr_patient_barcode" in own else None
        points = list(shapely.points(places * mpp))
        yield SlideMaps(
            slide=str(slide),
            patient=str(held) if isinstance(held, str) else parse_patient(Path(str(slide))),
            objects=shape_map(ObjectMap, points, kinds, ["tls", "germinal_center"]),
            mpp=mpp,
            provenance={"objects": f"HookNet-TLS, {path.name}"},
        )


def read_hooknet_json(path: Path, *, mpp: float, slide: str, patient: str) -> SlideMaps:
    """Read a slide's TLS and germinal centers from HookNet-TLS annotations.

    The file is a list of `{"coordinates": [[x, y], ...], "label": {"name": "tls" or "gc"}}`
    in level-0 pixels, as written by wholeslidedata.

    Parameters
    ----------
    mpp : micrometers per level-0 pixel

    Raises
    ------
    InputError
        If the file does not have this form.
    """
    import shapely

    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: invalid JSON: {error}") from None
    shapes, kinds = [], []
    for number, thing in enumerate(data if isinstance(data, list) else [None]):
        try:
            ring = np.asarray(thing["coordinates"], dtype=np.float64)[:, :2] * mpp
            label = thing["label"]
            name = label["name"] if isinstance(label, dict) else label
            shape = multipolygon([shapely.Polygon(ring)])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"{path}: annotation {number} requires coordinates and a label with a name "
                f"({error})"
            ) from None
        shapes.append(shape)
        kinds.append(match_name(str(name), OBJECTS, {}))
    return SlideMaps(
        slide=slide,
        patient=patient,
        objects=shape_map(ObjectMap, shapes, kinds, ["tls", "germinal_center"]),
        mpp=mpp,
        provenance={"objects": f"HookNet-TLS, {path.name}"},
    )
