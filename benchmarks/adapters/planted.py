"""Planted truth: which mechanisms does a campaign find, and what does it claim that is false?

Every world has one to five mechanisms among the variables that the literature's graph names, or
pairs of them that lie on one path (`validation.simulate.mechanisms`). Searchers look for them, the
first two with at most 60 claims:

- *rules*: the policy of `sage campaign` without a model;
- *random*: claims drawn at random over the same variables, under the same contracts, split and
  online control;
- *screen*: a Cox model of every measured variable alone, in all patients, with the false discovery
  rate of Benjamini and Hochberg at 0.05;
- *model*, where one is given: the scientist of a language model under the same 60 claims.

A mechanism is found where a supported claim (a hit of the screen) names its variables, form and
direction; a subgroup's must name the subgroup. A claim is false where none of its variables is
planted or goes along with a planted one (correlation of at least 0.2).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.campaign.moves import Earlier, reopens
from agents.prose.statement import same_claim, settle_fields
from benchmarks.adapters.campaigns import (
    CLAIMS,
    Choose,
    Trial,
    World,
    biomarkers,
    by_model,
    by_rules,
    campaign,
)
from benchmarks.adapters.null_statistics import rate
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
from validation.simulate.mechanisms import (
    KINDS,
    SUBGROUPS,
    Mechanism,
    draw_mechanisms,
    write_planted,
)

if TYPE_CHECKING:
    from agents.scientist import ScientistInput
    from sage.settings import Settings

ALONG = 0.2
"""A correlation from which on a claim tells of a planted variable."""
SEARCHERS = ("rules", "random", "screen", "model")


class Found(Strict):
    """What one searcher did in one world.

    `found` says of each mechanism whether it was found, `first` after how many claims the first one
    was. `supported` counts claims, `false` those that are about nothing planted.
    """

    searcher: str
    claims: int
    supported: int
    false: int
    found: tuple[bool, ...]
    first: int | None


class Line(Strict):
    """One world and its searchers."""

    seed: int
    patients: int
    mechanisms: tuple[Mechanism, ...]
    searchers: tuple[Found, ...]


def planted_world(
    place: Path,
    seed: int,
    fresh: Sequence[Hypothesis],
    *,
    patients: int = 600,
    model: tuple[Settings, ScientistInput] | None = None,
) -> Line:
    """Plant mechanisms in a world, and let every searcher look for them.

    Parameters
    ----------
    place, seed : where the world is made, and from what
    fresh : the claims that the rules begin with
    patients : size of its cohort
    model : settings of a language model, and what its scientist sees of the graph
    """
    from validation.cohort import load
    from validation.ledger.ledger import Ledger

    claims = biomarkers(fresh)
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
    folder = place / f"planted-{seed}"
    try:
        write_planted(folder / "cohort", mechanisms, seed=seed, patients=patients)
        cohort = load(folder / "cohort")
        choices: dict[str, Callable[[World], Choose]] = {
            "rules": lambda world: by_rules(claims, world.known),
            "random": lambda world: at_random(claims, generator(seed + 1)),
        }
        if model is not None:
            choices["model"] = lambda world: _by_model(model, world, place)
        searchers = []
        for name, make in choices.items():
            world = World(cohort, folder / name, seed, Ledger(folder / name / "ledger.jsonl"))
            trials = campaign(world, make(world), CLAIMS)
            searchers.append(_campaigned(name, trials, mechanisms, cohort))
        searchers.append(_screened(cohort, mechanisms))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Line(seed=seed, patients=patients, mechanisms=mechanisms, searchers=tuple(searchers))


def _by_model(model: tuple[Settings, ScientistInput], world: World, place: Path) -> Choose:
    from agents.core.types import dictionary_view
    from sage.run.wiring import make_chat

    settings, given = model
    view = dictionary_view(world.known, list(given.dictionary.genes), settings.min_count)
    reasoner = make_chat(settings, place / f"model-{world.seed}", budget_usd=None)
    return by_model(reasoner, given.model_copy(update={"dictionary": view}), world.known)


def _variables(claim: Hypothesis) -> tuple[str, ...]:
    return tuple(sorted(exposure.variable for exposure in claim.exposures))


def at_random(claims: Sequence[Hypothesis], rng: np.random.Generator) -> Choose:
    """Claims at random over the variables that the literature names: alone, in a subgroup, in
    pairs (a product, or joint groups), in either direction.
    """
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


def names(mechanism: Mechanism, claim: Hypothesis) -> bool:
    """Whether a supported claim is of this mechanism: its variables, form and direction."""
    keys = set(_variables(claim))
    levels = {
        (each.variable.partition(":")[2], str(each.value)) for each in claim.population.filters
    }
    wanted = {mechanism.within} if mechanism.within is not None else set()
    sign = 1 if claim.direction is Direction.HIGHER_RISK else -1
    for exposure in claim.exposures:
        sign *= 1 if exposure.level == "high" else -1
    if mechanism.kind == "interaction":
        told = claim.comparison in (Comparison.INTERACTION, Comparison.EXPOSED_VS_REST)
        same = keys == set(mechanism.variables) and len(keys) == 2 and told
    else:
        same = keys == {mechanism.variables[0]}
    return same and levels == wanted and sign == mechanism.sign


def _campaigned(
    name: str, trials: Sequence[Trial], mechanisms: Sequence[Mechanism], cohort: Cohort
) -> Found:
    supported = [
        (at, trial.hypothesis) for at, trial in enumerate(trials, 1) if trial.verdict == "supported"
    ]
    found = tuple(
        any(names(mechanism, claim) for _, claim in supported) for mechanism in mechanisms
    )
    first = next(
        (at for at, claim in supported if any(names(one, claim) for one in mechanisms)), None
    )
    return Found(
        searcher=name,
        claims=len(trials),
        supported=len(supported),
        false=sum(not _along(_variables(claim), mechanisms, cohort) for _, claim in supported),
        found=found,
        first=first,
    )


def _along(keys: Iterable[str], mechanisms: Sequence[Mechanism], cohort: Cohort) -> bool:
    """Whether one of these variables is planted, or goes along with one that is."""
    planted = sorted({key for mechanism in mechanisms for key in mechanism.variables})
    asked = sorted(set(keys))
    table = cohort.table(list(dict.fromkeys([*asked, *planted])), ["OS"])
    numbers = table[list(dict.fromkeys([*asked, *planted]))].corr(method="spearman").abs()
    return bool((numbers.loc[asked, planted] >= ALONG).to_numpy().any())


def _screened(cohort: Cohort, mechanisms: Sequence[Mechanism]) -> Found:
    """Every measured variable alone, in all patients."""
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
        false=sum(not _along((key,), mechanisms, cohort) for _, key, _ in hits),
        found=found,
        first=next((place for place, key, _ in hits if key in seen), None),
    )


def planted_summary(lines: Sequence[Line]) -> dict[str, Any]:
    """Shares found by kind with exact intervals, false claims, claims until the first truth."""
    told = []
    for searcher in SEARCHERS:
        results = [
            (line, found)
            for line in lines
            for found in line.searchers
            if found.searcher == searcher
        ]
        if not results:
            continue
        kinds = {}
        for kind in (*KINDS, "all"):
            counted = rate(
                kind,
                (
                    was
                    for line, found in results
                    for mechanism, was in zip(line.mechanisms, found.found, strict=True)
                    if kind in (mechanism.kind, "all")
                ),
            )
            kinds[kind] = {
                "planted": counted.runs,
                "found": counted.hits,
                "share": counted.rate,
                "lower": counted.lower,
                "upper": counted.upper,
            }
        firsts = sorted(found.first for _, found in results if found.first is not None)
        worlds = rate("false", (found.false > 0 for _, found in results))
        told.append(
            {
                "searcher": searcher,
                "kinds": kinds,
                "claims": sum(found.claims for _, found in results) / max(len(results), 1),
                "supported": sum(found.supported for _, found in results),
                "false": sum(found.false for _, found in results),
                "worlds_with_false": worlds.rate,
                "worlds_with_false_interval": (worlds.lower, worlds.upper),
                "worlds_with_truth": len(firsts) / max(len(results), 1),
                "claims_to_first": firsts[len(firsts) // 2] if firsts else None,
                "usd_to_first": 0.0 if searcher in ("rules", "random") else None,
            }
        )
    return {"worlds": len(lines), "searchers": told}
