"""The verdict's rules: the table, no jumps, and mutants of the rules that the table must kill."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validation.verdict_table import (
    ORDER,
    Row,
    controls,
    decision_table,
    estimate,
    evidence,
    failures,
    on_line,
    rows,
    specification,
)
from validation.verdict.verdict import judge

ROWS = list(rows())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_table_of_rules(row: Row) -> None:
    assert not failures(row, judge)


def test_the_readme_shows_the_decisions_that_the_rules_make() -> None:
    readme = Path(__file__).resolve().parents[2] / "validation" / "README.md"
    assert decision_table(judge) in readme.read_text(encoding="utf-8")


# -- no jumps ------------------------------------------------------------------------------------

STEP = 0.005
"""Of the way along a line: less than the stretch between supported and not supported, which is
0.3 standard errors at least."""


def place(ratio: float, se: float, q: float | None = None) -> int:
    """Where the verdict stands in the order, on an estimate that covariates do not change."""
    base = evidence(primary=estimate(2.0), adjusted=estimate(ratio, se))
    given_evidence = on_line(base, ratio=ratio, se=se, q=q)
    return ORDER[judge(given_evidence).verdict]


@settings(max_examples=60, deadline=None)
@given(
    effect=st.floats(-1.5, 1.5), se=st.floats(0.02, 0.8),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)  # fmt: skip
def test_no_q_leads_from_supported_to_not_supported(
    effect: float, se: float, ends: tuple[float, float]
) -> None:
    places = {place(math.exp(effect), se, q) for q in (*ends, 0.0, 0.049, 0.05, 0.051, 1.0)}
    assert not places >= {ORDER["supported"], ORDER["not_supported"]}


@settings(max_examples=10, deadline=None)
@given(
    start=st.floats(-1.5, 1.5), end=st.floats(-1.5, 1.5), se=st.floats(0.06, 0.8),
    adjusted_moves=st.booleans(), q=st.one_of(st.none(), st.floats(0, 1)),
)  # fmt: skip
def test_as_the_estimate_moves_the_verdict_moves_by_neighbors(
    start: float, end: float, se: float, adjusted_moves: bool, q: float | None
) -> None:
    before = None
    for at in range(int(1 / STEP) + 1):
        effect = start + (end - start) * at * STEP
        beside = estimate(math.exp(effect), se) if adjusted_moves else estimate(1.6, 0.15)
        base = evidence(primary=estimate(2.0), adjusted=beside)
        here = ORDER[judge(on_line(base, ratio=math.exp(effect), se=se, q=q)).verdict]
        assert before is None or abs(here - before) <= 1
        before = here


def test_from_supported_to_not_supported_at_the_narrowest_place() -> None:
    """Where the interval would leave out 1 and 1.5 at once, an inconclusive stretch remains."""
    se = math.log(1.5) / (2 * 1.959964)
    places = [place(math.exp(math.log(1.5) / 2 + shift * se), se)
              for shift in [at / 1000 for at in range(-500, 101)]]  # fmt: skip
    assert places[0] == ORDER["not_supported"] and places[-1] == ORDER["supported"]
    assert max(abs(a - b) for a, b in itertools.pairwise(places)) == 1
    assert places.count(ORDER["inconclusive"]) > 250


# -- more patients, the same estimates -----------------------------------------------------------

PATIENTS = [100 * 1.35**at for at in range(38)]


@settings(max_examples=40, deadline=None)
@given(
    crude=st.floats(-1.0, 1.0), adjusted=st.one_of(st.none(), st.floats(-1.0, 1.0)),
    wider=st.floats(1.0, 1.5), claims=st.integers(1, 50),
    direction=st.sampled_from(["higher_risk", "lower_risk", "either"]),
    unstable=st.booleans(), declared=st.booleans(),
)  # fmt: skip
def test_with_more_patients_a_conclusion_is_never_lost(
    crude: float, adjusted: float | None, wider: float, claims: int,
    direction: str, unstable: bool, declared: bool,
) -> None:  # fmt: skip
    plan: dict[str, Any] = {"direction": direction}
    if adjusted is None:
        plan |= {"covariates": (), "unadjusted_because": "randomized" if declared else ""}
    ran = controls(specification=specification(0.5 if unstable else 1.0))
    concluded = False
    for n in PATIENTS:
        se = 2 / math.sqrt(n)
        primary = estimate(math.exp(crude), se)
        beside = None if adjusted is None else estimate(math.exp(adjusted), wider * se)
        found = judge(
            evidence(
                primary=primary, adjusted=beside, plan=plan, ran=ran, family=claims,
                q=min(1.0, claims * primary["p"]),
                q_adjusted=None if beside is None else min(1.0, claims * beside["p"]),
            )
        )  # fmt: skip
        assert found.verdict != "inconclusive" or not concluded, (n, found.badge)
        concluded = found.verdict != "inconclusive"


# -- fail closed ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "field"),
    [("PermutedOutcome", "p"), ("RandomFeatures", "percentile"), ("KnownPositiveResult", "events"),
     ("NegativeEndpoint", "p"), ("Specifications", "own")],
)  # fmt: skip
@pytest.mark.parametrize("value", [None, math.nan])
def test_a_control_that_ran_has_its_numbers(kind: str, field: str, value: float | None) -> None:
    from pydantic import ValidationError

    from validation.results import controls as control_results

    good = {"status": "ran", "p": 0.1, "draws": 9, "percentile": 0.9, "kind": "matched genes",
            "hr": 2.0, "events": 99, "endpoint": "E", "expected_sign": 1.0, "own": True, "n": 9,
            "failed": 0}  # fmt: skip
    model = getattr(control_results, kind)
    names = set(model.model_fields)
    assert model.model_validate({key: good[key] for key in good if key in names})
    with pytest.raises(ValidationError):
        model.model_validate({key: good[key] for key in good if key in names} | {field: value})


# -- mutants -------------------------------------------------------------------------------------


def test_the_table_kills_the_mutants_of_the_rules() -> None:
    from tests.validation.mutants import find_survivors

    count, alive = find_survivors()
    assert count >= 40
    assert not alive, "\n".join(str(mutant) for mutant in alive)
