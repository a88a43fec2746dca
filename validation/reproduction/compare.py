"""The independent reproduction, which compares a second implementation with SAGE's own numbers.

A second implementation starts from the analyzed patients with their groups
(`table.parquet`, without identifiers) and the list of registered tests (`task.json`), and
computes the registered numbers with public libraries. It never sees SAGE's results. It
shares only the preparation with SAGE: population, outcome columns, and the exposure as
coded by the registered cut rule.

A number is *reproduced* if both agree within `TOLERANCES`, *differs* if they do not, and
is *missing* if it was requested but not returned; its model *did not converge* if it
failed in SAGE's second implementation at every step size; and it has *no second
implementation* if no public library computes it: the Fine-Gray model, Gray's test,
Schoenfeld's test, restricted means and periods, concordance, calibration, tests of
splines and searched cuts, Firth's penalty, pooled imputations, cluster-robust errors.
Only the first state counts as agreement.

A registered number that differs or is missing blocks "supported" (inconclusive,
reproduction). A primary test without a second implementation, or whose second
implementation did not converge, does not block it; the verdict then carries the qualifier
"not independently reproduced".
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, ValidationError

from sage.core.errors import InputError
from sage.core.files import write_text, writing
from sage.core.hashes import hash_text
from sage.core.models import Strict
from sage.core.seeds import generator
from validation.contracts.contract import Contract, TestPlan
from validation.core.hypothesis import Calibration, Comparison
from validation.results.results import (
    AnalysisResult,
    Compared,
    Objection,
    Part,
    Quantity,
    Reason,
    Reproduction,
    State,
    TestOutcome,
    stable_json,
)

TASK, TABLE, NUMBERS = "task.json", "table.parquet", "numbers.json"
LARGEST_FILE = 64 * 1024
TOLERANCES: dict[str, str] = {
    "n": "equal",
    "events": "equal",
    "effect": "0.01 on the logarithmic scale (differences: 0.01 SD)",
    "lower": "as the effect",
    "upper": "as the effect",
    "p": "2% of its value, or 0.0005",
}
PERSON = "person"
COUNTS: tuple[Quantity, ...] = ("n", "events")
ESTIMATE: tuple[Quantity, ...] = ("effect", "lower", "upper")
PUBLIC: dict[str, tuple[Quantity, ...]] = {
    "logrank": (*COUNTS, *ESTIMATE, "p"),
    "cox": (*COUNTS, *ESTIMATE, "p"),
    "cause_specific": (*COUNTS, *ESTIMATE, "p"),
    "spline": (*COUNTS, *ESTIMATE),
    "maximally_selected": (*COUNTS, *ESTIMATE),
    "fisher": (*COUNTS, *ESTIMATE, "p"),
    "logistic": (*COUNTS, *ESTIMATE, "p"),
    "linear": ("n", *ESTIMATE, "p"),
    "mediation": (*COUNTS, "effect", "p"),
    "nested": (*COUNTS, *ESTIMATE, "p"),
    "penalized": (*COUNTS, *ESTIMATE),
    "rank": ("n", *ESTIMATE, "p"),
    "joint_groups": (*COUNTS, "p"),
    "time_dependent": (*COUNTS, *ESTIMATE, "p"),
    "ordered_groups": COUNTS,
    "kaplan_meier": COUNTS,
    "cumulative_incidence": COUNTS,
    "schoenfeld": COUNTS,
    "rmst": COUNTS,
    "period_hazards": COUNTS,
    "fine_gray": COUNTS,
    "gray": COUNTS,
    "concordance": COUNTS,
    "calibration": COUNTS,
    "recalibration": (*COUNTS, *ESTIMATE, "p"),
    "calibration_slope": (*COUNTS, *ESTIMATE, "p"),
}
"""Numbers that public libraries compute, by method; methods not listed have none."""

Count = Annotated[int, Field(ge=0, le=10_000_000)]
Finite = Annotated[float, Field(allow_inf_nan=False, ge=-1e12, le=1e12)]
TestId = Annotated[str, Field(min_length=1, max_length=80)]


class Answered(Strict):
    """A second implementation's numbers for a registered test."""

    model_config = ConfigDict(strict=True)

    n: Count | None = None
    events: Count | None = None
    effect: Finite | None = None
    lower: Finite | None = None
    upper: Finite | None = None
    p: Annotated[float, Field(allow_inf_nan=False, ge=0, le=1)] | None = None


class Numbers(Strict):
    """`numbers.json`: everything that a second implementation may report about registered tests."""

    model_config = ConfigDict(strict=True)

    numbers: dict[TestId, Answered] = Field(max_length=200)
    unconverged: tuple[TestId, ...] = Field(default=(), max_length=200, strict=False)


class SecondTest(Strict):
    """A registered test as requested from a second implementation, by table columns.

    `terms` are the exposure and, for an interaction, the main effects. `base` are the
    exposures to which others are added. `report` lists the requested numbers. `entry` is the
    time when a row comes under observation; for time-dependent claims, rows are records, and
    `person` identifies the patient. `score` has the horizon and margins of a published score,
    whose predicted risks are the exposure.
    """

    id: str
    method: str
    time: str | None = None
    event: str | None = None
    value: str | None = None
    binary: bool = False
    terms: tuple[str, ...]
    base: tuple[str, ...] = Field(default=(), exclude_if=lambda given: not given)
    covariates: tuple[str, ...] = ()
    strata: tuple[str, ...] = ()
    subset: str | None = None
    entry: str | None = None
    person: str | None = None
    score: Calibration | None = Field(default=None, exclude_if=lambda given: given is None)
    report: tuple[Quantity, ...]


class Task(Strict):
    """`task.json`: the tests registered for part of a study, built only from the contract."""

    contract_sha256: str
    part: Part
    tests: tuple[SecondTest, ...]


def second_program() -> str:
    """Return the source code of SAGE's own second implementation, `second_program.py`."""
    return Path(__file__).with_name("second_program.py").read_text(encoding="utf-8")


def task_of(
    contract: Contract, sha256: str, part: Part, columns: Sequence[str] | None = None
) -> Task:
    """Build the task for a second implementation: the numbers to compute for a part."""
    from validation.analysis.analysis import AGAIN

    def present(key: str) -> bool:
        return columns is None or key in columns

    def enters(endpoint: str) -> bool:
        late = contract.hypothesis.time_dependent or contract.endpoint(endpoint).entry
        return late if columns is None else f"{endpoint}.entry" in columns

    plans = [plan for plan in contract.tests if not _imputes(contract, plan)]
    added = contract.comparison is Comparison.ADDED
    if part == "replication":
        plans = [plan for plan in plans if plan.id in {contract.primary, *AGAIN}]
    tests = []
    for plan in plans:
        kind = contract.endpoint(plan.endpoint).kind
        timed = kind in ("survival", "competing")
        report = PUBLIC.get(plan.method, ())
        if not report:
            continue
        if kind == "continuous":
            report = tuple(item for item in report if item != "events")
        if contract.cluster is not None:
            report = tuple(item for item in report if item in (*COUNTS, "effect"))
        tests.append(
            SecondTest(
                id=plan.id,
                method=plan.method,
                time=f"{plan.endpoint}.time" if timed else None,
                event=f"{plan.endpoint}.event" if timed else None,
                value=None if timed else f"{plan.endpoint}.value",
                binary=kind == "binary",
                terms=_terms(contract, plan),
                base=("exposure_1",) if plan.method == "nested" and added else (),
                covariates=tuple(filter(present, plan.covariates)),
                strata=tuple(filter(present, plan.strata)),
                subset=None if plan.subgroup is None else f"subset_{plan.id}",
                entry=f"{plan.endpoint}.entry" if enters(plan.endpoint) else None,
                person=PERSON if contract.hypothesis.time_dependent else None,
                score=contract.hypothesis.calibration,
                report=report,
            )
        )
    return Task(contract_sha256=sha256, part=part, tests=tuple(tests))


def _terms(contract: Contract, plan: TestPlan) -> tuple[str, ...]:
    parts = tuple(f"exposure_{at}" for at, _ in enumerate(contract.exposures, start=1))
    if plan.method == "joint_groups":
        return parts
    plain = plan.method in ("kaplan_meier", "rmst", "period_hazards", "cumulative_incidence")
    if plan.method == "nested" and contract.comparison is Comparison.ADDED:
        return ("exposure", parts[1])
    if plan.method in ("nested", "mediation"):
        return ("exposure", *parts[: None if plan.method == "nested" else 1])
    if plan.within is not None:
        mine = plan.within.exposure - 1
        return (parts[mine], parts[1 - mine], f"product_{plan.id}")
    if contract.comparison in (Comparison.MEDIATION, Comparison.ADDED) and not plain:
        return ("exposure", parts[0])
    interaction = contract.comparison.is_product and not plain
    if interaction and plan.method not in ("spline", "maximally_selected"):
        return ("exposure", *parts)
    return ("exposure",)


def _imputes(contract: Contract, plan: TestPlan) -> bool:
    imputing = contract.missing.policy == "multiple_imputation"
    whole = plan.within is None and plan.method not in ("nested", "mediation")
    return imputing and whole and bool(plan.covariates)


def prepare_second(inputs: Path, folder: Path) -> Task | None:
    """Write `task.json` and `table.parquet` for a second implementation.

    The rows are the analyzed patients in a different order, without any identifier.

    Returns
    -------
    The task; None if the analysis itself is refused and there is nothing to reproduce.
    """
    from validation.analysis.analysis import Analysis
    from validation.inputs.population import apply_filters
    from validation.methods.shared import within_columns

    analysis = Analysis.open(inputs)
    study, _ = analysis.study()
    if study is None:
        return None
    contract, part = analysis.contract, analysis.part
    task = task_of(
        contract, analysis.frozen.sha256, part,
        list(study.rows.columns) if part == "replication" else None,
    )  # fmt: skip
    persons = [use.key for use in contract.variables if use.role == "cluster"]
    table = study.rows.drop(columns=persons, errors="ignore").assign(exposure=study.exposed.x)
    if contract.hypothesis.time_dependent:
        patients = np.unique(study.rows.index)
        codes = generator(contract.seed).permutation(len(patients))
        table[PERSON] = codes[np.searchsorted(patients, study.rows.index)]
    if not contract.associates:
        keep, risk = study.risks(contract.primary_test.endpoint)
        table.loc[keep, "exposure"] = risk
    for at, values in enumerate(study.exposed.parts, start=1):
        table[f"exposure_{at}"] = values
    for plan in contract.tests:
        if plan.within is not None:
            table[f"product_{plan.id}"] = within_columns(study, plan.within)[2][1]
        if plan.subgroup is not None and part != "replication":
            table[f"subset_{plan.id}"] = apply_filters(study.rows, (plan.subgroup,))
    table = table.sample(frac=1, random_state=contract.seed % 2**32).reset_index(drop=True)
    with writing(folder / TABLE) as stream:
        stream.write(table.to_parquet(None, engine="fastparquet", index=False))
    write_text(folder / TASK, stable_json(task.model_dump(mode="json")))
    return task


def read_numbers(path: Path, task: Task) -> Numbers:
    """Read and validate a second implementation's numbers, treating the file as hostile.

    The numbers must be bounded, typed, finite and registered. Raises `InputError` naming the
    rule that the file breaks, without quoting the file.
    """
    from validation.reproduction.strictjson import read_bounded

    value = read_bounded(path, LARGEST_FILE)
    try:
        found = Numbers.model_validate(value)
    except ValidationError:
        raise InputError(
            f'{NUMBERS} must be {{"numbers": {{TEST: {{n, events, effect, lower, upper, p}}}}}}, '
            "with finite numbers, integers for n and events, p between 0 and 1, and no "
            "other field"
        ) from None
    if not set(found.numbers) <= {test.id for test in task.tests}:
        raise InputError(f"{NUMBERS} contains a test that was not requested")
    return found


def compare(
    task: Task, reference: AnalysisResult, found: Numbers | None, by: Any, program: str = ""
) -> Reproduction:
    """Compare every registered number for a part; `found` is None if no program ran to completion.

    Tests that SAGE's own computation refused have no numbers and are not compared. Only
    SAGE's own program may report that a model did not converge.
    """
    asked = {test.id: test for test in task.tests}
    compared: list[Compared] = []
    diverged = found.unconverged if found is not None and by == "SAGE" else ()
    for outcome in reference.tests:
        if outcome.status != "ok" or outcome.id.startswith("control."):
            continue
        test = asked.get(outcome.id)
        report = set(test.report) if test is not None else set()
        if any("Firth's penalty" in note for note in outcome.notes):
            report &= set(COUNTS)
        answer = found.numbers.get(outcome.id) if found is not None else None
        for name, value in _numbers(outcome).items():
            second = getattr(answer, name) if answer is not None else None
            if second is None and name in report and outcome.id in diverged:
                state: State = "did not converge"
                compared.append(Compared(test=outcome.id, field=name, state=state, sage=value))
            else:
                compared.append(_compare_number(outcome, name, value, second, name in report))
    return Reproduction(
        contract_sha256=reference.contract_sha256,
        part=reference.part,
        by=by,
        program_sha256=program,
        ran=found is not None,
        compared=tuple(compared),
    )


def _numbers(outcome: TestOutcome) -> dict[Quantity, float]:
    effect = outcome.effect
    values: dict[Quantity, float | None] = {
        "n": outcome.n,
        "events": outcome.events,
        "effect": effect.value if effect else None,
        "lower": effect.lower if effect else None,
        "upper": effect.upper if effect else None,
        "p": outcome.p,
    }
    return {
        name: float(value)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    }


def _compare_number(
    outcome: TestOutcome, name: Quantity, value: float, second: float | None, asked: bool
) -> Compared:
    if not asked:
        return Compared(test=outcome.id, field=name, state="no second implementation", sage=value)
    if second is None:
        return Compared(test=outcome.id, field=name, state="missing", sage=value)
    off, agrees = _distance(outcome, name, value, float(second))
    return Compared(
        test=outcome.id, field=name, state="reproduced" if agrees else "differs", sage=value,
        second=value if off == 0 else _coarse(float(second), 4 if agrees else 3),
        off=None if off is None else _coarse(off, 2), tolerance=TOLERANCES[name],
    )  # fmt: skip


def _coarse(value: float, digits: int) -> float:
    """Round a program's number to the digits that a reader needs.

    Additional digits could leak the values in a row.
    """
    return float(f"{value:.{digits}g}")


def _distance(
    outcome: TestOutcome, name: Quantity, sage: float, second: float
) -> tuple[float | None, bool]:
    """Compute the second number's deviation relative to its tolerance, and whether it agrees."""
    if name in COUNTS:
        return abs(sage - second), sage == second
    if name == "p":
        return abs(sage - second), abs(sage - second) <= max(0.02 * sage, 0.0005)
    assert outcome.effect is not None
    if outcome.effect.null == 0.0 or outcome.effect.scale == "calibration slope":
        return abs(sage - second), abs(sage - second) <= 0.01
    if sage <= 0 or second <= 0:
        return None, False
    off = abs(math.log(second / sage))
    return off, off <= 0.01


def write_reproduction(found: Reproduction, out: Path) -> None:
    """Write a part's comparison to the results folder."""
    text = stable_json(found.model_dump(mode="json"))
    write_text(out / "reproduction" / f"{found.part}.json", text)


def read_reproductions(out: Path) -> tuple[Reproduction, ...]:
    """Read all comparisons in a results folder.

    Raises `InputError` if a file is not readable, so that tampering is not overlooked.
    """
    found = []
    for path in sorted((out / "reproduction").glob("*.json")):
        try:
            found.append(Reproduction.model_validate(json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, OSError):
            raise InputError(f"{path}: not a reproduction; run the analysis again") from None
    return tuple(found)


def reproduce_here(inputs: Path, reference: AnalysisResult, out: Path) -> Reproduction | None:
    """Run SAGE's own second implementation in this process; compare and save the comparison."""
    from validation.reproduction import second_program as program

    folder = inputs / "second"
    task = prepare_second(inputs, folder)
    if task is None:
        return None
    program.main(folder, folder)
    answered = read_numbers(folder / NUMBERS, task)
    found = compare(task, reference, answered, "SAGE", hash_text(second_program()))
    write_reproduction(found, out)
    return found


QUALIFIER = "not independently reproduced"


@dataclass(frozen=True)
class Weighed:
    """Effect of the reproduction on a verdict: objections, badge qualifiers, and reasons."""

    objections: tuple[Objection, ...] = ()
    qualifiers: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()


def weigh(contract: Contract, reference: AnalysisResult, found: Sequence[Reproduction]) -> Weighed:
    """Weigh a verdict by its agreement with the second implementation's numbers."""
    primary = reference.test(contract.primary)
    if primary is None or primary.status != "ok":
        return Weighed()
    mine = next((item for item in found if item.part == reference.part), None)
    if mine is None:
        return _doubt(["no second implementation ran"])
    doubts = []
    for entry in found:
        where = "" if entry.part == "all" else f" ({entry.part})"
        if not entry.ran:
            doubts.append(f"the second implementation gave no numbers{where}")
        if differing := entry.with_state("differs"):
            doubts.append(
                f"a second implementation{where} differs in {_describe_numbers(differing)}"
            )
        if missing := entry.with_state("missing") if entry.ran else ():
            doubts.append(f"not reproduced{where}: {_describe_numbers(missing)}")
    if doubts:
        return _doubt(doubts)
    own = [item for item in mine.compared if item.test == contract.primary]
    apart = [item for item in own if item.state in ("no second implementation", "did not converge")]
    if apart:
        text = f"no second implementation is available for {_describe_numbers(apart)}"
        reason = Reason(rule="reproduction", outcome="limits", text=text)
        return Weighed(qualifiers=(QUALIFIER,), reasons=(reason,))
    agreed = len(mine.with_state("reproduced"))
    text = f"a second implementation agrees in all {agreed} numbers that it can compute"
    return Weighed(reasons=(Reason(rule="reproduction", outcome="for", text=text),))


def _doubt(doubts: Sequence[str]) -> Weighed:
    objection = Objection("reproduction", "reproduction", "not reproduced", "; ".join(doubts))
    return Weighed((objection,), (QUALIFIER,), (objection.reason,))


def _describe_numbers(numbers: Sequence[Compared]) -> str:
    """Describe tests with their numbers: "primary (effect, p), adjusted (n)"."""
    by_test: dict[str, list[str]] = {}
    for number in numbers:
        by_test.setdefault(number.test, []).append(number.field)
    shown = [f"{test} ({', '.join(fields)})" for test, fields in list(by_test.items())[:6]]
    return ", ".join(shown) + (f" and {len(by_test) - 6} more tests" if len(by_test) > 6 else "")
