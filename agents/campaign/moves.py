"""Campaign policy: choose the next claim from the outcomes of earlier claims.

The policy is a pure function and is the same with and without a model: a model receives
its proposals as suggestions, and the rules follow the first proposal. It never sees the
confirmation patients. The next claim depends on the earlier claim and its outcome:

| earlier claim | outcome | move | next claim |
|---|---|---|---|
| two exposures | held | contrast | each exposure separately |
| a single exposure | held | contrast | the next gene in its family |
| a single exposure | held | refine | the next endpoint of its kind |
| within a subgroup | held | contrast | the other subgroup |
| two exposures, in groups | none, unclear | explain | their interaction, uncut |
| two exposures | none, unclear | explain | each exposure separately |
| a single exposure | none | explain | within each level of a clinical variable |
| a single exposure, cut | unclear | refine | the same claim without a cut-point |
| within a subgroup | unclear | refine | the same claim in all patients |
| any | other direction | refine | the same claim with the direction reversed |
| any | dead end | move on | none: the scientist follows another path |

No claim is tested twice. A question whose claim held is closed: it is confirmed once, and
no other form of it is tested in the same patients (patients in another subgroup are
different patients).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from agents.core.base import View
from agents.core.statement import TURNED, label_of, same_claim, settle_fields
from sage.core.errors import InputError
from validation.contracts.contract import DIFFERENCES, Contract
from validation.core.dictionary import DataDictionary, Variable
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Exposure,
    Filter,
    Hypothesis,
    Population,
    disjoint,
    levels_of,
)
from validation.drafting.draft import draft
from validation.results.results import AnalysisResult, TestOutcome
from validation.statistics.power import power_from_detectable
from validation.verdict.relevance import expected_direction
from validation.verdict.verdict import Evidence, answer_association

Came = Literal["held", "none", "other direction", "unclear", "dead end"]
Kind = Literal["refine", "contrast", "explain", "move on"]
DEEPEST = 3
"""Maximum depth, since long chains of moves lead away from the question."""
FEWEST = 0.15
"""Minimum share of patients in a subgroup."""
MOST_MODIFIERS = 3


class Earlier(View):
    """An earlier claim and its outcome in the exploration patients; `depth` moves led to it."""

    id: str
    hypothesis: Hypothesis
    came: Came
    depth: int = 0


class Move(View):
    """A claim to test next: the earlier claim, the move, and the reason."""

    kind: Kind
    of: str
    why: str
    hypothesis: Hypothesis
    depth: int = 1


def came_to(contract: Contract, found: TestOutcome) -> Came:
    """Classify a claim's outcome by its primary test in the exploration patients."""
    if found.p is None or found.effect is None:
        return "dead end"
    if expected_direction(contract, found.effect) and found.p < contract.split.unlock_alpha:
        return "held"
    analysis = AnalysisResult(
        contract_sha256="", cohort=contract.cohort, simulated=contract.simulated,
        part="discovery", tests=(found,),
    )  # fmt: skip
    answer = answer_association(Evidence(contract, analysis, found.p, 1, locked=True), found)
    if answer.answer != "no":
        return "unclear"
    return "other direction" if found.p < contract.rules.alpha else "none"


def reopens(hypothesis: Hypothesis, held: Hypothesis) -> bool:
    """Check whether a claim repeats a confirmed question in some of the same patients."""
    asked, known = (
        ({exposure.variable for exposure in claim.exposures}, claim.endpoint)
        for claim in (hypothesis, held)
    )
    same = asked == known
    return same and not disjoint(levels_of(hypothesis), levels_of(held))


def next_moves(earlier: Sequence[Earlier], known: DataDictionary) -> tuple[Move, ...]:
    """Propose the next claims, best first: follow up successes before explaining failures."""
    return Policy((), known).moves(earlier)


def _moves(claim: Earlier, known: DataDictionary) -> Iterator[Move]:
    hypothesis, came = claim.hypothesis, claim.came
    joint = len(hypothesis.exposures) > 1
    within = bool(hypothesis.population.filters)
    if came == "other direction":
        turned = _change(hypothesis, known, direction=TURNED[hypothesis.direction])
        yield _move(claim, "refine", "it points the other way: the claim turned around", turned)
    elif came == "held":
        if within:
            yield from _other_subgroup(claim, known)
        elif joint:
            yield from _parts(claim, known, "contrast", "which of the two drives the association?")
        else:
            yield from _specific(claim, known)
            yield from _other_endpoints(claim, known)
    elif came in ("none", "unclear"):
        if joint:
            yield from _without_cuts(claim, known)
            yield from _parts(claim, known, "explain", "does either do anything on its own?")
        elif within and came == "unclear":
            everybody = _change(
                hypothesis, known, population=Population(description="", filters=())
            )
            yield _move(
                claim,
                "refine",
                "the subgroup has few patients: the same claim in all patients",
                everybody,
            )
        elif came == "unclear" and hypothesis.comparison is not Comparison.PER_SD:
            yield from _uncut(claim, known)
        elif not within:
            yield from _in_subgroups(claim, known)


def _move(claim: Earlier, kind: Kind, why: str, hypothesis: Hypothesis) -> Move:
    return Move(kind=kind, of=claim.id, why=why, hypothesis=hypothesis, depth=claim.depth + 1)


def _change(hypothesis: Hypothesis, known: DataDictionary, **changes: object) -> Hypothesis:
    """Return the hypothesis with changed fields, and with its derived texts updated."""
    fields = hypothesis.model_dump() | changes | {"id": "draft", "untested": (), "subgroups": ()}
    exposed = {exposure["variable"] for exposure in _plain(fields["exposures"])}
    fields["covariates"] = tuple(key for key in fields["covariates"] if key not in exposed)
    fields["strata"] = tuple(key for key in fields["strata"] if key not in exposed)
    return settle_fields(Hypothesis.model_validate(fields), known)


def _plain(exposures: object) -> list[dict[str, str]]:
    assert isinstance(exposures, tuple | list)
    return [
        exposure.model_dump() if isinstance(exposure, Exposure) else exposure
        for exposure in exposures
    ]


def _single(exposure: Exposure, known: DataDictionary) -> dict[str, object]:
    """Code a single exposure per standard deviation, or as two groups if it is binary."""
    binary = any(
        variable.key == exposure.variable and variable.kind == "binary"
        for variable in known.variables
    )
    cut = CutRule.MEDIAN if binary else CutRule.CONTINUOUS
    return {
        "exposures": (exposure.model_copy(update={"cut": cut, "threshold": None}),),
        "comparison": Comparison.EXPOSED_VS_REST if binary else Comparison.PER_SD,
    }


def _parts(claim: Earlier, known: DataDictionary, kind: Kind, why: str) -> Iterator[Move]:
    for exposure in claim.hypothesis.exposures:
        part = _change(claim.hypothesis, known, **_single(exposure, known))
        yield _move(claim, kind, f"{label_of(exposure.variable, known)} alone: {why}", part)


def without_cut(hypothesis: Hypothesis, known: DataDictionary) -> Hypothesis:
    """Recode a single-exposure claim per standard deviation, since cutting loses information."""
    if len(hypothesis.exposures) > 1:
        return hypothesis
    return _change(hypothesis, known, **_single(hypothesis.exposures[0], known))


def _uncut(claim: Earlier, known: DataDictionary) -> Iterator[Move]:
    single = without_cut(claim.hypothesis, known)
    if single.comparison is Comparison.PER_SD:
        yield _move(claim, "refine", "a cut loses information: the same per unit of spread", single)


def _without_cuts(claim: Earlier, known: DataDictionary) -> Iterator[Move]:
    hypothesis = claim.hypothesis
    if len(hypothesis.exposures) == 2 and hypothesis.comparison is not Comparison.INTERACTION:
        product = _interaction(hypothesis, hypothesis.exposures, known)
        yield _move(
            claim, "explain", "do the two have more effect together than each alone?", product
        )


def _interaction(
    hypothesis: Hypothesis, exposures: Sequence[Exposure], known: DataDictionary
) -> Hypothesis:
    coded = []
    for exposure in exposures:
        single = _single(exposure, known)["exposures"]
        assert isinstance(single, tuple)
        coded.append(single[0])
    return _change(
        hypothesis,
        known,
        exposures=tuple(coded),
        comparison=Comparison.INTERACTION,
        population=Population(description="", filters=()),
    )


def _modifiers(hypothesis: Hypothesis, known: DataDictionary) -> list[Variable]:
    """Find binary baseline clinical variables with enough patients in each group."""
    taken = {exposure.variable for exposure in hypothesis.exposures}
    taken |= {each.variable for each in hypothesis.population.filters}
    return [
        variable
        for variable in known.variables
        if variable.modality == "clinical"
        and variable.kind == "binary"
        and variable.key not in taken
        and not variable.late
        and len(variable.levels) == 2
        and min(variable.levels.values()) >= FEWEST * variable.n
    ][:MOST_MODIFIERS]


def _other_subgroup(claim: Earlier, known: DataDictionary) -> Iterator[Move]:
    hypothesis = claim.hypothesis
    filters = hypothesis.population.filters
    for at, each in enumerate(filters):
        levels = next(
            (variable.levels for variable in known.variables if variable.key == each.variable), {}
        )
        if each.op != "eq" or len(levels) != 2:
            continue
        other = next(level for level in levels if level.casefold() != str(each.value).casefold())
        turned = (*filters[:at], each.model_copy(update={"value": other}), *filters[at + 1 :])
        opposite = _change(hypothesis, known, population=Population(description="", filters=turned))
        yield _move(claim, "contrast", "is it the subgroup's own? The others", opposite)


def _other_endpoints(claim: Earlier, known: DataDictionary) -> Iterator[Move]:
    hypothesis = claim.hypothesis
    own = known.endpoint(hypothesis.endpoint)
    for endpoint in known.endpoints:
        if own is not None and endpoint.kind == own.kind and endpoint.key != own.key:
            again = _change(
                hypothesis, known, endpoint=endpoint.key, secondary_endpoints=(),
                negative_endpoint=None,
            )  # fmt: skip
            yield _move(claim, "refine", f"is it seen in {endpoint.label.lower()} too?", again)
            return


def _in_subgroups(claim: Earlier, known: DataDictionary) -> Iterator[Move]:
    hypothesis = claim.hypothesis
    single = _single(hypothesis.exposures[0], known)
    for variable in _modifiers(hypothesis, known):
        for level in sorted(variable.levels, key=lambda name: -variable.levels[name]):
            chosen = Filter(variable=variable.key, op="eq", value=level)
            inside = _change(
                hypothesis, known, **single,
                population=Population(description="", filters=(chosen,)),
                covariates=tuple(key for key in hypothesis.covariates if key != variable.key),
            )  # fmt: skip
            why = f"no effect in all patients may hide an effect where {variable.label} is {level}"
            yield _move(claim, "explain", why, inside)


def _specific(claim: Earlier, known: DataDictionary) -> Iterator[Move]:
    exposure = claim.hypothesis.exposures[0]
    gene = exposure.variable.removeprefix("expression:")
    near = neighbor(gene, known.expression) if gene != exposure.variable else None
    if near is not None:
        instead = exposure.model_copy(update={"variable": f"expression:{near}"})
        other = _change(claim.hypothesis, known, **_single(instead, known))
        yield _move(claim, "contrast", f"{near} in the place of {gene}: is it specific?", other)


def neighbor(gene: str, genes: Sequence[str]) -> str | None:
    """Return the next gene symbol in the same family (CXCL13 after CXCL12), or None."""
    stem, number = _family(gene)
    others = [
        (abs(count - number), name)
        for name in genes
        if name != gene
        for family, count in [_family(name)]
        if family == stem
    ]
    return min(others)[1] if stem and others else None


def _family(gene: str) -> tuple[str, int]:
    found = re.fullmatch(r"([A-Z]{2,}?[A-Z-]*?)(\d+)[A-Z]?\d*", gene)
    return (found[1], int(found[2])) if found else ("", 0)


# -- what is worth asking first ------------------------------------------------------------------

PRIOR: dict[tuple[Kind, Came], float] = {
    ("contrast", "held"): 0.35,
    ("refine", "held"): 0.10,
    ("refine", "other direction"): 0.25,
    ("refine", "unclear"): 0.15,
    ("explain", "unclear"): 0.10,
    ("explain", "none"): 0.05,
}
"""Assumed prior probability that a move's claim is true, by move and earlier outcome."""
FRESH = 0.15
"""Prior probability that a claim from the literature is true, before any test."""
EXPLORING = 0.1
"""One-sided level at which a claim holds in the exploration patients: half the unlock level."""


def information(prior: float, power: float, level: float = EXPLORING) -> float:
    """Compute the expected information, in bits, from testing a claim in exploration patients.

    It is the mutual information between truth (probability `prior`) and outcome (`power`
    where true, `level` where not): H(outcome) - prior H(power) - (1 - prior) H(level).
    """
    holds = prior * power + (1 - prior) * level
    return max(0.0, _bits(holds) - prior * _bits(power) - (1 - prior) * _bits(level))


def _bits(chance: float) -> float:
    if not 0 < chance < 1:
        return 0.0
    return -chance * math.log2(chance) - (1 - chance) * math.log2(1 - chance)


def exploring_power(hypothesis: Hypothesis, known: DataDictionary, share: float) -> float:
    """Compute the power for the smallest relevant effect in a share of the patients, from counts.

    The power is 0 if it cannot be computed (a variable is missing, or no patients are left).
    """
    try:
        contract = draft(hypothesis, known)
    except InputError:
        return 0.0
    seen = contract.power.minimum_detectable
    if seen is None:
        return 0.0
    seen = seen if contract.scale in DIFFERENCES else math.log(seen)
    alpha, level = contract.rules.alpha, 2 * EXPLORING
    return power_from_detectable(contract.relevant_effect, seen, alpha, level=level, share=share)


def prior_of(move: Move, came: Came) -> float:
    """Return the prior of a move after this outcome, halved for each preceding move."""
    return PRIOR.get((move.kind, came), 0.05) * 0.5 ** (move.depth - 1)


class Policy:
    """Ranks moves and fresh claims on a cohort by their expected information."""

    def __init__(
        self, fresh: Sequence[Hypothesis], known: DataDictionary, share: float = 0.5
    ) -> None:
        self.known = known
        self.share = share
        self._fresh = [
            Move(kind="move on", of="", why="from the literature", hypothesis=claim, depth=0)
            for claim in (without_cut(claim, known) for claim in fresh)
        ]
        self._moves: dict[tuple[str, str, int], tuple[Move, ...]] = {}
        self._power: dict[object, float] = {}

    def moves(self, earlier: Sequence[Earlier]) -> tuple[Move, ...]:
        """List moves on all earlier claims, except those already tested or reopening a question."""
        order: dict[Came, int] = {"held": 0, "other direction": 1, "unclear": 2, "none": 3}
        asked, closed = self._asked_and_held(earlier)
        found: list[Move] = []
        for claim in sorted(earlier, key=lambda claim: (order.get(claim.came, 9), claim.depth)):
            for move in self._moves_for(claim):
                key = same_claim(move.hypothesis)
                if key not in asked and not any(reopens(move.hypothesis, held) for held in closed):
                    asked.add(key)
                    found.append(move)
        return tuple(found)

    def rank(self, earlier: Sequence[Earlier]) -> tuple[tuple[float, Move], ...]:
        """Rank fresh claims and moves by the information expected from each, best first."""
        asked, closed = self._asked_and_held(earlier)
        found = [
            (self._bits(move, FRESH), move)
            for move in self._fresh
            if same_claim(move.hypothesis) not in asked
            and not any(reopens(move.hypothesis, held) for held in closed)
        ]
        came = {claim.id: claim.came for claim in earlier}
        found += [
            (self._bits(move, prior_of(move, came[move.of])), move) for move in self.moves(earlier)
        ]
        return tuple(sorted(found, key=lambda candidate: -candidate[0]))

    def _asked_and_held(self, earlier: Sequence[Earlier]) -> tuple[set[object], list[Hypothesis]]:
        asked: set[object] = {same_claim(claim.hypothesis) for claim in earlier}
        return asked, [claim.hypothesis for claim in earlier if claim.came == "held"]

    def _moves_for(self, claim: Earlier) -> tuple[Move, ...]:
        key = (claim.id, claim.came, claim.depth)
        if key not in self._moves:
            deep = claim.depth >= DEEPEST
            self._moves[key] = () if deep else tuple(_moves(claim, self.known))
        return self._moves[key]

    def _bits(self, move: Move, prior: float) -> float:
        key = same_claim(move.hypothesis)
        if key not in self._power:
            self._power[key] = exploring_power(move.hypothesis, self.known, self.share)
        return information(prior, self._power[key])
