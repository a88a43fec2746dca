"""Controls that accompany a claim and show how it would look if it were false.

Each control returns its numbers as typed fields (`validation.results.controls`), which
the rules in `validation.verdict.objections` read; `write_numbers` puts them under their
keys for the report.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sage.core.errors import InputError
from validation.cohort.findings_timing import indicators
from validation.contracts.contract import TestPlan, VariableUse
from validation.controls.keys import Key, random_key
from validation.core.hypothesis import Comparison, CutRule, Direction
from validation.inputs.population import (
    Exposed,
    apply_filters,
    cut_for,
    expose,
    exposure_values,
    rescale,
)
from validation.inputs.study import Study
from validation.methods import run_method
from validation.methods.penalized import score_draws
from validation.results.controls import (
    ControlResult,
    Controls,
    ControlStatus,
    KnownPositiveResult,
    Missingness,
    NegativeEndpoint,
    PermutedOutcome,
    RandomFeatures,
    Specifications,
    TimingResult,
)
from validation.results.results import Book, Effect, TestOutcome
from validation.statistics.base import chi2_p
from validation.statistics.cox import cox, null_scores
from validation.statistics.cutpoint import logrank_scores
from validation.statistics.errors import StatisticsError
from validation.statistics.leakage import find_leak
from validation.statistics.permuted import dealt_at_risk, empirical_p, permutations, score_z
from validation.statistics.survival import logrank

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from validation.statistics.base import FloatArray

SEPARATOR = "#"
CELLS = 500_000
"""Maximum number of reassigned exposures (patients x draws) compared in each batch."""


def control_outcome(name: str, method: str, endpoint: str, **values: Any) -> TestOutcome:
    """Build a control's ledger entry."""
    return TestOutcome.model_validate(
        {"id": f"control.{name}", "role": "control", "method": method, "endpoint": endpoint}
        | {"status": "ok"}
        | values
    )


def ledger_fields(result: ControlResult) -> dict[str, Any]:
    """Return a control's numbers for its ledger entry."""
    names = {"p", "n", "events", "statistic"} & set(type(result).model_fields)
    found = {name: getattr(result, name) for name in names}
    if isinstance(result, Specifications):
        found["statistic"] = result.stable
    return found


def missingness(table: pd.DataFrame, study: Study) -> Missingness:
    """Compare patients with and without the exposure, and with and without the outcome.

    Complete-case analysis misleads if a value is missing because of the patient's course, or
    an outcome because of the exposure. The comparisons are within strata.
    """
    contract = study.contract
    rows = table[apply_filters(table, contract.filters)]
    whole = Study(contract, rows, study.cuts, study.exposed)
    value, event = whole.outcome(contract.primary_test.endpoint)
    plain = [use.model_copy(update={"rescale": None}) for use in contract.exposures]
    values = [exposure_values(rows, use) for use in plain]
    absent: Any = np.isnan(np.column_stack(values)).any(axis=1)
    layers = all_layers(whole)
    keep: Any = ~np.isnan(value)
    if event is not None:
        keep &= ~np.isnan(event)
    inside: Any = True if layers is None else layers >= 0
    grouped = expose(
        contract.comparison,
        contract.exposures,
        tuple(exposure_values(rows, use) for use in contract.exposures),
        study.cuts,
    ).x
    compared = ~np.isnan(grouped) & inside
    unseen, lost_p = (~keep)[compared].astype(float), None
    if min(unseen.sum(), len(unseen) - unseen.sum()) >= contract.rules.min_group:
        within = None if layers is None else layers[compared]
        lost_p = chi2_p(float(score_z(unseen, grouped[compared][:, None], None, within)[0]) ** 2, 1)
    keep &= inside
    layers = None if layers is None else layers[keep]
    lost = absent[keep].astype(float)
    count, p, effect = int(lost.sum()), None, dict[str, float]()
    if min(count, len(lost) - count) >= contract.rules.min_group:
        if event is not None:
            entry = whole.entry(contract.primary_test.endpoint, keep)
            happened = (event[keep] == 1).astype(float)
            p = logrank(value[keep], happened, lost, layers, entry).p
            with suppress(InputError):  # the test stands without its estimate
                fit = cox(
                    value[keep], happened, lost[:, None], ["missing"], strata=layers, entry=entry,
                    penalty="firth",
                )  # fmt: skip
                effect = {name: float(getattr(fit, name)[0]) for name in ("hr", "lower", "upper")}
        else:
            p = chi2_p(float(score_z(value[keep], lost[:, None], None)[0]) ** 2, 1)
    return Missingness(status=ControlStatus.RAN, missing=count, p=p, n=len(lost),
                       unseen=int(unseen.sum()), unseen_p=lost_p, **effect)  # fmt: skip


def write_numbers(controls: Controls, scale: str, book: Book) -> None:
    """Record the numbers of the controls that ran, under their keys."""
    permuted, positive, curve = controls.permuted, controls.known_positive, controls.specification
    if permuted is not None and permuted.ran:
        book.add(Key.PERMUTED_P, permuted.p, "p-value")
        book.add(Key.PERMUTED_DRAWS, permuted.draws, "permutations")
        if permuted.p is not None and permuted.draws is not None:
            as_good = round(permuted.p * (permuted.draws + 1)) - 1
            book.add(Key.PERMUTED_AS_GOOD, as_good, "permutations")
        book.add(Key.PERMUTED_RATE, permuted.false_positive_rate, "share")
    for at, found in enumerate(controls.random):
        if found.ran:
            book.add(random_key(at, "percentile"), found.percentile, "share")
            if found.percentile is not None and found.draws is not None:
                as_good = found.draws - round(found.percentile * found.draws)
                book.add(random_key(at, "as_good"), as_good, str(found.kind))
            book.add(random_key(at, "draws"), found.draws, str(found.kind))
            book.add(random_key(at, "p"), found.p, "p-value")
    if positive is not None and positive.ran:
        book.add(Key.KNOWN_POSITIVE_HR, positive.hr, "hazard ratio")
        if positive.hr_per_level is not None:
            book.add(Key.KNOWN_POSITIVE_LEVEL, positive.hr_per_level, "hazard ratio")
        book.add(Key.KNOWN_POSITIVE_LOWER, positive.lower, "hazard ratio")
        book.add(Key.KNOWN_POSITIVE_UPPER, positive.upper, "hazard ratio")
        book.add(Key.KNOWN_POSITIVE_P, positive.p, "p-value")
        book.add(Key.KNOWN_POSITIVE_EVENTS, positive.events, "events")
    missing = controls.missingness
    if missing is not None and missing.ran and missing.p is not None:
        book.add(Key.MISSING, missing.missing, "patients")
        book.add(Key.MISSING_P, missing.p, "p-value")
        if missing.hr is not None and missing.lower is not None and missing.upper is not None:
            effect = Effect(
                value=missing.hr, lower=missing.lower, upper=missing.upper, scale="hazard ratio"
            )
            book.add_effect(Key.MISSING_EFFECT, effect, None)
    if curve is not None and curve.ran:
        failed = curve.failed or 0
        total = (curve.n or 0) + failed
        book.add(Key.SPECIFICATIONS, curve.n, "specifications")
        agreed = _count_share(curve.expected_sign, curve.n)
        book.add(Key.EXPECTED_SIGN, curve.expected_sign, "share", agreed)
        book.add(Key.SPECIFICATIONS_SIGNIFICANT, curve.significant, "share")
        book.add(Key.SPECIFICATION_MEDIAN, curve.median, scale)
        book.add(Key.SPECIFICATION_LOWEST, curve.lowest, scale)
        book.add(Key.SPECIFICATION_HIGHEST, curve.highest, scale)
        if curve.left_out:
            book.add(Key.SITES_LEFT_OUT, curve.left_out, "specifications")
            book.add(Key.LEFT_OUT_LOWEST, curve.left_out_lowest, scale)
            book.add(Key.LEFT_OUT_HIGHEST, curve.left_out_highest, scale)
            agreed = _count_share(curve.left_out_sign, curve.left_out)
            book.add(Key.LEFT_OUT_SIGN, curve.left_out_sign, "share", agreed)
        failures = f"{failed} of {total}"
        book.add(Key.SPECIFICATIONS_FAILED, failed, "specifications", failures)
        book.add(Key.SPECIFICATION_OWN, int(bool(curve.own)), "specifications")


def _count_share(share: float | None, of: int | None) -> str | None:
    """Render a share of `of` items as a count; return None if either is unknown."""
    return None if share is None or of is None else f"{round(share * of)} of {of}"


def _arrays(study: Study) -> tuple[Any, FloatArray, FloatArray | None, FloatArray, Any]:
    """Return kept patients, outcome, event flags, exposure and adjusters.

    Event flags are None for an outcome other than time to event; adjusters are None if there
    are none.
    """
    primary = study.contract.primary_test
    keep = study.complete(primary.endpoint, primary.strata)
    value, event = study.outcome(primary.endpoint)
    main = [part[keep] for _, part in study.adjusters()]
    others = np.column_stack(main) if main else None
    flags = None if event is None else (event[keep] == 1).astype(float)
    return keep, value[keep], flags, study.exposed.x[keep], others


def permuted_outcome(study: Study) -> PermutedOutcome:
    """Compute the claim's statistic with exposures reassigned at random among the patients.

    It includes the covariates of the adjusted test and is that model's score statistic, so
    that a claim supported by the adjusted test is not judged by a test that would miss it. An
    unknown covariate is replaced by its mean.
    """
    plan = study.contract.controls
    keep, value, flags, x, others = _arrays(study)
    seed = study.contract.seed
    layers = study.layers(study.contract.primary_test.strata, keep)
    clusters = study.clusters(keep)
    entry = study.entry(study.contract.primary_test.endpoint, keep)
    adjusted = next((test for test in study.contract.tests if test.id == "adjusted"), None)
    if adjusted is not None and entry is None:
        held = np.nan_to_num(study.design(adjusted.covariates, keep, missing=True)[0])
        others = held if others is None else np.column_stack([others, held])
    if entry is not None and flags is not None and others is None and clusters is None:
        observed, null = dealt_at_risk(
            entry, value, flags, x, layers, times=plan.permutations, seed=seed
        )
    elif study.contract.hypothesis.penalty is not None:
        beside = np.empty((len(x), 0)) if others is None else others
        observed, null = score_draws(study, study.contract.primary_test, keep, beside)
    else:
        orders = permutations(len(x), plan.permutations, seed, layers, clusters)
        if flags is not None:
            value = _scores_beside(others, value, flags == 1, layers, entry)
        parts = np.array_split(orders, max(1, orders.size // CELLS))
        null = np.concatenate([score_z(value, x[part].T, others, layers) for part in parts])
        observed = float(score_z(value, x[:, None], others, layers)[0])
    p, null = empirical_p(observed, null), null[np.isfinite(null)]
    nominal = [chi2_p(float(z) ** 2, 1) < study.contract.rules.alpha for z in null]
    return PermutedOutcome(
        status=ControlStatus.RAN,
        p=p,
        draws=len(null),
        false_positive_rate=float(np.mean(nominal)),
        n=int(keep.sum()),
    )


def random_features(study: Study, candidates: pd.DataFrame | None, exposure: int) -> RandomFeatures:
    """Compute the claim's statistic for comparable features put through the same construction.

    Expression and signatures are replaced by matched genes (prepared beforehand, without the
    outcome); any other exposure is reassigned at random among the patients.
    """
    contract = study.contract
    use = contract.exposures[exposure]
    keep = _arrays(study)[0]
    rows = study.rows
    own = exposure_values(rows, use.model_copy(update={"rescale": None}))
    prefix = f"{use.key}{SEPARATOR}"
    columns = (
        []
        if candidates is None
        else [candidate for candidate in candidates if str(candidate).startswith(prefix)]
    )
    if columns and candidates is not None:
        raw = candidates.loc[rows.index, columns].to_numpy(dtype=float)
        kind: Literal["matched genes", "permuted feature"] = "matched genes"
    else:
        every = np.ones(len(own), dtype=bool)
        orders = permutations(
            len(own),
            contract.controls.random_features,
            contract.seed + 1,
            clusters=study.clusters(every),
        )
        raw = own[orders].T
        kind = "permuted feature"
    raw = raw[:, ~np.isnan(raw).any(axis=0)]
    if raw.shape[1] < 20:
        raise InputError(f"only {raw.shape[1]} comparable features; at least 20 are required")
    # Each draw has different patients in its groups (for extremes, different patients in neither),
    # so draws are compared by their own standardized statistics.
    endpoint = contract.primary_test.endpoint
    entry = study.entry(endpoint, np.ones(len(rows), dtype=bool))
    outcome = _Outcome(*study.outcome(endpoint), all_layers(study), entry)
    values = tuple(exposure_values(rows, each) for each in contract.exposures)
    draws = (_rebuilt(study, values, exposure, raw[:, at]) for at in range(raw.shape[1]))
    sign = -1.0 if contract.direction is Direction.LOWER_RISK else 1.0
    if contract.comparison is Comparison.MEDIATION and exposure == 0:
        # The exposure's own part of the claim is its path to the mediator, made positive.
        sign = 1.0
        observed = _to_the_mediator(study.exposed, keep)
        null = np.array(
            [float("nan") if drawn is None else _to_the_mediator(drawn, keep) for drawn in draws]
        )
    elif contract.hypothesis.time_dependent:
        observed, null = _at_risk(study)
    elif contract.hypothesis.penalty is not None:
        nothing = np.empty((int(keep.sum()), 0))
        observed, null = score_draws(study, contract.primary_test, keep, nothing)
    else:
        null = np.array([float("nan") if draw is None else _draw(draw, outcome) for draw in draws])
        observed = _draw(study.exposed, outcome)
    null = null[np.isfinite(null)]
    if len(null) < 20:
        raise InputError(
            f"only {len(null)} comparable features could be coded like the claim's exposure"
        )
    null, observed = sign * null, sign * observed
    if contract.direction is Direction.EITHER:
        null, observed = np.abs(null), abs(observed)
    share = float((null < observed).mean())
    stronger = float((1 + (null >= observed).sum()) / (1 + len(null)))
    return RandomFeatures(
        status=ControlStatus.RAN,
        percentile=share,
        p=stronger,
        draws=len(null),
        kind=kind,
        n=int(keep.sum()),
    )


def _at_risk(study: Study) -> tuple[float, FloatArray]:
    """Compute a time-dependent exposure's statistic, observed and redrawn among those at risk."""
    contract = study.contract
    keep, value, flags, x, _ = _arrays(study)
    entry = study.entry(contract.primary_test.endpoint, keep)
    assert entry is not None and flags is not None
    layers = study.layers(contract.primary_test.strata, keep)
    times = contract.controls.random_features
    return dealt_at_risk(entry, value, flags, x, layers, times=times, seed=contract.seed + 1)


def _rebuilt(
    study: Study, values: tuple[FloatArray, ...], exposure: int, raw: FloatArray
) -> Exposed | None:
    """Recode the exposure with one exposure's values replaced; None if they cannot be cut."""
    contract = study.contract
    uses = contract.exposures
    cuts = list(study.cuts)
    use = uses[exposure]
    try:
        raw = rescale(raw, use)
    except InputError:
        return None
    if use.cut is CutRule.FIXED:
        # A threshold in one feature's unit means nothing for another feature: keep its share.
        assert use.threshold is not None
        below = int((values[exposure] <= use.threshold).sum())
        use = use.model_copy(update={"threshold": float(np.sort(raw)[max(below, 1) - 1])})
    try:
        cuts[exposure] = cut_for(contract.comparison, raw, use)
    except InputError:
        return None
    replaced = (*values[:exposure], raw, *values[exposure + 1 :])
    return expose(contract.comparison, uses, replaced, tuple(cuts))


def all_layers(study: Study) -> NDArray[np.int64] | None:
    """Return the (rows,) stratum of every patient, -1 if unknown; None without strata."""
    strata = study.contract.primary_test.strata
    if not strata:
        return None
    known = study.rows[list(strata)].notna().all(axis=1).to_numpy()
    found = np.full(len(known), -1, dtype=np.int64)
    layers = study.layers(strata, known)
    assert layers is not None
    found[known] = layers
    return found


@dataclass(frozen=True)
class _Outcome:
    """Primary outcome for all patients, with their strata (-1 if unknown) and delayed entry."""

    value: FloatArray
    event: FloatArray | None
    layers: NDArray[np.int64] | None
    entry: FloatArray | None
    cache: dict[bytes, FloatArray] = field(default_factory=dict)

    def scores(self, keep: NDArray[np.bool_]) -> FloatArray:
        """Return the kept patients' values, or the log-rank scores shared by most draws."""
        if self.event is None:
            return self.value[keep]
        if (key := keep.tobytes()) not in self.cache:
            layers = None if self.layers is None else self.layers[keep]
            entry = None if self.entry is None else self.entry[keep]
            self.cache[key] = _scores(self.value[keep], self.event[keep] == 1, layers, entry)
        return self.cache[key]


def _draw(exposed: Exposed, outcome: _Outcome) -> float:
    """Compute an exposure's signed score statistic.

    It is positive if exposed patients fare worse (or have higher values). With strata,
    log-rank scores and the exposure's mean are computed within each stratum. An interaction's
    product is first adjusted for its main effects.
    """
    keep = ~np.isnan(exposed.x) & ~np.isnan(outcome.value)
    if outcome.event is not None:
        keep &= ~np.isnan(outcome.event)
    if outcome.layers is not None:
        keep &= outcome.layers >= 0
    column = exposed.x[keep]
    if column.size < 4 or np.all(column == column[0]):
        return float("nan")
    base = [part[keep][:, None] for part in exposed.model_parts]
    others = np.column_stack(base) if base else None
    layers = None if outcome.layers is None else outcome.layers[keep]
    return float(score_z(outcome.scores(keep), column[:, None], others, layers)[0])


def _to_the_mediator(exposed: Exposed, keep: NDArray[np.bool_]) -> float:
    """Compute an exposure's standardized correlation with its mediator, positive as claimed."""
    exposure, mediator = exposed.parts
    known = keep & (exposure == exposure) & (mediator == mediator)
    return float(score_z(mediator[known], exposure[known][:, None], None)[0])


def _scores_beside(
    others: FloatArray | None,
    time: FloatArray,
    event: NDArray[np.bool_],
    layers: NDArray[np.int64] | None,
    entry: FloatArray | None,
) -> FloatArray:
    """Compute scores from a model with the (n, k) other terms, or log-rank scores without it."""
    if others is not None and entry is None:
        with suppress(StatisticsError):
            names = [f"term {at}" for at in range(others.shape[1])]
            return null_scores(time, event, others, names, layers)
    return _scores(time, event, layers, entry)


def _scores(
    time: FloatArray,
    event: NDArray[np.bool_],
    layers: NDArray[np.int64] | None,
    entry: FloatArray | None,
) -> FloatArray:
    """Compute log-rank scores within each stratum."""
    scores = np.empty(len(time))
    codes = np.zeros(len(time), dtype=np.int64) if layers is None else layers
    for code in np.unique(codes):
        mine = codes == code
        begin = None if entry is None else entry[mine]
        scores[mine] = logrank_scores(time[mine], event[mine], begin)
    return scores


def timing(table: pd.DataFrame, study: Study) -> TimingResult:
    """Test whether a variable in the claim reveals the outcome or the length of follow-up.

    Exposures, covariates and strata are tested in the claim's patients, filters in all
    patients.
    """
    contract = study.contract
    endpoint = contract.primary_test.endpoint
    count = len(study.rows)
    if contract.endpoint(endpoint).kind == "continuous":
        return TimingResult(status=ControlStatus.RAN, n=count)

    def search(whole: Study, label: str, values: Any) -> list[str]:
        value, event = whole.outcome(endpoint)
        entry = whole.entry(endpoint, np.ones(len(value), dtype=bool))
        value = value if entry is None else value - entry
        known = ~np.isnan(value) if event is None else ~(np.isnan(value) | np.isnan(event))
        flags = (value,) if event is None else (event, value)
        leak = find_leak(values[known], *(each[known] for each in flags))
        return [] if leak is None else [f"{label}: {leak.text}"]

    leaks, beside = list[str](), list[str]()
    for use in contract.exposures:
        leaks += search(study, use.label, exposure_values(study.rows, use))
    for use in contract.variables:
        if use.role in ("covariate", "stratum"):
            for level, numbers in indicators(study.rows[use.key]):
                label = f"{use.label} ({level})" if level else use.label
                beside += search(study, label, numbers.to_numpy(dtype=float))
    whole = Study(contract, table, study.cuts, study.exposed)
    for condition in contract.filters:
        inside = apply_filters(table, (condition,)).where(table[condition.variable].notna())
        beside += search(whole, f"filter by {condition.variable}", inside.to_numpy(dtype=float))
    return TimingResult(status=ControlStatus.RAN, leaks=tuple(leaks), beside=tuple(beside), n=count)


def known_positive(table: pd.DataFrame, study: Study) -> KnownPositiveResult:
    """Test an association that must be present if the outcome data are sound."""
    plan = study.contract.controls.known_positive
    assert plan is not None
    rows = table[apply_filters(table, study.contract.filters)]
    time = rows[f"{plan.endpoint}.time"].to_numpy(dtype=float)
    event = rows[f"{plan.endpoint}.event"].to_numpy(dtype=float)
    entry = rows.get(f"{plan.endpoint}.entry")
    x = rows[plan.variable].to_numpy(dtype=float)
    keep = ~(np.isnan(time) | np.isnan(event) | np.isnan(x))
    x = x[keep]
    if x.size == 0 or np.all(x == x[0]):
        raise InputError(f"{plan.variable} does not vary in this population")
    flags = (event[keep] == 1).astype(float)
    cluster = study.contract.cluster
    fit = cox(
        time[keep],
        flags,
        ((x - x.mean()) / x.std(ddof=1))[:, None],
        [plan.variable],
        cluster=None if cluster is None else rows.loc[keep, cluster].astype(str),
        entry=None if entry is None else entry.to_numpy(dtype=float)[keep],
    )
    return KnownPositiveResult(
        status=ControlStatus.RAN,
        hr=float(fit.hr[0]),
        hr_per_level=float(fit.hr[0] ** (1 / x.std(ddof=1))) if _is_ordinal(study) else None,
        lower=float(fit.lower[0]),
        upper=float(fit.upper[0]),
        p=float(fit.p[0]),
        statistic=float(fit.coef[0] / fit.se[0]),
        events=int(flags.sum()),
        n=int(keep.sum()),
    )


def _is_ordinal(study: Study) -> bool:
    """Check whether the known positive is a variable with ordered levels."""
    return any(
        use.role == "known_positive" and use.kind == "ordinal" for use in study.contract.variables
    )


def negative_endpoint(study: Study, book: Book, tables: dict[str, Any]) -> NegativeEndpoint:
    """Test the same exposure on an endpoint that it should not affect."""
    name = study.contract.controls.negative_endpoint
    assert name is not None
    primary = study.contract.primary_test
    plan = TestPlan(
        id="control.negative",
        role="secondary",
        method=primary.method,
        endpoint=name,
        strata=primary.strata,
    )
    found = run_method(study, plan, book, tables)
    return NegativeEndpoint(
        status=ControlStatus.RAN, endpoint=name, p=found.p, n=found.n, events=found.events
    )


def is_replaceable(use: VariableUse) -> bool:
    """Check whether an exposure, a gene or signature, has comparable features in the matrix."""
    return use.key.startswith(("expression:", "signature:"))
