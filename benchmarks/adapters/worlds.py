"""Simulated worlds: false claims and power of the whole procedure, and worlds with one trap each.

In null worlds no biomarker is related to any outcome, so "supported" is a false claim; three
hypotheses share a ledger. Each kind of hostile world (`benchmarks.simulate.hostile`) violates a
single assumption on purpose. The procedure is that of `sage validate`: contract, runner, ledger,
verdict.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.runner import Rate, Report, Row, rate, run_missing, share
from sage.core.models import Strict
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
    from benchmarks.simulate.hostile import Kind
    from validation.cohort.cohort import Cohort
    from validation.contracts.contract import Contract
    from validation.results.results import TestOutcome

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


class Judged(Strict):
    """A hypothesis tested in a world: verdict, reason, and the primary effect with its interval."""

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
) -> list[Judged]:
    """Write a world, validate its hypotheses with a shared ledger, and clean up."""
    from validation.cohort import load
    from validation.drafting.freezing import draft_on, freeze
    from validation.ledger.ledger import Ledger
    from validation.run.runner import finalize, run
    from validation.simulate.world import write_world

    place = folder / f"world-{seed}"
    try:
        write_world(place / "cohort", seed=seed, patients=patients, effects=effects, null=null)
        cohort = load(place / "cohort")
        ledger = Ledger(place / "ledger.jsonl")
        done = []
        for hypothesis in hypotheses:
            frozen = freeze(draft_on(hypothesis, cohort, seed=seed), cohort)
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
    """Compute the share of worlds in which each hypothesis, and any of them, is supported."""
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
"""Tests that a verdict uses; running the contract's other tests would only cost time."""


class Hostile(Strict):
    """A hypothesis in a hostile world.

    `prevents` are the rules that kept it from being supported; `direct` is true if a plain adjusted
    test (p below alpha, expected direction) would have claimed it. `verdict` is "not shown" if that
    test did not and the rest was skipped.
    """

    kind: str
    seed: int
    verdict: str
    prevents: tuple[str, ...] = ()
    direct: bool = False


def judge_hostile(folder: Path, kind: Kind, seed: int) -> Hostile:
    """Write a hostile world, validate its hypothesis, and clean up.

    A hypothesis that SAGE refuses to register counts as refused. In a world without true effects, a
    claim is dropped if its adjusted test misses its level, since it lacks independence and cannot
    be supported.
    """
    from benchmarks.simulate.hostile import hypothesis, write_hostile
    from sage.core.errors import InputError
    from validation.cohort import load
    from validation.contracts.contract import Contract
    from validation.drafting.freezing import draft_on, freeze
    from validation.ledger.ledger import Ledger
    from validation.run.runner import run

    place = folder / f"world-{kind.name.replace(' ', '-')}-{seed}"
    try:
        write_hostile(place / "cohort", kind, seed)
        cohort = load(place / "cohort")
        try:
            plan = draft_on(hypothesis(kind, seed), cohort, seed=seed)
        except InputError:
            return Hostile(kind=kind.name, seed=seed, verdict="refused", direct=True)
        tests = tuple(test for test in plan.tests if test.id in DECIDING)
        plan = Contract.model_validate(plan.model_copy(update={"tests": tests}).model_dump())
        if not kind.true and not claims_directly(plan, cohort):
            return Hostile(kind=kind.name, seed=seed, verdict="not shown")
        frozen = freeze(plan, cohort)
        ledger = Ledger(place / "ledger.jsonl")
        out = place / "out"
        found = run(frozen, cohort, out, ledger=ledger, figures=False, reproduce=False)
        direct = found.test("adjusted") or found.test("primary")
        return Hostile(
            kind=kind.name,
            seed=seed,
            verdict=found.verdict.verdict,
            prevents=tuple(
                reason.rule for reason in found.verdict.reasons if reason.outcome == "prevents"
            ),
            direct=direct is not None and claims(plan, direct),
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)


def claims_directly(plan: Contract, cohort: Cohort) -> bool:
    """Check whether the adjusted test alone (or, without covariates, the primary test) claims."""
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
    """Check whether a test has p below the contract's alpha and the claimed direction."""
    from validation.verdict.relevance import expected_direction

    return (
        test.effect is not None
        and test.p is not None
        and test.p < plan.rules.alpha
        and expected_direction(plan, test.effect)
    )


def _judge_null(seed: int) -> _World:
    with tempfile.TemporaryDirectory() as folder:
        return _World(seed=seed, judged=tuple(judge_world(Path(folder), seed, null=True)))


def _judge_kind(key: tuple[str, int]) -> Hostile:
    from benchmarks.simulate.hostile import BY_NAME

    with tempfile.TemporaryDirectory() as folder:
        return judge_hostile(Path(folder), BY_NAME[key[0]], key[1])


class _World(Strict):
    seed: int
    judged: tuple[Judged, ...]


def _judge_joint(hr: float, seed: int) -> _World:
    clinical = asdict(Effects().without_biomarkers())
    planted = Effects(**(clinical | {"fabp5_high_tls_low_hr": hr}))
    with tempfile.TemporaryDirectory() as folder:
        judged = judge_world(Path(folder), seed, effects=planted, hypotheses=(JOINT,))
    return _World(seed=seed, judged=tuple(judged))


def run(
    runs: Annotated[int, typer.Option(min=1, help="Worlds of each kind.")] = 500,
    kind: Annotated[str | None, typer.Option(help="Only this kind of hostile world.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first hostile world.")] = 100_000,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Folder of results so far, to resume.")] = None,
) -> Report:
    """Validate hypotheses in null, planted and hostile worlds."""
    from benchmarks.simulate.hostile import KINDS
    from validation.statistics.power import power_at

    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)

    def worlds(name: str, work: Any, first: int, count: int) -> list[_World]:
        place = keep / f"{name}.jsonl" if keep else None
        return run_missing(work, range(first, first + count), _World, lambda world: world.seed,
                           keep=place, jobs=jobs, title=name)  # fmt: skip

    rows: list[Row] = []
    if kind is None:
        null = worlds("null", _judge_null, 10_000, runs)
        rows += [
            Row(benchmark=f"Null worlds, {found.name}", measured=f"{found.runs} worlds; supported",
                sage=str(found))
            for found in claim_rates([list(world.judged) for world in null])
        ]  # fmt: skip
        for hr in (1.3, 1.6, 2.0):
            planted = worlds(f"planted-{hr}", partial(_judge_joint, hr), 20_000, max(20, runs // 5))
            judged = [world.judged[0] for world in planted]
            events = round(sum(item.events for item in judged) / len(judged))
            rows.append(Row(
                benchmark=f"Planted hazard ratio {hr}",
                measured=f"{len(judged)} worlds, {events} events; supported",
                baseline=f"{power_at(hr, events, fraction_exposed=0.28):.1%} (formula)",
                sage=str(rate("supported", (item.verdict == "supported" for item in judged))),
            ))  # fmt: skip
    names = {item.name: item for item in KINDS if kind in (None, item.name)}
    keys = [(name, number) for number in range(seed, seed + runs) for name in names]
    found = run_missing(_judge_kind, keys, Hostile, lambda world: (world.kind, world.seed),
                        keep=keep / "hostile.jsonl" if keep else None, jobs=jobs,
                        title="hostile worlds")  # fmt: skip
    for name, item in names.items():
        own = [world for world in found if world.kind == name]
        rules = {rule for world in own for rule in world.prevents} if item.true else set()
        rows.append(Row(
            benchmark=f"{'Power' if item.true else 'False claims'}, {name}",
            measured=f"{len(own)} worlds; supported",
            baseline=f"{sum(world.direct for world in own) / len(own):.1%} (plain adjusted test)",
            sage=share(sum(world.verdict == "supported" for world in own), len(own)),
            notes=tuple(
                f"{rule} objects in {share(sum(rule in w.prevents for w in own), len(own))}, alone"
                f" in {share(sum(set(w.prevents) == {rule} for w in own), len(own))}."
                for rule in sorted(rules)
            ),
        ))  # fmt: skip
    return Report(command=f"worlds --runs {runs} --json", rows=tuple(rows))
