"""Planted truth: which mechanisms a campaign finds, and which of its claims are false.

Each world has one to five mechanisms on variables named in the literature graph, or on
pairs of variables on a path (`benchmarks.simulate.mechanisms`). Three search methods look
for them:

- *rules*: the policy of `sage campaign` without a model, at most 60 claims;
- *random*: random claims over the same variables, under the same contracts, split and
  control;
- *screen*: a Cox model for every measured variable in all patients, with the false
  discovery rate controlled at 0.05 (Benjamini and Hochberg).

A mechanism is found if a supported claim (or a hit in the screen) names its variables,
form, direction and subgroup. A claim is false if none of its variables is planted or
correlated with a planted variable (at least 0.2). A world takes half a minute of CPU
time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from agents.campaign.moves import Earlier, reopens
from agents.core.statement import same_claim, settle_fields
from benchmarks.adapters.campaigns import (
    CLAIMS,
    Choose,
    Trial,
    World,
    choose_by_rules,
    load_claims,
    run_campaign,
    select_biomarkers,
)
from benchmarks.runner import Rate, Report, Row, rate, run_missing
from benchmarks.simulate.mechanisms import (
    KINDS,
    SUBGROUPS,
    Mechanism,
    draw_mechanisms,
    write_planted,
)
from sage.core.models import Strict
from sage.core.seeds import generator
from validation.cohort.cohort import Cohort
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Direction,
    Exposure,
    Filter,
    Hypothesis,
    Population,
)

PATIENTS = 600
ALONG = 0.2
"""Minimum correlation at which a variable counts as related to a planted variable."""
SEARCHERS = ("rules", "random", "screen")


class Found(Strict):
    """Result of a search method in a world.

    `found` has one flag per mechanism, `first` is the number of claims up to the first
    mechanism found, `false` is the number of supported claims that concern nothing planted.
    """

    searcher: str
    claims: int
    supported: int
    false: int
    found: tuple[bool, ...]
    first: int | None


class Line(Strict):
    """A world and the results of its search methods."""

    seed: int
    patients: int
    mechanisms: tuple[Mechanism, ...]
    searchers: tuple[Found, ...]


def search_world(fresh: Sequence[Hypothesis], seed: int) -> Line:
    """Plant mechanisms in a world, and run every search method on it."""
    from validation.cohort import load
    from validation.ledger.ledger import Ledger

    claims = select_biomarkers(fresh)
    rng = generator(seed)
    singles = sorted({key for claim in claims for key in _variables(claim)})
    singles = [key for key in singles if key.startswith(("expression:", "imaging:"))]
    pairs = sorted(
        {
            (min(keys), max(keys))
            for claim in claims
            if len(keys := _variables(claim)) == 2 and set(keys) <= set(singles)
        }
    )
    mechanisms = draw_mechanisms(rng, singles, pairs, 1 + seed % len(KINDS))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_planted(folder / "cohort", mechanisms, seed=seed, patients=PATIENTS)
        cohort = load(folder / "cohort")
        choices: dict[str, Callable[[World], Choose]] = {
            "rules": lambda world: choose_by_rules(claims, world.known),
            "random": lambda world: choose_at_random(claims, generator(seed + 1)),
        }
        searchers = []
        for name, make in choices.items():
            world = World(cohort, folder / name, seed, Ledger(folder / name / "ledger.jsonl"))
            trials = run_campaign(world, make(world), CLAIMS)
            searchers.append(_score_campaign(name, trials, mechanisms, cohort))
        searchers.append(_screen(cohort, mechanisms))
    return Line(seed=seed, patients=PATIENTS, mechanisms=mechanisms, searchers=tuple(searchers))


def _variables(claim: Hypothesis) -> tuple[str, ...]:
    return tuple(sorted(exposure.variable for exposure in claim.exposures))


def choose_at_random(claims: Sequence[Hypothesis], rng: np.random.Generator) -> Choose:
    """Draw claims on the literature's variables: single, within a subgroup, or in pairs."""
    variables = sorted({key for claim in claims for key in _variables(claim)})
    example = claims[0]

    def draw(world: World) -> Hypothesis:
        pair = rng.random() < 1 / 3
        keys = [variables[at] for at in rng.permutation(len(variables))[: 2 if pair else 1]]
        joint = pair and rng.random() < 0.5
        cut = CutRule.MEDIAN if joint else CutRule.CONTINUOUS
        how = Comparison.PER_SD
        if pair:
            how = Comparison.EXPOSED_VS_REST if joint else Comparison.INTERACTION
        filters: tuple[Filter, ...] = ()
        if not pair and rng.random() < 0.5:
            column, level = SUBGROUPS[int(rng.integers(len(SUBGROUPS)))]
            filters = (Filter(variable=f"clinical:{column}", op="eq", value=level),)
        worse = rng.random() < 0.5
        drawn = example.model_copy(
            update={
                "exposures": tuple(
                    Exposure(
                        variable=key,
                        label=key,
                        level="high" if rng.random() < 0.5 else "low",
                        cut=cut,
                    )
                    for key in keys
                ),
                "comparison": how,
                "population": Population(description="", filters=filters),
                "direction": Direction.HIGHER_RISK if worse else Direction.LOWER_RISK,
                "covariates": tuple(
                    key
                    for key in example.covariates
                    if key not in {each.variable for each in filters}
                ),
            }
        )
        return settle_fields(Hypothesis.model_validate(drawn.model_dump()), world.known)

    def choose(earlier: Sequence[Earlier], world: World) -> tuple[Hypothesis, int] | None:
        asked = {same_claim(claim.hypothesis) for claim in earlier}
        held = [claim.hypothesis for claim in earlier if claim.came == "held"]
        while True:
            drawn = draw(world)
            if same_claim(drawn) not in asked and not any(
                reopens(drawn, closed) for closed in held
            ):
                return drawn, 0

    return choose


def matches(mechanism: Mechanism, claim: Hypothesis) -> bool:
    """Check whether a claim names this mechanism: its variables, form, direction and subgroup."""
    keys = set(_variables(claim))
    levels = {
        (each.variable.partition(":")[2], str(each.value)) for each in claim.population.filters
    }
    wanted = {mechanism.within} if mechanism.within is not None else set()
    sign = 1 if claim.direction is Direction.HIGHER_RISK else -1
    for exposure in claim.exposures:
        sign *= 1 if exposure.level == "high" else -1
    if mechanism.kind == "interaction":
        joint = claim.comparison in (Comparison.INTERACTION, Comparison.EXPOSED_VS_REST)
        same = keys == set(mechanism.variables) and len(keys) == 2 and joint
    else:
        same = keys == {mechanism.variables[0]}
    return same and levels == wanted and sign == mechanism.sign


def _score_campaign(
    name: str, trials: Sequence[Trial], mechanisms: Sequence[Mechanism], cohort: Cohort
) -> Found:
    supported = [
        (at, trial.hypothesis) for at, trial in enumerate(trials, 1) if trial.verdict == "supported"
    ]
    found = tuple(
        any(matches(mechanism, claim) for _, claim in supported) for mechanism in mechanisms
    )
    first = next(
        (at for at, claim in supported if any(matches(item, claim) for item in mechanisms)), None
    )
    return Found(
        searcher=name,
        claims=len(trials),
        supported=len(supported),
        false=sum(not _relates(_variables(claim), mechanisms, cohort) for _, claim in supported),
        found=found,
        first=first,
    )


def _relates(keys: Iterable[str], mechanisms: Sequence[Mechanism], cohort: Cohort) -> bool:
    """Check whether any of these variables is planted or correlated with a planted variable."""
    planted = sorted({key for mechanism in mechanisms for key in mechanism.variables})
    asked = sorted(set(keys))
    table = cohort.table(list(dict.fromkeys([*asked, *planted])), ["OS"])
    numbers = table[list(dict.fromkeys([*asked, *planted]))].corr(method="spearman").abs()
    return bool((numbers.loc[asked, planted] >= ALONG).to_numpy().any())


def _screen(cohort: Cohort, mechanisms: Sequence[Mechanism]) -> Found:
    """Screen every measured variable in all patients."""
    from validation.screening.rank import screen

    known = cohort.dictionary()
    keys = [f"expression:{gene}" for gene in known.expression]
    keys += [
        variable.key
        for variable in known.variables
        if variable.kind == "continuous" and variable.modality != "clinical"
    ]
    table = cohort.table(keys, ["OS"]).dropna(subset=["OS.time"])
    ranked = screen(
        table["OS.time"].to_numpy(),
        table["OS.event"].to_numpy(),
        table[keys].to_numpy(dtype=float),
        names=keys,
    )
    order = np.argsort(np.where(np.isnan(ranked.p), 1.0, ranked.p), kind="stable")
    hits = [
        (int(place), keys[at], 1 if ranked.coef[at] > 0 else -1)
        for place, at in enumerate(order, 1)
        if ranked.q[at] < 0.05
    ]
    found = tuple(
        mechanism.kind not in ("interaction", "subgroup")
        and any(key == mechanism.variables[0] and sign == mechanism.sign for _, key, sign in hits)
        for mechanism in mechanisms
    )
    seen = {mechanism.variables[0] for mechanism, was in zip(mechanisms, found, strict=True) if was}
    return Found(
        searcher="screen",
        claims=len(keys),
        supported=len(hits),
        false=sum(not _relates((key,), mechanisms, cohort) for _, key, _ in hits),
        found=found,
        first=next((place for place, key, _ in hits if key in seen), None),
    )


def summarize(lines: Sequence[Line]) -> Report:
    """Summarize discovery rates by kind with exact intervals, false claims and search lengths."""
    found: dict[str, dict[str, Rate]] = {}
    claims: dict[str, str] = {}
    for name in SEARCHERS:
        results = [(line, item) for line in lines for item in line.searchers
                   if item.searcher == name]  # fmt: skip
        found[name] = {
            kind: rate(kind, (
                was
                for line, item in results
                for mechanism, was in zip(line.mechanisms, item.found, strict=True)
                if kind in (mechanism.kind, "all")
            ))
            for kind in (*KINDS, "all")
        }  # fmt: skip
        worlds = rate("false", (item.false > 0 for _, item in results))
        firsts = sorted(item.first for _, item in results if item.first is not None)
        claims[name] = (
            f"{sum(item.supported for _, item in results)} supported,"
            f" {sum(item.false for _, item in results)} false, in {worlds} of the worlds;"
            f" a mechanism in {len(firsts)} of {len(results)} worlds, the first after"
            f" {firsts[len(firsts) // 2] if firsts else '–'} claims (median)"
        )
    rows = tuple(
        Row(
            benchmark=f"Planted mechanisms, {kind}",
            measured=f"{found['rules'][kind].runs} in {len(lines)} worlds; found",
            baseline=f"{found['random'][kind]} (random claims); {found['screen'][kind]} (screen)",
            sage=str(found["rules"][kind]),
            notes=tuple(f"{name}: {text}." for name, text in claims.items())
            if kind == "all" else (),
        )
        for kind in (*KINDS, "all")
    )  # fmt: skip
    return Report(command="planted --json", rows=rows, data=claims)


def run(
    runs: Annotated[int, typer.Option(min=1, help="Worlds.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first.")] = 900_000,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Results so far, to resume.")] = None,
) -> Report:
    """Search worlds with planted mechanisms."""
    work = partial(search_world, load_claims())
    return summarize(
        run_missing(work, range(seed, seed + runs), Line, lambda line: line.seed, keep=keep,
                    jobs=jobs, title="worlds")
    )  # fmt: skip
