"""Every numeric column of sixteen public cohorts, as R's survival and cmprsk compute it.

`benchmarks/r/reference.R` recreates the patients and the figures in `tests/validation/r`. Where R
warns that a coefficient may be infinite we refuse; where R fits, we give its numbers.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from validation.screening.rank import screen
from validation.statistics.competing import gray_test
from validation.statistics.cox import cox
from validation.statistics.errors import CollinearError, ConstantFeatureError, SeparationError
from validation.statistics.fine_gray import fine_gray
from validation.statistics.proportional import schoenfeld
from validation.statistics.splines import rcs_basis

HERE = Path(__file__).parent / "r"


@cache
def patients(cohort: str) -> pd.DataFrame:
    return pd.read_csv(HERE / "cohorts" / f"{cohort}.csv.gz")


def _figures() -> list[tuple[str, str, list[str], dict[str, np.ndarray]]]:
    found = []
    for line in (HERE / "figures.csv").read_text(encoding="utf-8").splitlines():
        cohort, model, terms, *rest = line.split(",")
        numbers = dict(part.split("=") for part in rest)
        values = {
            name: np.array(text.replace("NA", "nan").split(), dtype=float)
            for name, text in numbers.items()
        }
        found.append((cohort, model, terms.split(), values))
    return found


FIGURES = _figures()


def of(*models: str) -> pytest.MarkDecorator:
    """All lines of these models, one test for each model of a cohort."""
    mine: dict[tuple[str, str], list[tuple[list[str], dict[str, np.ndarray]]]] = {}
    for cohort, model, terms, r in FIGURES:
        if model in models:
            mine.setdefault((cohort, model), []).append((terms, r))
    assert mine
    return pytest.mark.parametrize(
        ("cohort", "model", "lines"), [(*key, lines) for key, lines in mine.items()],
        ids=["-".join(key) for key in mine],
    )  # fmt: skip


def complete(cohort: str, terms: list[str], *more: str) -> pd.DataFrame:
    table = patients(cohort)
    return table[table[[*terms, *more]].notna().all(axis=1)]


def standard(table: pd.DataFrame, terms: list[str]) -> np.ndarray:
    X = table[terms].to_numpy(float)
    return (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)


def design(model: str, table: pd.DataFrame, terms: list[str]) -> np.ndarray:
    if model.startswith("spline"):
        X = rcs_basis(table[terms[0]].to_numpy(float), int(model[-1]))
        return (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    if model == "product":
        z = standard(table, terms)
        return np.column_stack((z[:, 0] * z[:, 1], z))
    return table[terms].to_numpy(float)


@of("linear", "spline3", "spline4", "spline5", "product", "all", "strata", "entry")
def test_cox_is_that_of_coxph(cohort, model, lines):
    for terms, r in lines:
        age = ["x.age"] if model == "entry" else []
        table = complete(cohort, terms, *age)
        time, event = table.time.to_numpy(float), (table.status == 1).to_numpy()
        entry = table["x.age"].to_numpy(float) * 365.25 if age else None
        time = time if entry is None else entry + time
        X = design(model, table, terms)
        names = [f"term {at}" for at in range(X.shape[1])]
        strata = table.stratum if model == "strata" else None
        if r["warned"][0] or np.isnan(r["coef"]).any():
            with pytest.raises(SeparationError if r["warned"][0] else CollinearError):
                cox(time, event, X, names, strata=strata, entry=entry)
            continue
        fit = cox(time, event, X, names, strata=strata, entry=entry)
        np.testing.assert_allclose((fit.loglik_null, fit.loglik), r["loglik"], rtol=1e-9)
        # Columns of a spline are nearly dependent: compare errors on the scale of the se.
        np.testing.assert_allclose(fit.se, r["se"], rtol=1e-5)
        np.testing.assert_allclose(fit.coef / r["se"], r["coef"] / r["se"], rtol=1e-6, atol=1e-6)
        if model == "linear":
            assert fit.score_test.statistic == pytest.approx(r["score"][0], rel=1e-6)
            assert schoenfeld(time, event, X, fit).tests[0].statistic == pytest.approx(
                r["zph"][0], rel=1e-5, abs=1e-7
            )


@of("cluster", "cluster_strata", "cluster_entry")
def test_the_robust_variance_is_that_of_coxph_with_clusters(cohort, model, lines):
    for terms, r in lines:
        table = complete(cohort, terms)
        cluster = table.cluster if "cluster" in table else np.asarray(table.index) // 3
        strata = None if model == "cluster" else table.stratum
        entry, time = None, table.time.to_numpy(float)
        if model == "cluster_entry":
            entry = table["x.age"].to_numpy(float) * 365.25
            time, terms = entry + time, terms[1:]
        event, X = table.status == 1, table[terms]
        # R gives NA, or is on the way to it
        if np.isnan(r["coef"]).any() or np.abs(r["coef"]).max() > 20.0:
            with pytest.raises((ConstantFeatureError, SeparationError)):
                cox(time, event, X, terms, strata=strata, cluster=cluster, entry=entry)
            continue
        fit = cox(time, event, X, terms, strata=strata, cluster=cluster, entry=entry)
        np.testing.assert_allclose(fit.coef, r["coef"], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(fit.se, r["se"], rtol=1e-6)
        assert fit.robust_score.statistic == pytest.approx(r["score"][0], rel=1e-5)


@of("firth", "firth_two")
def test_firth_maximizes_what_r_evaluates(cohort, model, lines):
    for terms, r in lines:
        table = complete(cohort, terms)
        time, event = table.time.to_numpy(float), (table.status == 1).to_numpy()
        fit = cox(time, event, standard(table, terms), terms, penalty="firth", interval="wald")
        assert fit.loglik >= r["loglik"][0] - 1e-9 * abs(r["loglik"][0])
        np.testing.assert_allclose(fit.coef, r["coef"], rtol=1e-4, atol=1e-4 * fit.se.min())
        if model == "firth":
            ratio = 2.0 * (r["loglik"][0] - r["null"][0])
            assert fit.likelihood_ratio.statistic == pytest.approx(ratio, abs=1e-6)


@of("crr")
def test_fine_gray_is_that_of_crr(cohort, model, lines):
    for terms, r in lines:
        table = complete(cohort, terms)
        time = table.time.to_numpy(float) + np.arange(1, len(table) + 1) * 1e-4
        fit = fine_gray(time, table.status, standard(table, terms), terms)
        np.testing.assert_allclose(fit.coef, r["coef"], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(fit.se, r["se"], rtol=1e-6)


@of("gray")
def test_gray_test_is_that_of_cuminc(cohort, model, lines):
    for terms, r in lines:
        table = complete(cohort, terms)
        time = table.time.to_numpy(float) + np.arange(1, len(table) + 1) * 1e-4
        x = table[terms[0]].to_numpy(float)
        for cause in (1, 2):
            found = gray_test(time, table.status, x > np.median(x), cause=cause)
            assert found.statistic == pytest.approx(r["statistic"][cause - 1], rel=1e-6)
            assert found.p == pytest.approx(r["p"][cause - 1], rel=1e-6)


@pytest.mark.parametrize("cohort", sorted({line[0] for line in FIGURES}))
def test_a_screen_gives_every_column_the_fit_that_r_gives(cohort):
    mine = [(line[2][0], line[3]) for line in FIGURES if line[:2] == (cohort, "linear")]
    table = patients(cohort)
    columns = [column for column, _ in mine]
    found = screen(table.time, table.status == 1, table[columns], names=columns, per_sd=False)
    for at, (column, r) in enumerate(mine):
        if table[column].isna().mean() < 0.5:
            assert found.status[at] == "ok", column
            assert found.coef[at] == pytest.approx(r["coef"][0], rel=1e-6, abs=1e-6 * r["se"][0])
            assert found.se[at] == pytest.approx(r["se"][0], rel=1e-6)
