"""The registered tests, one function each: study and plan in, outcome out.

Each returns numbers through the book and a `TestOutcome`. Data that cannot bear a test raise a
named refusal (`StatisticsError` or `InputError`), which becomes the outcome's reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from validation.contract import TestPlan
from validation.errors import InputError
from validation.results import Book, Effect, TestOutcome
from validation.study import Study

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

HORIZONS = (12, 36, 60)


def run_method(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Run one registered test."""
    if plan.subgroup is not None:
        study = study.subgroup(plan.subgroup)
    _enough(study, plan)
    return METHODS[plan.method](study, plan, book, tables)


def _enough(study: Study, plan: TestPlan) -> None:
    """Refuse what the contract's rules call too small, before anything is computed."""
    import numpy as np

    rules = study.contract.rules
    keep = study.complete(plan.endpoint)
    if not keep.any():
        raise InputError(f'no patient has both the exposure and endpoint "{plan.endpoint}"')
    if study.exposed.grouped:
        x = study.exposed.x[keep]
        sizes = {
            study.contract.exposed: int((x == 1).sum()),
            study.contract.reference: int((x == 0).sum()),
        }
        small = min(sizes, key=lambda name: sizes[name])
        if sizes[small] < rules.min_group:
            raise InputError(
                f'group "{small}" has {sizes[small]} patients for {plan.endpoint}; the contract '
                f"asks for at least {rules.min_group}"
            )
    value, event = study.outcome(plan.endpoint)
    kind = study.contract.endpoint(plan.endpoint).kind
    if kind == "continuous":
        return
    seen = (value if event is None else event)[keep]
    events = int((seen == 1).sum())
    if events == 0:
        raise InputError(f"no events for {plan.endpoint} among {int(keep.sum())} patients")
    if kind == "binary":
        events = min(events, int((seen == 0).sum()))
    if events < rules.min_events:
        raise InputError(
            f"{events} events for {plan.endpoint}; the contract asks for at least "
            f"{rules.min_events}"
        )
    if not np.isfinite(value[keep]).all():
        raise InputError(f"{plan.endpoint}: values that are not finite")


def _outcome(plan: TestPlan, **values: Any) -> TestOutcome:
    return TestOutcome.model_validate(
        {
            "id": plan.id,
            "role": plan.role,
            "method": plan.method,
            "endpoint": plan.endpoint,
            "status": "ok",
            "claim": plan.claim,
            **values,
        }
    )


def _matrix(study: Study, plan: TestPlan) -> tuple[Any, Any, list[str], list[str]]:
    """Kept patients, design matrix with the exposure first, its names, notes."""
    import numpy as np

    keep = study.complete(plan.endpoint, plan.covariates)
    lost = int(study.complete(plan.endpoint).sum() - keep.sum())
    notes = [f"{lost} patients left out for missing covariates"] if lost else []
    Z, names = study.design(plan.covariates, keep)
    main = [(name, part[keep]) for name, part in study.adjusters()]
    columns = [study.exposed.x[keep], *(part for _, part in main)]
    label = study.contract.exposed if not main else "interaction"
    X = np.column_stack([*columns, Z]) if Z.shape[1] else np.column_stack(columns)
    return keep, X, [label, *(name for name, _ in main), *names], notes


def fit_cox(
    time: Floats, event: Floats, X: Floats, names: list[str], study: Study, notes: list[str]
) -> Any:
    """Cox model by the contract's rule: Firth's penalty where events are few or separated."""
    from validation.statistics.cox import cox
    from validation.statistics.errors import SeparationError

    events = int((event == 1).sum())
    limit = study.contract.rules.events_per_covariate
    if events / X.shape[1] < limit:
        notes.append(
            f"Firth's penalty: {events} events for {X.shape[1]} terms, under {limit:g} for each"
        )
        return cox(time, event, X, names, penalty="firth")
    try:
        return cox(time, event, X, names)
    except SeparationError as error:
        notes.append(f"Firth's penalty: {error}")
        return cox(time, event, X, names, penalty="firth")


def _cox(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    rule = study.contract.missing
    if rule.policy == "multiple_imputation" and plan.covariates:
        return _imputed_cox(study, plan, book, tables)
    keep, X, names, notes = _matrix(study, plan)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    flags = (event[keep] == 1).astype(float)
    fit = fit_cox(time[keep], flags, X, names, study, notes)
    effect = Effect(
        value=float(fit.hr[0]),
        lower=float(fit.lower[0]),
        upper=float(fit.upper[0]),
        scale="hazard ratio",
    )
    book.effect(plan.id, effect, float(fit.p[0]))
    tables[plan.id] = [
        _row(name, fit.hr[at], fit.lower[at], fit.upper[at], fit.p[at], "hazard ratio")
        for at, name in enumerate(names)
    ]
    for at, name in enumerate(names[1:], start=1):
        key = f"{plan.id}.terms.{_slug(name)}"
        term = Effect(
            value=float(fit.hr[at]),
            lower=float(fit.lower[at]),
            upper=float(fit.upper[at]),
            scale="hazard ratio",
        )
        book.effect(key, term, float(fit.p[at]))
    return _outcome(
        plan,
        n=int(keep.sum()),
        events=int(flags.sum()),
        effect=effect,
        p=float(fit.p[0]),
        statistic=float(fit.coef[0] / fit.se[0]),
        df=1,
        notes=notes,
    )


def _imputed_cox(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Multiple imputation of covariates, with the outcome among the predictors; Rubin's rules."""
    import numpy as np

    from validation.statistics.cox import cox
    from validation.statistics.imputation import impute, outcome_predictors, pool

    rule = study.contract.missing
    keep = study.complete(plan.endpoint)
    Z, names = study.design(plan.covariates, keep, missing=True)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    t, e = time[keep], (event[keep] == 1).astype(float)
    main = [(name, part[keep]) for name, part in study.adjusters()]
    columns = [study.exposed.x[keep], *(part for _, part in main)]
    first = np.column_stack(columns)
    label = [study.contract.exposed if not main else "interaction", *(name for name, _ in main)]
    helpers = np.column_stack([first, outcome_predictors(t, e)])
    copies = impute(Z, names, outcome=helpers, m=rule.imputations, seed=study.contract.seed)
    fits = [cox(t, e, np.column_stack([first, one]), [*label, *names]) for one in copies]
    pooled = pool(
        np.vstack([fit.coef for fit in fits]),
        np.vstack([fit.se**2 for fit in fits]),
        complete_df=float(e.sum()) - len(label) - len(names),
    )
    effect = Effect(
        value=math.exp(float(pooled.value[0])),
        lower=math.exp(float(pooled.lower[0])),
        upper=math.exp(float(pooled.upper[0])),
        scale="hazard ratio",
    )
    book.effect(plan.id, effect, float(pooled.p[0]))
    tables[plan.id] = [
        _row(
            name,
            math.exp(pooled.value[at]),
            math.exp(pooled.lower[at]),
            math.exp(pooled.upper[at]),
            pooled.p[at],
            "hazard ratio",
        )
        for at, name in enumerate([*label, *names])
    ]
    return _outcome(
        plan,
        n=int(keep.sum()),
        events=int(e.sum()),
        effect=effect,
        p=float(pooled.p[0]),
        df=1,
        notes=[f"{rule.imputations} imputations of the covariates, pooled by Rubin's rules"],
    )


def _row(name: str, value: Any, lower: Any, upper: Any, p: Any, scale: str) -> dict[str, str]:
    from validation.results import p_text

    return {
        "term": name,
        scale: f"{float(value):.2f}",
        "95% CI": f"{float(lower):.2f} to {float(upper):.2f}",
        "p": p_text(float(p)),
    }


def _slug(name: str) -> str:
    return "".join(one if one.isalnum() else "_" for one in name.casefold()).strip("_")


def _logrank(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Log-rank p-value; the hazard ratio beside it is a Cox model of the group alone."""
    from validation.statistics.survival import logrank

    keep, X, names, notes = _matrix(study, plan)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    t, e, g = time[keep], (event[keep] == 1).astype(float), X[:, 0]
    found = logrank(t, e, g)
    fit = fit_cox(t, e, X, names, study, notes)
    effect = Effect(
        value=float(fit.hr[0]),
        lower=float(fit.lower[0]),
        upper=float(fit.upper[0]),
        scale="hazard ratio",
    )
    book.effect(plan.id, effect, found.p)
    book.put(f"{plan.id}.statistic", found.statistic, "chi-squared, 1 df")
    book.put(f"{plan.id}.n", int(keep.sum()), "patients")
    book.put(f"{plan.id}.events", int(e.sum()), "events")
    for name, side in (("exposed", 1.0), ("reference", 0.0)):
        book.put(f"{plan.id}.{name}.n", int((g == side).sum()), "patients")
        book.put(f"{plan.id}.{name}.events", int(e[g == side].sum()), "events")
    tables[plan.id] = [
        _row(names[0], effect.value, effect.lower, effect.upper, fit.p[0], "hazard ratio")
    ]
    return _outcome(
        plan,
        n=int(keep.sum()),
        events=int(e.sum()),
        effect=effect,
        p=found.p,
        statistic=found.statistic,
        df=1,
        notes=notes,
    )


def _spline(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Likelihood ratio of a restricted cubic spline (4 knots); the effect is the linear slope."""
    from validation.statistics.base import chi2_p
    from validation.statistics.cox import cox
    from validation.statistics.splines import rcs_basis

    keep, X, names, notes = _matrix(study, plan)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    t, e = time[keep], (event[keep] == 1).astype(float)
    linear = fit_cox(t, e, X[:, :1], names[:1], study, notes)
    basis = rcs_basis(X[:, 0], 4)
    curved = cox(t, e, basis, [f"spline {one + 1}" for one in range(basis.shape[1])])
    statistic = 2 * (curved.loglik - curved.loglik_null)
    df = int(basis.shape[1])
    bend = 2 * (curved.loglik - linear.loglik)
    effect = Effect(
        value=float(linear.hr[0]),
        lower=float(linear.lower[0]),
        upper=float(linear.upper[0]),
        scale="hazard ratio",
    )
    p = chi2_p(statistic, df)
    book.effect(plan.id, effect, p)
    book.put(f"{plan.id}.nonlinearity.p", chi2_p(max(bend, 0.0), df - 1), "p-value")
    notes.append("p tests any association (spline); the effect is the linear slope per SD")
    return _outcome(
        plan,
        n=int(keep.sum()),
        events=int(e.sum()),
        effect=effect,
        p=p,
        statistic=statistic,
        df=df,
        notes=notes,
    )


def _kaplan_meier(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    import numpy as np

    from validation.statistics.survival import kaplan_meier

    keep = study.complete(plan.endpoint)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    rows = []
    for name, label, side in (
        ("exposed", study.contract.exposed, 1.0),
        ("reference", study.contract.reference, 0.0),
    ):
        mine = keep & (study.exposed.x == side)
        curve = kaplan_meier(time[mine], (event[mine] == 1).astype(float))
        key = f"{plan.id}.{name}"
        book.put(f"{key}.median", curve.median, "months")
        row = {"group": label, "n": str(curve.n), "events": str(curve.n_events)}
        row["median (months)"] = book.numbers[f"{key}.median"].text
        for months in HORIZONS:
            if months > float(time[mine].max()):
                continue
            at = int(np.searchsorted(curve.times, months, side="right")) - 1
            alive, low, high = (
                (float(part[at]) if at >= 0 else 1.0)
                for part in (curve.survival, curve.lower, curve.upper)
            )
            text = f"{100 * alive:.0f}% ({100 * low:.0f} to {100 * high:.0f}%)"
            book.put(f"{key}.at_{months}", alive, "share", text)
            row[f"free of event at {months} months"] = text
        rows.append(row)
    tables[plan.id] = rows
    return _outcome(plan, n=int(keep.sum()), events=int((event[keep] == 1).sum()))


def _schoenfeld(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Proportional hazards of the exposure, in the adjusted model where there is one."""
    from validation.statistics.proportional import schoenfeld

    keep, X, names, notes = _matrix(study, plan)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    t, e = time[keep], (event[keep] == 1).astype(float)
    fit = fit_cox(t, e, X, names, study, notes)
    found = schoenfeld(t, e, X, fit)
    book.put(f"{plan.id}.p", found.tests[0].p, "p-value")
    book.put(f"{plan.id}.global_p", found.global_test.p, "p-value")
    return _outcome(
        plan,
        n=int(keep.sum()),
        events=int(e.sum()),
        p=found.tests[0].p,
        statistic=found.tests[0].statistic,
        df=1,
        notes=notes,
    )


def _rmst(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Restricted mean survival difference to the contract's horizon, or to the shorter group's
    last follow-up if that comes first.
    """
    from validation.statistics.survival import rmst_difference

    keep = study.complete(plan.endpoint)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    t, e, g = time[keep], (event[keep] == 1).astype(float), study.exposed.x[keep]
    tau = min(study.contract.rules.rmst_months, *(float(t[g == one].max()) for one in (0.0, 1.0)))
    found = rmst_difference(t, e, g, tau)
    book.put(f"{plan.id}.horizon", tau, "months")
    book.put(f"{plan.id}.difference", found.value, "months")
    book.put(f"{plan.id}.lower", found.lower, "months")
    book.put(f"{plan.id}.upper", found.upper, "months")
    book.put(f"{plan.id}.p", found.p, "p-value")
    return _outcome(
        plan,
        n=int(keep.sum()),
        events=int(e.sum()),
        p=found.p,
        statistic=found.value,
        notes=[f"difference in mean months to {tau:.1f}"],
    )


def _periods(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Hazard ratios before and after the median event time: how the effect changes."""
    import numpy as np

    from validation.statistics.proportional import cox_by_period

    keep = study.complete(plan.endpoint)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    t, e = time[keep], (event[keep] == 1).astype(float)
    cut = float(np.median(t[e == 1]))
    found = cox_by_period(
        t, e, study.exposed.x[keep][:, None], [study.contract.exposed], [cut], penalty="firth"
    )
    book.put(f"{plan.id}.cut", cut, "months")
    rows = []
    for name, period in zip(("early", "late"), found, strict=True):
        effect = Effect(
            value=float(period.fit.hr[0]),
            lower=float(period.fit.lower[0]),
            upper=float(period.fit.upper[0]),
            scale="hazard ratio",
        )
        book.effect(f"{plan.id}.{name}", effect, float(period.fit.p[0]))
        stop = "the end" if math.isinf(period.stop) else f"{period.stop:.1f}"
        rows.append(
            {"months": f"{period.start:.1f} to {stop}"}
            | _row(name, effect.value, effect.lower, effect.upper, period.fit.p[0], "hazard ratio")
        )
    tables[plan.id] = rows
    return _outcome(plan, n=int(keep.sum()), events=int(e.sum()))


def _concordance(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Concordance of the covariates alone and with the exposure (Harrell; Uno to the horizon)."""
    import numpy as np

    from validation.statistics.concordance import harrell, uno

    keep, X, names, notes = _matrix(study, plan)
    time, event = study.outcome(plan.endpoint)
    assert event is not None
    t, e = time[keep], (event[keep] == 1).astype(float)
    main = 1 + len(study.adjusters())
    tau = float(np.quantile(t[e == 1], 0.95))
    for name, columns in (("without", X[:, main:]), ("with", X)):
        if not columns.shape[1]:
            raise InputError("no covariate varies in the population: nothing to compare with")
        labels = names[main:] if name == "without" else names
        fit = fit_cox(t, e, columns, labels, study, notes)
        risk = columns @ fit.coef
        book.put(f"{plan.id}.{name}.harrell", harrell(t, e, risk), "concordance")
        book.put(f"{plan.id}.{name}.uno", uno(t, e, risk, tau=tau), "concordance")
    notes.append("apparent values, on the patients that the models were fitted to")
    return _outcome(plan, n=int(keep.sum()), events=int(e.sum()), notes=notes)


def _competing(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    from validation.statistics.competing import cause_specific, fine_gray

    keep, X, names, notes = _matrix(study, plan)
    time, status = study.outcome(plan.endpoint)
    assert status is not None
    gray = plan.method == "fine_gray"
    codes = status[keep].astype(int)
    fit: Any = (fine_gray if gray else cause_specific)(time[keep], codes, X, names)
    effect = Effect(
        value=float(fit.hr[0]),
        lower=float(fit.lower[0]),
        upper=float(fit.upper[0]),
        scale="subdistribution hazard ratio" if gray else "hazard ratio",
    )
    book.effect(plan.id, effect, float(fit.p[0]))
    return _outcome(
        plan,
        n=int(keep.sum()),
        events=int((codes == 1).sum()),
        effect=effect,
        p=float(fit.p[0]),
        df=1,
        notes=notes,
    )


def _incidence(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    import numpy as np

    from validation.statistics.competing import aalen_johansen

    keep = study.complete(plan.endpoint)
    time, status = study.outcome(plan.endpoint)
    assert status is not None
    sides = (("exposed", 1.0), ("reference", 0.0)) if study.exposed.grouped else (("all", None),)
    for name, side in sides:
        mine = keep if side is None else keep & (study.exposed.x == side)
        curve = aalen_johansen(time[mine], status[mine].astype(int))
        for months in HORIZONS:
            if months <= float(time[mine].max()):
                at = int(np.searchsorted(curve.times, months, side="right")) - 1
                value = float(curve.incidence[at]) if at >= 0 else 0.0
                book.put(f"{plan.id}.{name}.at_{months}", value, "share")
    return _outcome(plan, n=int(keep.sum()), events=int((status[keep] == 1).sum()))


def _fisher(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    from validation.statistics.binary import fisher

    keep = study.complete(plan.endpoint)
    value, _ = study.outcome(plan.endpoint)
    y, g = value[keep], study.exposed.x[keep]
    counts = [[int(((g == side) & (y == flag)).sum()) for flag in (1, 0)] for side in (1.0, 0.0)]
    found = fisher(counts)
    effect = Effect(value=found.value, lower=found.lower, upper=found.upper, scale="odds ratio")
    book.effect(plan.id, effect, found.p)
    rows = []
    names = (("exposed", study.contract.exposed), ("reference", study.contract.reference))
    for (name, label), (yes, no) in zip(names, counts, strict=True):
        share = yes / (yes + no)
        text = f"{yes} of {yes + no} ({100 * share:.0f}%)"
        book.put(f"{plan.id}.{name}.n", yes + no, "patients")
        book.put(f"{plan.id}.{name}.events", yes, "patients")
        book.put(f"{plan.id}.{name}.share", share, "share", text)
        rows.append({"group": label, "with": text})
    tables[plan.id] = rows
    return _outcome(plan, n=int(keep.sum()), events=int(y.sum()), effect=effect, p=found.p)


def _logistic(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    from validation.statistics.binary import logistic
    from validation.statistics.errors import SeparationError

    keep, X, names, notes = _matrix(study, plan)
    value, _ = study.outcome(plan.endpoint)
    y = value[keep]
    rarer = int(min((y == 1).sum(), (y == 0).sum()))
    limit = study.contract.rules.events_per_covariate
    if rarer / X.shape[1] < limit:
        notes.append(f"Firth's penalty: {rarer} patients with the rarer outcome")
        fit = logistic(y, X, names, penalty="firth")
    else:
        try:
            fit = logistic(y, X, names)
        except SeparationError as error:
            notes.append(f"Firth's penalty: {error}")
            fit = logistic(y, X, names, penalty="firth")
    effect = Effect(
        value=float(fit.odds_ratio[0]),
        lower=float(fit.lower[0]),
        upper=float(fit.upper[0]),
        scale="odds ratio",
    )
    book.effect(plan.id, effect, float(fit.p[0]))
    tables[plan.id] = [
        _row(name, fit.odds_ratio[at], fit.lower[at], fit.upper[at], fit.p[at], "odds ratio")
        for at, name in enumerate(names)
    ]
    return _outcome(
        plan,
        n=int(keep.sum()),
        events=int((y == 1).sum()),
        effect=effect,
        p=float(fit.p[0]),
        df=1,
        notes=notes,
    )


def _linear(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Difference in standard deviations of the outcome (least squares)."""
    from validation.statistics.continuous import linear, rank_test

    keep, X, names, notes = _matrix(study, plan)
    value, _ = study.outcome(plan.endpoint)
    y = value[keep]
    spread = float(y.std(ddof=1))
    if spread == 0:
        raise InputError(f"{plan.endpoint} is the same for all patients")
    fit = linear(y / spread, X, names, robust=True)
    effect = Effect(
        value=float(fit.coef[0]),
        lower=float(fit.lower[0]),
        upper=float(fit.upper[0]),
        scale="difference (SD)",
    )
    p, statistic = float(fit.p[0]), None
    if plan.method == "rank":
        test = rank_test(y, X[:, 0]).test
        p, statistic = test.p, test.statistic
    book.effect(plan.id, effect, p)
    return _outcome(plan, n=int(keep.sum()), effect=effect, p=p, statistic=statistic, notes=notes)


METHODS: dict[str, Callable[[Study, TestPlan, Book, dict[str, Any]], TestOutcome]] = {
    "kaplan_meier": _kaplan_meier,
    "logrank": _logrank,
    "cox": _cox,
    "spline": _spline,
    "schoenfeld": _schoenfeld,
    "rmst": _rmst,
    "period_hazards": _periods,
    "cumulative_incidence": _incidence,
    "cause_specific": _competing,
    "fine_gray": _competing,
    "fisher": _fisher,
    "logistic": _logistic,
    "rank": _linear,
    "linear": _linear,
    "concordance": _concordance,
}
