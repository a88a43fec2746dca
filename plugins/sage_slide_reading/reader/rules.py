"""The Executor without a model: rules over typed findings, which abstain if none applies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from sage.core.printable import count_noun
from sage_slide_reading.reader.computed import (
    LYMPHOID_PER_MM2,
    NETWORK_MPP,
    NUCLEI_FROM,
    SIGNS,
    describe_finding,
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
    AtOnce,
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
"""If the median region has fewer nuclei per mm², the regions show folds, keratin, or glass, and
absence of cells cannot be concluded."""
AT_MARGIN_UM = 60.0
INSPECT = 20.0
"""Magnification at which findings are taken."""


def speaks_for(seen: Described, concept: Concept) -> bool:
    """Return True if a region shows a concept; a person's words outrank measurements."""
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


class RulesExecutor:
    """Answers from findings alone, reading no text except a person's."""

    def predict(self, scope: Scope, state: State) -> Prediction:
        """Return the answer that the findings support, or no answer with the reason."""
        question = state.question
        asked = meaning(question)
        if not asked.concepts:
            return _abstain("the question contains nothing that these eyes can measure")
        if why := out_of_reach(question, asked):
            return _abstain(why)
        if scope.unlike_he and not any(seen.edited for seen in state.seen):
            return _abstain(scope.unlike_he)
        fine = [s for s in state.seen if s.region.magnification >= NUCLEI_FROM or s.edited]
        if not fine:
            return _by_impression(scope, state, asked)
        # a person's words on some patches cannot show absence while others remain to be measured
        measured = any(not seen.edited for seen in fine) or len(fine) == len(state.seen)
        state = state.model_copy(update={"screened": state.screened and measured})
        if asked.asked is Asked.WHAT:
            return _choose_concept(fine, question, asked)
        concept = asked.concepts[0]
        if concept is Concept.CELLULARITY or asked.asked is Asked.HOW_MUCH:
            return _how_much(fine, question, concept)
        if concept is Concept.MITOSIS and asked.asked in (Asked.COUNT, Asked.WHERE):
            return _mitoses(scope, fine, question, asked, state.screened)
        if asked.asked is Asked.COUNT:
            return _count(fine, question, concept, state.screened)
        positive = showing(fine, concept)
        if asked.asked is Asked.PRESENT:
            return _present(scope, positive, fine, question, concept, state.screened)
        return _locate(scope, positive, fine, question, concept, state.screened)

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

    def at_once(self, scope: Scope, state: State) -> AtOnce:
        """Predict, reflect, and name what is missing; rules lose nothing by answering at once."""
        prediction = self.predict(scope, state)
        return AtOnce(
            prediction=prediction,
            reflection=self.reflect(scope, state, prediction),
            missing=self.missing(scope, state),
        )


def _abstain(why: str) -> Prediction:
    return Prediction(answer=None, thinking_steps=f"Abstains: {why}.")


def _by_impression(scope: Scope, state: State, asked: Meaning) -> Prediction:
    """Guess a place from the patch that ranks highest at low power, or decline."""
    if asked.asked is not Asked.WHERE or not state.screened or not state.seen:
        if scope.native < NUCLEI_FROM:
            return _abstain(
                f"nuclei can be measured only from {NUCLEI_FROM:g}x on, but this slide has "
                f"{scope.native:.3g}x"
            )
        return _abstain("no nuclei were examined yet")
    seen = state.seen[0]
    x, y = seen.region.box.center
    u, v = scope.place(x, y)
    answer = _place_at(state.question, u, v, x, y)
    return Prediction(
        answer=answer,
        thinking_steps=(
            f"At low power {seen.region.id} ({words_at(u, v)}) resembles"
            f" {SIGNS[asked.concepts[0]].name} most; this is an impression."
        ),
        regions=(seen.region.id,),
    )


def _place_at(question: Question, u: float, v: float, x: float, y: float) -> str | None:
    """Return the option at a point, or its place in words if the question is open."""
    return option_at(question, u, v, x, y) if question.options else words_at(u, v)


def _negative(question: Question) -> str | None:
    none = (o for o in question.options if NEGATIVE.match(plain(o)) or numbers_of(o) == (0.0, 0.0))
    return next(none, None)


def _describe_region(seen: Described, concept: Concept) -> str:
    if seen.edited:
        return f"{seen.region.id}: a person wrote: {seen.text[:120]}"
    found = next(f for f in seen.findings if f.name == SIGNS[concept].finding)
    return f"{seen.region.id} at {seen.region.magnification:.3g}x: {describe_finding(found)}"


def _absent(
    fine: Sequence[Described], question: Question, concept: Concept, screened: bool
) -> Prediction:
    """Answer that nothing was found, but only if every patch was ranked before."""
    sign = SIGNS[concept]
    if not screened:
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
        f"none shows {sign.name}; the nearest is {_describe_region(best, concept)}."
    )
    if concept in (Concept.TUMOR, Concept.MARGIN):
        why += " These eyes cannot see isolated tumor cells or groups of a few cells."
    if not question.options:
        return Prediction(
            answer=f"No: {sign.name} not found",
            thinking_steps=why,
            regions=(best.region.id,),
        )
    return Prediction(answer=_negative(question), thinking_steps=why, regions=(best.region.id,))


def _present(
    scope: Scope, positive: list[Described], fine: list[Described], question: Question,
    concept: Concept, screened: bool,
) -> Prediction:  # fmt: skip
    way = place_of(question.text, question)
    if isinstance(way, tuple) and way != (0, 0):
        positive = [
            seen
            for seen in positive
            if all(
                not wanted or wanted * at > 0
                for wanted, at in zip(way, scope.place(*seen.region.box.center), strict=True)
            )
        ]
    if not positive:
        return _absent(fine, question, concept, screened)
    positive.sort(key=lambda seen: -(seen.value(SIGNS[concept].finding) or 0.0))
    places = dict.fromkeys(words_at(*scope.place(*s.region.box.center)) for s in positive)
    yes = next((option for option in question.options if POSITIVE.match(plain(option))), None)
    if question.options and yes is None:
        return _abstain("none of the options means yes")
    return Prediction(
        answer=yes or f"Yes: {SIGNS[concept].name} ({', '.join(places)})",
        thinking_steps="; ".join(_describe_region(seen, concept) for seen in positive[:5]) + ".",
        regions=tuple(seen.region.id for seen in positive[:20]),
    )


def _locate(
    scope: Scope, positive: list[Described], fine: list[Described], question: Question,
    concept: Concept, screened: bool,
) -> Prediction:  # fmt: skip
    if not positive:
        if not question.options or _negative(question):
            return _absent(fine, question, concept, screened)
        return _abstain(f"none of the inspected regions shows {SIGNS[concept].name}")
    votes: dict[str | None, float] = defaultdict(float)
    voters: dict[str | None, list[Described]] = defaultdict(list)
    for seen in positive:
        x, y = seen.region.box.center
        u, v = scope.place(x, y)
        option = _place_at(question, u, v, x, y)
        votes[option] += (
            (seen.value(SIGNS[concept].finding) or 1.0) * seen.region.um[2] * seen.region.um[3]
        )
        voters[option].append(seen)
    best = max((option for option in votes), key=lambda option: votes[option])
    chosen = sorted(voters[best], key=lambda seen: -(seen.value(SIGNS[concept].finding) or 0.0))
    if best is None:
        return _abstain("the finding is outside all places named in the options")
    answer = best if question.options else f"{SIGNS[concept].name}: {', '.join(map(str, votes))}"
    return Prediction(
        answer=answer,
        thinking_steps="; ".join(_describe_region(seen, concept) for seen in chosen[:5]) + ".",
        regions=tuple(seen.region.id for seen in chosen[:20]),
    )


def hottest(points: Sequence[tuple[float, float]], side: float) -> tuple[int, float, float]:
    """Find the most points in any square and their center; 0 and zeros without points.

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


def _mitoses(
    scope: Scope, fine: list[Described], question: Question, asked: Meaning, screened: bool
) -> Prediction:
    """Count figures in the hottest field of the size that the question names."""
    points = [
        point
        for seen in fine
        if not seen.edited
        for found in seen.findings
        if found.name == "mitosis_like"
        for point in found.points
    ]
    count, x, y = hottest(points, asked.field_um / scope.mpp)
    if not count:
        absent = _absent(fine, question, Concept.MITOSIS, screened)
        if absent.answer is None or asked.asked is Asked.WHERE:
            return absent
    field = [s for s in fine if s.value("mitosis_like")] or fine[:1]
    u, v = scope.place(x, y)
    why = (
        f"{count} mitosis-like figures in the hottest field of {asked.field_um:.0f} "
        f"µm{(f' ({words_at(u, v)}, around level-0 pixel {x:.0f}, {y:.0f})' if count else '')}; "
        "figures are nuclei measured as dark and irregular."
    )
    if asked.asked is Asked.WHERE:
        answer = _place_at(question, u, v, x, y)
    else:
        answer = _in_range(question, count) if question.options else f"{count} mitosis-like figures"
    return Prediction(
        answer=answer, thinking_steps=why, regions=tuple(s.region.id for s in field[:20])
    )


def _in_range(question: Question, count: float) -> str | None:
    for option in question.options:
        span = numbers_of(option)
        if span is not None and span[0] <= count <= span[1]:
            return option
    return None


def _count(
    fine: list[Described], question: Question, concept: Concept, screened: bool
) -> Prediction:
    """Count groups of neighboring regions that show a concept."""
    positive = showing(fine, concept)
    if not positive and not screened:
        return _absent(fine, question, concept, screened)
    left, groups = list(positive), 0
    while left:
        groups += 1
        group = [left.pop()]
        while group:
            here = group.pop().region.box
            near = [s for s in left if _touch(here, s.region.box)]
            left = [s for s in left if s not in near]
            group.extend(near)
    why = f"{len(positive)} regions show {SIGNS[concept].name}, in {groups} groups of neighbors."
    answer = _in_range(question, groups) if question.options else f"{groups}: {SIGNS[concept].name}"
    return Prediction(
        answer=answer,
        thinking_steps=why,
        regions=tuple(s.region.id for s in (positive or fine)[:20]),
    )


def _touch(first: Box, second: Box) -> bool:
    return bool(
        first.x <= second.x + second.width + 1
        and second.x <= first.x + first.width + 1
        and first.y <= second.y + second.height + 1
        and second.y <= first.y + first.height + 1
    )


def _choose_concept(fine: list[Described], question: Question, asked: Meaning) -> Prediction:
    """Choose the concept that covers the largest share of the regions viewed."""
    shares = {}
    for concept in asked.concepts:
        if not SIGNS[concept].share:
            continue
        values = [_share(seen, concept) for seen in fine]
        shares[concept] = SIGNS[concept].share * float(np.mean(values))
    if not shares:
        return _abstain("the options contain nothing that these eyes can measure")
    best = max(shares, key=lambda concept: shares[concept])
    said = ", ".join(f"{SIGNS[concept].name} {share:.0%}" for concept, share in shares.items())
    if shares[best] < 0.2:
        return _abstain(f"no class covers a fifth of the inspected area ({said})")
    option = next((o for o in question.options if best in concepts_of(o)[:1]), None)
    return Prediction(
        answer=option if question.options else said,
        thinking_steps=f"Mean over {len(fine)} regions: {said}.",
        regions=tuple(seen.region.id for seen in fine[:20]),
    )


def _share(seen: Described, concept: Concept) -> float:
    if seen.edited:
        return float(speaks_for(seen, concept))
    value = seen.value(SIGNS[concept].finding) or 0.0
    if concept is Concept.TLS:
        return min(1.0, value / (2 * LYMPHOID_PER_MM2))
    return value


def _how_much(fine: list[Described], question: Question, concept: Concept) -> Prediction:
    values = [value for s in fine if (value := s.value(SIGNS[concept].finding)) is not None]
    if question.options or not values:
        return _abstain("the options are not quantities that these eyes measure")
    found = next(f for s in fine for f in s.findings if f.name == SIGNS[concept].finding)
    low, middle, high = np.percentile(values, (10, 50, 90))
    return Prediction(
        answer=(
            f"{found.name.replace('_', ' ')}: median {middle:.3g} {found.unit}"
            f" (10th to 90th percentile {low:.3g} to {high:.3g}) over {len(values)} regions"
        ),
        thinking_steps="The regions are those most relevant to the question, not a random sample.",
        regions=tuple(seen.region.id for seen in fine[:20]),
    )
