"""Calibration of a published score as a claim: by command, against lifelines and statsmodels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from lifelines import CoxPHFitter, KaplanMeierFitter
from scipy.stats import norm

from sage.core.errors import InputError
from tests.draws import few_draws
from tests.validation.core_help import NODE, cause_of_death, claim, load, write
from validation.contracts.contract import SplitRule
from validation.drafting.draft import draft
from validation.drafting.freezing import draft_on
from validation.results.results import Results
from validation.statistics.calibration import (
    calibration_slope,
    equivalence_p,
    logistic_recalibration,
    observed_ratio,
)

__all__ = ["few_draws"]
HORIZON, MARGINS = 60.0, (0.8, 1.25)
VARIABLES = "".join(
    f'[variables.{name}]\ntable = "clinical"\ncolumn = "{name}"\nkind = "continuous"\n\n'
    for name in ("score", "linear", "free", "log_odds")
)
CLAIM: dict[str, Any] = {
    "statement": "",
    "exposures": [{"variable": "clinical:score", "label": "score", "cut": "continuous"}],
    "comparison": "calibrated",
    "calibration": {"horizon": HORIZON, "thresholds": [0.1, 0.5]},
}
BINARY = {"endpoint": "node", "calibration": {"thresholds": [0.1, 0.5]}}


def world(n: int = 1500, *, slope: float = 1.0, shift: float = 0.0, seed: int = 1) -> pd.DataFrame:
    """Patients whose score has this slope, and is this much too low on its own scale.

    `linear` and `free` say the same of survival as `score`; `log_odds` predicts `node`.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    time, stop = rng.exponential(HORIZON / np.exp(x - 0.7)), rng.uniform(30, 150, n)
    linear = np.minimum(x / slope - shift, 3.0)
    return pd.DataFrame(
        {
            "patient": [f"ID{at:04d}" for at in range(n)],
            "stage": rng.integers(1, 5, n) + 2 * (x > 0),
            "marker": rng.normal(size=n).round(4),
            "sex": np.where(rng.random(n) < 0.6, "male", "female"),
            "months": np.minimum(time, stop) + 0.001,
            "dead": (time <= stop).astype(int),
            "node": np.where(rng.random(n) < 1 / (1 + np.exp(0.7 - x)), "N1", "N0"),
            "size": rng.normal(size=n),
            "linear": linear,
            "score": -np.expm1(-np.exp(linear - 0.7)),
            "free": np.exp(-np.exp(linear - 0.7)),
            "log_odds": linear - 0.7,
            "cause": np.where(time <= stop, "tumor", "alive"),
        }
    )


def survival_by_hand(raw: pd.DataFrame) -> tuple[list[float], list[float]]:
    """Ratio and slope with their limits, by lifelines and Greenwood's formula."""
    risk, event = raw.score, raw.dead == 1
    table = KaplanMeierFitter().fit(raw.months, event).event_table
    table = table[(table.index <= HORIZON) & (table.observed > 0)]
    d, n = table.observed, table.at_risk
    alive = float((1 - d / n).prod())
    se = alive * np.sqrt((d / (n * (n - d))).sum()) / (1 - alive)
    data = pd.DataFrame({"x": np.log(-np.log(1 - risk)), "t": raw.months.clip(upper=HORIZON),
                         "e": event & (raw.months <= HORIZON)})  # fmt: skip
    fit = CoxPHFitter().fit(data, "t", "e", fit_options={"precision": 1e-10})
    return wald(np.log((1 - alive) / risk.mean()), se), wald(fit.params_.x, fit.standard_errors_.x)


def binary_by_hand(raw: pd.DataFrame) -> tuple[list[float], list[float]]:
    y, odds = (raw.node == "N1").astype(float), raw.log_odds
    share, fit = y.mean(), sm.Logit(y, sm.add_constant(odds)).fit(disp=0)
    log = np.log(share / (1 / (1 + np.exp(-odds))).mean())
    return wald(log, np.sqrt((1 - share) / (len(y) * share))), wald(
        fit.params.iloc[1], fit.bse.iloc[1]
    )


def wald(value: float, se: float) -> list[float]:
    return [float(value + side * norm.ppf(0.975) * se) for side in (0, -1, 1)]


def outside(found: list[float], margins: tuple[float, float]) -> float:
    """Twice the larger p of two one-sided tests."""
    value, se = found[0], (found[2] - found[1]) / 2 / norm.ppf(0.975)
    return float(min(1, 2 * norm.sf(min(value - margins[0], margins[1] - value) / se)))


def go(folder: Path, raw: pd.DataFrame, *options: str, **changes: Any) -> Results:
    """Run `sage validate run` with its second implementation and figures."""
    from typer.testing import CliRunner

    from sage.cli.validate import app

    cohort = write(folder / "cohort", raw, more=NODE + VARIABLES)
    (folder / "h.json").write_text(claim(**(CLAIM | changes)).model_dump_json())
    given = ["run", str(folder / "h.json"), "--cohort", str(cohort), "--out", str(folder / "out")]
    done = CliRunner().invoke(app, [*given, *options, "--json"])
    if done.exception is not None:
        raise done.exception
    return Results.model_validate(
        json.loads((folder / "out" / "marker-os" / "results.json").read_text())
    )


@pytest.mark.parametrize(
    ("made", "changes", "word"),
    [
        ({}, {}, "supported"),
        ({"n": 200}, {}, "inconclusive"),
        ({"slope": 0.6}, {}, "not_supported"),
        ({"shift": 0.7}, {}, "not_supported"),
        ({}, BINARY, "supported"),
    ],
)
def test_a_claim_by_command_has_the_numbers_of_public_libraries(
    tmp_path: Path, made: dict[str, Any], changes: dict[str, Any], word: str
) -> None:
    raw = world(**{"n": 2500 if changes else 1500, **made})
    name = "log_odds" if changes else "score"
    exposure = {"variable": f"clinical:{name}", "label": "score", "cut": "continuous"}
    if changes:
        changes = changes | {"calibration": changes["calibration"] | {"values": "linear"}}
    drawn = () if word == "supported" else ("--no-figures",)
    found = go(tmp_path, raw, *drawn, **changes, exposures=[exposure])
    ratio, slope = (binary_by_hand if changes else survival_by_hand)(raw)
    assert found.verdict.verdict == word
    p = outside(slope, MARGINS)
    for test, values, level in (
        ("primary", np.exp(ratio), max(p, outside(ratio, tuple(np.log(MARGINS))))),
        ("slope", slope, p),
    ):
        numbers = [found.number(f"{test}.{key}").value for key in ("effect", "lower", "upper", "p")]
        assert numbers == pytest.approx([*values, level], rel=1e-4)
    (second,) = found.reproduction
    compared = [item for item in second.compared if item.test in ("primary", "slope")]
    assert len(compared) == 12
    assert {item.state for item in compared} == {"reproduced"}
    assert {"primary", "decision_curve"} <= set(found.figures) or drawn
    assert found.number("decision_curve.threshold").value in np.arange(10, 51) / 100


def test_every_form_of_a_score_gives_the_same_risks(tmp_path: Path) -> None:
    plain = go(tmp_path / "plain", world(400), "--no-figures")
    baseline = {"values": "linear", "baseline": float(np.exp(-np.exp(-0.7)))}
    for column, level, how in (("linear", "high", baseline), ("free", "low", {})):
        score = {"variable": f"clinical:{column}", "label": "s", "cut": "continuous"}
        changes = {"exposures": [score | {"level": level}],
                   "calibration": CLAIM["calibration"] | how}  # fmt: skip
        other = go(tmp_path / column, world(400), "--no-figures", **changes)
        for key in (f"{test}.{part}" for test in ("primary", "slope") for part in ("effect", "p")):
            assert other.number(key).value == pytest.approx(plain.number(key).value, abs=1e-9)


def test_the_decision_curve_is_that_of_the_textbook(tmp_path: Path) -> None:
    raw = world(600)
    exposure = {"variable": "clinical:log_odds", "label": "score", "cut": "continuous"}
    calibration = {"thresholds": [0.2, 0.4], "values": "linear"}
    found = go(tmp_path, raw, "--no-figures", **BINARY | {"calibration": calibration},
               exposures=[exposure])  # fmt: skip
    risk, y = 1 / (1 + np.exp(-raw.log_odds)), raw.node == "N1"
    thresholds = np.arange(20, 41) / 100

    def benefit(treated: Any, at: float) -> float:
        return float((treated & y).mean() - (treated & ~y).mean() * at / (1 - at))

    gains = [benefit(risk >= at, at) - max(0, benefit(risk >= 0, at)) for at in thresholds]
    near = int(np.argmin(np.abs(thresholds - y.mean())))
    assert found.number("decision_curve.gain").value == pytest.approx(gains[near], abs=1e-9)
    assert found.number("decision_curve.useful").value == np.mean(np.array(gains) > 0)


@pytest.mark.parametrize("kind", ["survival", "binary"])
@pytest.mark.parametrize(("slope", "ratio"), [(1.0, 0.8), (1.0, 1.25), (0.8, 1.0), (1.25, 1.0)])
def test_a_score_at_the_margin_is_rarely_called_calibrated(
    kind: str, slope: float, ratio: float
) -> None:
    from scipy.optimize import brentq
    from scipy.special import expit

    link = expit if kind == "binary" else lambda eta: -np.expm1(-np.exp(eta))
    many = np.random.default_rng(0).normal(size=50_000)
    wanted = link(many - 0.7).mean() / ratio
    shift = brentq(lambda a: link(a + many / slope).mean() - wanted, -8, 4)
    supported = 0
    for seed in range(200):
        rng = np.random.default_rng(70_000 + seed)
        x = rng.normal(size=1000)
        risk = link(shift + x / slope)
        if kind == "binary":
            event = rng.random(1000) < link(x - 0.7)
            found = observed_ratio(np.where(event, 1.0, 2.0), event, risk, 1.0)
            line = logistic_recalibration(event, risk)[1]
        else:
            time, stop = rng.exponential(1 / np.exp(x - 0.7)), rng.uniform(0.5, 2.5, 1000)
            event = time <= stop
            found = observed_ratio(np.minimum(time, stop), event, risk, 1.0)
            line = calibration_slope(np.minimum(time, stop), event, risk, 1.0)
        logs = (np.log(MARGINS[0]), np.log(MARGINS[1]))
        p = max(equivalence_p(np.log(found.value), found.se, logs),
                equivalence_p(line.value, line.se, MARGINS))  # fmt: skip
        supported += p < 0.05
    assert supported <= 10


@pytest.mark.parametrize(
    "changes",
    [
        {"covariates": ["clinical:stage"]},
        {"direction": "lower_risk"},
        {"calibration": None},
        {"comparison": "per_sd"},
        {"exposures": [{"variable": "clinical:score", "label": "score"}]},
        {"calibration": {"horizon": 60, "thresholds": [0.5, 0.1]}},
        {"calibration": {"horizon": 60, "thresholds": [0.1, 0.5], "ratio": [0.8, 0.9]}},
        {"calibration": {"horizon": 60}},
    ],
)
def test_an_incomplete_claim_is_rejected(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"calibrat|thresholds"):
        claim(**(CLAIM | changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"endpoint": "cause"}, "competing"),
        ({"endpoint": "size", "calibration": {"thresholds": [0.1, 0.5]}}, "continuous"),
        ({"calibration": {"thresholds": [0.1, 0.5]}}, "horizon"),
        ({"endpoint": "node"}, "horizon"),
        ({"calibration": CLAIM["calibration"] | {"values": "linear"}}, "baseline"),
        ({"calibration": CLAIM["calibration"] | {"baseline": 0.5}}, "baseline"),
        ({"endpoint": "late"}, "delayed entry"),
    ],
)
def test_unfit_endpoints_are_refused(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    late = '[endpoints.late]\ntable = "clinical"\nentry = "size"\ntime = "months"\n'
    late += 'time_unit = "months"\nevent = "dead"\nevent_values = [1]\ncensored_values = [0]\n'
    more = NODE + VARIABLES + cause_of_death("tumor", "other", "alive") + late
    raw = world(300).assign(size=0.0005)
    raw.loc[0, "cause"] = "other"
    cohort = load(tmp_path, raw, more=more)
    with pytest.raises(InputError, match=named):
        draft_on(claim(**(CLAIM | changes)), cohort)


def test_a_split_is_refused_and_nothing_else_is_adjusted_for(tmp_path: Path) -> None:
    cohort = load(tmp_path, world(300), more=NODE + VARIABLES)
    contract = draft(claim(**CLAIM), cohort.dictionary())
    assert not contract.covariates and not contract.strata and contract.relevant is None
    assert [test.id for test in contract.tests] == [
        "primary",
        "slope",
        "decision_curve",
        "table_one",
    ]
    with pytest.raises(InputError, match="split"):
        draft(claim(**CLAIM), cohort.dictionary(), split=SplitRule(policy="discovery_confirmation"))


@pytest.mark.parametrize(
    ("change", "calibration"),
    [(lambda raw: raw.assign(score=100 * raw.score), {}), (lambda raw: raw, {"horizon": 149})],
)
def test_what_cannot_be_compared_is_refused_by_the_primary_test(
    tmp_path: Path, change: Any, calibration: dict[str, Any]
) -> None:
    given = CLAIM["calibration"] | calibration
    found = go(tmp_path, change(world(300)), "--no-figures", calibration=given)
    primary = found.test("primary")
    assert primary is not None and primary.status == "refused"
    assert (found.verdict.verdict, found.verdict.because) == ("inconclusive", "data")


def test_a_second_cohort_and_subgroups_are_tested_too_and_the_answer_gives_both_estimates(
    tmp_path: Path,
) -> None:
    from agents.findings.answer import answer_results
    from validation.contracts.contract import FrozenContract

    other = write(tmp_path / "other", world(1500, slope=0.5, seed=2), more=NODE + VARIABLES)
    text = (other / "cohort.toml").read_text().replace('id = "toy"', 'id = "other"')
    (other / "cohort.toml").write_text(text)
    women = {"variable": "clinical:sex", "op": "eq", "value": "female"}
    found = go(tmp_path, world(), "--no-figures", "--replicate", str(other), subgroups=[women])
    assert (found.verdict.verdict, found.verdict.because) == ("inconclusive", "replication")
    slope = found.number("replicate.slope.effect").value
    assert slope == pytest.approx(survival_by_hand(world(1500, slope=0.5, seed=2))[1][0], abs=1e-5)
    raw = world()
    ratio = survival_by_hand(raw[raw.sex == "female"])[0][0]
    assert found.number("subgroup.1.effect").value == pytest.approx(np.exp(ratio), rel=1e-9)
    contract = FrozenContract.load(tmp_path / "out" / "marker-os" / "contract.json").contract
    assert "calibrated" in contract.hypothesis.statement
    answer = answer_results(found, contract)
    assert answer.calibration
    assert "[[slope.effect]]" in answer.sentence
