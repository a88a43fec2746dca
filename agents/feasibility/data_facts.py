"""Data availability: patients with each variable, number of events, and power."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from agents.feasibility.plan import ContractNumbers
from agents.feasibility.types import FactList
from validation.core.dictionary import DataDictionary, Endpoint, find_levels
from validation.core.hypothesis import Exposure, Hypothesis
from validation.core.signature import read_signature
from validation.disclosure import count_text, safe_count

COMFORTABLE_RATIO = 1.6
"""Smallest detectable hazard or odds ratio up to which the power check is fully met.

Prognostic markers in this field commonly have reported ratios of 1.5 to 2.
"""
HOPELESS_RATIO = 4.0
"""Smallest detectable ratio above which only implausible effects are detectable: infeasible."""
LEAST_EVENTS = 20
"""Minimum number of events for any adjusted model; below it, infeasible."""
MOST_MISSING = 0.5
"""Maximum missing share; a variable missing in more patients is treated as absent."""


@dataclass(frozen=True)
class Held:
    """A cohort variable, with the number of patients who have it and the missing share."""

    n: int
    missing: float


def find_held(dictionary: DataDictionary, key: str) -> Held | None:
    """Find a variable and the number of patients who have it, or return None."""
    if key.startswith("expression:") or read_signature(key) is not None:
        if not dictionary.has_variable(key):
            return None
        n = dictionary.expression_n or dictionary.n_patients
        return Held(n, 1.0 - n / max(1, dictionary.n_patients))
    named = (variable for variable in dictionary.variables if variable.key == key)
    found = next(named, None) or find_levels(dictionary.variables, key)
    return None if found is None else Held(found.n, found.missing)


def data_facts(
    facts: FactList,
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    numbers: ContractNumbers,
) -> None:
    """Add the facts for the first step: data, events and power."""
    source = f"data dictionary of {dictionary.cohort}"
    found = [_exposure(facts, exposure, dictionary, source) for exposure in hypothesis.exposures]
    for name, keys in (
        ("covariates", hypothesis.covariates),
        ("strata", hypothesis.strata),
        ("population", [condition.variable for condition in hypothesis.population.filters]),
    ):
        for key in keys:
            have = find_held(dictionary, key)
            facts.add(
                "data",
                name,
                f"{key} is measured in {have.n} patients."
                if have
                else f"{key} is not in {dictionary.cohort}.",
                source,
                found=have is not None,
                share=1.0 - have.missing if have else 0.0,
                value=have.n if have else 0,
                unit="patients",
                blocking=name in ("population", "strata"),
                remedy=_remedy(dictionary, key),
            )
    endpoint = dictionary.endpoint(hypothesis.endpoint)
    if endpoint is None:
        have_keys = ", ".join(endpoint.key for endpoint in dictionary.endpoints) or "none"
        facts.add(
            "data",
            "endpoint",
            f"{dictionary.cohort} has no endpoint {hypothesis.endpoint}. Endpoints: {have_keys}.",
            source,
            found=False,
            blocking=True,
            remedy=f"Use a cohort with {hypothesis.endpoint}, or one of the endpoints {have_keys}.",
        )
        return
    if any(have is None for have in found):
        return
    if numbers.refused:
        facts.add(
            "data",
            "contract",
            f"No contract can be drafted: {numbers.refused}.",
            source,
            found=False,
            blocking=True,
            remedy=numbers.refused,
        )
        return
    _endpoint(facts, endpoint, numbers, dictionary)
    _power(facts, numbers)


def _exposure(
    facts: FactList,
    exposure: Exposure,
    dictionary: DataDictionary,
    source: str,
) -> Held | None:
    have = find_held(dictionary, exposure.variable)
    usable = have is not None and have.missing <= MOST_MISSING
    if have is None:
        text = f"{exposure.label} ({exposure.variable}) is not in {dictionary.cohort}."
    else:
        text = (
            f"{exposure.label} ({exposure.variable}) is measured in {have.n} of "
            f"{dictionary.n_patients} patients of {dictionary.cohort}."
        )
    facts.add(
        "data",
        "exposures",
        text,
        source,
        found=usable,
        share=1.0 - have.missing if have else 0.0,
        value=have.n if have else 0,
        unit="patients",
        blocking=True,
        remedy=_remedy(dictionary, exposure.variable),
    )
    return have if usable else None


CONTRACT = "draft contract"


def _endpoint(
    facts: FactList,
    endpoint: Endpoint,
    numbers: ContractNumbers,
    dictionary: DataDictionary,
) -> None:
    compared = (
        f"{count_text(numbers.patients, dictionary.n_patients)} patients whom the draft compares"
    )
    whole = f"{dictionary.n_patients} in {dictionary.cohort}"
    compared += f" ({numbers.filters}; {whole})" if numbers.filters else f" (of {whole})"
    events = numbers.event_count
    if events is None:
        facts.add(
            "data",
            "endpoint",
            f"{endpoint.label} is known for {compared}.",
            CONTRACT,
            found=numbers.patients > 0,
            value=numbers.patients,
            unit="patients",
            blocking=True,
            remedy=f"Use a cohort that records {endpoint.label}.",
        )
        return
    enough = events >= LEAST_EVENTS
    facts.add(
        "data",
        "endpoint",
        f"{endpoint.label}: {count_text(events)} events expected among {compared}.",
        CONTRACT,
        found=enough,
        share=min(1.0, events / (5.0 * LEAST_EVENTS)),
        value=safe_count(events),
        unit="events",
        blocking=True,
        remedy=f"At least {LEAST_EVENTS} events of {endpoint.label} are needed: a wider"
        " population, a larger cohort, longer follow-up, or a more frequent endpoint.",
    )


def _power(facts: FactList, numbers: ContractNumbers) -> None:
    ratio = numbers.detectable
    if ratio is None or numbers.kind == "continuous":
        return
    span = HOPELESS_RATIO - COMFORTABLE_RATIO
    visible = ratio < HOPELESS_RATIO
    share = 1.0 - max(0.0, ratio - COMFORTABLE_RATIO) / span
    exposed = "" if numbers.exposed is None else f" and {numbers.exposed:.0%} exposed"
    events = numbers.event_count
    counted = "" if events is None else f"With {count_text(events)} events{exposed}, the"
    facts.add(
        "data",
        "power",
        f"{counted or 'The'} smallest {numbers.scale} that its primary test sees with 80% power at"
        f" alpha {numbers.alpha:g} is {ratio:.2f} (or {1 / ratio:.2f}).",
        CONTRACT,
        found=visible,
        share=share,
        value=ratio,
        unit=numbers.scale,
        blocking=True,
        remedy=f"Only effects beyond {HOPELESS_RATIO:g} ({numbers.scale}) show: compare"
        " larger groups (median cut, fewer joint conditions, a wider population) or use a cohort"
        " with more events.",
    )
    if visible and ratio > COMFORTABLE_RATIO:
        facts.add(
            "data",
            "power",
            f"Smaller effects than {ratio:.2f} ({numbers.scale}) have less than 80% power.",
            CONTRACT,
            found=False,
            share=share,
            value=ratio,
            unit=numbers.scale,
            remedy=f"Read a negative result as inconclusive for effects below {ratio:.2f}"
            f" ({numbers.scale}).",
        )


def _remedy(dictionary: DataDictionary, key: str) -> str:
    if key.startswith("expression:"):
        symbol = key.removeprefix("expression:")
        near = get_close_matches(symbol, dictionary.expression, n=3, cutoff=0.75)
        if not dictionary.expression:
            return f"Use a cohort with gene expression; {dictionary.cohort} has none."
    else:
        near = get_close_matches(
            key, [variable.key for variable in dictionary.variables], n=3, cutoff=0.6
        )
    hint = f" Near matches: {', '.join(near)}." if near else ""
    return f"Add {key} to {dictionary.cohort}, or use a cohort that measures it.{hint}"
