"""Executor without a model, using rules over typed findings that abstain if none applies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sage.core.printable import count_noun
from sage_slide_reading.reader.computed import (
    LYMPHOID_PER_MM2,
    NETWORK_MPP,
    NUCLEI_FROM,
    SIGNS,
    Sign,
)
from sage_slide_reading.reader.concepts import (
    NEGATIVE,
    POSITIVE,
    Asked,
    Concept,
    Meaning,
    concepts_of,
    meaning,
    numbers_of,
    option_at,
    out_of_reach,
    place_of,
    words_at,
)
from sage_slide_reading.reader.scope import ONE_UM, Scope
from sage_slide_reading.reader.types import (
    NO_ANSWER,
    UNITS,
    Box,
    Described,
    Missing,
    MissingInfo,
    Prediction,
    Question,
    Reflection,
    State,
    plain,
)

LEAST_CELLULARITY = 600.0
"""Minimum nuclei per mm² in the median region for concluding that cells are absent.

Below it, the regions show folds, keratin, or glass.
"""
AT_MARGIN_UM = 60.0
INSPECT = 20.0
"""Magnification at which findings are measured."""


def speaks_for(seen: Described, concept: Concept) -> bool:
    """Return True if a region shows a concept; a person's text outranks measurements."""
    if seen.edited:
        return concept in concepts_of(seen.text) and not _is_denied(seen.text, concept)
    found = seen.value(SIGNS[concept].finding)
    if found is None or found < SIGNS[concept].least:
        return False
    if concept is Concept.MARGIN:
        far = seen.value("edge_distance")
        return far is not None and 0 <= far <= AT_MARGIN_UM
    if concept is Concept.TLS:
        return (seen.value("lymphoid_share") or 0.0) >= SIGNS[Concept.LYMPHOID].least
    return True


def showing(fine: Sequence[Described], concept: Concept) -> list[Described]:
    """Return regions that support a concept, if their total area is large enough."""
    positive = [seen for seen in fine if speaks_for(seen, concept)]
    area = sum(
        float("inf") if seen.edited else seen.region.um[2] * seen.region.um[3] for seen in positive
    )
    return positive if area >= SIGNS[concept].area_um2 else []


def _is_denied(text: str, concept: Concept) -> bool:
    """Return True if a person's sentence about a concept contains no, none, or without."""
    return any(
        set(plain(sentence).split()) & {"no", "none", "not", "without", "absent"}
        for sentence in text.replace(";", ".").split(".")
        if concept in concepts_of(sentence)
    )


@dataclass(frozen=True)
class _Case:
    """A question that findings can answer, with the regions inspected for it."""

    scope: Scope
    question: Question
    asked: Meaning
    fine: list[Described]
    screened: bool

    @property
    def sign(self) -> Sign:
        return SIGNS[self.asked.concepts[0]]

    @property
    def concept(self) -> Concept:
        return self.asked.concepts[0]

    def showing(self) -> list[Described]:
        return showing(self.fine, self.concept)

    def option_at(self, x: float, y: float) -> str | None:
        """Return the option at a level-0 pixel, or its place in words if the question is open."""
        u, v = self.scope.place(x, y)
        options = self.question.options
        return option_at(options, u, v) if options else words_at(u, v)

    def in_range(self, count: float) -> str | None:
        """Return the option whose range includes a count."""
        for option in self.question.options:
            span = numbers_of(option)
            if span is not None and span[0] <= count <= span[1]:
                return option
        return None


class RulesExecutor:
    """Executor that answers only from findings and reads no text except a person's."""

    def predict(self, scope: Scope, state: State) -> Prediction:
        """Return the answer that the findings support, or no answer with the reason."""
        question = state.question
        asked = meaning(question)
        if not asked.concepts:
            return _abstain("the question contains nothing that these eyes can measure")
        if why := out_of_reach(question, asked):
            return _abstain(why)
        of_cells = any(SIGNS[concept].of_cells for concept in asked.concepts)
        why = scope.unlike_he or (scope.no_nuclei if of_cells else "")
        if why and not any(seen.edited for seen in state.seen):
            return _abstain(why)
        fine = [s for s in state.seen if s.region.magnification >= NUCLEI_FROM or s.edited]
        # a person's words on some patches cannot show absence while others remain to be measured
        measured = any(not seen.edited for seen in fine) or len(fine) == len(state.seen)
        case = _Case(scope, question, asked, fine, state.screened and measured)
        if not fine:
            return _by_impression(case, state)
        if asked.asked is Asked.WHAT:
            return _choose_concept(case)
        if case.concept is Concept.CELLULARITY or asked.asked is Asked.HOW_MUCH:
            return _how_much(case)
        if case.concept is Concept.MITOSIS and asked.asked in (Asked.COUNT, Asked.WHERE):
            return _mitoses(case)
        if asked.asked is Asked.COUNT:
            return _count(case)
        return _present(case) if asked.asked is Asked.PRESENT else _locate(case)

    def reflect(self, scope: Scope, state: State, prediction: Prediction) -> Reflection:
        """Judge whether the answer is based on measured nuclei."""
        fine = {
            s.region.id for s in state.seen if s.region.magnification >= NUCLEI_FROM or s.edited
        }
        if prediction.answer is None:
            return NO_ANSWER
        if not fine & set(prediction.regions):
            return Reflection(sufficient="No", reason="it is based on an impression at low power")
        return Reflection(sufficient="Yes", reason="it is based on findings at high power")

    def missing(self, scope: Scope, state: State) -> MissingInfo:
        """Request measurable nuclei, from a closer look or else from other patches."""
        wanted = meaning(state.question).concepts
        info = ", ".join(concept.value for concept in wanted) or "cellularity"
        coarse = [s for s in state.seen if s.region.magnification < NUCLEI_FROM and not s.edited]
        closer = scope.native >= NUCLEI_FROM and bool(coarse)
        reason = (
            "nuclei can be measured only from 8x on"
            if closer
            else f"the maximum magnification of the slide is {scope.native:.3g}x"
            if scope.native < NUCLEI_FROM
            else "the regions seen show too little; other patches may show it"
        )
        return MissingInfo(
            items=tuple(
                Missing(
                    zoom_to=min(INSPECT, scope.native) if closer else None,
                    location=(seen.region.box.x, seen.region.box.y),
                    missing_info=info,
                    zoom_recommendation="Yes" if closer else "No",
                    zoom_reason=reason,
                )
                for seen in (coarse or state.seen)[:5]
            )
        )


def _abstain(why: str) -> Prediction:
    return Prediction(answer=None, thinking_steps=f"Abstains: {why}.")


def _answer(answer: str | None, why: str, seen: Sequence[Described]) -> Prediction:
    return Prediction(
        answer=answer, thinking_steps=why, regions=tuple(s.region.id for s in seen[:20])
    )


def _by_impression(case: _Case, state: State) -> Prediction:
    """Guess a place from the patch ranked highest at low power, or decline to answer."""
    if case.asked.asked is not Asked.WHERE or not state.screened or not state.seen:
        if case.scope.native < NUCLEI_FROM:
            return _abstain(
                f"nuclei can be measured only from {NUCLEI_FROM:g}x on, but this slide has "
                f"{case.scope.native:.3g}x"
            )
        return _abstain("no nuclei were examined yet")
    seen = state.seen[0]
    center = seen.region.box.center
    why = (
        f"At low power {seen.region.id} ({words_at(*case.scope.place(*center))}) resembles"
        f" {case.sign.name} most; this is an impression."
    )
    return _answer(case.option_at(*center), why, [seen])


def _negative(question: Question) -> str | None:
    none = (o for o in question.options if NEGATIVE.match(plain(o)) or numbers_of(o) == (0.0, 0.0))
    return next(none, None)


def _describe_region(seen: Described, sign: Sign) -> str:
    if seen.edited:
        return f"{seen.region.id}: a person wrote: {seen.text[:120]}"
    found = next(f for f in seen.findings if f.name == sign.finding)
    return f"{seen.region.id} at {seen.region.magnification:.3g}x: {found.describe()}"


def _list_regions(seen: Sequence[Described], sign: Sign) -> str:
    return "; ".join(_describe_region(region, sign) for region in seen[:5]) + "."


def _absent(case: _Case) -> Prediction:
    """Answer that nothing was found, provided that every patch was ranked before."""
    sign, fine = case.sign, case.fine
    if not case.screened:
        return _abstain(
            f"none of the inspected regions shows {sign.name}, and nothing is known about "
            "the others"
        )
    cellular = [s.value("cellularity") or 0.0 for s in fine if not s.edited]
    if sign.of_cells and cellular and float(np.median(cellular)) < LEAST_CELLULARITY:
        return _abstain(
            f"hardly any nuclei could be measured in the regions inspected for {sign.name} "
            f"(median {np.median(cellular):.0f} nuclei/mm²), which says nothing about the rest"
        )
    finest = max((s.region.magnification for s in fine if not s.edited), default=INSPECT)
    if sign.of_cells and ONE_UM / finest > NETWORK_MPP:
        return _abstain(
            f"{sign.name} was not found at {finest:.3g}x, where nuclei are too coarse to "
            "rule it out"
        )
    best = max(fine, key=lambda seen: seen.value(sign.finding) or 0.0)
    why = (
        f"Every patch was ranked at low power. Of {count_noun(len(fine), 'region')} inspected, "
        f"none shows {sign.name}; the nearest is {_describe_region(best, sign)}."
    )
    if case.concept in (Concept.TUMOR, Concept.MARGIN):
        why += " These eyes cannot see isolated tumor cells or groups of a few cells."
    no = _negative(case.question) if case.question.options else f"No: {sign.name} not found"
    return _answer(no, why, [best])


def _present(case: _Case) -> Prediction:
    question, sign, positive = case.question, case.sign, case.showing()
    way = place_of(question.text)
    if way is not None and way != (0, 0):
        positive = [
            seen
            for seen in positive
            if all(
                not wanted or wanted * at > 0
                for wanted, at in zip(way, case.scope.place(*seen.region.box.center), strict=True)
            )
        ]
    if not positive:
        return _absent(case)
    positive.sort(key=lambda seen: -(seen.value(sign.finding) or 0.0))
    places = dict.fromkeys(words_at(*case.scope.place(*s.region.box.center)) for s in positive)
    yes = next((option for option in question.options if POSITIVE.match(plain(option))), None)
    if question.options and yes is None:
        return _abstain("none of the options means yes")
    return _answer(
        yes or f"Yes: {sign.name} ({', '.join(places)})", _list_regions(positive, sign), positive
    )


def _locate(case: _Case) -> Prediction:
    sign, positive = case.sign, case.showing()
    if not positive:
        if not case.question.options or _negative(case.question):
            return _absent(case)
        return _abstain(f"none of the inspected regions shows {sign.name}")
    votes: dict[str | None, float] = defaultdict(float)
    voters: dict[str | None, list[Described]] = defaultdict(list)
    for seen in positive:
        option = case.option_at(*seen.region.box.center)
        votes[option] += (seen.value(sign.finding) or 1.0) * seen.region.um[2] * seen.region.um[3]
        voters[option].append(seen)
    best = max(votes, key=lambda option: votes[option])
    if best is None:
        return _abstain("the finding is in none of the places named in the options")
    chosen = sorted(voters[best], key=lambda seen: -(seen.value(sign.finding) or 0.0))
    answer = best if case.question.options else f"{sign.name}: {', '.join(map(str, votes))}"
    return _answer(answer, _list_regions(chosen, sign), chosen)


def hottest(points: Sequence[tuple[float, float]], side: float) -> tuple[int, float, float]:
    """Find the maximum number of points in any square, and its center; zeros without points.

    A square with the most points can be shifted until two of its sides pass through points.
    """
    if not points:
        return 0, 0.0, 0.0
    array = np.asarray(points)
    best, center = 0, (0.0, 0.0)
    for left in array[:, 0]:
        across = array[(array[:, 0] >= left) & (array[:, 0] <= left + side)]
        for top in across[:, 1]:
            inside = across[(across[:, 1] >= top) & (across[:, 1] <= top + side)]
            if len(inside) > best:
                best = len(inside)
                center = (float(inside[:, 0].mean()), float(inside[:, 1].mean()))
    return best, *center


def _mitoses(case: _Case) -> Prediction:
    """Count mitotic figures in the densest field of the size named in the question."""
    points = [
        point
        for seen in case.fine
        if not seen.edited
        for found in seen.findings
        if found.name == "mitosis_like"
        for point in found.points
    ]
    count, x, y = hottest(points, case.asked.field_um / case.scope.mpp)
    where = case.asked.asked is Asked.WHERE
    if not count:
        absent = _absent(case)
        if absent.answer is None or where:
            return absent
    field = [s for s in case.fine if s.value("mitosis_like")] or case.fine[:1]
    at = f" ({words_at(*case.scope.place(x, y))}, around level-0 pixel {x:.0f}, {y:.0f})"
    why = (
        f"{count} mitosis-like figures in the hottest field of {case.asked.field_um:.0f} "
        f"µm{at if count else ''}; figures are nuclei measured as dark and irregular."
    )
    if where:
        return _answer(case.option_at(x, y), why, field)
    open_ = f"{count} mitosis-like figures"
    return _answer(case.in_range(count) if case.question.options else open_, why, field)


def _count(case: _Case) -> Prediction:
    """Count groups of neighboring regions that show a concept."""
    positive = case.showing()
    if not positive and not case.screened:
        return _absent(case)
    left, groups = list(positive), 0
    while left:
        groups += 1
        group = [left.pop()]
        while group:
            here = group.pop().region.box
            near = [s for s in left if _touch(here, s.region.box)]
            left = [s for s in left if s not in near]
            group.extend(near)
    why = f"{len(positive)} regions show {case.sign.name}, in {groups} groups of neighbors."
    open_ = f"{groups}: {case.sign.name}"
    answer = case.in_range(groups) if case.question.options else open_
    return _answer(answer, why, positive or case.fine)


def _touch(first: Box, second: Box) -> bool:
    return bool(
        first.x <= second.x + second.width + 1
        and second.x <= first.x + first.width + 1
        and first.y <= second.y + second.height + 1
        and second.y <= first.y + first.height + 1
    )


def _choose_concept(case: _Case) -> Prediction:
    """Choose the concept that covers the largest fraction of the regions viewed."""
    shares = {
        concept: SIGNS[concept].share * float(np.mean([_share(s, concept) for s in case.fine]))
        for concept in case.asked.concepts
        if SIGNS[concept].share
    }
    if not shares:
        return _abstain("the options contain nothing that these eyes can measure")
    best = max(shares, key=lambda concept: shares[concept])
    said = ", ".join(f"{SIGNS[concept].name} {share:.0%}" for concept, share in shares.items())
    if shares[best] < 0.2:
        return _abstain(f"no class covers a fifth of the inspected area ({said})")
    option = next((o for o in case.question.options if best in concepts_of(o)[:1]), None)
    answer = option if case.question.options else said
    return _answer(answer, f"Mean over {len(case.fine)} regions: {said}.", case.fine)


def _share(seen: Described, concept: Concept) -> float:
    if seen.edited:
        return float(speaks_for(seen, concept))
    value = seen.value(SIGNS[concept].finding) or 0.0
    if concept is Concept.TLS:
        return min(1.0, value / (2 * LYMPHOID_PER_MM2))
    return value


def _how_much(case: _Case) -> Prediction:
    name = case.sign.finding
    values = [value for s in case.fine if (value := s.value(name)) is not None]
    if case.question.options or not values:
        return _abstain("the options are not quantities that these eyes measure")
    low, middle, high = np.percentile(values, (10, 50, 90))
    answer = (
        f"{name.replace('_', ' ')}: median {middle:.3g} {UNITS[name][0]}"
        f" (10th to 90th percentile {low:.3g} to {high:.3g}) over {len(values)} regions"
    )
    why = "The regions are those most relevant to the question, not a random sample."
    return _answer(answer, why, case.fine)
