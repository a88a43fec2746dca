"""Maps in AnnData and SpatialData, read back by their own readers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import shapely

from mcp_servers.measures.maps import CellMap, Column, ObjectMap, RegionMap, SlideMaps, shape_map
from sage.core.errors import InputError
from sage_exchange.maps.exports import write_anndata, write_qupath, write_spatialdata

pytestmark = pytest.mark.skipif(
    find_spec("spatialdata") is None, reason="SpatialData is not installed"
)


@pytest.fixture
def maps() -> SlideMaps:
    rng = np.random.default_rng(3)
    count = 40
    cells = CellMap(
        rng.uniform(0, 500, count),
        rng.uniform(0, 500, count),
        ("lymphoid", "neoplastic"),
        rng.integers(-1, 2, count),
        rng.dirichlet((1, 1), count),
        {"area_um2": Column(rng.uniform(10, 90, count), "µm²")},
    )
    tls = shape_map(ObjectMap, [shapely.Point(5, 6), shapely.box(0, 0, 9, 9)], ["tls", "tls"])
    tumor = shape_map(RegionMap, [shapely.box(0, 0, 200, 300)], ["tumor"])
    window = shapely.MultiPolygon([shapely.box(0, 0, 500, 500)])
    return SlideMaps("s", "p", window, cells, tls, tumor, 0.5, {"cells": "test 1"})


def test_anndata_reads_back(tmp_path: Path, maps: SlideMaps) -> None:
    import anndata

    write_anndata(maps, tmp_path / "s.h5ad")
    read = anndata.read_h5ad(tmp_path / "s.h5ad")
    assert maps.cells is not None
    np.testing.assert_array_equal(read.obsm["spatial"], maps.cells.points)
    np.testing.assert_array_equal(read.obs["type"].cat.codes, maps.cells.codes)
    np.testing.assert_array_equal(
        read[:, "area_um2"].X[:, 0], maps.cells.columns["area_um2"].values
    )
    assert read.var.loc["area_um2", "unit"] == "µm²"
    assert read.uns["sage"]["patient"] == "p"
    with pytest.raises(InputError, match="no cells"):
        write_anndata(SlideMaps("s", "p"), tmp_path / "none.h5ad")


def test_qupath_reads_back(tmp_path: Path, maps: SlideMaps) -> None:
    from mcp_servers.formats.geojson import read_objects
    from sage_exchange.maps.outlines import read_qupath_geojson

    path = tmp_path / "s.geojson"
    write_qupath(maps, path)
    kinds = [thing.kind for thing in read_objects(path).objects]
    assert (kinds.count("annotation"), kinds.count("detection")) == (4, 40)
    read = read_qupath_geojson(path, mpp=0.5, slide="s", patient="p", notes=[])
    assert maps.cells is not None
    assert read.cells is not None
    np.testing.assert_allclose(read.cells.points, maps.cells.points, atol=1e-9)
    assert read.cells.types == maps.cells.types
    np.testing.assert_array_equal(read.cells.codes, maps.cells.codes)
    areas = (read.cells.columns["area_um2"], maps.cells.columns["area_um2"])
    assert areas[0].unit == areas[1].unit
    np.testing.assert_allclose(areas[0].values, areas[1].values)
    assert read.regions is not None
    assert maps.regions is not None
    assert read.window.equals(maps.window)
    assert shapely.equals(read.regions.shapes, maps.regions.shapes).all()
    assert read.objects is not None
    assert read.objects.kinds == ("tls",)
    with pytest.raises(InputError, match="pixel size is unknown"):
        write_qupath(SlideMaps("s", "p"), tmp_path / "none.geojson")


def test_spatialdata_reads_back(tmp_path: Path, maps: SlideMaps) -> None:
    import spatialdata

    for _ in range(2):  # a store that is there is replaced whole
        write_spatialdata(maps, tmp_path / "s.zarr")
    read = spatialdata.read_zarr(tmp_path / "s.zarr")
    assert maps.cells is not None
    points = read.points["cells"].compute()
    np.testing.assert_array_equal(points[["x", "y"]].to_numpy(), maps.cells.points)
    np.testing.assert_array_equal(points["area_um2"], maps.cells.columns["area_um2"].values)
    assert (points["type"] == "").sum() == (maps.cells.codes == -1).sum()
    assert list(read.shapes["objects"].geom_type) == ["Point", "Polygon"]
    assert read.shapes["regions"].area.tolist() == [60_000.0]
    assert read.shapes["window"].area.tolist() == [250_000.0]
    assert read.coordinate_systems == ["um"]
    with pytest.raises(InputError, match="nothing to export"):
        write_spatialdata(SlideMaps("s", "p"), tmp_path / "none.zarr")
