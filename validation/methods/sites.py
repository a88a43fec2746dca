"""Dependence of exposure and outcome on the site.

A claim may depend on a single hospital. Batch effects between sites reflect ancestry, stage and
treatment as well as staining and scanning (Howard and others 2021, Nat Commun), so that a marker
may be a proxy for the hospital.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from validation.contracts.contract import TestPlan
from validation.inputs.study import Study
from validation.methods.shared import clusters_of, effect_of, fit_cox, matrix, outcome_of, row_at
from validation.results.results import AnalysisResult, Book, TestOutcome, p_is
from validation.statistics.survival import logrank

if TYPE_CHECKING:
    from validation.statistics.base import FloatArray, IntArray

FEWEST_AT_A_SITE = 5
"""Minimum number of patients at a site; smaller sites are pooled when sites are compared."""
EXPOSURE_P, OUTCOME_P = "site.exposure.p", "site.outcome.p"


def site(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Compare exposure and outcome by site, and estimate the claim's hazard ratio within sites.

    The explained share is omega squared: the share of the exposure's variance that sites
    account for beyond chance.
    """
    key = study.contract.site
    assert key is not None
    within = plan.model_copy(update={"strata": (key,)})
    keep, X, names, notes = matrix(study, within)
    codes = study.layers((key,), keep)
    assert codes is not None
    count = np.bincount(codes)
    merged = np.where(count[codes] >= FEWEST_AT_A_SITE, codes, -1)
    if len(np.unique(merged)) < 2:
        raise InputError(f"{key}: fewer than two sites with {FEWEST_AT_A_SITE} patients each")
    x = X[:, 0]
    value, event = study.outcome(plan.endpoint)
    outcome = value[keep]
    explained = _rank_p(x, merged), _share(x, merged)
    if event is None:
        outcome_p, events = _rank_p(outcome, merged), None
    else:
        outcome, flags, entry = study.at_risk(plan.endpoint, keep)
        outcome_p, events = logrank(outcome, flags, merged, entry=entry).p, int(flags.sum())
    book.add("site.sites", len(count), "sites")
    book.add("site.small", int((count < FEWEST_AT_A_SITE).sum()), "sites")
    book.add(EXPOSURE_P, explained[0], "p-value")
    book.add("site.exposure.share", explained[1], "share")
    book.add(OUTCOME_P, outcome_p, "p-value")
    effect = p = None
    if event is not None:
        cluster = clusters_of(study, keep, notes)
        fit = fit_cox(outcome, flags, X, names, study, notes, codes, entry, cluster)
        effect, p = effect_of(fit, "hazard ratio"), float(fit.p[0])
        book.add_effect("site.within", effect, p)
        tables[plan.id] = [row_at(fit, f"{names[0]}, within sites", "hazard ratio")]
    return outcome_of(plan, keep, events, effect=effect, p=p, notes=notes)


def site_limits(analysis: AnalysisResult, alpha: float) -> list[str]:
    """List limitations of a verdict caused by sites."""
    numbers = analysis.numbers
    found = [
        f"{what} by site ({p_is(numbers[key].value)})"
        for key, what in ((EXPOSURE_P, "the exposure differs"), (OUTCOME_P, "the outcome differs"))
        if key in numbers and (numbers[key].value or 0.0) < alpha
    ]
    return [" and ".join(found) + ": see the hazard ratio within sites"] if found else []


def _rank_p(values: FloatArray, codes: IntArray) -> float:
    """Run the Kruskal-Wallis test over the sites."""
    from scipy.stats import kruskal

    if np.all(values == values[0]):
        raise InputError("the values do not vary between sites")
    return float(kruskal(*(values[codes == code] for code in np.unique(codes))).pvalue)


def _share(values: FloatArray, codes: IntArray) -> float:
    """Compute omega squared, bounded below by zero."""
    sites = np.unique(codes)
    inside = sum(float(((mine := values[codes == code]) - mine.mean()) @ (mine - mine.mean()))
                 for code in sites)  # fmt: skip
    total = float(((values - values.mean()) ** 2).sum())
    error = inside / max(len(values) - len(sites), 1)
    return max(0.0, (total - inside - (len(sites) - 1) * error) / (total + error))
