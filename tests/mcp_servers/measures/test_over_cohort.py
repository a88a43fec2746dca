"""`sage slides measure`: variables of patients, failures named, nothing twice and nothing lost."""

from __future__ import annotations

import csv
import json
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from typer.testing import CliRunner

from mcp_servers.measures.cohort import items_with_patients
from mcp_servers.measures.compute import compute, of_patient
from mcp_servers.measures.formula import parse
from mcp_servers.measures.maps import CellMap, SlideMaps, read_maps, write_maps
from mcp_servers.pathology.measure import _cells
from sage.__main__ import exit_code
from sage.cli.slides import app
from tests.mcp_servers.slide_tools import environment
from tests.warm import HERE, Warm, run_warm
from validation.cohort import load
from validation.simulate import write_world

MEASURE = ("slides", "measure", "--workers", "2")
FORMULAS = ("pooled(density(cells.lymphoid))", "mean(nearest(cells.lymphoid, cells.other, median))")


def sage(*words: str, cwd: Path, code: int = 0) -> str:
    done = run_warm(words, cwd=cwd, env={**environment(), HERE: "1"}, timeout=240)
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout if code in (0, 1) else done.stderr


def simulated(slide: str, patient: str, seed: int, count: int = 60, **more: Any) -> SlideMaps:
    """A square of 1 mm² with cells at random."""
    rng = np.random.default_rng(seed)
    cells = CellMap(
        rng.uniform(0, 1000, count),
        rng.uniform(0, 1000, count),
        ("lymphoid", "other"),
        rng.integers(0, 2, count),
    )
    window = shapely.MultiPolygon([shapely.box(0, 0, 1000, 1000)])
    return SlideMaps(slide, patient, window, cells, **more)


def write_all(folder: Path, slides: Sequence[SlideMaps]) -> None:
    for maps in slides:
        write_maps(maps, folder / maps.slide)


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return {row["patient"]: row for row in csv.DictReader(stream)}


def test_maps_become_variables_that_a_cohort_takes(tmp_path: Path) -> None:
    slides = [simulated(f"s{n}", f"p{n // 2}", n) for n in range(6)]
    slides.append(simulated("outside", "p9", 9, outside_card=("too coarse",)))
    write_all(tmp_path / "maps", slides)
    (tmp_path / "maps" / "s3" / "cells.parquet").write_bytes(b"broken")
    (tmp_path / "maps" / "torn").mkdir()
    (tmp_path / "maps" / "torn" / "maps.json").write_text("{")
    (tmp_path / "d.txt").write_text("# two\n" + "\n".join(FORMULAS) + "\n\n")
    words = [*MEASURE, "-", "--maps", "maps", "--define", "d.txt", "--json"]
    told = json.loads(sage(*words, cwd=tmp_path, code=1))
    assert (told["slides"], told["measurements"], told["resumed"]) == (8, 2, 0)
    assert set(told["failures"]) == {"s3", "torn"}
    assert "cells.parquet" in told["failures"]["s3"]
    numbers = rows_of(tmp_path / "measured" / "measured.csv")
    validity = rows_of(tmp_path / "measured" / "validity.csv")
    density, nearest = (parse(text) for text in FORMULAS)
    for patient, own in (("p0", slides[0:2]), ("p1", slides[2:3]), ("p2", slides[4:6])):
        for measurement in (density, nearest):
            expected = of_patient(measurement, [compute(measurement, maps) for maps in own])
            assert float(numbers[patient][measurement.name]) == expected.value
            assert validity[patient][measurement.name] == "ok"
    assert validity["p1"]["failed"] == "1"
    assert validity["p1"]["slides"] == "2"
    assert numbers["p9"][density.name] == ""  # outside the card: no variable, and it is said why
    assert validity["p9"][density.name] == "not valid: too coarse"
    assert numbers["torn"][density.name] == ""
    assert "maps.json" in validity["torn"][density.name]
    again = json.loads(sage(*words, cwd=tmp_path, code=1))
    assert again["resumed"] == 6
    _check_cohort_takes_it(tmp_path, density.name, numbers)


def _check_cohort_takes_it(folder: Path, name: str, numbers: dict[str, dict[str, str]]) -> None:
    """As lines of cohort.toml, and as features, with unit, sentence and baseline."""
    rows = [f"{patient},{number}" for number, patient in enumerate(("p0", "p1", "p2", "p9", "q"))]
    (folder / "measured" / "clinical.csv").write_text("\n".join(["patient,age", *rows]) + "\n")
    base = 'id = "c"\ntitle = "C"\n[patient]\ntable = "clinical"\n[tables.clinical]\n'
    base += 'file = "clinical.csv"\nkey = "patient"\n[variables.age]\ntable = "clinical"\n'
    base += 'column = "age"\nkind = "continuous"\n'
    description = folder / "measured" / "cohort.toml"
    description.write_text(base)
    added = load(description).with_features(folder / "measured" / "measured.csv")
    description.write_text(base + (folder / "measured" / "measured.toml").read_text())
    written = load(description)
    for cohort, key in ((added, f"imaging:measured_{name}"), (written, f"imaging:{name}")):
        values = cohort.table([key], [])[key]
        assert sorted(values.dropna()) == sorted(
            float(numbers[patient][name]) for patient in ("p0", "p1", "p2")
        )
        assert values.isna().sum() == 2
        (about,) = [variable for variable in cohort.dictionary().variables if variable.key == key]
        assert about.unit == "1/mm²" and about.known_at == "baseline" and about.n == 3
        assert about.label.startswith("number of lymphoid cells per mm²")
        assert f"Formula: {FORMULAS[0]}" in about.note and not about.synonyms
    (arranged,) = [
        variable.synonyms
        for variable in written.dictionary().variables
        if variable.label.startswith("median distance")
    ]
    subjects = ("lymphoid cells", "cells of other types")
    assert arranged == tuple(f"spatial arrangement of {subject}" for subject in subjects)


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    write_all(tmp_path / "maps", [simulated(f"s{n:03d}", f"p{n:03d}", n, 400) for n in range(16)])
    (tmp_path / "d.txt").write_text(
        "\n".join(f"mean(ripley_l(cells.lymphoid, {r}))" for r in range(10, 40))
    )
    words = [*MEASURE, "-", "--maps", "maps", "--define", "d.txt", "--no-cache"]
    process = Warm(words, cwd=tmp_path, env=environment(), piped=True)
    records = tmp_path / "measured" / "measure_maps"
    deadline = time.monotonic() + 60
    while len(list(records.glob("*/run.json"))) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert process.stderr is not None and "Traceback" not in process.stderr.read()
    done = {path: path.stat().st_mtime_ns for path in records.glob("*/values.jsonl")}
    finished = {path.parent for path in records.glob("*/run.json")}
    assert 3 <= len(finished) < 16
    told = json.loads(sage(*words, "--json", cwd=tmp_path))
    assert told["resumed"] == len(finished)
    assert told["failures"] == {}
    for path, stamp in done.items():
        if path.parent in finished:
            assert path.stat().st_mtime_ns == stamp  # not computed twice
    assert len(rows_of(tmp_path / "measured" / "measured.csv")) == 16
    assert not [path for path in tmp_path.rglob("*") if ".part" in path.name]


@pytest.mark.slow
def test_slides_become_maps_and_variables(tmp_path: Path) -> None:
    write_world(tmp_path / "world", seed=3, patients=40, slides=2, slide_px=512)
    slides = tmp_path / "world" / "slides"
    (slides / "SIM-0004.tiff").write_bytes(b"no slide")
    words = [*MEASURE, "world", "--slides", "world/slides", "--suite", "standard",
             "--set", "tumor_regions=world/outlines"]  # fmt: skip
    told = json.loads(sage(*words, "--json", cwd=tmp_path, code=1))
    assert told["patients"] == 3
    # Types of cells need a network of the user's own: regions and all cells are measured here.
    assert told["measurements"] > 20
    assert list(told["failures"]) == ["SIM-0004"]
    found = rows_of(tmp_path / "measured" / "measured.csv")
    assert float(found["SIM-0001"]["pooled_density_cells"]) > 100
    assert found["SIM-0004"]["pooled_density_cells"] == ""
    maps = read_maps(tmp_path / "measured" / "slide_maps" / "SIM-0001" / "maps")
    measurement = parse("pooled(density(cells))")
    assert compute(measurement, maps).value == float(found["SIM-0001"][measurement.name])
    again = json.loads(sage(*words, "--json", cwd=tmp_path, code=1))
    assert again["resumed"] == 2


def test_values_by_a_pixel_size_that_the_file_contradicts_are_not_valid(tmp_path: Path) -> None:
    write_world(tmp_path / "world", seed=3, patients=40, slides=1, slide_px=512)
    (tmp_path / "m.txt").write_text("pooled(density(cells))\n")
    words = [*MEASURE, "-", "--slides", "world/slides", "--define", "m.txt"]
    told = json.loads(sage(*words, "--mpp", "0.25", "--json", cwd=tmp_path))
    (value,) = rows_of(Path(told["table"])).values()
    (validity,) = rows_of(Path(told["validity"])).values()
    assert "the file states" in validity["pooled_density_cells"]
    assert value["pooled_density_cells"] == ""
    (note,) = told["other_pixel_size"].values()
    assert "the file states" in note


def test_typed_nuclei_become_cells(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text(
        "x,y,area_um2,type,p_neoplastic,p_lymphoid\n"
        "10,20,30.5,lymphoid,0.2,0.8\n4,2,80,neoplastic,0.9,0.1\n6,6,9,outside,0.5,0.5\n"
    )
    cells = _cells(tmp_path / "n.csv", 0.5)
    assert cells.types == ("neoplastic", "lymphoid")
    assert cells.codes.tolist() == [1, 0, -1]
    assert cells.points.tolist() == [[5, 10], [2, 1], [3, 3]]
    assert cells.probabilities is not None
    assert cells.probabilities[0].tolist() == [0.2, 0.8]
    assert {name: column.unit for name, column in cells.columns.items()} == {"area_um2": "µm²"}


def test_patients_of_slides_are_those_of_the_cohorts_table(tmp_path: Path) -> None:
    (tmp_path / "clinical.csv").write_text("id,age\nA,1\nB,2\n")
    (tmp_path / "slides.csv").write_text("id,file\nA,x/one.svs\nB,two.svs\n")
    (tmp_path / "cohort.toml").write_text(
        'id = "c"\ntitle = "C"\npatient = { table = "clinical" }\n'
        'tables.clinical = { file = "clinical.csv", key = "id" }\n'
        'tables.slides = { file = "slides.csv", key = "id" }\n'
        'slides = { table = "slides", file_column = "file" }\n'
        'variables.age = { table = "clinical", column = "age", kind = "continuous" }\n'
    )
    paths = [tmp_path / "s" / name for name in ("one.svs", "TWO.svs", "three.x.svs")]
    items = items_with_patients(paths, load(tmp_path))
    assert [item.patient for item in items] == ["A", "B", "three"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("- --define d.txt", "--maps"),
        ("- --maps maps", "--define"),
        ("- --maps absent --define d.txt", "absent"),
        ("- --maps maps --define bad.txt", "bad.txt, line 2"),
        ("- --maps maps --define twice.txt", "twice"),
        ("- --maps empty --define d.txt", "empty"),
        ("gbsg2 --maps maps --define d.txt", "patient"),
    ],
)
def test_bad_words_are_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path / "maps", [simulated("s", "p", 1)])
    (tmp_path / "empty").mkdir()
    for name, text in (
        ("d.txt", FORMULAS[0]),
        ("bad.txt", f"{FORMULAS[0]}\nnothing(cells)"),
        ("twice.txt", f"{FORMULAS[0]}\n{FORMULAS[0]}"),
    ):
        (tmp_path / name).write_text(text)
    done = CliRunner().invoke(app, ["measure", *words.split()])
    assert done.exception is not None
    assert exit_code(done.exception) == 2
    assert said in str(done.exception)
    assert not (tmp_path / "measured").exists()
