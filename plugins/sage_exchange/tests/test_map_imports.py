"""Maps of other programs: units, types, what is missing, and nothing lost on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_servers.measures.maps import SlideMaps, read_maps
from sage.core.errors import InputError
from sage_exchange.maps.cells import read_cells_json
from sage_exchange.maps.names import TYPES, check_own, match_name, slug
from sage_exchange.maps.outlines import read_hooknet_json, read_hooknet_table, read_qupath_geojson
from sage_exchange.maps.tables import TableMapping, column_of, preset, read_table

SPATIAL = Path(__file__).resolve().parents[4] / "shared" / "data" / "spatial"
SQUARE = [[0, 0], [10, 0], [10, 10], [0, 10]]


def counts(maps: SlideMaps) -> dict[str, int]:
    assert maps.cells is not None
    return {
        name: int((maps.cells.codes == code).sum()) for code, name in enumerate(maps.cells.types)
    }


CELLVIT = {
    "wsi_metadata": {"extension": "svs", "base_mpp": 0.25},
    "type_map": {"0": "Background", "1": "Neoplastic", "2": "Inflammatory", "9": "Weird Cell"},
    "cells": [
        {"bbox": [[0, 0], [10, 10]], "centroid": [5.0, 6.0], "contour": SQUARE, "type": 1,
         "type_prob": 0.9},
        {"bbox": [[0, 0], [10, 10]], "centroid": [50.5, 60.5], "contour": SQUARE, "type": 9,
         "type_prob": 0.4},
    ],
}  # fmt: skip
HOVERNET = {
    "mag": 40,
    "nuc": {
        "1": {"bbox": [[0, 0], [10, 10]], "centroid": [5.0, 6.0], "contour": SQUARE,
              "type_prob": 0.9, "type": 1},
        "2": {"bbox": [[0, 0], [10, 10]], "centroid": [50.5, 60.5], "contour": SQUARE,
              "type_prob": 0.4, "type": 7},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "types"),
    [
        (CELLVIT, {"neoplastic": 1, "inflammatory": 0, "other_weird_cell": 1}),
        (
            HOVERNET,
            {"neoplastic": 1, "inflammatory": 0, "stromal": 0, "dead": 0, "epithelial": 0,
             "other_type_7": 1},
        ),
    ],
)  # fmt: skip
def test_cells_of_cellvit_and_hovernet(tmp_path: Path, data: Any, types: dict[str, int]) -> None:
    path = tmp_path / "cells.json"
    path.write_text(json.dumps(data))
    maps = read_cells_json(path, mpp=0.25, slide="s", patient="p", window="none")
    assert counts(maps) == types
    assert maps.cells is not None
    assert maps.cells.points.tolist() == [[1.25, 1.5], [12.625, 15.125]]
    assert maps.cells.columns["area_um2"].values.tolist() == [6.25, 6.25]
    assert maps.cells.columns["perimeter_um"].values.tolist() == [10.0, 10.0]
    assert maps.cells.columns["type_probability"].values.tolist() == [0.9, 0.4]
    assert maps.window is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "invalid JSON"),
        ('{"a": 1}', "not written by CellViT"),
        ('{"cells": [{"centroid": [1, "x"]}]}', "no centroid"),
        ('{"nuc": {"1": {"centroid": [1, NaN]}}}', "the centroid of cell"),
    ],
)
def test_broken_json_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(InputError, match=said):
        read_cells_json(tmp_path / "c.json", mpp=0.5, slide="s", patient="p")


def feature(kind: str, label: str | None, ring: Any, **measurements: float) -> dict[str, Any]:
    properties: dict[str, Any] = {"objectType": kind, "measurements": measurements}
    if label is not None:
        properties["classification"] = {"name": label, "color": [1, 2, 3]}
    closed = [*ring, ring[0]]
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [closed]},
        "properties": properties,
    }


def test_objects_of_qupath(tmp_path: Path) -> None:
    big = [[0, 0], [100, 0], [100, 100], [0, 100]]
    bow = [[0, 0], [10, 10], [10, 0], [0, 10]]
    features = [
        feature("cell", "Tumor: Positive", SQUARE, **{"Nucleus: Area µm^2": 25.0, "Area px^2": 4}),
        feature("detection", "Immune cells", SQUARE),
        feature("detection", None, SQUARE),
        feature("annotation", "Tissue", big),
        feature("annotation", "TLS", SQUARE),
        feature("annotation", "Tumor", big),
        feature("annotation", "Necrosis", bow),
        feature("annotation", "Fold", SQUARE),
        feature("annotation", None, SQUARE),
    ]
    dots = feature("annotation", "Mitosis", SQUARE)
    dots["geometry"] = {"type": "MultiPoint", "coordinates": [[2, 2], [4, 6]]}
    features.append(dots)
    path = tmp_path / "s.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    maps = read_qupath_geojson(path, mpp=0.5, slide="s", patient="p", notes=[])
    assert counts(maps) == {"inflammatory": 1, "mitosis": 2, "neoplastic_positive": 1}
    assert maps.cells is not None
    assert maps.cells.points[0].tolist() == [2.5, 2.5]
    assert (maps.cells.codes == -1).sum() == 1
    assert maps.cells.columns["nucleus_area_um2"].values[0] == 25.0
    assert maps.cells.columns["area_um2"].values[0] == 1.0
    assert maps.cells.columns["area_um2"].unit == "µm²"
    assert maps.area_um2 == 2500.0
    assert maps.objects is not None
    assert maps.regions is not None
    assert maps.objects.kinds == ("tls",)
    assert set(maps.regions.kinds) == {"tumor", "necrosis", "other_fold"}
    assert shapely.is_valid(maps.regions.shapes).all()


def tsv(path: Path, rows: list[dict[str, Any]]) -> Path:
    pd.DataFrame(rows).to_csv(path, sep="\t", index=False)
    return path


def test_measurements_of_qupath_in_both_units(tmp_path: Path) -> None:
    rows = [
        {"Image": "a.svs", "Classification": "Tumor", "Centroid X µm": 3.0, "Centroid Y µm": 4.0,
         "Nucleus: Area µm^2": 30.0},
        {"Image": "b.svs", "Classification": "Odd", "Centroid X µm": 5.0, "Centroid Y µm": 6.0,
         "Nucleus: Area µm^2": 40.0},
    ]  # fmt: skip
    path = tsv(tmp_path / "m.tsv", rows)
    first, second = read_table(path, preset("qupath", path))
    assert (first.slide, first.patient, counts(first)) == (
        "a.svs", "a", {"neoplastic": 1, "other_odd": 0},
    )  # fmt: skip
    assert second.cells is not None
    assert second.cells.columns["nucleus_area_um2"].values.tolist() == [40.0]
    with pytest.raises(InputError, match="already in µm"):
        list(read_table(path, preset("qupath", path), mpp=0.5))
    pixels = [
        {key.replace("µm^2", "px^2").replace("µm", "px"): value for key, value in row.items()}
        for row in rows
    ]
    path = tsv(tmp_path / "p.tsv", pixels)
    mapping = preset("qupath", path)
    with pytest.raises(InputError, match="are in pixels"):
        list(read_table(path, mapping))
    (first, _) = read_table(path, mapping, mpp=0.5)
    assert first.cells is not None
    assert first.cells.points.tolist() == [[1.5, 2.0]]
    assert first.cells.columns["nucleus_area_um2"].values.tolist() == [7.5]


def test_cells_of_inform(tmp_path: Path) -> None:
    rows = [
        {"Sample Name": "f1.im3", "Tissue Category": "tumor", "Phenotype": kind,
         "Cell X Position": 10 * number, "Cell Y Position": 7, "Nucleus Area (pixels)": 100,
         "Entire Cell Area (pixels)": 200}
        for number, kind in enumerate(["CD8+", "CK+", "other", ""])
    ]  # fmt: skip
    path = tsv(tmp_path / "f_cell_seg_data.txt", rows)
    mapping = preset("inform", path)
    own = {"CK+": "neoplastic"}
    (maps,) = read_table(path, mapping, mpp=0.5, types=own, window="box", patient="p7")
    assert counts(maps) == {"cd8_t_cell": 1, "neoplastic": 1, "other": 1}
    assert maps.cells is not None
    assert (maps.cells.codes == -1).sum() == 1
    assert maps.patient == "p7"
    assert maps.cells.columns["nucleus_area_um2"].values.tolist() == [25.0] * 4
    assert maps.window is None  # all on a line: no area to speak of
    tumor_only = {"Tissue Category": "stroma"}
    with pytest.raises(InputError, match="no rows left"):
        list(read_table(path, mapping, mpp=0.5, where=tumor_only))
    both = [{**row, "Membrane Area (square microns)": 3} for row in rows]
    with pytest.raises(InputError, match="pixels or microns"):
        preset("inform", tsv(tmp_path / "both.txt", both))
    consolidated = [
        {"Sample Name": "f", "Phenotype CD8": first, "Phenotype FoxP3": two, "Cell X Position": 1,
         "Cell Y Position": 2, "Nucleus Area (square microns)": 30}
        for first, two in (("CD8+", "FoxP3-"), ("CD8-", "FoxP3+"), ("CD8-", "FoxP3-"))
    ]  # fmt: skip
    path = tsv(tmp_path / "consolidated.txt", consolidated)
    (maps,) = read_table(path, preset("inform", path))
    assert counts(maps) == {"cd8_t_cell": 1, "other_negative": 1, "regulatory_t_cell": 1}


def test_objects_of_steinbock(tmp_path: Path) -> None:
    rows = [
        {"Image": "i1.tiff", "Object": 1, "CD3": 0.5, "area": 40, "centroid-0": 20.0,
         "centroid-1": 10.0, "major_axis_length": 8.0},
    ]  # fmt: skip
    path = tmp_path / "objects.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    (maps,) = read_table(path, preset("steinbock", path), mpp=1.0)
    assert maps.cells is not None
    assert maps.cells.points.tolist() == [[10.0, 20.0]]
    units = {name: column.unit for name, column in maps.cells.columns.items()}
    assert units == {"cd3": "1", "area_um2": "µm²", "major_axis_length_um": "µm"}


def test_objects_of_hooknet(tmp_path: Path) -> None:
    ring = [[0, 0], [100, 0], [100, 100], [0, 100], [0, 0]]
    data = [
        {"type": "polygon", "index": 0, "coordinates": ring, "label": {"name": "tls", "value": 2}},
        {"type": "polygon", "index": 1, "coordinates": ring, "label": {"name": "gc", "value": 3}},
    ]
    path = tmp_path / "s_filtered.json"
    path.write_text(json.dumps(data))
    maps = read_hooknet_json(path, mpp=0.5, slide="s", patient="p")
    assert maps.objects is not None
    assert maps.objects.kinds == ("tls", "germinal_center")
    assert shapely.area(maps.objects.shapes).tolist() == [2500.0, 2500.0]
    path.write_text(json.dumps([{"coordinates": [[0, 0], [1, 1]], "label": {"name": "tls"}}]))
    with pytest.raises(InputError, match="annotation 0"):
        read_hooknet_json(path, mpp=0.5, slide="s", patient="p")


def test_a_slide_of_two_patients_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("image,who,x,y\n1,a,0,0\n1,b,1,1\n")
    mapping = TableMapping(x="x", y="y", unit="um", slide="image", patient="who")
    with pytest.raises(InputError, match="belong to 2 patients"):
        list(read_table(tmp_path / "c.csv", mapping))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("x,y\n1,\n", "row 2 has no number"),
        ("x,y\n1,inf\n", "row 2 has no number"),
        ("x\n1\n", 'unknown column "y"'),
        ("x,y\n", "no row"),
    ],
)
def test_a_broken_table_is_refused(tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "c.csv").write_text(table)
    with pytest.raises(InputError, match=said):
        list(read_table(tmp_path / "c.csv", TableMapping(x="x", y="y", unit="um")))


@given(text=st.text(max_size=80))
@settings(max_examples=300, deadline=None)
def test_every_text_becomes_a_name_that_maps_may_have(text: str) -> None:
    name = match_name(text, TYPES, {})
    check_own({"x": name})
    assert len(slug(text)) <= 50
    assert match_name(name, TYPES, {}) == name or len(name) > 50


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Tumor", "neoplastic"),
        ("Tumor: Positive", "neoplastic_positive"),
        ("neoplastic_positive", "neoplastic_positive"),
        ("CD8+", "cd8_t_cell"),
        ("CD8-", "other_cd8_negative"),
        ("Immune cells", "inflammatory"),
        ("other_weird", "other_weird"),
        ("Odd µ thing", "other_odd_thing"),
        ("???", "other"),
    ],
)
def test_names_of_types(text: str, name: str) -> None:
    assert match_name(text, TYPES, {}) == name


@pytest.mark.parametrize(
    ("title", "found"),
    [
        ("Nucleus: Area µm^2", ("nucleus_area_um2", "µm²", 1.0)),
        ("Nucleus Area (pixels)", ("nucleus_area_um2", "µm²", 0.25)),
        ("Nucleus Area (square microns)", ("nucleus_area_um2", "µm²", 1.0)),
        ("Cell: Length px", ("cell_length_um", "µm", 0.5)),
        ("Nucleus: Hematoxylin OD mean", ("nucleus_hematoxylin_od_mean", "1", 1.0)),
        ("2nd", ("c_2nd", "1", 1.0)),
    ],
)
def test_titles_tell_names_and_units(title: str, found: tuple[str, str, float]) -> None:
    assert column_of(title, 0.5) == found


@pytest.fixture
def vectra(tmp_path: Path) -> Iterator[Path]:
    path = SPATIAL / "nsclc_vectra_cells.csv.gz"
    if not path.exists():
        pytest.skip("shared data are absent")
    yield path


def test_all_cells_of_a_real_vectra_table_arrive(vectra: Path) -> None:
    mapping = TableMapping(
        x="x", y="y", unit="um", slide="patientImage_id", patient="patient_id",
        markers=tuple(f"phenotype_{name}" for name in ("ck", "cd8", "cd14", "cd19", "cd4")),
    )  # fmt: skip
    slides = list(read_table(vectra, mapping, types={"CK+": "neoplastic"}, window="hull"))
    raw = pd.read_csv(vectra)
    assert sum(len(maps.cells or ()) for maps in slides) == len(raw) == 285_412
    assert len({maps.patient for maps in slides}) == 50
    only = (raw.phenotype_cd19 == "CD19+") & (
        raw[["phenotype_ck", "phenotype_cd8", "phenotype_cd14", "phenotype_cd4"]]
        .apply(lambda column: column.str.endswith("-"))
        .all(axis=1)
    )
    assert sum(counts(maps)["b_cell"] for maps in slides) == int(only.sum()) > 1000
    assert len({maps.cells.types for maps in slides if maps.cells is not None}) == 1


def test_all_objects_of_real_hooknet_slides_arrive() -> None:
    path = SPATIAL / "hooknet_tls_objects_blca_lusc.csv"
    if not path.exists():
        pytest.skip("shared data are absent")
    slides = list(read_hooknet_table(path, mpp=0.5, where={"source": "PRED"}))
    raw = pd.read_csv(path)
    raw = raw[raw.source == "PRED"]
    assert len(slides) == raw.name.nunique() > 100
    for label, kind in (("TLS", "tls"), ("GC", "germinal_center")):
        found = sum(len(maps.objects.of_kind(kind)) for maps in slides if maps.objects is not None)
        assert found == int((raw.label == label).sum()) > 0


def test_cells_of_one_program_and_objects_of_another_are_one_slide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from sage_exchange.maps.cli import app

    monkeypatch.chdir(tmp_path)
    Path("cells.json").write_text(json.dumps(CELLVIT))
    Path("o.csv").write_text("name,label,x,y\ns,TLS,10,20\n")

    def imported(*words: str) -> Any:
        return CliRunner().invoke(app, ["import", *words, "--out", "maps"])

    cells = ("cellvit", "cells.json", "--mpp", "0.25", "--slide", "s")
    assert imported(*cells).exit_code == 0
    assert imported("hooknet", "o.csv", "--mpp", "0.5").exit_code == 0
    maps = read_maps(tmp_path / "maps" / "s")
    assert sum(counts(maps).values()) == 2
    assert maps.objects is not None
    assert maps.objects.points.tolist() == [[5.0, 10.0]]
    assert set(maps.provenance) == {"cells", "objects"}
    again = imported(*cells)
    assert "cells already exist (CellViT, cells.json)" in str(again.exception)
    assert imported(*cells, "--replace").exit_code == 0
    assert read_maps(tmp_path / "maps" / "s").objects is not None
    other = imported("hooknet", "o.csv", "--mpp", "0.5", "--replace")
    assert other.exit_code == 0
    assert "patient s, the new maps to p" in str(imported(*cells, "--patient", "p").exception)
