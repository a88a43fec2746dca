"""Data reality: which variable exists in how many patients, with how many events, to what power."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from agents.feasibility.facts import FactList
from agents.feasibility.settings import FeasibilitySettings
from validation.dictionary import DataDictionary, Endpoint
from validation.hypothesis import Comparison, CutRule, Exposure, Hypothesis


@dataclass(frozen=True)
class Held:
    """A variable in the cohort: patients who have it, and the missing share."""

    n: int
    missing: float


def held(dictionary: DataDictionary, key: str) -> Held | None:
    """What the cohort holds of a variable, or None."""
    if key.startswith("expression:"):
        if not dictionary.has(key):
            return None
        n = dictionary.expression_n or dictionary.n_patients
        return Held(n, 1.0 - n / max(1, dictionary.n_patients))
    for variable in dictionary.variables:
        if variable.key == key:
            return Held(variable.n, variable.missing)
    return None


def exposed_fraction(hypothesis: Hypothesis) -> float:
    """Share of patients expected in the exposed group, by the cut rules, if exposures are
    independent: one half per median, one third per tertile, one half where unknown.

    For `extremes` it is the exposed share of those compared.
    """
    shares = [1 / 3 if one.cut is CutRule.TERTILE else 0.5 for one in hypothesis.exposures]
    exposed, rest = 1.0, 1.0
    for share in shares:
        exposed *= share
        rest *= 1.0 - share
    if hypothesis.comparison is Comparison.EXTREMES:
        return exposed / (exposed + rest)
    return exposed


def compared_share(hypothesis: Hypothesis) -> float:
    """Share of the population that enters the comparison: below one only for `extremes`."""
    if hypothesis.comparison is not Comparison.EXTREMES or len(hypothesis.exposures) == 1:
        return 1.0
    exposed, rest = 1.0, 1.0
    for one in hypothesis.exposures:
        share = 1 / 3 if one.cut is CutRule.TERTILE else 0.5
        exposed *= share
        rest *= 1.0 - share
    return exposed + rest


def data_facts(
    facts: FactList,
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    settings: FeasibilitySettings,
) -> None:
    """Facts of step one."""
    source = f"data dictionary of {dictionary.cohort}"
    found = [_exposure(facts, one, dictionary, settings, source) for one in hypothesis.exposures]
    for name, keys in (
        ("covariates", hypothesis.covariates),
        ("strata", hypothesis.strata),
        ("population", [one.variable for one in hypothesis.population.filters]),
    ):
        for key in keys:
            have = held(dictionary, key)
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
        have_keys = ", ".join(one.key for one in dictionary.endpoints) or "none"
        facts.add(
            "data",
            "endpoint",
            f"{dictionary.cohort} has no endpoint {hypothesis.endpoint}; it has: {have_keys}.",
            source,
            found=False,
            share=0.0,
            blocking=True,
            remedy=f"Use a cohort with {hypothesis.endpoint}, or one of the endpoints {have_keys}.",
        )
        return
    _endpoint(facts, endpoint, settings, source)
    smallest = min((one.n for one in found if one is not None), default=dictionary.n_patients)
    if all(one is not None for one in found):
        _power(facts, hypothesis, endpoint, dictionary, smallest, settings)


def _exposure(
    facts: FactList,
    exposure: Exposure,
    dictionary: DataDictionary,
    settings: FeasibilitySettings,
    source: str,
) -> Held | None:
    have = held(dictionary, exposure.variable)
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


def _endpoint(
    facts: FactList, endpoint: Endpoint, settings: FeasibilitySettings, source: str
) -> None:
    if endpoint.events is None:
        facts.add(
            "data",
            "endpoint",
            f"{endpoint.label} is known for {endpoint.n} patients.",
            source,
            found=endpoint.n > 0,
            share=1.0 if endpoint.n else 0.0,
            value=endpoint.n,
            unit="patients",
            blocking=True,
            remedy="" if endpoint.n else f"Use a cohort that records {endpoint.label}.",
        )
        return
    enough = endpoint.events >= settings.least_events
    facts.add(
        "data",
        "endpoint",
        f"{endpoint.label}: {endpoint.events} events among {endpoint.n} patients.",
        source,
        found=enough,
        share=min(1.0, endpoint.events / (5.0 * settings.least_events)),
        value=endpoint.events,
        unit="events",
        blocking=True,
        remedy=""
        if enough
        else f"At least {settings.least_events} events of {endpoint.label} are needed: a larger "
        "cohort, longer follow-up, or a more frequent endpoint.",
    )


def _power(
    facts: FactList,
    hypothesis: Hypothesis,
    endpoint: Endpoint,
    dictionary: DataDictionary,
    smallest: int,
    settings: FeasibilitySettings,
) -> None:
    from validation.statistics.power import minimum_detectable_hr, minimum_detectable_or

    # Assumes that events fall on those with all variables as on the rest, and no filter's loss:
    # the dictionary gives counts per variable, not per combination.
    share = min(1.0, smallest / max(1, dictionary.n_patients)) * compared_share(hypothesis)
    patients = min(smallest, endpoint.n) * compared_share(hypothesis)
    events = int((endpoint.events or 0) * share)
    fraction = exposed_fraction(hypothesis)
    per_sd = hypothesis.comparison.is_slope
    if endpoint.kind in ("survival", "competing") and events > 0:
        if hypothesis.comparison.is_product:
            # A product term in a balanced 2 by 2 layout has the variance of q (1 - q) = 1/16.
            ratio = minimum_detectable_hr(events, None, settings.alpha, settings.power, sd=0.25)
        elif per_sd:
            ratio = minimum_detectable_hr(events, None, settings.alpha, settings.power, sd=1.0)
        else:
            ratio = minimum_detectable_hr(events, fraction, settings.alpha, settings.power)
        word = "hazard ratio per standard deviation" if per_sd else "hazard ratio"
    elif endpoint.kind == "binary" and 0 < events < int(patients):
        ratio = minimum_detectable_or(
            int(patients), events, 0.5 if per_sd else fraction, settings.alpha, settings.power
        )
        word = "odds ratio"
    else:
        return
    span = settings.hopeless_ratio - settings.comfortable_ratio
    visible = ratio < settings.hopeless_ratio
    comfortable = ratio <= settings.comfortable_ratio
    share = 1.0 - max(0.0, ratio - settings.comfortable_ratio) / span
    facts.add(
        "data",
        "power",
        f"With about {events} events and {fraction:.0%} exposed, the smallest {word} seen with "
        f"{settings.power:.0%} power at alpha {settings.alpha:g} is {ratio:.2f}.",
        "validation.statistics.power",
        found=visible,
        share=share,
        value=ratio,
        unit=word,
        blocking=True,
        remedy=""
        if visible
        else f"Only a {word} beyond {settings.hopeless_ratio:g} could be seen: compare larger "
        "groups (median cut, fewer joint conditions) or use a cohort with more events.",
    )
    if visible and not comfortable:
        facts.add(
            "data",
            "power",
            f"Effects smaller than a {word} of {ratio:.2f} will be missed.",
            "validation.statistics.power",
            found=False,
            share=share,
            value=ratio,
            unit=word,
            remedy=f"Read a negative result as inconclusive for a {word} below {ratio:.2f}.",
        )


def _remedy(dictionary: DataDictionary, key: str) -> str:
    if key.startswith("expression:"):
        symbol = key.removeprefix("expression:")
        near = get_close_matches(symbol, dictionary.expression, n=3, cutoff=0.75)
        if not dictionary.expression:
            return f"Use a cohort with gene expression; {dictionary.cohort} has none."
    else:
        near = get_close_matches(key, [one.key for one in dictionary.variables], n=3, cutoff=0.6)
    hint = f" Near matches: {', '.join(near)}." if near else ""
    return f"Add {key} to {dictionary.cohort}, or use a cohort that measures it.{hint}"
