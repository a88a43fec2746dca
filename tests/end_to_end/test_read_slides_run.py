"""A run that has slides read: chosen by the exposure alone, shown at review, kept in the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.adapters.measures import COHORT
from sage.core.errors import InputError
from sage.run import validating
from sage_slide_reading.run_readings import ordered, question_about
from tests.end_to_end.harness import sage
from validation.cohort import load
from validation.core.hypothesis import Exposure
from validation.simulate.slide import Scene, render_slide

QUESTION = "Do patients with a high density of tertiary lymphoid structures survive longer?"
TLS = """[variables.tls_density]
table = "clinical"
column = "tls"
kind = "continuous"
label = "TLS density"
modality = "imaging"
unit = "1/mm²"
synonyms = ["tertiary lymphoid structures"]

"""
SLIDES = """[slides]
folder = "slides"
pattern = "*.tiff"
known_at = "baseline"

"""
PATIENTS = 80


def write_cohort(
    folder: Path, *, turned: bool = False, slides: tuple[int, ...] = (0, PATIENTS - 1)
) -> None:
    """TLS density from 0 to 7.9, slides of some patients; those of high density show an aggregate.

    `turned` gives every patient another one's outcome.
    """
    rng = np.random.default_rng(7)
    tls = np.arange(PATIENTS) / 10
    order = rng.permutation(PATIENTS)
    times = rng.exponential(900 * np.exp(0.15 * tls))
    ends = rng.uniform(500, 3000, PATIENTS)
    days, dead = np.ceil(np.minimum(times, ends)), (times <= ends).astype(int)
    if turned:
        days, dead = days[::-1], dead[::-1]
    age = rng.normal(65, 9, PATIENTS)
    rows = ["patient,age,tls,days,dead"]
    rows += [
        f"pat-{who:03d},{age[who]:.0f},{tls[who]},{days[who]:.0f},{dead[who]}" for who in order
    ]
    folder.mkdir()
    (folder / "clinical.csv").write_text("\n".join(rows) + "\n")
    (folder / "cohort.toml").write_text(
        COHORT.replace("[endpoints.OS]", f"{TLS}[endpoints.OS]") + SLIDES
    )
    (folder / "slides").mkdir()
    for who in slides:
        render_slide(
            folder / "slides" / f"pat-{who:03d}.tiff", seed=who, size_px=1536,
            aggregates=[(400.0, 380.0, 90.0)] if who > 9 else [],
            scene=Scene(tumor=((250.0, 300.0, 60.0),)),
        )  # fmt: skip


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that waits for its review, with two patients of each end read."""
    place = tmp_path_factory.mktemp("reads")
    write_cohort(place / "c", slides=(0, 1, PATIENTS - 2, PATIENTS - 1))
    done = sage("run", QUESTION, "--cohort", "c", "--read-slides", "2", "--out", "r", cwd=place)
    assert done.code == 0, done.err
    (place / "said.txt").write_text(done.out)
    return place


def about(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "hypotheses/h1/fields/readings.json").read_text())
    return found


def test_the_review_shows_what_was_read_and_names_nobody(waiting: Path) -> None:
    (exposure,) = about(waiting / "r")["exposures"]
    assert exposure["variable"] == "imaging:tls_density"
    assert exposure["question"].startswith("Are there TLS") and exposure["among"] == 4
    ends = [(read["end"], read["rank"], bool(read["picture"])) for read in exposure["reads"]]
    assert ends == [("highest", 1, True), ("highest", 2, True), ("lowest", 1, True),
                    ("lowest", 2, True)]  # fmt: skip
    high, low = exposure["reads"][0], exposure["reads"][2]
    assert "not found" not in high["answer"] and "not found" in low["answer"], exposure
    assert any(region["answer_rests_on_it"] for region in high["regions"])
    said = " ".join((waiting / "said.txt").read_text().split())
    assert "A patient with the highest TLS density" in said and "Asked: Are there TLS" in said
    kept = [path for path in (waiting / "r").rglob("*") if path.is_file()]
    assert not any(re.search(rb"pat-\d{3}", path.read_bytes()) for path in kept
                   if path.suffix in (".json", ".jsonl", ".md", ".html"))  # fmt: skip
    assert not any("pat-" in path.name for path in kept)


def test_other_outcomes_choose_and_read_the_same(waiting: Path, tmp_path: Path) -> None:
    write_cohort(tmp_path / "c", turned=True)
    done = sage("run", QUESTION, "--cohort", "c", "--read-slides", "1", "--out", "r", cwd=tmp_path)
    assert done.code == 0, done.err
    (here,), (there,) = about(tmp_path / "r")["exposures"], about(waiting / "r")["exposures"]
    wanted = [read for read in there["reads"] if read["rank"] == 1]
    assert here["reads"] == wanted
    for read in wanted:
        pictures = [place / "r/hypotheses/h1/fields" / read["picture"]
                    for place in (tmp_path, waiting)]  # fmt: skip
        assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_the_report_holds_pictures_regions_and_findings(waiting: Path) -> None:
    done = sage("review", "r", "--approve", "--json", cwd=waiting)
    assert done.code == 0, done.err
    report = (waiting / "r/report.md").read_text()
    page = (waiting / "r/report.html").read_text()
    for text in (report, page):
        assert "A patient with the highest TLS density" in text
        assert "Not for diagnosis" in text and not re.search(r"pat-\d{3}", text)
    assert page.count("data:image/png;base64,") >= 4
    again = sage("admin", "replay", "r", "--out", "again", cwd=waiting)
    assert again.code == 0, again.err
    assert "identical to the run's report" in again.out


def test_a_split_reads_nobody_who_is_held_back(tmp_path: Path) -> None:
    write_cohort(tmp_path / "c")
    done = sage("run", QUESTION, "--cohort", "c", "--read-slides", "1", "--split", "0.5",
                "--out", "r", cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.err
    from sage.run.folder import RunFolder
    from sage.run.services import Services
    from sage.settings import Settings
    from sage_slide_reading.run_readings import ordered
    from validation.core.hypothesis import Hypothesis

    folder = RunFolder(tmp_path / "r")
    services = Services(folder, folder.manifest(), Settings(cache_dir=tmp_path))
    draft = json.loads((tmp_path / "r/outputs/draft-h1.json").read_text())
    hypothesis = Hypothesis.model_validate(draft["hypothesis"])
    chosen = ordered(services, hypothesis, hypothesis.exposures[0])
    assert 0.3 * PATIENTS < len(chosen) < 0.7 * PATIENTS
    whole = services.manifest.model_copy(update={"split": None})
    everybody = ordered(
        Services(folder, whole, services.settings), hypothesis, hypothesis.exposures[0]
    )
    assert everybody == [f"pat-{who:03d}" for who in range(PATIENTS)]
    assert chosen == [who for who in everybody if who in set(chosen)]


def test_a_cohort_without_slides_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    write_cohort(tmp_path / "c")
    text = (tmp_path / "c/cohort.toml").read_text()
    (tmp_path / "c/cohort.toml").write_text(text.replace(SLIDES, ""))
    done = sage("run", QUESTION, "--cohort", "c", "--read-slides", "1", "--out", "r", cwd=tmp_path)
    assert done.code == 2 and "has no slide" in done.err
    assert not (tmp_path / "r").exists()


def name_slides_in_the_table(cohort: Path) -> None:
    """Have the clinical table name each patient's slide, in place of a pattern."""
    head, *rows = (cohort / "clinical.csv").read_text().splitlines()
    named = [f"{row},{row.split(',')[0]}.tiff" for row in rows]
    (cohort / "clinical.csv").write_text("\n".join([f"{head},file", *named]) + "\n")
    text = (cohort / "cohort.toml").read_text()
    by_table = 'table = "clinical"\nfile_column = "file"\nknown_at'
    (cohort / "cohort.toml").write_text(text.replace('pattern = "*.tiff"\nknown_at', by_table))


def test_rounds_of_a_campaign_have_slides_read_too(tmp_path: Path) -> None:
    write_cohort(tmp_path / "c", slides=(0, 1, 2, PATIENTS - 3, PATIENTS - 2, PATIENTS - 1))
    done = sage("campaign", QUESTION, "--cohort", "c", "--read-slides", "1", "--rounds", "1",
                "--out", "r", cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.err
    (exposure,) = about(tmp_path / "r/round-1")["exposures"]
    assert [(read["end"], read["why_not"]) for read in exposure["reads"]] == [
        ("highest", ""), ("lowest", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("damage", ["broken", "outside", "absent"])
def test_a_slide_that_cannot_be_read_is_told_without_its_name(tmp_path: Path, damage: str) -> None:
    write_cohort(tmp_path / "c", slides=(0, PATIENTS - 2, PATIENTS - 1))
    highest = tmp_path / "c/slides" / f"pat-{PATIENTS - 1:03d}.tiff"
    if damage == "broken":
        highest.write_bytes(b"no slide at all")
    elif damage == "absent":
        highest.unlink()
        name_slides_in_the_table(tmp_path / "c")
    else:
        highest.rename(tmp_path / highest.name)
        highest.symlink_to(tmp_path / highest.name)
    done = sage("run", QUESTION, "--cohort", "c", "--read-slides", "1", "--out", "r",
                "--auto-approve", cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.err
    (exposure,) = about(tmp_path / "r")["exposures"]
    first = exposure["reads"][0]
    assert bool(first["why_not"]) == (damage != "outside") and "pat-" not in json.dumps(exposure)
    for form in ("md", "html"):
        report = (tmp_path / f"r/report.{form}").read_text()
        ends = [f"patient with the {end} TLS density" in report for end in ("highest", "lowest")]
        assert all(ends) and "pat-" not in report
        assert ("Not read: the slide" in report) == bool(first["why_not"])


@pytest.mark.parametrize(
    ("label", "asks"),
    [("TLS density", "TLS"), ("FABP5", ""), ("CD8 T cells", "lymphocytes"), ("Age", ""),
     ("Necrosis", "necrosis"), ("mitotic count", "mitosis"), ("stromal fraction", "stroma")],
)  # fmt: skip
def test_what_a_reader_is_asked_about_an_exposure(label: str, asks: str) -> None:
    found = question_about(Exposure(variable="imaging:x", label=label))
    assert (asks in found) if asks else found == ""


def test_an_outcome_by_another_name_chooses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cohort(tmp_path / "c")
    toml = tmp_path / "c/cohort.toml"
    toml.write_text(toml.read_text().replace('column = "tls"', 'column = "days"'))
    contract = SimpleNamespace(filters=(), cluster=None, split=SimpleNamespace(policy="none"))
    monkeypatch.setattr(validating, "drafted_contract", lambda *_: contract)
    services: Any = SimpleNamespace(
        cohort=load(tmp_path / "c"), settings=SimpleNamespace(min_count=5)
    )
    exposure = Exposure(variable="imaging:tls_density", label="TLS density")
    hypothesis: Any = None
    with pytest.raises(InputError, match="read from the column of an outcome"):
        ordered(services, hypothesis, exposure)
