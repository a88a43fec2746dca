"""What a contract's primary test can see, from counts alone; no outcome is read by exposure."""

from __future__ import annotations

import math
from statistics import NormalDist

from sage.core.errors import InputError
from validation.contracts.contract import Power, Rules
from validation.contracts.registered import CONTINUOUS_CUTS, uses_groups
from validation.dictionary import DataDictionary, Endpoint
from validation.hypothesis import Comparison, CutRule, Filter, Hypothesis
from validation.inputs.variables import find_variable


def exposed_fraction(hypothesis: Hypothesis) -> tuple[float, float]:
    """Expected share of patients in the exposed and in the reference group.

    Exposures count as independent here; `freeze` replaces this by the observed sizes.
    """
    share = 1.0
    for exposure in hypothesis.exposures:
        share *= 1 / 3 if exposure.cut is CutRule.TERTILE else 0.5
    if hypothesis.comparison is Comparison.EXTREMES:
        return share, share
    return share, 1 - share


def planned_power(
    hypothesis: Hypothesis, dictionary: DataDictionary, endpoint: Endpoint, rules: Rules
) -> Power:
    """Power from the dictionary's counts: complete patients, expected events, expected groups.

    Parameters
    ----------
    hypothesis : exposures, covariates and population
    dictionary : counts of the cohort, without any outcome by exposure
    endpoint : with its expected events
    rules : level, power and the ratio that is relevant

    Returns
    -------
    Events or patients, what is detectable with them, and what is required.
    """
    share = 1.0
    for condition in hypothesis.population.filters:
        share *= _kept_by(dictionary, condition)
    known = [find_variable(dictionary, exposure.variable).n for exposure in hypothesis.exposures]
    n = int(min([endpoint.n, *known]) * share)
    if hypothesis.comparison is Comparison.MEDIATION:
        events = None if endpoint.events is None else endpoint.events / max(endpoint.n, 1) * n
        return power_of(n, events, None, "mediation", rules, "dictionary")
    exposed, reference = exposed_fraction(hypothesis)
    grouped = uses_groups(hypothesis)
    analyzed = int(n * (exposed + reference)) if grouped else n
    events = None if endpoint.events is None else endpoint.events / max(endpoint.n, 1) * analyzed
    fraction = exposed / (exposed + reference) if grouped else None
    spread = None
    if hypothesis.comparison.is_product:
        spread = _product_spread(hypothesis)
    elif hypothesis.comparison is Comparison.TREND:
        groups = 4 if hypothesis.exposures[0].cut is CutRule.QUARTILE else 3
        spread = math.sqrt((groups**2 - 1) / 12)
    elif not grouped:
        spread = 1.0
    return power_of(analyzed, events, fraction, endpoint.kind, rules, "dictionary", spread=spread)


def _product_spread(hypothesis: Hypothesis) -> float:
    """Standard deviation of a product given both factors: that of each, multiplied.

    Exposures count as independent here; `freeze` takes it from the patients.
    """
    spread = 1.0
    for exposure in hypothesis.exposures:
        if exposure.cut not in CONTINUOUS_CUTS:
            share = 1 / 3 if exposure.cut is CutRule.TERTILE else 0.5
            spread *= math.sqrt(share * (1 - share))
    return spread


def _z(rules: Rules) -> float:
    """Sum of the normal quantiles of the two-sided level and of 80% power."""
    normal = NormalDist()
    return normal.inv_cdf(1 - rules.alpha / 2) + normal.inv_cdf(0.8)


def power_of(
    n: int,
    events: float | None,
    fraction: float | None,
    kind: str,
    rules: Rules,
    basis: str,
    *,
    spread: float | None = None,
    unit_sd: float | None = None,
) -> Power:
    """Minimum detectable effect and required events for given sizes (no outcome values).

    Parameters
    ----------
    fraction : share of the exposed, for two groups
    spread : standard deviation of the exposure given what the model holds beside it (main effects,
        strata); takes the place of `fraction`
    unit_sd : standard deviation of the exposure in the unit of its effect, where that is another
    """
    from validation.statistics.power import (
        events_needed,
        minimum_detectable_hr,
        minimum_detectable_or,
    )

    note = "" if kind != "mediation" else "the power of an indirect effect is not computed"
    if spread is not None and spread != 1.0:
        note = f"standard deviation of the exposure given main effects and strata: {spread:.2f}"
    share = None if spread is not None else fraction
    detectable: float | None = None
    required: int | None = None
    if kind in ("survival", "competing") and events:
        count = max(1, round(events))
        detectable = minimum_detectable_hr(count, share, rules.alpha, 0.8, sd=spread)
        relevant = rules.relevant_ratio ** (1 / (unit_sd or 1.0))
        required = events_needed(relevant, share, rules.alpha, 0.8, sd=spread)
    elif kind == "binary" and events and 0 < round(events) < n:
        if spread is None and fraction is not None:
            detectable = minimum_detectable_or(n, round(events), fraction, rules.alpha, 0.8)
        else:
            rate = round(events) / n
            detectable = math.exp(_z(rules) / math.sqrt(n * rate * (1 - rate)) / (spread or 1.0))
    elif kind == "continuous" and n > 4:
        exposed = fraction or 0.5
        sd = spread if spread is not None else math.sqrt(exposed * (1 - exposed))
        detectable = _z(rules) / math.sqrt(n) / sd
        note = note or "difference in standard deviations, normal approximation"
    return Power.model_validate(
        {
            "n": n,
            "events": None if events is None else round(events, 1),
            "fraction_exposed": None if fraction is None else round(fraction, 4),
            "minimum_detectable": None if detectable is None else round(detectable, 4),
            "required_events": required,
            "basis": basis,
            "note": note,
            "unit_sd": None if unit_sd is None else round(unit_sd, 4),
        }
    )


def _kept_by(dictionary: DataDictionary, condition: Filter) -> float:
    """Share of patients that a filter keeps, as far as the dictionary's levels tell."""
    found = find_variable(dictionary, condition.variable)
    total = sum(found.levels.values())
    if not total:
        return 1 - found.missing
    values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    texts = {_text(value).casefold() for value in values}
    matched = sum(count for level, count in found.levels.items() if level.casefold() in texts)
    if condition.op in ("eq", "in"):
        if not matched:
            raise InputError(
                f"the population keeps nobody: {condition.variable} {condition.op} "
                f"{condition.value!r}; levels are "
                f"{', '.join(f'{level} ({count})' for level, count in found.levels.items())}"
            )
        return matched / total * (1 - found.missing)
    if condition.op == "ne":
        return (total - matched) / total * (1 - found.missing)
    return 1 - found.missing


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
