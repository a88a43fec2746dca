"""What was known when: late variables are refused, followed in time, or taken at a landmark.

The figures are R's (`tmerge`, `coxph`, `survdiff`), by benchmarks/r/time_dependent.R.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sage.core.errors import InputError
from tests.validation.core_help import claim, frozen_for, load, patients, run, write
from validation import cohort as cohorts
from validation.cohort.cohort import Cohort
from validation.contracts.timing import records
from validation.core.hypothesis import Hypothesis
from validation.drafting.draft import draft
from validation.inputs.population import apply_filters
from validation.ledger.ledger import Ledger
from validation.results.results import Results

REFERENCE = Path(__file__).parent / "time_reference"
R = json.loads((REFERENCE / "figures.json").read_text())

STANFORD = """
id = "stanford"
title = "Stanford heart transplants"
patient = { table = "heart" }
tables.heart = { file = "stanford.csv", key = "patient", known_at = "baseline" }

[variables]
transplant = { table = "heart", column = "transplant", kind = "binary", label = "Transplant", \
known_at = { column = "wait", before = "no" } }
ever = { table = "heart", column = "transplant", kind = "binary", label = "Ever transplanted" }
age = { table = "heart", column = "age", kind = "continuous", unit = "years" }
surgery = { table = "heart", column = "surgery", kind = "binary" }

[endpoints.OS]
table = "heart"
time = "days"
time_unit = "days"
event = "dead"
event_values = [1]
censored_values = [0]
"""

MGUS = """
id = "mgus"
title = "Monoclonal gammopathy"
patient = { table = "mgus" }
tables.mgus = { file = "mgus.csv", key = "patient", known_at = "baseline" }

[variables]
progressed = { table = "mgus", column = "progressed", kind = "binary", label = "Malignancy", \
known_at = { column = "since", before = "no" } }
age = { table = "mgus", column = "age", kind = "continuous", unit = "years" }
sex = { table = "mgus", column = "sex", kind = "binary" }

[endpoints.OS]
table = "mgus"
time = "months"
time_unit = "months"
event = "dead"
event_values = [1]
censored_values = [0]
max_months = 600
"""


def public(folder: Path, name: str, toml: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(REFERENCE / f"{name}.csv", folder)
    (folder / "cohort.toml").write_text(toml, encoding="utf-8")
    return folder


def stanford(folder: Path, toml: str = STANFORD) -> Cohort:
    return cohorts.load(public(folder, "stanford", toml))


def transplanted(**changes: object) -> Hypothesis:
    values: dict[str, object] = {
        "id": "transplant",
        "statement": "A transplant prolongs survival.",
        "exposures": [{"variable": "clinical:transplant", "label": "transplant"}],
        "direction": "lower_risk",
        "covariates": ["clinical:age", "clinical:surgery"],
    }
    return claim(**(values | changes))


def result_of(
    tmp_path: Path, cohort: Cohort, hypothesis: Hypothesis, *, reproduce: bool = False
) -> Results:
    frozen = frozen_for(cohort, hypothesis)
    return run(
        frozen, cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l.jsonl"), reproduce=reproduce
    )


def same(found: Results, test: str, figures: dict[str, Any], tolerance: float = 1e-6) -> None:
    outcome = found.test(test)
    assert outcome is not None and outcome.effect is not None and outcome.p is not None
    first = {key: np.atleast_1d(figures[key])[0] for key in ("coef", "se", "p")}
    assert np.log(outcome.effect.value) == pytest.approx(first["coef"], abs=tolerance)
    low = np.log(outcome.effect.lower)
    assert low == pytest.approx(first["coef"] - 1.959963984540054 * first["se"], abs=tolerance)
    assert outcome.events == figures["events"]


# -- what is refused, and the ways out -----------------------------------------------------------


def test_an_exposure_known_later_is_refused_with_both_remedies(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        draft(transplanted(), stanford(tmp_path).dictionary())
    for remedy in ('"landmark": 6', '"time_dependent": true', "clinical:transplant"):
        assert remedy in str(refused.value)


@pytest.mark.parametrize("role", ["covariates", "strata", "population"])
def test_nothing_else_may_be_known_later_either(tmp_path: Path, role: str) -> None:
    key = "clinical:transplant"
    given: dict[str, object] = {role: [key]}
    if role == "population":
        filters = [{"variable": key, "op": "eq", "value": "yes"}]
        given = {"population": {"description": "transplanted", "filters": filters}}
    hypothesis = transplanted(
        exposures=[{"variable": "clinical:age", "label": "age"}],
        **({"covariates": ["clinical:surgery"]} | given),
    )
    with pytest.raises(InputError, match="clinical:transplant"):
        draft(hypothesis, stanford(tmp_path).dictionary())


@pytest.mark.parametrize(
    ("known", "landmark", "refused"),
    [
        ('"baseline"', None, None),
        ("0", None, None),
        ("90", None, "2.95688"),
        ("90", 1.0, "landmark"),
        ("90", 3.0, None),
        ('{ time = 6, unit = "months" }', 6.0, None),
    ],
)
def test_a_time_after_the_start_needs_a_landmark_that_late(
    tmp_path: Path, known: str, landmark: float | None, refused: str | None
) -> None:
    toml = STANFORD.replace('{ column = "wait", before = "no" }', known)
    dictionary = stanford(tmp_path, toml).dictionary()
    hypothesis = transplanted(landmark=landmark)
    if refused is None:
        assert draft(hypothesis, dictionary).hypothesis.landmark == landmark
    else:
        with pytest.raises(InputError, match=refused):
            draft(hypothesis, dictionary)


@pytest.mark.parametrize(
    ("changes", "toml", "said"),
    [
        ({}, STANFORD.replace(', before = "no"', ""), "its value before"),
        ({}, STANFORD.replace('{ column = "wait", before = "no" }', "90"), "cannot be followed"),
        (
            {},
            STANFORD.replace('{ column = "wait", before = "no" }', '"baseline"'),
            "remove this setting",
        ),
        ({"subgroups": [{"variable": "clinical:age", "op": "gt", "value": 50}]}, None, "subgroups"),
    ],
)
def test_records_are_made_only_where_the_cohort_says_how(
    tmp_path: Path, changes: dict[str, object], toml: str | None, said: str
) -> None:
    dictionary = stanford(tmp_path, toml or STANFORD).dictionary()
    with pytest.raises(InputError, match=said):
        draft(transplanted(time_dependent=True, **changes), dictionary)


def test_landmark_and_time_dependent_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="not both"):
        transplanted(landmark=6, time_dependent=True)


def test_units_that_differ_need_a_unit_for_the_time_known(tmp_path: Path) -> None:
    toml = STANFORD.replace('{ column = "wait", before = "no" }', "90") + (
        '[endpoints.OS2]\ntable = "heart"\ntime = "days"\ntime_unit = "weeks"\nevent = "dead"\n'
        "event_values = [1]\ncensored_values = [0]\nmax_months = 9999\n"
    )
    with pytest.raises(InputError, match="clinical:transplant"):
        stanford(tmp_path, toml).dictionary()


# -- against R -----------------------------------------------------------------------------------


def test_time_dependent_transplant_agrees_with_tmerge_and_coxph(tmp_path: Path) -> None:
    found = result_of(
        tmp_path, stanford(tmp_path / "c"), transplanted(time_dependent=True), reproduce=True
    )
    same(found, "primary", R["stanford"])
    same(found, "adjusted", R["stanford_adjusted"])
    assert found.numbers["population.n"].value == 103
    assert found.verdict.verdict != "supported"
    states = {f"{item.test}.{item.field}": item.state for item in found.reproduction[0].compared}
    for test in ("primary", "adjusted"):
        for quantity in ("n", "events", "effect", "lower", "upper", "p"):
            assert states[f"{test}.{quantity}"] == "reproduced", states


def test_ever_transplanted_is_what_r_gives_for_it(tmp_path: Path) -> None:
    ever = [{"variable": "clinical:ever", "label": "ever transplanted"}]
    with pytest.raises(InputError, match="within follow-up only for those"):
        frozen_for(stanford(tmp_path / "bulk"), transplanted(exposures=ever))
    label = 'label = "Ever transplanted"'
    own = STANFORD.replace(label, f'{label}, known_at = "baseline"')
    found = result_of(tmp_path, stanford(tmp_path / "c", own), transplanted(exposures=ever))
    same(found, "primary", R["stanford_ever"])


def test_time_dependent_progression_with_strata_agrees(tmp_path: Path) -> None:
    cohort = cohorts.load(public(tmp_path / "c", "mgus", MGUS))
    hypothesis = claim(
        exposures=[{"variable": "clinical:progressed", "label": "malignancy"}],
        covariates=["clinical:age"],
        time_dependent=True,
    )
    within = result_of(
        tmp_path, cohort, hypothesis.model_copy(update={"strata": ("clinical:sex",)})
    )
    same(within, "adjusted", R["mgus_stratified"])
    permuted = within.test("control.permuted")
    assert permuted is not None and permuted.p is not None and permuted.p < 0.01
    assert within.verdict.verdict == "supported", within.verdict


@pytest.mark.parametrize("months", [1, 3])
def test_landmark_analysis_agrees_with_r(tmp_path: Path, months: int) -> None:
    hypothesis = transplanted(landmark=months, covariates=["clinical:age"])
    found = result_of(tmp_path, stanford(tmp_path / "c"), hypothesis)
    figures = R[f"stanford_landmark_{months}"]
    same(found, "primary", figures)
    primary = found.test("primary")
    assert primary is not None and primary.n == figures["records"]
    assert primary.statistic == pytest.approx(figures["logrank"], rel=1e-6)
    step = next(join for join in found.joins if join.step == "landmark")
    assert (step.before, step.after) == (103, figures["records"])


# -- records and landmarks by their definition ---------------------------------------------------


def late_cohort(folder: Path, n: int = 150, seed: int = 5) -> Cohort:
    """A marker of the usual table that becomes known at random times, for some never."""
    rng = np.random.default_rng(seed)
    table = patients(n, seed=seed)
    table["given"] = np.where(rng.random(n) < 0.6, "yes", "no")
    when = np.round(rng.exponential(20, n), 1)
    table["since"] = np.where(table["given"] == "yes", when, np.nan)
    more = (
        '[variables.given]\ntable = "clinical"\ncolumn = "given"\nkind = "binary"\n'
        'known_at = { column = "since", before = "no" }\n'
    )
    return load(folder, table, more=more)


def test_records_add_up_to_each_patients_follow_up(tmp_path: Path) -> None:
    cohort = late_cohort(tmp_path)
    hypothesis = claim(
        exposures=[{"variable": "clinical:given", "label": "given"}], time_dependent=True
    )
    contract = draft(hypothesis, cohort.dictionary())
    whole = cohort.table(contract.keys(), ["OS"])
    split = records(whole, contract)
    length = (split["OS.time"] - split["OS.entry"]).groupby(level=0).sum()
    assert length.sort_index().to_numpy() == pytest.approx(whole["OS.time"].sort_index().to_numpy())
    events = split["OS.event"].groupby(level=0).sum().sort_index()
    assert (events == whole["OS.event"].sort_index()).all()
    assert (split["OS.time"].dropna() > split.loc[split["OS.time"].notna(), "OS.entry"]).all()
    since = whole["clinical:given@known_at"]
    exposed = split[(split["clinical:given"] == "yes") & split["OS.time"].notna()]
    assert (exposed["OS.entry"].to_numpy() == since[exposed.index].to_numpy()).all()
    assert set(exposed.index) == set(since.index[since < whole["OS.time"]])


def test_a_landmark_forgets_what_was_not_known_yet(tmp_path: Path) -> None:
    cohort = late_cohort(tmp_path)
    hypothesis = claim(exposures=[{"variable": "clinical:given", "label": "given"}], landmark=12)
    frozen = frozen_for(cohort, hypothesis)
    found = run(frozen, cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l.jsonl"))
    table = pd.read_parquet(tmp_path / "out" / "inputs" / "all" / "table.parquet")
    whole = cohort.table(frozen.contract.keys(), ["OS"])
    at_risk = whole[whole["OS.time"] > 12]
    assert set(table.index) == set(at_risk.index)
    assert (table["OS.time"] > 0).all()
    early = at_risk["clinical:given@known_at"] <= 12
    assert ((table["clinical:given"] == "yes") == early[table.index]).all()
    assert found.numbers["groups.exposed.n"].value == int(early.sum())
    assert apply_filters(table, ()).all()


def test_timing_that_nobody_declared_supports_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path / "c", patients(log_hr=1.1))
    text = (folder / "cohort.toml").read_text().replace('"baseline"', '"unknown"')
    (folder / "cohort.toml").write_text(text)
    verdict = result_of(tmp_path, cohorts.load(folder), claim()).verdict
    assert (verdict.verdict, verdict.because) == ("inconclusive", "timing")
    assert "marker" in verdict.badge


@pytest.mark.parametrize("part", ["filter", "stratum", "covariate"])
def test_what_selects_or_compares_patients_by_their_outcome_gives_no_verdict(
    tmp_path: Path, part: str
) -> None:
    table = patients(400, log_hr=0.9)
    rng = np.random.default_rng(2)
    soon = (table["marker"] < table["marker"].median()) & (table["months"] < 15)
    value = soon & (rng.random(400) < 0.9)  # "not evaluable", by those who speak against the claim
    if part != "filter":
        grown = np.log(table["months"]) + 0.5 * table["marker"] + rng.normal(0, 0.4, 400)
        value = grown < grown.median()
    table["evaluable"] = np.where(value, "no", "yes")
    more = '[variables.evaluable]\ntable = "clinical"\ncolumn = "evaluable"\nkind = "binary"\n'
    key = "clinical:evaluable"
    changes: dict[str, object] = {
        "filter": {"population": {"description": "evaluable", "filters": [
            {"variable": key, "op": "eq", "value": "yes"}]}},
        "stratum": {"strata": [key], "covariates": ["clinical:stage"]},
        "covariate": {"covariates": ["clinical:stage", key]},
    }[part]  # fmt: skip
    found = result_of(tmp_path, load(tmp_path / "c", table, more=more), claim(**changes))
    assert (found.verdict.verdict, found.verdict.because) == ("inconclusive", "data")
    assert any(reason.rule == "timing" for reason in found.verdict.reasons)


@pytest.mark.parametrize("place", ["variables", "table", "cohort"])
def test_the_remedy_for_undeclared_timing_is_enough(tmp_path: Path, place: str) -> None:
    folder = write(tmp_path / "c", patients(log_hr=1.1))
    line, toml = 'known_at = "baseline"\n', folder / "cohort.toml"
    text = toml.read_text().replace(line, "")
    toml.write_text(text)
    said = [item for item in cohorts.check(folder) if item.code == "timing_undeclared"]
    assert [item.severity for item in said] == ["warning"]
    assert line.strip() in said[0].remedy
    assert "[variables.marker], [variables.stage], [variables.sex]" in said[0].remedy
    places = {
        "variables": text.replace("\ncolumn", f"\n{line}column"),
        "table": text.replace("[tables.clinical]\n", f"[tables.clinical]\n{line}"),
        "cohort": line + text,
    }
    toml.write_text(places[place])
    known = {variable.known_at for variable in cohorts.load(folder).dictionary().variables}
    assert known == {"baseline"}
    assert "timing_undeclared" not in {item.code for item in cohorts.check(folder)}


def test_standard_covariates_and_known_positive_leave_late_variables_out(tmp_path: Path) -> None:
    folder = write(tmp_path, patients())
    text = (folder / "cohort.toml").read_text()
    late = 'column = "stage"\nknown_at = 6\n'
    (folder / "cohort.toml").write_text(text.replace('column = "stage"\n', late))
    dictionary = cohorts.load(folder).dictionary()
    assert [variable.key for variable in dictionary.variables if variable.late] == [
        "clinical:stage"
    ]
    contract = draft(claim(), dictionary)
    assert contract.covariates == ("clinical:sex",)
    assert contract.controls.known_positive is None
