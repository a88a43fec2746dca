"""Power of a contract's primary test, from counts only; no outcome is read by exposure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from sage.core.errors import InputError
from validation.contracts.contract import Contract, Power, Rules, SplitRule
from validation.contracts.registered import CONTINUOUS_CUTS, uses_groups
from validation.contracts.timing import as_known
from validation.core.dictionary import DataDictionary, Endpoint
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Exposure,
    Filter,
    Hypothesis,
    SmallestRelevant,
)
from validation.inputs.population import (
    UNSCALED,
    Cut,
    Exposed,
    confirmation_mask,
    cut_for,
    describe_losses,
    expose,
    exposure_values,
    level_text,
    outcome_mask,
    population_mask,
)
from validation.inputs.variables import find_variable
from validation.statistics.power import HALVES

if TYPE_CHECKING:
    import pandas as pd

    from validation.cohort.cohort import Cohort
    from validation.statistics.base import FloatArray


def exposed_fraction(hypothesis: Hypothesis) -> tuple[float, float]:
    """Return the expected shares of patients in the exposed and in the reference group.

    Exposures are assumed to be independent; `freeze` uses the observed group sizes instead.
    """
    share = 1.0
    for exposure in hypothesis.exposures:
        share *= 1 / 3 if exposure.cut is CutRule.TERTILE else 0.5
    if hypothesis.comparison is Comparison.EXTREMES:
        return share, share
    return share, 1 - share


UNPLANNED = (Comparison.MEDIATION, Comparison.CALIBRATED)


def planned_power(
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    endpoint: Endpoint,
    rules: Rules,
    split: SplitRule,
) -> Power:
    """Compute power from the dictionary's counts: complete patients, expected events and groups."""
    share = split.confirming
    for condition in hypothesis.population.filters:
        share *= _kept_by(dictionary, condition)
    known = [find_variable(dictionary, exposure.variable).n for exposure in hypothesis.exposures]
    n = int(min([endpoint.n, *known]) * share)
    exposed, reference = exposed_fraction(hypothesis)
    grouped = uses_groups(hypothesis)
    analyzed = int(n * (exposed + reference)) if grouped else n
    events = None if endpoint.events is None else endpoint.events / max(endpoint.n, 1) * analyzed
    fraction = exposed / (exposed + reference) if grouped else None
    spread = None if grouped else 1.0
    contrast = None if grouped else HALVES
    compared = hypothesis.comparison
    if compared is Comparison.TREND:
        groups = 4 if hypothesis.exposures[0].cut is CutRule.QUARTILE else 3
        spread = math.sqrt((groups**2 - 1) / 12)
        contrast = HALVES * spread
    elif compared.is_product or compared in (Comparison.ADDED, Comparison.MEDIATION):
        chosen = {Comparison.ADDED: slice(1, 2), Comparison.MEDIATION: slice(1)}
        concerned = hypothesis.exposures[chosen.get(compared, slice(2))]
        spread = _product_spread(concerned)
        contrast = HALVES ** sum(exposure.cut in CONTINUOUS_CUTS for exposure in concerned)
    unplanned = compared in UNPLANNED
    kind, spread = ("none", None) if unplanned else (endpoint.kind, spread)
    return compute_power(
        analyzed, events, fraction, kind, rules, "dictionary",
        spread=spread, relevant=hypothesis.relevant, contrast=contrast,
    )  # fmt: skip


def _product_spread(exposures: Sequence[Exposure]) -> float:
    """Compute the standard deviation of a product of factors as the product of their deviations.

    Exposures are assumed to be independent; `freeze` computes it from the patients instead.
    """
    spread = 1.0
    for exposure in exposures:
        if exposure.cut not in CONTINUOUS_CUTS:
            share = 1 / 3 if exposure.cut is CutRule.TERTILE else 0.5
            spread *= math.sqrt(share * (1 - share))
    return spread


def _z(rules: Rules) -> float:
    """Compute the sum of the normal quantiles for the two-sided level and for 80% power."""
    normal = NormalDist()
    return normal.inv_cdf(1 - rules.alpha / 2) + normal.inv_cdf(0.8)


def compute_power(
    n: int,
    events: float | None,
    fraction: float | None,
    kind: str,
    rules: Rules,
    basis: str,
    *,
    spread: float | None = None,
    relevant: SmallestRelevant | None = None,
    contrast: float | None = None,
) -> Power:
    """Compute the minimum detectable effect and required events from sizes, without outcomes.

    Parameters
    ----------
    fraction : share of exposed patients, if two groups are compared
    relevant : smallest relevant effect between two groups; the default if None
    contrast : distance between those groups in units of the effect; None for two groups
    """
    from validation.statistics.power import (
        events_needed,
        minimum_detectable_hr,
        minimum_detectable_or,
    )

    note = "" if kind != "none" else "the power of this comparison is not computed"
    if spread is not None and spread != 1.0:
        note = f"standard deviation of the exposure given main effects and strata: {spread:.2f}"
    share = None if spread is not None else fraction
    detectable: float | None = None
    required: int | None = None
    if kind in ("survival", "competing") and events:
        count = max(1, round(events))
        detectable = minimum_detectable_hr(count, share, rules.alpha, 0.8, sd=spread)
        size = relevant.size if relevant is not None else rules.relevant_ratio
        required = events_needed(
            size ** (1 / (contrast or 1.0)), share, rules.alpha, 0.8, sd=spread
        )
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
            "contrast": None if contrast is None else round(contrast, 4),
        }
    )


def _kept_by(dictionary: DataDictionary, condition: Filter) -> float:
    """Estimate the share of patients kept by a filter, from the dictionary's levels."""
    found = find_variable(dictionary, condition.variable)
    total = sum(found.levels.values())
    if not total:
        return 1 - found.missing
    values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    texts = {level_text(value).casefold() for value in values}
    matched = sum(count for level, count in found.levels.items() if level.casefold() in texts)
    if condition.op in ("eq", "in"):
        if not matched:
            raise InputError(
                f"the population contains no patients: {condition.variable} {condition.op} "
                f"{condition.value!r}; levels are "
                f"{', '.join(f'{level} ({count})' for level, count in found.levels.items())}"
            )
        return matched / total * (1 - found.missing)
    if condition.op == "ne":
        return (total - matched) / total * (1 - found.missing)
    return 1 - found.missing


def exact_power(contract: Contract, cohort: Cohort) -> Power:
    """Compute power from the observed group sizes and the cohort's overall event rate."""
    primary = contract.primary_test.endpoint
    _refuse_outcome_columns(contract, cohort)
    table, _ = as_known(cohort.table(contract.keys(), [primary]), contract)
    blind = outcome_mask(table, primary)
    events = [
        column for column in table.columns if column in (f"{primary}.event", f"{primary}.value")
    ]
    overall = table.loc[blind, events[0]]
    kind = contract.endpoint(primary).kind
    rate = None if kind == "continuous" else float((overall == 1).mean())
    rows = table[population_mask(table, contract)]
    if contract.split.policy != "none":
        held = np.asarray(confirmation_mask(rows, contract))
        rows = rows[held] if held.any() else rows
    if rows.empty:
        raise InputError(f"no patients left to analyze: {describe_losses(table, contract)}")
    uses = contract.exposures
    values = tuple(exposure_values(rows, use) for use in uses)
    cuts = tuple(
        cut_for(contract.comparison, of_all, use) for of_all, use in zip(values, uses, strict=True)
    )
    exposed = expose(contract.comparison, uses, values, cuts)
    n = int((~np.isnan(exposed.x)).sum())
    share = float(np.nanmean(exposed.x)) if exposed.grouped else None
    if share is not None and not 0 < share < 1:
        raise InputError(
            f'one group is empty: {int(share * n)} of {n} patients are "{contract.exposed}". '
            "Choose another cut rule or comparison"
        )
    expected = None if rate is None else rate * n
    unplanned = contract.comparison in UNPLANNED
    contrast = _between_groups(exposed, cuts) if exposed.grouped else _between_halves(exposed.x)
    if unplanned or exposed.product:
        contrast = math.prod(map(_between_halves, exposed.parts[: 1 if unplanned else 2]))
    spread = None if unplanned else _spread(exposed, rows, contract)
    return compute_power(
        n, expected, share, "none" if unplanned else kind, contract.rules, "cohort",
        spread=spread, relevant=contract.relevant, contrast=contrast,
    )  # fmt: skip


def _between_halves(values: FloatArray) -> float:
    """Compute the distance between the two groups of a binary variable, or else its halves."""
    levels = np.unique(values[~np.isnan(values)])
    if len(levels) == 2:
        return float(levels[1] - levels[0])
    return HALVES * float(np.nanstd(values, ddof=1))


def _between_groups(exposed: Exposed, cuts: tuple[Cut, ...]) -> float | None:
    """Compute the distance between halves of a normal marker whose outer thirds are 1 apart.

    Returns None for other groups, which are compared as declared.
    """
    if len(cuts) > 1 or cuts[0].rule is not CutRule.TERTILE:
        return None
    normal, known = NormalDist(), int((~np.isnan(exposed.parts[0])).sum())
    shares = [float((exposed.x == group).sum()) / known for group in (1, 0)]
    return HALVES / sum(normal.pdf(normal.inv_cdf(share)) / share for share in shares)


def _refuse_outcome_columns(contract: Contract, cohort: Cohort) -> None:
    """Reject an exposure, covariate, stratum or filter that reads an outcome's column."""
    named = {endpoint.key for endpoint in contract.endpoints}
    for use in contract.variables:
        if use.role not in ("exposure", "covariate", "stratum", "filter"):
            continue
        reads = cohort.columns_read(use.key)
        for name, spec in cohort.spec.endpoints.items():
            followed = spec.kind in ("survival", "competing")
            both = reads & cohort.outcome_columns(name) if followed or name in named else None
            if both:
                path, column = min(both)
                raise InputError(
                    f'{use.role} {use.label} ({use.key}) uses column "{column}" in {path.name},'
                    f" from which endpoint {name} is derived; the outcome cannot predict "
                    "itself"
                )


def _spread(exposed: Exposed, rows: pd.DataFrame, contract: Contract) -> float | None:
    """Return the exposure's SD given main effects and strata; None for plain groups.

    Raises `InputError` if a stratum is unknown for all patients, or if the exposure does not
    vary given the other terms.
    """
    import pandas as pd

    unscaled = contract.comparison in UNSCALED
    if not exposed.model_parts and not contract.strata and not unscaled:
        return None if exposed.grouped else 1.0
    keep = ~np.isnan(exposed.x)
    layers = np.zeros(len(rows), dtype=np.int64)
    for key in contract.strata:
        codes, levels = pd.factorize(rows[key])
        if len(levels) == 0:
            raise InputError(f'stratum "{key}" is unknown for all patients who could be compared')
        keep &= codes >= 0
        layers = layers * (len(levels) + 1) + codes
    if not keep.any():
        raise InputError(f"no patient has known strata: {', '.join(contract.strata)}")
    terms = pd.DataFrame(np.column_stack([exposed.x, *exposed.model_parts])[keep])
    within = (terms - terms.groupby(layers[keep]).transform("mean")).to_numpy()
    x, Z = within[:, 0], within[:, 1:]
    residual = x - Z @ np.linalg.lstsq(Z, x, rcond=None)[0]
    spread = float(residual.std())
    if spread < 1e-9:
        raise InputError(
            "the exposure does not vary once main effects and strata are held constant, so nothing "
            "can be compared"
        )
    return spread
