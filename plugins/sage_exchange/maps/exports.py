"""Export of maps to the formats of other programs.

AnnData (cells only) and SpatialData (everything) are in µm; QuPath's GeoJSON (everything) is in
pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mcp_servers.context import remove_path
from mcp_servers.measures.maps import CellMap, SlideMaps
from sage.core.errors import InputError
from sage.core.extras import require_extra
from sage.core.files import replacing


def to_anndata(maps: SlideMaps) -> Any:
    """Convert cells to AnnData: columns in X and var, types in obs, centers (µm) in obsm.

    Raises
    ------
    InputError
        If the slide has no cells.
    """
    require_extra("spatialdata", "an AnnData file")
    import anndata
    import numpy as np
    import pandas as pd

    if maps.cells is None:
        raise InputError(f"{maps.slide}: the maps have no cells to export to AnnData")
    cells = maps.cells
    names = list(cells.columns)
    matrix = np.column_stack([cells.columns[name].values for name in names]) if names else None
    observed = pd.DataFrame(
        {"type": pd.Categorical.from_codes(cells.codes, pd.Index(cells.types))},
        index=np.arange(len(cells)).astype(str),
    )
    units = pd.DataFrame({"unit": [cells.columns[name].unit for name in names]}, index=names)
    table = anndata.AnnData(
        matrix if matrix is not None else np.empty((len(cells), 0)), obs=observed, var=units
    )
    table.obsm["spatial"] = cells.points
    if cells.probabilities is not None:
        table.obsm["type_probability"] = cells.probabilities
    table.uns["sage"] = describe_maps(maps) | {"types": list(cells.types)}
    return table


def write_anndata(maps: SlideMaps, path: Path) -> None:
    """Write the result of `to_anndata` as an .h5ad file."""
    table = to_anndata(maps)
    with replacing(path) as part:
        table.write_h5ad(part)


def write_spatialdata(maps: SlideMaps, path: Path) -> None:
    """Write a SpatialData store in µm: points `cells`; shapes `objects`, `regions`, `window`.

    Raises
    ------
    InputError
        If the maps are empty.
    """
    require_extra("spatialdata", "a SpatialData store")
    from mcp_servers.formats.spatial import write_store

    elements: dict[str, Any] = {}
    if maps.cells is not None and len(maps.cells):
        elements["cells"] = _points(maps.cells)
    for name, shapes in (("objects", maps.objects), ("regions", maps.regions)):
        if shapes is not None and len(shapes):
            kinds = [shapes.kinds[code] for code in shapes.codes]
            elements[name] = _shapes(shapes.shapes, kinds)
    if maps.window is not None:
        elements["window"] = _shapes([maps.window], ["window"])
    if not elements:
        raise InputError(f"{maps.slide}: the maps are empty, with nothing to export")
    part = path.with_name(f".{path.name}.part")
    try:
        write_store(part, elements, describe_maps(maps))
        remove_path(path)
        part.rename(path)
    finally:
        remove_path(part)


def write_qupath(maps: SlideMaps, path: Path) -> None:
    """Write GeoJSON for QuPath, with detections and annotations in level-0 pixels.

    Raises
    ------
    InputError
        If the slide's pixel size is unknown.
    """
    from mcp_servers.formats.geojson import write_geojson

    if maps.mpp is None:
        raise InputError(f"{maps.slide}: QuPath uses pixels, but the slide's pixel size is unknown")
    with replacing(path) as part:
        write_geojson(part, _features(maps, maps.mpp))


def _features(maps: SlideMaps, mpp: float) -> Iterator[dict[str, Any]]:
    import json

    import shapely

    def feature(shape: Any, kind: str, label: str | None, measured: Any = None) -> dict[str, Any]:
        properties: dict[str, Any] = {"objectType": kind}
        if label is not None:
            properties["classification"] = {"name": label}
        if measured:
            properties["measurements"] = measured
        pixels = shapely.transform(shape, lambda points: points / mpp)
        geometry = json.loads(shapely.to_geojson(pixels))
        return {"type": "Feature", "geometry": geometry, "properties": properties}

    if maps.window is not None:
        yield feature(maps.window, "annotation", "Tissue")
    for shapes in (maps.regions, maps.objects):
        if shapes is not None:
            for shape, code in zip(shapes.shapes, shapes.codes, strict=True):
                yield feature(shape, "annotation", shapes.kinds[code])
    if maps.cells is not None:
        cells = maps.cells
        for number, (point, code) in enumerate(zip(cells.points, cells.codes, strict=True)):
            measured = {
                QUPATH_UNITS.get(column.unit, "{}").format(name): float(column.values[number])
                for name, column in cells.columns.items()
                if column.values[number] == column.values[number]  # JSON has no NaN
            }
            label = cells.types[code] if code >= 0 else None
            yield feature(shapely.Point(point), "detection", label, measured)


QUPATH_UNITS = {"µm": "{} µm", "µm²": "{} µm^2"}
"""Units as QuPath writes them in column titles."""


def _points(cells: CellMap) -> Any:
    import numpy as np
    import pandas as pd
    from spatialdata.models import PointsModel

    names = np.array([*cells.types, ""], dtype=object)
    frame = pd.DataFrame({"x": cells.x_um, "y": cells.y_um, "type": names[cells.codes]})
    for name, column in cells.columns.items():
        frame[name] = column.values
    if cells.probabilities is not None:
        for code, name in enumerate(cells.types):
            frame[f"p_{name}"] = cells.probabilities[:, code]
    return PointsModel.parse(frame, coordinates={"x": "x", "y": "y"}, transformations=_um())


def _shapes(shapes: Any, kinds: list[str]) -> Any:
    import geopandas
    import numpy as np
    from spatialdata.models import ShapesModel

    frame = geopandas.GeoDataFrame({"kind": kinds}, geometry=list(shapes))
    if (frame.geom_type == "Point").any():
        frame["radius"] = np.ones(len(frame))  # required by the model; a point has no extent here
    return ShapesModel.parse(frame, transformations=_um())


def _um() -> dict[str, Any]:
    from spatialdata.transformations import Identity

    return {"um": Identity()}


def describe_maps(maps: SlideMaps) -> dict[str, Any]:
    """Describe maps by slide, patient, unit, resolution, and provenance."""
    about: dict[str, Any] = {"slide": maps.slide, "patient": maps.patient, "unit": "um"}
    if maps.mpp is not None:
        about["mpp"] = maps.mpp
    about["provenance"] = dict(maps.provenance)
    about["outside_card"] = list(maps.outside_card)
    return about


EXPORTS: dict[str, tuple[str, Callable[[SlideMaps, Path], None]]] = {
    "anndata": (".h5ad", write_anndata),
    "qupath": (".geojson", write_qupath),
    "spatialdata": (".zarr", write_spatialdata),
}
"""File suffix and writer for each export format, by name."""
