"""Is the whole path honest: from a cohort folder through contract, runner and ledger to a verdict?

Each run writes a simulated world, registers three hypotheses in one ledger, and reads the verdicts.
In null worlds no biomarker is related to anything, so "supported" is a false claim.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.adapters.null_statistics import Rate, rate
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Direction,
    Exposure,
    Filter,
    Hypothesis,
    Population,
)
from validation.simulate.effects import Effects

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort
    from validation.contracts.contract import Contract
    from validation.results.results import TestOutcome
    from validation.simulate.hostile import Kind

JOINT = Hypothesis(
    id="fabp5-tls",
    statement="High FABP5 with scarce TLS-like aggregates marks shorter overall survival.",
    population=Population(description="all patients"),
    exposures=(
        Exposure(variable="expression:FABP5", label="FABP5", level="high"),
        Exposure(variable="imaging:tls_density", label="TLS density", level="low"),
    ),
    comparison=Comparison.EXPOSED_VS_REST,
    endpoint="OS",
    direction=Direction.HIGHER_RISK,
)
CXCL13 = Hypothesis(
    id="cxcl13",
    statement="Higher CXCL13 goes with a longer progression-free interval.",
    population=Population(description="all patients"),
    exposures=(Exposure(variable="expression:CXCL13", label="CXCL13", cut=CutRule.CONTINUOUS),),
    comparison=Comparison.PER_SD,
    endpoint="PFI",
    direction=Direction.LOWER_RISK,
)
ADRM1 = Hypothesis(
    id="adrm1-men",
    statement="In men, higher ADRM1 goes with shorter overall survival.",
    population=Population(
        description="men", filters=(Filter(variable="clinical:gender", op="eq", value="MALE"),)
    ),
    exposures=(Exposure(variable="expression:ADRM1", label="ADRM1", cut=CutRule.CONTINUOUS),),
    comparison=Comparison.PER_SD,
    endpoint="OS",
    direction=Direction.HIGHER_RISK,
)
HYPOTHESES = (JOINT, CXCL13, ADRM1)


@dataclass(frozen=True)
class Judged:
    """One hypothesis in one world: the verdict, why, and the primary effect with its interval."""

    seed: int
    hypothesis: str
    verdict: str
    because: str
    value: float
    lower: float
    upper: float
    p: float
    events: int


def judge_world(
    folder: Path,
    seed: int,
    *,
    null: bool = False,
    effects: Effects | None = None,
    hypotheses: tuple[Hypothesis, ...] = HYPOTHESES,
    patients: int = 400,
    alpha: float = 0.05,
) -> list[Judged]:
    """Write a world into `folder`, run the hypotheses on it, judge them together, and clean up.

    The same path as `sage validate`: load, draft, freeze, run, and a final judgment once the ledger
    holds every claim; only the figures are not drawn.

    Parameters
    ----------
    folder : for the world and its results; removed at the end
    seed : of the world
    null : no biomarker acts
    effects : how strongly they do; the usual ones by default
    hypotheses : that are judged
    patients : their number
    alpha : two-sided level
    """
    from validation.cohort import load
    from validation.drafting.draft import draft
    from validation.drafting.freezing import freeze
    from validation.ledger.ledger import Ledger
    from validation.run.runner import finalize, run
    from validation.simulate.world import write_world

    place = folder / f"world-{seed}"
    try:
        write_world(place / "cohort", seed=seed, patients=patients, effects=effects, null=null)
        cohort = load(place / "cohort")
        dictionary = cohort.dictionary()
        ledger = Ledger(place / "ledger.jsonl")
        done = []
        for hypothesis in hypotheses:
            frozen = freeze(draft(hypothesis, dictionary, seed=seed, alpha=alpha), cohort)
            run(
                frozen, cohort, place / hypothesis.id, ledger=ledger, figures=False, reproduce=False
            )
            done.append((frozen, place / hypothesis.id))
        judged = []
        for result in finalize(done, ledger, reproduce=False):
            primary = next(t for t in result.tests if t.role == "primary")
            effect, nan = primary.effect, float("nan")
            judged.append(
                Judged(
                    seed=seed,
                    hypothesis=result.hypothesis,
                    verdict=result.verdict.verdict,
                    because=result.verdict.because,
                    value=effect.value if effect else nan,
                    lower=effect.lower if effect else nan,
                    upper=effect.upper if effect else nan,
                    p=primary.p if primary.p is not None else nan,
                    events=primary.events or 0,
                )
            )
        return judged
    finally:
        shutil.rmtree(place, ignore_errors=True)


def claim_rates(judged: list[list[Judged]]) -> list[Rate]:
    """Share of worlds in which each hypothesis was called supported, and any of them."""
    names = list(dict.fromkeys(item.hypothesis for world in judged for item in world))
    rates = [
        rate(
            name,
            (item.verdict == "supported" for world in judged for item in world
             if item.hypothesis == name),
        )
        for name in names
    ]  # fmt: skip
    rates.append(rate("any", (any(o.verdict == "supported" for o in world) for world in judged)))
    return rates


DECIDING = ("primary", "adjusted", "schoenfeld", "rmst")
"""The tests that a verdict reads; what else a contract describes costs time alone."""


@dataclass(frozen=True)
class Hostile:
    """One hypothesis in a hostile world.

    `prevents` are the rules that kept it from being supported; `direct` whether a plain adjusted
    test (p below alpha, in the expected direction) would have claimed it. `verdict` is "not shown"
    where that test did not and the rest was therefore left out.
    """

    kind: str
    seed: int
    verdict: str
    because: str
    badge: str
    prevents: tuple[str, ...]
    direct: bool


def judge_hostile(folder: Path, kind: Kind, seed: int) -> Hostile:
    """Write a hostile world, run its one hypothesis through the whole path, and clean up.

    A hypothesis that SAGE refuses to register counts as refused, with the message as its badge.
    Where nothing is true, a claim whose adjusted test misses its level ends there: it lacks
    independence, without which `judge` supports nothing (a test holds it to that).
    """
    from sage.core.errors import InputError
    from validation.cohort import load
    from validation.contracts.contract import Contract
    from validation.drafting.draft import draft
    from validation.drafting.freezing import freeze
    from validation.ledger.ledger import Ledger
    from validation.run.runner import run
    from validation.simulate.hostile import hypothesis, write_hostile

    place = folder / f"world-{kind.name.replace(' ', '-')}-{seed}"
    try:
        write_hostile(place / "cohort", kind, seed)
        cohort = load(place / "cohort")
        try:
            plan = draft(hypothesis(kind, seed), cohort.dictionary(), seed=seed)
        except InputError as error:
            return Hostile(kind.name, seed, "refused", "registration", str(error), (), True)
        tests = tuple(test for test in plan.tests if test.id in DECIDING)
        plan = Contract.model_validate(plan.model_copy(update={"tests": tests}).model_dump())
        if not kind.true and not claims_directly(plan, cohort):
            return Hostile(kind.name, seed, "not shown", "association", "", (), False)
        frozen = freeze(plan, cohort)
        ledger = Ledger(place / "ledger.jsonl")
        out = place / "out"
        found = run(frozen, cohort, out, ledger=ledger, figures=False, reproduce=False)
        direct = found.test("adjusted") or found.test("primary")
        return Hostile(
            kind=kind.name,
            seed=seed,
            verdict=found.verdict.verdict,
            because=found.verdict.because,
            badge=found.verdict.badge,
            prevents=tuple(
                reason.rule for reason in found.verdict.reasons if reason.outcome == "prevents"
            ),
            direct=direct is not None and claims(plan, direct),
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)


def claims_directly(plan: Contract, cohort: Cohort) -> bool:
    """Whether the adjusted test alone, or the primary one where nothing is adjusted for, claims."""
    from validation.contracts.timing import as_known
    from validation.inputs.population import find_cuts
    from validation.inputs.study import Study
    from validation.methods import run_method
    from validation.results.results import Book

    table, _ = as_known(cohort.table(plan.keys(), [plan.primary_test.endpoint]), plan)
    study = Study.build(plan, table, find_cuts(table, plan))
    test = next((test for test in plan.tests if test.id == "adjusted"), plan.primary_test)
    return claims(plan, run_method(study, test, Book(), {}))


def claims(plan: Contract, test: TestOutcome) -> bool:
    """Whether a test has p below the contract's alpha and an effect in its direction."""
    from validation.verdict.relevance import expected_direction

    return (
        test.effect is not None
        and test.p is not None
        and test.p < plan.rules.alpha
        and expected_direction(plan, test.effect)
    )
