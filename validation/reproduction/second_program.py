"""A second implementation of the registered numbers, using only public libraries.

    python second_program.py INPUTS OUT

Reads `task.json` and `table.parquet` and writes `numbers.json`. Nothing is imported from
SAGE: Cox models and log-rank tests come from lifelines; stratified log-rank tests,
logistic and linear models from statsmodels; and rank tests from scipy. Fisher's exact
odds ratio is solved here using scipy's noncentral hypergeometric distribution, and
log-rank tests with delayed entry are summed here. If a test fails, its numbers are left
out; if a model cannot be fitted (for example, a group has no events), only its estimates
are left out. Tests whose model did not converge at any step size are listed.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

FEWEST_OF_A_LEVEL = 5
STEP_SIZES = (None, 0.5, 0.1)
"""Step sizes for Newton's method, in the order tried; None is the library's default."""


class NotConvergedError(Exception):
    """Error raised when a model's estimates are not at the maximum of its likelihood."""


def kept(table: pd.DataFrame, test: dict[str, Any]) -> pd.DataFrame:
    """Select patients with known exposure, outcome, covariates and strata for a test."""
    rows = table[table[test["subset"]]] if test["subset"] else table
    outcome = [test[name] for name in ("time", "event", "value") if test[name]]
    needed = [*test["terms"], *test.get("base", []), *outcome, *test["covariates"], *test["strata"]]
    return rows.dropna(subset=list(dict.fromkeys(needed)))


def design(rows: pd.DataFrame, test: dict[str, Any]) -> pd.DataFrame:
    """Build the design matrix, with the exposure's terms first and then the covariates.

    Numbers are in SD; text columns become indicators for levels with at least five patients,
    relative to the most frequent level.
    """
    columns: dict[str, Any] = {}
    for name in test["terms"]:
        columns[f"x{len(columns)}"] = rows[name].astype(float)
    for name in test["covariates"]:
        column = rows[name]
        if pd.api.types.is_numeric_dtype(column):
            values = column.astype(float)
            if values.nunique() > 1:
                columns[f"x{len(columns)}"] = (values - values.mean()) / values.std()
            continue
        counts = column.value_counts()
        levels = sorted(counts.index, key=lambda level: (-int(counts[level]), str(level)))
        for level in levels[1:]:
            if counts[level] >= FEWEST_OF_A_LEVEL:
                columns[f"x{len(columns)}"] = (column == level).astype(float)
    return pd.DataFrame(columns, index=rows.index)


def layers(rows: pd.DataFrame, test: dict[str, Any]) -> pd.Series | None:
    """Label each combination of strata; return None without strata."""
    if not test["strata"]:
        return None
    found: pd.Series = rows[test["strata"]].astype(str).agg(" / ".join, axis=1)
    return found


def fit_cox(X: pd.DataFrame, rows: pd.DataFrame, test: dict[str, Any]) -> Any:
    """Fit a Cox model (Efron's ties), with smaller steps if it does not converge.

    Each row is at risk from its entry time, if it has one, and within its stratum.
    """
    data = X.assign(
        time=rows[test["time"]].astype(float), event=(rows[test["event"]] == 1).astype(int)
    )
    strata, entry = layers(rows, test), test["entry"]
    if strata is not None:
        data = data.assign(stratum=strata)
    if entry:
        data = data.assign(entry=rows[entry].astype(float))
    from lifelines import CoxPHFitter
    from lifelines.exceptions import ConvergenceError, ConvergenceWarning

    for step in STEP_SIZES:
        options = {"precision": 1e-9} | ({} if step is None else {"step_size": step})
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            try:
                return CoxPHFitter().fit(
                    data, "time", "event", strata=None if strata is None else ["stratum"],
                    entry_col="entry" if entry else None, fit_options=options,
                )  # fmt: skip
            except (ConvergenceError, ConvergenceWarning):
                continue
    raise NotConvergedError


def cox(rows: pd.DataFrame, test: dict[str, Any]) -> dict[str, float]:
    """Fit a Cox model (Efron's ties); return the Wald interval and test for the first term."""
    fit = fit_cox(design(rows, test), rows, test)
    lower, upper = fit.confidence_intervals_.loc["x0"]
    return {
        "effect": math.exp(fit.params_["x0"]),
        "lower": math.exp(lower),
        "upper": math.exp(upper),
        "p": float(fit.summary.loc["x0", "p"]),
    }


def log_rank(rows: pd.DataFrame, test: dict[str, Any], groups: pd.Series) -> float:
    """Compute the p-value of the log-rank test over all groups, within strata if there are any."""
    time = rows[test["time"]].astype(float)
    event = (rows[test["event"]] == 1).astype(int)
    strata = layers(rows, test)
    if test["entry"]:
        return entered_log_rank(rows, test, groups, strata)
    if strata is None:
        from lifelines.statistics import multivariate_logrank_test

        return float(multivariate_logrank_test(time, groups, event).p_value)
    from statsmodels.duration.survfunc import survdiff

    return float(survdiff(time, event, groups, strata=strata)[1])


def entered_log_rank(
    rows: pd.DataFrame, test: dict[str, Any], groups: pd.Series, strata: pd.Series | None
) -> float:
    """Compute the log-rank p-value when rows come under observation at their entry."""
    from scipy.stats import chi2

    time, entry = (rows[test[name]].to_numpy(float) for name in ("time", "entry"))
    event = (rows[test["event"]] == 1).to_numpy()
    labels = np.zeros(len(rows)) if strata is None else pd.factorize(strata)[0]
    member = np.column_stack([groups == group for group in sorted(set(groups))[1:]]).astype(float)
    off, spread = np.zeros(member.shape[1]), np.zeros((member.shape[1],) * 2)
    for label, moment in {*zip(labels[event], time[event], strict=True)}:
        at_risk = (labels == label) & (entry < moment) & (time >= moment)
        failed, n = at_risk & event & (time == moment), int(at_risk.sum())
        share, d = member[at_risk].mean(axis=0), int(failed.sum())
        off += member[failed].sum(axis=0) - d * share
        if n > 1:
            spread += d * (n - d) / (n - 1) * (np.diag(share) - np.outer(share, share))
    return float(chi2.sf(off @ np.linalg.pinv(spread) @ off, np.linalg.matrix_rank(spread)))


def logistic(rows: pd.DataFrame, test: dict[str, Any]) -> dict[str, float]:
    """Fit a logistic regression; return the Wald interval and test for the first term."""
    from statsmodels.discrete.discrete_model import Logit

    X = np.column_stack([np.ones(len(rows)), design(rows, test)])
    fit = Logit((rows[test["value"]] == 1).astype(float).to_numpy(), X).fit(disp=0, maxiter=200)
    return {
        name: value if name == "p" else math.exp(value) for name, value in first_term(fit).items()
    }


def first_term(fit: Any) -> dict[str, float]:
    """Return the estimate, limits and p-value of the term after the intercept."""
    found = (fit.params[1], *fit.conf_int()[1], fit.pvalues[1])
    return dict(zip(("effect", "lower", "upper", "p"), map(float, found), strict=True))


def linear(rows: pd.DataFrame, test: dict[str, Any]) -> dict[str, float]:
    """Fit least squares to the outcome in standard deviations, with HC3 errors and t interval."""
    from statsmodels.regression.linear_model import OLS

    value = rows[test["value"]].astype(float).to_numpy()
    X = np.column_stack([np.ones(len(rows)), design(rows, test)])
    return first_term(OLS(value / value.std(ddof=1), X).fit(cov_type="HC3", use_t=True))


def rank(rows: pd.DataFrame, test: dict[str, Any]) -> dict[str, float]:
    """Run the Mann-Whitney test on the groups; the effect comes from the linear model."""
    from scipy.stats import mannwhitneyu

    value, group = rows[test["value"]].astype(float), rows[test["terms"][0]]
    p = mannwhitneyu(value[group == 1], value[group == 0], alternative="two-sided").pvalue
    return linear(rows, test) | {"p": float(p)}


def fisher(rows: pd.DataFrame, test: dict[str, Any]) -> dict[str, float]:
    """Run Fisher's exact test: conditional odds ratio, exact interval, two-sided p-value."""
    from scipy.optimize import brentq
    from scipy.stats import hypergeom, nchypergeom_fisher

    yes, exposed = rows[test["value"]] == 1, rows[test["terms"][0]] == 1
    a, cases, n, size = int((yes & exposed).sum()), int(yes.sum()), len(rows), int(exposed.sum())
    support = np.arange(max(0, cases + size - n), min(cases, size) + 1)
    chances = hypergeom.pmf(support, n, cases, size)
    own = hypergeom.pmf(a, n, cases, size)

    def solve(gap: Any) -> float:
        return math.exp(brentq(lambda log_ratio: gap(math.exp(log_ratio)), -30, 30, xtol=1e-10))

    def tail(ratio: float, upper: bool) -> float:
        found = nchypergeom_fisher(n, cases, size, ratio)
        return float(found.cdf(a) if upper else found.sf(a - 1)) - 0.025

    return {
        "effect": solve(lambda ratio: nchypergeom_fisher.mean(n, cases, size, ratio) - a),
        "lower": solve(lambda ratio: tail(ratio, False)),
        "upper": solve(lambda ratio: tail(ratio, True)),
        "p": float(chances[chances <= own * (1 + 1e-7)].sum()),
    }


def nested(rows: pd.DataFrame, test: dict[str, Any]) -> dict[str, float]:
    """Compare two nested models, with and without the exposures.

    In `terms`, the mean of the exposures comes first, then each exposure. The effect is that
    of the mean. Both models contain the exposures in `base`.
    """
    held = test.get("base", [])
    mean = test | {"terms": [test["terms"][0], *held]}
    full = design(rows, test | {"terms": [*test["terms"][1:], *held]})
    base = design(rows, test | {"terms": held})
    more = full.shape[1] - base.shape[1]
    if test["time"]:
        from scipy.stats import chi2

        fit = fit_cox(full, rows, test)
        if base.shape[1]:
            gain = 2 * (fit.log_likelihood_ - fit_cox(base, rows, test).log_likelihood_)
        else:
            gain = fit.log_likelihood_ratio_test().test_statistic
        return cox(rows, mean) | {"p": float(chi2.sf(gain, more))}
    ones = np.ones(len(rows))
    wide, narrow = np.column_stack([ones, full]), np.column_stack([ones, base])
    if test["binary"]:
        from scipy.stats import chi2
        from statsmodels.discrete.discrete_model import Logit

        y = (rows[test["value"]] == 1).astype(float).to_numpy()
        models = [Logit(y, X).fit(disp=0, maxiter=200) for X in (wide, narrow)]
        p = chi2.sf(2 * (models[0].llf - models[1].llf), more)
        return logistic(rows, mean) | {"p": float(p)}
    from statsmodels.regression.linear_model import OLS

    y = rows[test["value"]].astype(float).to_numpy()
    p = OLS(y, wide).fit().compare_f_test(OLS(y, narrow).fit())[1]
    return linear(rows, mean) | {"p": float(p)}


def mediation(rows: pd.DataFrame, test: dict[str, Any]) -> dict[str, float]:
    """Estimate the indirect effect.

    The effect is the product of the exposure's path to the mediator (least squares, HC3
    errors) and the mediator's path to the outcome (additive hazards, or least squares). The
    p-value is that of the weaker path.
    """
    from scipy.stats import norm
    from statsmodels.regression.linear_model import OLS

    X = design(rows, test).to_numpy()
    ones = np.ones(len(rows))
    first = OLS(X[:, 0], np.column_stack([ones, X[:, 1:]])).fit(cov_type="HC3", use_t=True)
    if not test["time"]:
        y = rows[test["value"]].astype(float).to_numpy()
        second = OLS(y, np.column_stack([ones, X])).fit(cov_type="HC3", use_t=True)
        size = first.params[1] * second.params[1] / y.std(ddof=1)
        return {"effect": float(size), "p": float(max(first.pvalues[1], second.pvalues[1]))}
    strata = layers(rows, test)
    labels = np.zeros(len(rows)) if strata is None else pd.factorize(strata)[0]
    time, event = rows[test["time"]].to_numpy(float), (rows[test["event"]] == 1).to_numpy()
    left, right, spread = (np.zeros(shape) for shape in [(X.shape[1],) * 2, X.shape[1],
                                                         (X.shape[1],) * 2])  # fmt: skip
    for label in np.unique(labels):
        mine, before = labels == label, 0.0
        t, e, Z = time[mine], event[mine], X[mine]
        for moment in np.unique(t):
            at_risk = Z[t >= moment]
            mean = at_risk.mean(axis=0)
            left += (moment - before) * (at_risk - mean).T @ (at_risk - mean)
            off = Z[(t == moment) & e] - mean
            right, spread, before = right + off.sum(axis=0), spread + off.T @ off, moment
    inverse = np.linalg.inv(left)
    b, se = (inverse @ right)[0], math.sqrt((inverse @ spread @ inverse)[0, 0])
    average = event.sum() / time.sum()
    p = max(float(first.pvalues[1]), float(2 * norm.sf(abs(b / se))))
    return {"effect": float(first.params[1] * b / average), "p": p}


def within(limits: list[float], margins: list[float]) -> dict[str, float]:
    """Return an estimate with its interval; p is of two one-sided tests against the margins."""
    from scipy.stats import norm

    value, lower, upper = limits
    near = min(value - margins[0], margins[1] - value) / (upper - lower) * 2 * norm.ppf(0.975)
    p = min(1.0, 2 * float(norm.sf(near)))
    return {"effect": value, "lower": lower, "upper": upper, "p": p}


def slope(rows: pd.DataFrame, test: dict[str, Any]) -> dict[str, float]:
    """Fit the score's log odds, or its complementary log-log risks to events by the horizon."""
    risk, horizon = rows[test["terms"][0]].astype(float), test["score"]["horizon"]
    if horizon is None:
        rows = rows.assign(**{test["terms"][0]: np.log(risk / (1 - risk))})
        fit, events = logistic(rows, test), rows[test["value"]] == 1
    else:
        time = rows[test["time"]].astype(float)
        events = (rows[test["event"]] == 1) & (time <= horizon)
        changed = {test["time"]: time.clip(upper=horizon), test["event"]: events}
        fit = cox(rows.assign(**{test["terms"][0]: np.log(-np.log(1 - risk))}, **changed), test)
    logs = [math.log(fit[name]) for name in ("effect", "lower", "upper")]
    return within(logs, test["score"]["slope"]) | {"events": int(events.sum())}


def recalibration(rows: pd.DataFrame, test: dict[str, Any]) -> dict[str, float]:
    """Divide observed by expected risk; p is the larger of the ratio's and the slope's."""
    found, horizon = slope(rows, test), test["score"]["horizon"]
    d, at_risk = np.array([found["events"]]), np.array([len(rows)])
    if horizon is not None:
        from lifelines import KaplanMeierFitter

        event = (rows[test["event"]] == 1).astype(int)
        table = KaplanMeierFitter().fit(rows[test["time"]].astype(float), event).event_table
        table = table[table.index <= horizon]
        d, at_risk = table["observed"].to_numpy(), table["at_risk"].to_numpy()
    alive = float((1 - d / at_risk).prod())
    half = 1.959964 * alive / (1 - alive) * math.sqrt(float((d / (at_risk * (at_risk - d))).sum()))
    log = math.log((1 - alive) / rows[test["terms"][0]].astype(float).mean())
    margins = [math.log(end) for end in test["score"]["ratio"]]
    ratio = within([log, log - half, log + half], margins)
    p = max(found["p"], ratio.pop("p"))
    return found | {name: math.exp(value) for name, value in ratio.items()} | {"p": p}


def joint(rows: pd.DataFrame, test: dict[str, Any]) -> dict[str, float]:
    """Run the log-rank test over all groups formed by the exposures."""
    groups = rows[test["terms"]].astype(int).astype(str).agg("".join, axis=1)
    return {"p": log_rank(rows, test, groups)}


def grouped(rows: pd.DataFrame, test: dict[str, Any]) -> dict[str, float]:
    """Run the log-rank test for two groups; the hazard ratio comes from a Cox model."""
    return cox(rows, test) | {"p": log_rank(rows, test, rows[test["terms"][0]].astype(int))}


METHODS = {
    "logrank": grouped,
    "cox": cox,
    "cause_specific": cox,
    "spline": cox,
    "time_dependent": cox,
    "penalized": cox,
    "maximally_selected": cox,
    "logistic": logistic,
    "fisher": fisher,
    "linear": linear,
    "rank": rank,
    "joint_groups": joint,
    "nested": nested,
    "mediation": mediation,
    "recalibration": recalibration,
    "calibration_slope": slope,
}


def compute(
    table: pd.DataFrame, test: dict[str, Any], unconverged: list[str]
) -> dict[str, float | int]:
    """Compute a test's requested numbers; add its id to `unconverged` if the model fails."""
    rows = kept(table, test)
    found: dict[str, float | int] = {"n": len(rows)}
    if test["person"]:
        found["n"] = int(rows[test["person"]].nunique())
    if test["event"] or test["binary"]:
        found["events"] = int((rows[test["event"] or test["value"]] == 1).sum())
    if "p" in test["report"] or "effect" in test["report"]:
        try:
            found |= METHODS[test["method"]](rows, test)
        except NotConvergedError:
            unconverged.append(test["id"])
        except Exception as error:  # noqa: BLE001 - the counts stand; the gap is reported
            sys.stderr.write(f"second implementation of {test['id']}: {type(error).__name__}\n")
    return {
        name: value
        for name, value in found.items()
        if name in test["report"] and math.isfinite(value)
    }


def main(inputs: Path, out: Path) -> None:
    """Compute every test in the task, omitting and logging any test that fails."""
    task = json.loads((inputs / "task.json").read_text(encoding="utf-8"))
    table = pd.read_parquet(inputs / "table.parquet")
    numbers = {}
    unconverged: list[str] = []
    for test in task["tests"]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                numbers[test["id"]] = compute(table, test, unconverged)
        except Exception as error:  # noqa: BLE001 - the others still count; a gap is reported
            sys.stderr.write(f"second implementation of {test['id']}: {type(error).__name__}\n")
    out.mkdir(parents=True, exist_ok=True)
    (out / "numbers.json").write_text(
        json.dumps({"numbers": numbers, "unconverged": unconverged}), encoding="utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
