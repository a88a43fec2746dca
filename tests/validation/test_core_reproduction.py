"""The second implementation agrees with SAGE over all kinds of claims; lies and gaps show."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sage.core.errors import InputError
from tests.validation.core_help import ROOT
from validation.cohort.cohort import Cohort
from validation.cohort.model import read_spec
from validation.contracts.contract import ControlPlan, MissingRule, read_hypothesis
from validation.core.hypothesis import Hypothesis
from validation.drafting.draft import draft
from validation.drafting.freezing import freeze
from validation.ledger.ledger import Ledger
from validation.reproduction import second_program as program
from validation.reproduction.compare import (
    Numbers,
    SecondTest,
    Task,
    compare,
    read_numbers,
    second_program,
)
from validation.results.results import AnalysisResult, Effect, Results, TestOutcome
from validation.run.runner import run
from validation.simulate.world import write_world
from validation.statistics.cox import cox

CLAIMS: dict[str, tuple[str, dict[str, Any]]] = {
    "interaction": ("cox", {"comparison": "interaction"}),
    "spline": ("spline", {"cut": "spline"}),
    "strata": ("logrank", {"comparison": "exposed_vs_rest", "strata": ["clinical:stage"]}),
    "competing risks": ("cause_specific", {"comparison": "exposed_vs_rest", "endpoint": "cause"}),
    "a table": ("fisher", {"comparison": "exposed_vs_rest", "endpoint": "nodes"}),
    "a logistic slope": ("logistic", {"comparison": "per_sd", "endpoint": "nodes"}),
    "imputed covariates": ("logrank", {"comparison": "exposed_vs_rest", "imputed": True}),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    folder = tmp_path_factory.mktemp("world") / "cohort"
    write_world(folder, seed=1, patients=240)
    return Cohort(read_spec(folder / "cohort.toml"), folder)


def run_claim(world: Cohort, out: Path, **changes: Any) -> Results:
    base = read_hypothesis(ROOT / "docs/hypotheses/e5_fabp5_tls.json").model_dump()
    cut = changes.pop("cut", "median")
    missing = MissingRule(policy="multiple_imputation", imputations=2)
    plan = {"missing": missing} if changes.pop("imputed", False) else {}
    single = cut != "median" or changes.get("comparison") == "per_sd"
    if single:
        changes = {"comparison": "exposed_vs_rest"} | changes
    exposures = [exposure | {"cut": cut} for exposure in base["exposures"][: 1 if single else 2]]
    secondary = ["nodes"] if not changes.get("strata") and "endpoint" not in changes else []
    strata = changes.get("strata", [])
    hypothesis = Hypothesis.model_validate(
        base | changes | {
            "exposures": exposures, "secondary_endpoints": secondary,
            "covariates": [key for key in base["covariates"] if key not in strata],
            "subgroups": [{"variable": "clinical:gender", "op": "eq", "value": "male"}],
        }
    )  # fmt: skip
    controls = ControlPlan(permutations=20, random_features=20)
    contract = draft(hypothesis, world.dictionary(), seed=3, controls=controls)
    frozen = freeze(contract.model_copy(update=plan), world)
    return run(frozen, world, out, ledger=Ledger(out / "l.jsonl"), figures=False)


@pytest.mark.parametrize("claim", CLAIMS)
def test_public_libraries_agree_with_every_number_that_they_can_compute(
    world: Cohort, tmp_path: Path, claim: str
) -> None:
    method, changes = CLAIMS[claim]
    results = run_claim(world, tmp_path, **changes)
    (found,) = results.reproduction
    primary = results.test("primary")
    assert primary is not None and primary.method == method
    assert found.by == "SAGE" and not found.with_state("differs", "missing")
    of_primary = {item.field: item.state for item in found.compared if item.test == "primary"}
    assert of_primary["n"] == of_primary["effect"] == "reproduced"
    searching = method == "spline"
    assert (of_primary["p"] == "no second implementation") is searching
    assert ("not independently reproduced" in results.verdict.qualifiers) is searching


OUTCOME = TestOutcome(
    id="primary", role="primary", method="cox", endpoint="OS", status="ok", n=200, events=90,
    effect=Effect(value=1.5, lower=1.1, upper=2.1, scale="hazard ratio"), p=0.01,
)  # fmt: skip
TASK = Task(
    contract_sha256="c", part="all",
    tests=(
        SecondTest(
            id="primary", method="cox", time="OS.time", event="OS.event", terms=("exposure",),
            report=("n", "events", "effect", "lower", "upper", "p"),
        ),
    ),
)  # fmt: skip
EXACT = {"n": 200, "events": 90, "effect": 1.5, "lower": 1.1, "upper": 2.1, "p": 0.01}


def compared(answer: dict[str, Any] | None, **changes: Any) -> dict[str, str]:
    analysis = AnalysisResult(
        contract_sha256="c", cohort="x", simulated=True, part="all",
        tests=(OUTCOME.model_copy(update=changes),),
    )  # fmt: skip
    numbers = None if answer is None else Numbers.model_validate({"numbers": {"primary": answer}})
    return {item.field: item.state for item in compare(TASK, analysis, numbers, "a model").compared}


@pytest.mark.parametrize(
    ("field", "value", "state"),
    [
        ("n", 199, "differs"), ("events", 91, "differs"), ("n", None, "missing"),
        ("effect", 1.5149, "reproduced"), ("effect", 1.52, "differs"), ("effect", -1.5, "differs"),
        ("effect", 1 / 1.5, "differs"), ("lower", None, "missing"), ("upper", 2.2, "differs"),
        ("p", 0.0104, "reproduced"), ("p", 0.0106, "differs"), ("p", 0.0, "differs"),
        ("p", 1.0, "differs"), ("p", None, "missing"),
    ],
)  # fmt: skip
def test_each_number_is_held_to_its_tolerance(field: str, value: Any, state: str) -> None:
    states = compared(EXACT | {field: value})
    assert states.pop(field) == state
    assert set(states.values()) == {"reproduced"}


def test_without_an_answer_every_number_is_missing_and_with_firth_only_counts_are_asked() -> None:
    assert set(compared(None).values()) == {"missing"}
    firth = compared(None, notes=("Firth's penalty: 9 events for 1 terms, under 10 for each",))
    assert {name for name, state in firth.items() if state == "missing"} == {"n", "events"}
    refused = compared(EXACT, status="refused")
    assert refused == {}


def test_a_model_that_does_not_fit_leaves_the_counts() -> None:
    table = pd.DataFrame(
        {"x": [0.0] * 30 + [1.0] * 20, "t": range(1, 51), "e": [1] * 30 + [0] * 20}
    )
    test = {"id": "primary", "method": "logrank", "terms": ["x"], "covariates": [], "strata": [],
            "time": "t", "event": "e", "value": "", "binary": False, "subset": "", "person": "",
            "entry": "",
            "report": ["n", "events", "effect", "lower", "upper", "p"]}  # fmt: skip
    found = program.compute(table, test, [])
    assert (found["n"], found["events"]) == (50, 30)


R = Path(__file__).parent / "r"


@pytest.mark.parametrize("cohort", ["nwtco", "cohorts/lung", "cohorts/pbc"])
def test_products_of_a_binary_and_a_continuous_variable_agree_or_are_said_not_to_converge(
    cohort: str,
) -> None:
    table = pd.read_csv(R / f"{cohort}.csv.gz")
    table = table[table.time > 0].assign(event=lambda rows: (rows.status == 1).astype(int))
    columns = [name for name in table if name.startswith("x.")]
    two = [name for name in columns if table[name].nunique() == 2]
    many = [name for name in columns if table[name].nunique() > 3]
    for binary, amount in product(two[:3], many[:4]):
        rows = table.dropna(subset=[binary, amount])
        x = (rows[binary] == rows[binary].max()).astype(float)
        z = (rows[amount] - rows[amount].mean()) / rows[amount].std()
        asked = pd.DataFrame({"x": x * z, "a": x, "b": z, "t": rows.time, "e": rows.event})
        test = {"id": "primary", "method": "cox", "terms": ["x", "a", "b"], "covariates": [],
                "strata": [], "time": "t", "event": "e", "value": "", "binary": False,
                "subset": "", "person": "", "entry": "",
                "report": ["n", "events", "effect", "p"]}  # fmt: skip
        diverged: list[str] = []
        found = program.compute(asked, test, diverged)
        if diverged:
            assert "effect" not in found
            continue
        own = cox(asked.t, asked.e, asked[["x", "a", "b"]], ["x", "a", "b"])
        assert found["effect"] == pytest.approx(own.hr[0], rel=1e-3)
    if cohort == "nwtco":
        assert (two, many) == (["x.histol"], ["x.stage", "x.age"])


def test_a_model_that_did_not_converge_objects_to_nothing() -> None:
    lacking = {name: value for name, value in EXACT.items() if name in ("n", "events")}
    said = Numbers.model_validate_json(
        json.dumps({"numbers": {"primary": lacking}, "unconverged": ["primary"]})
    )
    reference = AnalysisResult(
        contract_sha256="c", cohort="x", simulated=True, part="all", tests=(OUTCOME,)
    )
    states = {item.state for item in compare(TASK, reference, said, "SAGE").compared}
    assert states == {"reproduced", "did not converge"}
    by_model = {item.state for item in compare(TASK, reference, said, "a model").compared}
    assert by_model == {"reproduced", "missing"}


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["numbers", "primary", "p", "n", "x"]), inner, max_size=3),
    max_leaves=8,
))  # fmt: skip
def test_whatever_a_file_holds_it_is_read_typed_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    path = tmp_path_factory.mktemp("n") / "numbers.json"
    path.write_text(json.dumps(value))
    try:
        found = read_numbers(path, TASK)
    except InputError as error:
        assert str(error).startswith(("numbers.json", "the program did not write"))
    else:
        assert set(found.numbers) <= {"primary"}


def test_the_second_implementation_imports_nothing_of_sage() -> None:
    from sandbox import policy

    assert policy.check(second_program(), policy.ALLOWED_IMPORTS - {"validation"}) == []
