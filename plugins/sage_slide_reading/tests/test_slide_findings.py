"""Readers' findings over a cohort: read, gated, variables, a contract; abstention is missing."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import shapely

from benchmarks.simulate.scenes import Scene, render_scene
from mcp_servers.measures.compute import compute
from mcp_servers.measures.enumeration import suite_of
from mcp_servers.measures.formula import parse
from mcp_servers.measures.maps import held_in, read_maps, write_maps
from sage.core.errors import InputError
from sage_slide_reading.reader.maps import findings_of
from sage_slide_reading.reader.tools import check_questions
from sage_slide_reading.tests.test_slide_maps import reading
from tests.end_to_end.harness import sage
from tests.warm import HERE

TUMOR = "Where is the tumor?"
WINDOW = shapely.MultiPolygon([shapely.box(0, 0, 1280, 1280)])
SHARE = parse('mean(cell(cells.inspected_tumor, tumor_share, "1", mean, at_least=1))')
COUNT = parse("pooled(density(objects.read_tumor))")


def test_inspected_regions_carry_findings_with_units_through_files(tmp_path: Path) -> None:
    write_maps(findings_of([reading("P-1", [(0, 0), (0, 1)])], WINDOW), tmp_path)
    maps = read_maps(tmp_path)
    assert maps.cells is not None and maps.cells.types == ("inspected_tumor",)
    assert len(maps.cells) == 100 and maps.cells.columns["cellularity"].unit == "1/mm²"
    assert compute(SHARE, maps).value == pytest.approx(0.9 * 2 / 100)
    assert compute(COUNT, maps).value == pytest.approx(1 / 1.6384)
    suite = suite_of([held_in(tmp_path)])
    assert {SHARE.name, COUNT.name} <= {measurement.name for measurement in suite}
    assert not any("ripley" in measurement.formula for measurement in suite)
    assert "of regions inspected for tumor" in SHARE.sentence
    assert "regions read as tumor" in COUNT.sentence


def test_an_abstention_is_missing_and_says_why(tmp_path: Path) -> None:
    none = {"answer": None, "reasoning": "Abstains: too few nuclei."}
    own = reading("P-1", [(0, 0)]).model_copy(update=none)
    write_maps(findings_of([own], WINDOW), tmp_path)
    for measurement in (SHARE, COUNT):
        value = compute(measurement, read_maps(tmp_path))
        assert value.value is None and not value.valid
        assert value.why_not == "the reader abstained: Abstains: too few nuclei."


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["Where is it?"], "mentions nothing"),
        (["What Gleason grade is it?"], "cannot see"),
        ([TUMOR, "Where is the carcinoma?"], "both ask about tumor"),
        (["x"], "at least 3"),
    ],
)
def test_a_question_that_no_slide_can_answer_is_refused_first(
    texts: list[str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        check_questions(texts)
    (tmp_path / "s").mkdir()
    asked = [word for text in texts for word in ("--question", text)]
    done = sage("reading", "measure", "-", "--slides", "s", *asked, cwd=tmp_path)
    assert done.code == 2 and words in done.err
    assert not (tmp_path / "measured").exists()


COHORT = """id = "read"
title = "Read"
simulated = true
patient = { table = "clinical", ids = "exact" }
[tables.clinical]
file = "clinical.csv"
key = "patient"
known_at = "baseline"
[endpoints.OS]
kind = "survival"
table = "clinical"
time = "days"
time_unit = "days"
event = "dead"
event_values = [1]
censored_values = [0]

"""


def write_cohort(folder: Path, patients: int, *, turned: bool = False) -> None:
    """Outcomes that are no function of the slides; `turned` gives each patient another's."""
    numbers = range(patients)[::-1] if turned else range(patients)
    rows = [f"P{who:02},{100 + 37 * n % 900},{n % 2}" for who, n in enumerate(numbers)]
    folder.mkdir(exist_ok=True)
    (folder / "clinical.csv").write_text("patient,days,dead\n" + "\n".join(rows) + "\n")
    (folder / "cohort.toml").write_text(COHORT)


@pytest.mark.slow
def test_readings_over_a_cohort_are_resumed_and_blind_to_outcomes(tmp_path: Path) -> None:
    patients, kinds = 3, 2
    slides = tmp_path / "slides"
    slides.mkdir()
    for kind in range(kinds):  # painted once, read for every patient
        scene = Scene(tumor=((380.0, 290.0, 110.0 + 40 * kind),))
        render_scene(slides / f"P{kind:02}.tiff", seed=40 + kind, size_px=(1536, 1152),
                     aggregates=[], scene=scene)  # fmt: skip
    for who in range(kinds, patients):
        (slides / f"P{who:02}.tiff").hardlink_to(slides / f"P{who % kinds:02}.tiff")
    write_cohort(tmp_path / "cohort", patients)
    words = ["reading", "measure", "cohort", "--slides", "slides", "--question", TUMOR,
             "--cache", "kept", "--workers", "1", "--json"]  # fmt: skip
    there: dict[str, Any] = {"cwd": tmp_path, HERE: "1"}
    result = sage(*words, "--out", "read", **there)
    assert result.code == 0, result.err
    assert result.json["patients"] == patients and result.json["failures"] == {}
    with (tmp_path / "read" / "answers.csv").open(newline="") as stream:
        assert {row["question"] for row in csv.DictReader(stream)} == {TUMOR}
    again = sage(*words, "--out", "read", **there)
    assert again.json["resumed"] == patients

    # no outcome reaches the reader: other outcomes, the same arguments and the same variables
    write_cohort(tmp_path / "cohort", patients, turned=True)
    assert sage(*words, "--out", "blind", **there).code == 0
    for name in ("measured.csv", "validity.csv", "answers.csv"):
        first, second = (tmp_path / place / name for place in ("read", "blind"))
        assert first.read_bytes() == second.read_bytes()
    record = json.loads((tmp_path / "read" / "read_findings" / "P00" / "run.json").read_text())
    given = record["identity"]["arguments"]
    assert given == {"questions": [TUMOR], "mpp": None, "patch_px": 256}
