"""From a frozen contract to a verdict: what runs, what is refused, what survives."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.validation.core_help import NODE, claim, frozen_for, load, patients
from validation.amending import amend
from validation.analysis import Analysis, execute
from validation.compile import code, confirmation_key, prepare
from validation.contract import Contract, FrozenContract, SplitRule, freeze
from validation.errors import InputError
from validation.ledger import Entry, Ledger
from validation.results import Results
from validation.runner import collect, finalize, record_crash, run

STRONG = 1.1


def run_once(tmp_path: Path, raw: pd.DataFrame, **options: object) -> Results:
    cohort = load(tmp_path / "cohort", raw)
    frozen = frozen_for(cohort, options.pop("hypothesis", None), **options)  # type: ignore[arg-type]
    return run(frozen, cohort, tmp_path / "out", ledger=Ledger(tmp_path / "ledger.jsonl"))


def test_a_strong_effect_in_the_expected_direction_is_supported(tmp_path: Path) -> None:
    found = run_once(tmp_path, patients(400, log_hr=STRONG))
    assert found.verdict.verdict == "supported"
    assert found.numbers["primary.effect"].value == pytest.approx(math.exp(STRONG), rel=0.25)
    rules = {one.rule for one in found.verdict.reasons if one.outcome == "for"}
    assert rules >= {"primary", "permuted outcome", "random features", "adjusted model"}
    assert "one cohort only; no external validation" in found.verdict.limits


def test_the_same_effect_is_not_supported_for_the_opposite_claim(tmp_path: Path) -> None:
    found = run_once(
        tmp_path, patients(400, log_hr=STRONG), hypothesis=claim(direction="lower_risk")
    )
    assert (found.verdict.verdict, found.verdict.because) == ("not_supported", "evidence")
    assert "other direction" in found.verdict.reasons[0].text


def test_no_effect_with_few_events_is_inconclusive_for_lack_of_power(tmp_path: Path) -> None:
    found = run_once(tmp_path, patients(150))
    assert (found.verdict.verdict, found.verdict.because) == ("inconclusive", "power")
    assert "are needed" in found.verdict.reasons[0].text


def test_no_effect_with_enough_events_is_not_supported(tmp_path: Path) -> None:
    found = run_once(tmp_path, patients(800))
    assert found.verdict.verdict == "not_supported"


def test_results_are_the_same_bytes_when_run_again(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(log_hr=STRONG))
    frozen = frozen_for(cohort)
    texts = []
    for name in ("one", "two"):
        run(frozen, cohort, tmp_path / name, ledger=Ledger(tmp_path / f"{name}.jsonl"))
        folder = tmp_path / name
        texts.append({
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.suffix in (".json", ".svg", ".jsonl")
        })  # fmt: skip
    assert texts[0] == texts[1]
    assert "figures/kaplan_meier.svg" in texts[0]


def test_every_number_has_a_key_a_unit_and_a_printed_form(tmp_path: Path) -> None:
    found = run_once(tmp_path, patients(log_hr=STRONG))
    keys = "primary.p primary.effect primary.q groups.exposed.n adjusted.effect schoenfeld.p "
    keys += "kaplan_meier.exposed.median control.permuted.p specification.expected_sign "
    keys += "power.minimum_detectable"
    assert set(keys.split()) <= set(found.numbers)
    assert all(one.unit and one.text for key, one in found.numbers.items() if "cut." not in key)
    again = Results.read(tmp_path / "out" / "results.json")
    assert again.numbers["primary.p"].text == found.numbers["primary.p"].text
    with pytest.raises(InputError, match=r'no number "primary\.magic"'):
        found.number("primary.magic")


def test_results_and_prompts_hold_no_patient(tmp_path: Path) -> None:
    run_once(tmp_path, patients(log_hr=STRONG))
    text = (tmp_path / "out" / "results.json").read_text()
    assert "ID00" not in text
    assert "P0001" not in text


def test_the_simulated_mark_reaches_results_limits_and_figures(tmp_path: Path) -> None:
    from validation import cohort as cohorts
    from validation.simulate import write_world

    write_world(tmp_path / "world", seed=5, patients=150)
    cohort = cohorts.load(tmp_path / "world")
    hypothesis = claim(exposures=[{"variable": "expression:FABP5", "label": "FABP5"}])
    found = run(
        frozen_for(cohort, hypothesis), cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l")
    )
    assert found.simulated
    assert any(one.startswith("SIMULATED") for one in found.verdict.limits)
    assert "SIMULATED" in (tmp_path / "out" / "figures" / "kaplan_meier.svg").read_text()


def test_changed_data_are_refused_until_the_contract_is_frozen_again(tmp_path: Path) -> None:
    raw = patients()
    frozen = frozen_for(load(tmp_path / "cohort", raw))
    raw.loc[0, "months"] = 77
    changed = load(tmp_path / "cohort", raw)
    with pytest.raises(InputError, match=r"the data changed since .*: clinical.csv"):
        run(frozen, changed, tmp_path / "out", ledger=Ledger(tmp_path / "l"))


# -- the analysis that the sandbox runs ----------------------------------------------------------


def test_the_compiled_code_gives_the_same_analysis_as_the_runner(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(log_hr=STRONG))
    frozen = frozen_for(cohort)
    prepare(frozen, cohort, tmp_path / "inputs")
    (tmp_path / "analysis.py").write_text(code(frozen))
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "analysis.py"), str(tmp_path / "inputs"),
         str(tmp_path / "out")],
        cwd=tmp_path, env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    here = execute(tmp_path / "inputs", tmp_path / "here")
    there = (tmp_path / "out" / "analysis.json").read_text()
    assert there == (tmp_path / "here" / "analysis.json").read_text()
    found = collect(frozen, tmp_path / "out", tmp_path / "final", ledger=Ledger(tmp_path / "l"))
    assert found.verdict.verdict == "supported"
    assert (tmp_path / "final" / "figures" / "kaplan_meier.svg").is_file()
    assert here.test("primary") is not None


def test_code_is_deterministic_and_refuses_other_inputs(tmp_path: Path) -> None:
    frozen = frozen_for(load(tmp_path, patients(), more=NODE))
    other = frozen_for(load(tmp_path, patients(), more=NODE), claim(endpoint="node"))
    assert code(frozen) == code(frozen)
    assert code(frozen) != code(other)
    compile(code(frozen), "analysis.py", "exec")


def test_a_statement_cannot_break_out_of_the_compiled_code(tmp_path: Path) -> None:
    wicked = claim(statement='x""" + __import__("os").system("true") + """\\')
    text = code(frozen_for(load(tmp_path, patients()), wicked))
    import ast

    tree = ast.parse(text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    assert "__import__" not in {node.id for node in calls}


def test_prepared_inputs_that_were_changed_are_refused(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients())
    frozen = frozen_for(cohort)
    prepare(frozen, cohort, tmp_path / "inputs")
    table = pd.read_parquet(tmp_path / "inputs" / "table.parquet")
    table["OS.event"] = 1 - table["OS.event"]
    table.to_parquet(tmp_path / "inputs" / "table.parquet")
    with pytest.raises(InputError, match="changed since it was prepared"):
        Analysis.open(tmp_path / "inputs")


def test_inputs_hold_only_what_the_contract_names(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(), more=NODE)
    frozen = frozen_for(cohort)
    prepare(frozen, cohort, tmp_path / "inputs")
    columns = set(pd.read_parquet(tmp_path / "inputs" / "table.parquet").columns)
    assert columns == {
        "clinical:marker", "clinical:sex", "clinical:stage", "OS.time", "OS.event"
    }  # fmt: skip


def test_the_analysis_runs_registered_tests_only(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients())
    prepare(frozen_for(cohort), cohort, tmp_path / "inputs")
    analysis = Analysis.open(tmp_path / "inputs")
    with pytest.raises(InputError, match="is not in the contract"):
        analysis.run(["optimal_cutpoint"])


def test_derived_variables_cannot_replace_registered_ones(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients())
    prepare(frozen_for(cohort), cohort, tmp_path / "inputs")
    analysis = Analysis.open(tmp_path / "inputs")
    table = analysis.table
    with pytest.raises(InputError, match="already in the table"):
        analysis.derive("clinical:marker", table["clinical:marker"] * 2)
    analysis.derive("double", table["clinical:marker"] * 2)
    assert "double" in analysis.table


def test_results_of_a_test_that_is_not_registered_are_refused(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients())
    frozen = frozen_for(cohort)
    prepare(frozen, cohort, tmp_path / "inputs")
    execute(tmp_path / "inputs", tmp_path / "out")
    path = tmp_path / "out" / "analysis.json"
    value = json.loads(path.read_text())
    value["tests"][0]["id"] = "best_of_many"
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match='"best_of_many", which the contract does not register'):
        collect(frozen, tmp_path / "out", tmp_path / "final", ledger=Ledger(tmp_path / "l"))


# -- bad input: a named refusal or an inconclusive verdict ---------------------------------------


def refusal(tmp_path: Path, raw: pd.DataFrame, **changes: object) -> str:
    """The reason of an inconclusive verdict, or the refusal on the way to it."""
    try:
        found = run_once(tmp_path, raw, hypothesis=claim(**changes))
    except InputError as error:
        return f"refused: {error}"
    assert found.verdict.verdict == "inconclusive", found.verdict
    assert "primary.p" not in found.numbers
    return f"{found.verdict.because}: {found.verdict.reasons[0].text}"


def test_zero_events_give_no_number(tmp_path: Path) -> None:
    assert "no events" in refusal(tmp_path, patients().assign(dead=0))


def test_an_empty_group_gives_no_number(tmp_path: Path) -> None:
    exposure = {"variable": "clinical:marker", "label": "m", "cut": "fixed", "threshold": 99.0}
    assert "one side empty" in refusal(tmp_path, patients(), exposures=[exposure])


def test_a_group_too_small_gives_no_number(tmp_path: Path) -> None:
    raw = patients()
    threshold = float(raw["marker"].nlargest(5).min()) - 1e-6
    exposure = {"variable": "clinical:marker", "label": "m", "cut": "fixed",
                "threshold": threshold}  # fmt: skip
    assert "at least 10" in refusal(tmp_path, raw, exposures=[exposure])


def test_a_constant_feature_gives_no_number(tmp_path: Path) -> None:
    assert "constant (1)" in refusal(tmp_path, patients().assign(marker=1.0))


def test_too_few_events_give_no_number(tmp_path: Path) -> None:
    raw = patients()
    raw["dead"] = 0
    raw.loc[:5, "dead"] = 1
    assert "the contract asks for at least 10" in refusal(tmp_path, raw)


def test_ninety_percent_missing_gives_no_number_or_says_so(tmp_path: Path) -> None:
    raw = patients()
    raw["marker"] = raw["marker"].where(raw.index % 20 == 0)
    text = refusal(tmp_path, raw)
    assert "data" in text or "refused" in text


def test_perfect_separation_is_met_with_a_penalty_and_a_note(tmp_path: Path) -> None:
    raw = patients(200)
    high = raw["marker"] > raw["marker"].median()
    raw["dead"] = high.astype(int)
    found = run_once(tmp_path, raw)
    primary = found.test("primary")
    assert primary is not None
    assert primary.effect is not None
    assert math.isfinite(primary.effect.value)
    assert any("Firth" in one for one in primary.notes)


def test_more_covariates_than_events_are_penalized_or_refused(tmp_path: Path) -> None:
    raw = patients(160)
    more = ""
    rng = np.random.default_rng(0)
    for at in range(30):
        raw[f"c{at}"] = rng.normal(size=len(raw))
        more += f'\n[variables.c{at}]\ntable = "clinical"\ncolumn = "c{at}"\nkind = "continuous"\n'
    raw["dead"] = 0
    raw.loc[:13, "dead"] = 1
    raw.loc[:13, "stage"] = [1, 4] * 7
    cohort = load(tmp_path / "cohort", raw, more=more)
    wide = claim(covariates=[f"clinical:c{at}" for at in range(30)])
    found = run(frozen_for(cohort, wide), cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l"))
    adjusted = found.test("adjusted")
    assert adjusted is not None
    assert adjusted.status == "refused"
    assert adjusted.code == "too_many_covariates"
    assert "adjusted.effect" not in found.numbers


def test_an_outcome_that_contradicts_the_known_positive_is_in_doubt(tmp_path: Path) -> None:
    raw = patients(600, log_hr=1.0)
    order = np.random.default_rng(1).permutation(len(raw))
    raw["stage"] = raw["stage"].to_numpy()[order]
    found = run_once(tmp_path, raw)
    assert (found.verdict.verdict, found.verdict.because) == ("inconclusive", "control")
    assert "known positive" in found.verdict.reasons[0].rule


# -- splits, replication, imputation, ledger -----------------------------------------------------


def split_contract(tmp_path: Path, raw: pd.DataFrame) -> tuple[object, FrozenContract]:
    cohort = load(tmp_path / "cohort", raw)
    rule = SplitRule(policy="discovery_confirmation")
    return cohort, frozen_for(cohort, split=rule)


def test_confirmation_patients_are_never_prepared_before_the_unlock(tmp_path: Path) -> None:
    cohort, frozen = split_contract(tmp_path, patients(500, log_hr=STRONG))
    ledger = Ledger(tmp_path / "l.jsonl")
    prepare(frozen, cohort, tmp_path / "d", part="discovery")  # type: ignore[arg-type]
    rows = set(pd.read_parquet(tmp_path / "d" / "table.parquet").index)
    for part in ("confirmation", "all"):
        with pytest.raises(InputError, match=r"locked|are read as"):
            prepare(frozen, cohort, tmp_path / "c", part=part, ledger=ledger)  # type: ignore[arg-type]
    ledger.unlock(confirmation_key(frozen), frozen)
    prepare(frozen, cohort, tmp_path / "c", part="confirmation", ledger=ledger)  # type: ignore[arg-type]
    confirmation = set(pd.read_parquet(tmp_path / "c" / "table.parquet").index)
    assert not rows & confirmation
    assert len(rows) + len(confirmation) == 500


def test_a_discovery_is_confirmed_on_the_held_back_patients(tmp_path: Path) -> None:
    cohort, frozen = split_contract(tmp_path, patients(700, log_hr=STRONG))
    found = run(frozen, cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l"))  # type: ignore[arg-type]
    assert found.verdict.verdict == "supported"
    assert found.tests[0].part == "confirmation"
    assert "discovery.primary.p" in found.numbers
    discovery = json.loads((tmp_path / "out/inputs/discovery/provenance.json").read_text())
    confirmation = json.loads((tmp_path / "out/inputs/confirmation/provenance.json").read_text())
    assert discovery["cuts"] == confirmation["cuts"]


def test_a_failed_discovery_leaves_the_confirmation_locked(tmp_path: Path) -> None:
    cohort, frozen = split_contract(tmp_path, patients(300, log_hr=-1.0))
    found = run(frozen, cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l"))  # type: ignore[arg-type]
    assert found.verdict.verdict == "not_supported"
    assert not (tmp_path / "out" / "inputs" / "confirmation").exists()


def test_a_discovery_without_power_is_inconclusive_and_stays_locked(tmp_path: Path) -> None:
    cohort, frozen = split_contract(tmp_path, patients(160, seed=21))
    found = run(frozen, cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l"))  # type: ignore[arg-type]
    assert (found.verdict.verdict, found.verdict.because) == ("inconclusive", "power")
    assert "stay locked" in found.verdict.reasons[-1].text


def test_an_amended_contract_cannot_open_the_confirmation_again(tmp_path: Path) -> None:
    cohort, frozen = split_contract(tmp_path, patients(700, log_hr=STRONG))
    ledger = Ledger(tmp_path / "l")
    run(frozen, cohort, tmp_path / "out", ledger=ledger)  # type: ignore[arg-type]
    second = amend(frozen, cohort, reason="try again", changes={"rules.relevant_ratio": 1.4})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="already opened"):
        run(second, cohort, tmp_path / "out2", ledger=Ledger(tmp_path / "l"))  # type: ignore[arg-type]


def test_a_second_cohort_that_agrees_is_named_and_one_that_contradicts_prevents(
    tmp_path: Path,
) -> None:
    cohort = load(tmp_path / "one", patients(400, log_hr=STRONG))
    frozen = frozen_for(cohort)
    same = load(tmp_path / "two", patients(400, log_hr=STRONG, seed=9))
    other = load(tmp_path / "three", patients(400, log_hr=-STRONG, seed=10))
    agree = run(frozen, cohort, tmp_path / "a", ledger=Ledger(tmp_path / "la"), replicate=same)
    against = run(frozen, cohort, tmp_path / "b", ledger=Ledger(tmp_path / "lb"), replicate=other)
    assert agree.verdict.verdict == "supported"
    assert any(one.rule == "replication" for one in agree.verdict.reasons)
    assert "replicate.primary.effect" in agree.numbers
    assert (against.verdict.verdict, against.verdict.because) == ("inconclusive", "replication")


def test_the_same_data_are_no_replication(tmp_path: Path) -> None:
    cohort = load(tmp_path / "one", patients(400, log_hr=STRONG))
    with pytest.raises(InputError, match="needs another cohort"):
        run(frozen_for(cohort), cohort, tmp_path / "a", ledger=Ledger(tmp_path / "l"),
            replicate=cohort)  # fmt: skip


def test_imputation_keeps_patients_that_complete_cases_lose(tmp_path: Path) -> None:
    from validation.contract import MissingRule

    raw = patients(300, log_hr=STRONG)
    raw["stage"] = raw["stage"].where(raw.index % 4 != 0)
    cohort = load(tmp_path / "cohort", raw)
    missing = MissingRule(policy="multiple_imputation", imputations=5)
    complete = run(frozen_for(cohort), cohort, tmp_path / "a", ledger=Ledger(tmp_path / "l"))
    imputed = run(
        frozen_for(cohort, missing=missing), cohort, tmp_path / "b", ledger=Ledger(tmp_path / "l")
    )
    one, two = complete.test("adjusted"), imputed.test("adjusted")
    assert one is not None
    assert two is not None
    assert (one.n, two.n) == (225, 300)
    assert any("Rubin" in note for note in two.notes)


def entry(name: str, p: float | None, **changes: object) -> Entry:
    values = {"contract": name, "hypothesis": name, "cohort": "c", "test": "primary",
              "role": "primary", "part": "all", "claim": True, "status": "ok", "p": p}  # fmt: skip
    return Entry.model_validate(values | changes)


def test_q_values_are_benjamini_hochberg_over_all_claims_crashed_ones_too(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    for name, p in (("a", 0.01), ("b", 0.02), ("c", 0.9)):
        ledger.record(entry(name, p))
    ledger.record(entry("d", None, status="crashed"))
    found = {one.hypothesis: one for one in Ledger(tmp_path / "l.jsonl").adjust()}
    assert found["a"].q == pytest.approx(0.04)
    assert found["b"].q == pytest.approx(0.04)
    assert found["d"].q == 1.0
    assert found["d"].e == 0.0
    assert found["a"].family == 4


def test_the_same_attempt_counts_once_and_another_version_counts_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    ledger.record(entry("a", 0.01))
    ledger.record(entry("a", 0.01))
    ledger.record(entry("a2", 0.01, hypothesis="a"))
    assert len(ledger.claims()) == 2
    assert len((tmp_path / "l.jsonl").read_text().splitlines()) == 2


def test_an_edited_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text('{"p": 0.04}\n')
    with pytest.raises(InputError, match="line 1 is not a ledger entry"):
        Ledger(tmp_path / "l.jsonl")


def test_every_attempt_of_a_run_is_in_the_ledger(tmp_path: Path) -> None:
    found = run_once(tmp_path, patients(log_hr=STRONG))
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert {one.test for one in ledger.entries} == {one.id for one in found.tests}
    assert sum(one.claim for one in ledger.entries) == 1


def test_an_analysis_that_died_still_counts(tmp_path: Path) -> None:
    frozen = frozen_for(load(tmp_path / "c", patients()))
    ledger = Ledger(tmp_path / "l.jsonl")
    record_crash(frozen, ledger, "killed")
    assert ledger.adjust()[0].p == 1.0
    assert ledger.counts()["crashed"] == len(frozen.contract.tests)


def test_a_verdict_is_judged_again_when_more_hypotheses_join_the_ledger(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(400, log_hr=0.5, seed=4))
    ledger = Ledger(tmp_path / "ledger.jsonl")
    first = frozen_for(cohort)
    alone = run(first, cohort, tmp_path / "one", ledger=ledger)
    p = alone.numbers["primary.p"].value
    assert p is not None
    assert p < 0.05
    for at in range(30):
        ledger.record(entry(f"other{at}", 0.9))
    again = finalize([(first, tmp_path / "one")], ledger)[0]
    assert again.numbers["primary.q"].value == pytest.approx(min(0.9, 31 * p), rel=1e-6)
    assert again.verdict.because == "multiplicity"


def test_a_crash_inside_a_test_leaves_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from validation import methods

    def explode(*_: object) -> object:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setitem(methods.METHODS, "rmst", explode)
    found = run_once(tmp_path, patients(log_hr=STRONG))
    outcome = found.test("rmst")
    assert outcome is not None
    assert outcome.status == "crashed"
    lines = [json.loads(one) for one in (tmp_path / "out/attempts.jsonl").read_text().splitlines()]
    assert {"test": "rmst", "state": "started", "part": "all"} in lines


def test_null_cohorts_are_rarely_claimed(tmp_path: Path) -> None:
    """Two-sided level 5% in one direction: 2.5% expected; 5 or more of 40 has p < 0.01."""
    claimed = 0
    for seed in range(40):
        raw = patients(160, seed=1000 + seed)
        cohort = load(tmp_path / f"c{seed}", raw)
        plan = frozen_for(cohort).contract
        quick = plan.model_copy(
            update={"controls": plan.controls.model_copy(
                update={"permutations": 0, "random_features": 0})}
        )  # fmt: skip
        frozen = freeze(Contract.model_validate(quick.model_dump()), cohort)
        inputs = tmp_path / f"i{seed}"
        prepare(frozen, cohort, inputs)
        analysis = Analysis.open(inputs)
        analysis.run(["primary"])
        out = tmp_path / f"o{seed}"
        found = collect(frozen, analysis.result(), out, ledger=Ledger(tmp_path / f"l{seed}"))
        claimed += found.verdict.verdict == "supported"
    assert claimed < 5


def test_e_values_multiply_over_disjoint_patients_only(tmp_path: Path) -> None:
    from validation.statistics.multiplicity import p_to_e

    ledger = Ledger(tmp_path / "l.jsonl")
    ledger.record(entry("a", 0.01, part="confirmation"))
    ledger.record(entry("a", 0.02, part="discovery", claim=False))
    ledger.record(entry("a", 0.03, test="adjusted", role="adjusted", claim=False))
    found = ledger.adjust()[0]
    assert found.e == pytest.approx(float(np.prod(p_to_e([0.01, 0.02]))))
    assert found.q == pytest.approx(0.01)


def test_subgroups_are_reported_and_carry_no_claim(tmp_path: Path) -> None:
    raw = patients(400, log_hr=STRONG)
    women = {"variable": "clinical:sex", "op": "eq", "value": "female"}
    found = run_once(tmp_path, raw, hypothesis=claim(subgroups=[women]))
    subgroup = found.test("subgroup.1")
    assert subgroup is not None
    assert subgroup.n == int((raw["sex"] == "female").sum())
    assert not subgroup.claim
    assert found.numbers["ledger.claims"].value == 1


def test_a_negative_control_that_fires_prevents_the_claim(tmp_path: Path) -> None:
    raw = patients(400, log_hr=STRONG)
    more = OTHER_SURVIVAL
    hypothesis = claim(negative_endpoint="NEG")
    quiet = raw.assign(neg_months=raw["months"].sample(frac=1, random_state=5).to_numpy(),
                       neg=raw["dead"].sample(frac=1, random_state=5).to_numpy())  # fmt: skip
    loud = raw.assign(neg_months=raw["months"], neg=raw["dead"])
    verdicts = []
    for name, table in (("quiet", quiet), ("loud", loud)):
        cohort = load(tmp_path / name, table, more=more)
        out = tmp_path / f"{name}-out"
        found = run(frozen_for(cohort, hypothesis), cohort, out, ledger=Ledger(out / "l"))
        verdicts.append((found.verdict.verdict, found.verdict.because))
    assert verdicts == [("supported", "evidence"), ("inconclusive", "control")]


OTHER_SURVIVAL = """
[endpoints.NEG]
kind = "survival"
table = "clinical"
time = "neg_months"
time_unit = "months"
event = "neg"
event_values = [1]
censored_values = [0]
"""


def test_a_searched_cut_point_pays_for_the_search(tmp_path: Path) -> None:
    exposure = {"variable": "clinical:marker", "label": "marker", "cut": "optimal"}
    found = run_once(tmp_path, patients(300), hypothesis=claim(exposures=[exposure]))
    primary = found.test("primary")
    assert primary is not None
    assert primary.method == "maximally_selected"
    assert primary.p is not None
    uncorrected = found.numbers["primary.p_uncorrected"].value
    assert uncorrected is not None
    assert primary.p > uncorrected


def test_concordance_auc_and_the_interval_of_the_gain_are_reported(tmp_path: Path) -> None:
    found = run_once(tmp_path, patients(400, log_hr=STRONG))
    numbers = {key: one.value for key, one in found.numbers.items()}
    assert numbers["concordance.with.harrell"] > numbers["concordance.without.harrell"]
    assert numbers["concordance.gain"] == pytest.approx(
        numbers["concordance.with.harrell"] - numbers["concordance.without.harrell"], abs=1e-6
    )
    assert numbers["concordance.gain_lower"] < numbers["concordance.gain"]
    assert numbers["concordance.gain"] < numbers["concordance.gain_upper"]
    assert 0.5 < numbers["concordance.with.auc"] < 1


# -- other endpoints and comparisons -------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "comparison", "cut", "method"),
    [
        ("node", "exposed_vs_rest", "median", "fisher"),
        ("node", "per_sd", "continuous", "logistic"),
        ("size", "exposed_vs_rest", "median", "rank"),
        ("size", "per_sd", "continuous", "linear"),
        ("OS", "per_sd", "continuous", "cox"),
        ("OS", "exposed_vs_rest", "tertile", "logrank"),
        ("OS", "extremes", "tertile", "logrank"),
        ("OS", "per_sd", "spline", "spline"),
    ],
)
def test_each_endpoint_and_comparison_gives_a_verdict(
    tmp_path: Path, endpoint: str, comparison: str, cut: str, method: str
) -> None:
    cohort = load(tmp_path / "cohort", patients(300, log_hr=STRONG), more=NODE)
    hypothesis = claim(
        endpoint=endpoint,
        comparison=comparison,
        exposures=[{"variable": "clinical:marker", "label": "marker", "cut": cut}],
    )
    found = run(
        frozen_for(cohort, hypothesis), cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l")
    )
    primary = found.test("primary")
    assert primary is not None
    assert primary.status == "ok", primary.reason
    assert primary.method == method
    assert not [one.id for one in found.tests if one.status == "crashed"]


def test_an_interaction_is_the_product_term_beside_its_main_effects(tmp_path: Path) -> None:
    from lifelines import CoxPHFitter

    raw = patients(500, seed=8)
    cohort = load(tmp_path / "cohort", raw)
    both = claim(
        comparison="interaction",
        exposures=[{"variable": "clinical:marker", "label": "marker"},
                   {"variable": "clinical:sex", "label": "sex"}],
    )  # fmt: skip
    found = run(frozen_for(cohort, both), cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l"))
    a = (raw["marker"] > raw["marker"].median()).astype(float)
    b = (raw["sex"] == "male").astype(float)
    frame = pd.DataFrame({"t": raw["months"], "e": raw["dead"], "ab": a * b, "a": a, "b": b})
    fit = CoxPHFitter().fit(frame, "t", "e")
    assert found.numbers["primary.effect"].value == pytest.approx(
        float(np.exp(fit.params_["ab"])), rel=1e-4
    )
