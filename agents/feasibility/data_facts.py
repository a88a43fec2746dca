"""Data availability: patients with each variable, number of events, and power."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from agents.feasibility.facts import FactList
from agents.feasibility.plan import ContractNumbers
from agents.feasibility.settings import FeasibilitySettings
from validation.core.dictionary import DataDictionary, Endpoint
from validation.core.hypothesis import Exposure, Hypothesis
from validation.core.signature import read_signature


@dataclass(frozen=True)
class Held:
    """A variable in the cohort, with the number of patients who have it and the missing share."""

    n: int
    missing: float


def find_held(dictionary: DataDictionary, key: str) -> Held | None:
    """Find a variable and the patients who have it, or return None."""
    if key.startswith("expression:") or read_signature(key) is not None:
        if not dictionary.has_variable(key):
            return None
        n = dictionary.expression_n or dictionary.n_patients
        return Held(n, 1.0 - n / max(1, dictionary.n_patients))
    for variable in dictionary.variables:
        if variable.key == key:
            return Held(variable.n, variable.missing)
    return None


def data_facts(
    facts: FactList,
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    numbers: ContractNumbers,
    settings: FeasibilitySettings,
) -> None:
    """Add the facts of the first step: data, events and power."""
    source = f"data dictionary of {dictionary.cohort}"
    found = [
        _exposure(facts, exposure, dictionary, settings, source)
        for exposure in hypothesis.exposures
    ]
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
                remedy="" if have else _remedy(dictionary, key),
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
            share=0.0,
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
            share=0.0,
            blocking=True,
            remedy=numbers.refused,
        )
        return
    _endpoint(facts, endpoint, numbers, settings, dictionary)
    _power(facts, numbers, settings)


def _exposure(
    facts: FactList,
    exposure: Exposure,
    dictionary: DataDictionary,
    settings: FeasibilitySettings,
    source: str,
) -> Held | None:
    have = find_held(dictionary, exposure.variable)
    usable = have is not None and have.missing <= settings.most_missing
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
        remedy="" if usable else _remedy(dictionary, exposure.variable),
    )
    return have if usable else None


CONTRACT = "draft contract"


def _endpoint(
    facts: FactList,
    endpoint: Endpoint,
    numbers: ContractNumbers,
    settings: FeasibilitySettings,
    dictionary: DataDictionary,
) -> None:
    compared = f"{numbers.format_count(numbers.patients)} patients whom the draft compares"
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
            share=1.0 if numbers.patients else 0.0,
            value=numbers.patients,
            unit="patients",
            blocking=True,
            remedy="" if numbers.patients else f"Use a cohort that records {endpoint.label}.",
        )
        return
    enough = events >= settings.least_events
    facts.add(
        "data",
        "endpoint",
        f"{endpoint.label}: {numbers.format_count(events)} events expected among {compared}.",
        CONTRACT,
        found=enough,
        share=min(1.0, events / (5.0 * settings.least_events)),
        value=events if numbers.format_count(events) == str(events) else None,
        unit="events",
        blocking=True,
        remedy=""
        if enough
        else f"At least {settings.least_events} events of {endpoint.label} are needed: a wider"
        " population, a larger cohort, longer follow-up, or a more frequent endpoint.",
    )


def _power(facts: FactList, numbers: ContractNumbers, settings: FeasibilitySettings) -> None:
    ratio = numbers.detectable
    if ratio is None or numbers.kind == "continuous":
        return
    span = settings.hopeless_ratio - settings.comfortable_ratio
    visible = ratio < settings.hopeless_ratio
    share = 1.0 - max(0.0, ratio - settings.comfortable_ratio) / span
    exposed = "" if numbers.exposed is None else f" and {numbers.exposed:.0%} exposed"
    events = numbers.event_count
    counted = "" if events is None else f"With {numbers.format_count(events)} events{exposed}, the"
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
        remedy=""
        if visible
        else f"Only effects beyond {settings.hopeless_ratio:g} ({numbers.scale}) show: compare"
        " larger groups (median cut, fewer joint conditions, a wider population) or use a cohort"
        " with more events.",
    )
    if visible and ratio > settings.comfortable_ratio:
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
