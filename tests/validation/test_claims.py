"""The richer language of claims: each kind from its fields to its verdict."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from sage.core.errors import InputError
from tests.validation.core_help import NODE, claim, frozen_for, patients, write
from validation import cohort as cohorts
from validation.core.dictionary import level_key
from validation.core.hypothesis import Hypothesis
from validation.core.signature import GeneSignature
from validation.drafting.draft import draft
from validation.inputs.variables import find_variable
from validation.ledger.ledger import Ledger
from validation.results.results import Results
from validation.run.runner import run

GENES = [f"G{at:03d}" for at in range(80)]
EXPRESSION = """
[expression]
file = "expression.csv"
symbol = "symbol"
scale = "log2"
transform = "none"
known_at = "baseline"

[variables.amount]
table = "clinical"
column = "amount"
kind = "continuous"
label = "Amount"

[variables.treated]
table = "clinical"
column = "treated"
kind = "binary"
label = "Treatment"
"""
SCORE = {"label": "effector score", "signature": {"genes": GENES[:6]}, "cut": "continuous"}


def genes_of(n: int, seed: int) -> pd.DataFrame:
    """(genes, patients) expression with a factor that the first ten genes share."""
    rng = np.random.default_rng(seed)
    values = rng.normal(8, 1, size=(len(GENES), n))
    values[:10] += rng.normal(size=n)
    return pd.DataFrame(values.round(4), index=pd.Index(GENES, name="symbol"))


def world(
    folder: Path, n: int = 300, *, seed: int = 0, score: float = 0.0, amount: float = 0.0,
    product: float = 0.0,
) -> Path:  # fmt: skip
    """A cohort whose hazard follows a score of genes, an amount's doublings, and treatment by
    marker, each by the logarithm of its hazard ratio.
    """
    rng = np.random.default_rng(seed + 100)
    raw = patients(n, seed=seed)
    expression = genes_of(n, seed)
    expression.columns = pd.Index(raw.patient)
    raw["amount"] = np.round(2.0 ** rng.normal(3, 1.5, n), 4)
    raw["treated"] = np.where(rng.random(n) < 0.5, "yes", "no")
    first = expression.iloc[:6].to_numpy()
    z = ((first - first.mean(1, keepdims=True)) / first.std(1, keepdims=True)).mean(0)
    high = raw.marker > raw.marker.median()
    risk = score * z / z.std() + amount * np.log2(raw.amount)
    risk = risk + product * (raw.treated == "yes") * (high - 0.5) + 0.5 * (raw.stage - 2.5)
    time, stop = rng.exponential(40 / np.exp(risk - risk.mean())), rng.uniform(20, 90, n)
    raw["months"], raw["dead"] = (
        np.round(np.minimum(time, stop) + 0.1, 2),
        (time <= stop).astype(int),
    )
    raw["node"] = np.where(rng.random(n) < 1 / (1 + np.exp(-risk)), "N1", "N0")
    write(folder, raw, more=NODE + EXPRESSION)
    expression.to_csv(folder / "expression.csv")
    return folder


def result(folder: Path, hypothesis: Hypothesis) -> Results:
    cohort = cohorts.load(folder)
    out = folder.parent / f"{folder.name}-out"
    return run(frozen_for(cohort, hypothesis), cohort, out, ledger=Ledger(out / "l"), figures=False)


AMOUNT = {"variable": "clinical:amount", "label": "amount"}
MARKER = {"variable": "clinical:marker", "label": "marker"}
TREATED = {"variable": "clinical:treated", "label": "treatment", "randomized": True}
KINDS: dict[str, tuple[dict[str, object], dict[str, float]]] = {
    "signature": (
        {"exposures": [SCORE], "comparison": "per_sd", "direction": "either"}, {"score": -0.7},
    ),
    "doubling": ({"exposures": [AMOUNT], "comparison": "per_doubling"}, {"amount": 0.4}),
    "trend": (
        {"exposures": [AMOUNT | {"cut": "quartile"}], "comparison": "trend"}, {"amount": 0.5},
    ),
    "combined": (
        {"exposures": [AMOUNT | {"cut": "continuous"}, {"variable": "expression:G000",
                       "label": "G000", "cut": "continuous"}],
         "comparison": "combined", "covariates": ["clinical:stage"]},
        {"amount": 0.3, "score": 0.6},
    ),
    "added": (
        {"exposures": [AMOUNT | {"cut": "continuous"}, SCORE], "comparison": "added",
         "covariates": ["clinical:stage"]},
        {"amount": 0.3, "score": 0.6},
    ),
    "mediation": (
        {"exposures": [{"variable": "expression:G007", "label": "G007", "cut": "continuous"},
                       SCORE],
         "comparison": "mediation", "covariates": ["clinical:stage"]},
        {"score": 0.9},
    ),
    "predictive": (
        {"exposures": [MARKER, TREATED], "comparison": "predictive"}, {"product": 1.8},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_truth_of_each_kind_is_found(tmp_path: Path, kind: str) -> None:
    changes, planted = KINDS[kind]
    n = 500 if kind == "predictive" else 300
    found = result(world(tmp_path / "w", n, seed=1, **planted), claim(**changes))
    assert found.verdict.verdict == "supported", (found.verdict.badge, found.verdict.reasons)
    assert found.reproduction and not found.reproduction[0].with_state("differs", "missing")


PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
SHIPPED = sorted((PAGE.parent / "hypotheses" / "claims").glob("*.json"))


def test_shipped_claims_are_those_of_the_page_and_can_be_drafted() -> None:
    from sage.cli.cohort import load_named
    from validation.contracts.contract import read_hypothesis

    cohorts = {name: load_named(name, None).dictionary() for name in ("gbsg2", "demo")}
    shipped = {}
    for path in SHIPPED:
        hypothesis = read_hypothesis(path)
        contract = draft(hypothesis, cohorts["gbsg2" if path.stem.endswith("rfs") else "demo"])
        assert contract.comparison == hypothesis.comparison
        shipped[hypothesis.id] = hypothesis
    for block in re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        claimed = Hypothesis.model_validate_json(block)
        assert shipped.get(claimed.id, claimed) == claimed


def test_a_renamed_signature_is_the_same_claim(tmp_path: Path) -> None:
    """Another name, another order of genes, another unit of weights: one key, one attempt."""
    cohort = cohorts.load(world(tmp_path / "w", 120))
    ledger = Ledger(tmp_path / "l")
    same = [
        {"label": "effector", "signature": {"genes": ["G000", "G001"], "method": "weighted",
                                            "weights": [1, -2]}},
        {"label": "exhaustion", "signature": {"genes": ["G001", "G000"], "method": "weighted",
                                              "weights": [-1, 0.5]}},
    ]  # fmt: skip
    said = [
        ledger.register(frozen_for(cohort, claim(exposures=[item], id=item["label"])))
        for item in same
    ]
    assert said[0].claim == said[1].claim
    assert said[0].exposures == said[1].exposures
    other = same[0] | {"signature": {"genes": ["G000", "G001"]}}
    assert ledger.register(frozen_for(cohort, claim(exposures=[other]))).claim != said[0].claim


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exposures": [{"label": "s", "signature": {"genes": ["A", "A"]}}]}, "listed twice"),
        ({"exposures": [{"label": "s", "signature": {"genes": ["A", "B"], "weights": [1, 2]}}]},
         "`weights` are required"),
        ({"exposures": [{"label": "s", "signature": {"genes": ["A", "B"], "method": "weighted",
                                                     "weights": [1, 0]}}]}, "other than 0"),
        ({"exposures": [{"label": "s", "variable": "clinical:age",
                         "signature": {"genes": ["A", "B"]}}]}, "leave `variable` out"),
        ({"exposures": [{"label": "s"}]}, "`variable` or `signature`"),
        ({"exposures": [AMOUNT | {"transform": "log2"}]}, "does not change the groups"),
        ({"exposures": [AMOUNT | {"transform": "rank"}], "comparison": "per_doubling"},
         "undefined for a percentile"),
        ({"exposures": [AMOUNT], "comparison": "trend"}, "a trend takes"),
        ({"exposures": [AMOUNT | {"cut": "quartile"}]}, "allowed only for comparison `trend`"),
        ({"exposures": [AMOUNT], "comparison": "predictive"}, "needs two exposures"),
        ({"exposures": [TREATED]}, "`randomized` applies"),
        ({"exposures": [{"variable": "expression:A", "label": "a"},
                        {"label": "s", "signature": {"genes": ["A", "B"]}}]}, "is part of"),
    ],
)  # fmt: skip
def test_a_claim_that_says_two_things_is_refused(changes, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        claim(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exposures": [{"label": "s", "signature": {"genes": ["G000", "G001", "NOPE"]}}]},
         "only 2 of the 3.*not measured: NOPE.*min_measured"),
        ({"exposures": [MARKER | {"cut": "continuous", "transform": "log2"}],
          "comparison": "per_sd"}, "no logarithm"),
        ({"exposures": [{"variable": "expression:G000", "label": "g", "cut": "continuous",
                         "transform": "log2"}], "comparison": "per_sd"}, "logarithmic scale"),
        ({"exposures": [MARKER, {"variable": "clinical:stage", "label": "stage"}],
          "comparison": "predictive"}, "biomarker first"),
        ({"exposures": [MARKER | {"cut": "levels"}], "comparison": "trend"}, "at most 8"),
        ({"exposures": [{"variable": "clinical:treated", "label": "t", "cut": "tertile"}],
          "comparison": "trend"}, "fewer groups"),
        ({"exposures": [{"variable": "clinical:treated", "label": "t"}],
          "comparison": "per_doubling"}, "nothing to transform"),
    ],
)  # fmt: skip
def test_data_that_cannot_bear_a_claim_are_refused_by_name(tmp_path, changes, message) -> None:
    cohort = cohorts.load(world(tmp_path / "w", 120))
    with pytest.raises(InputError, match=f"(?s){message}"):
        frozen_for(cohort, claim(**changes))


SECOND = """
[endpoints.PFS]
kind = "survival"
table = "clinical"
time = "months"
time_unit = "months"
event = "dead"
event_values = [1]
censored_values = [0]
label = "Progression-free survival"

[endpoints.chance]
kind = "survival"
table = "clinical"
time = "waited"
time_unit = "months"
event = "fell"
event_values = [1]
censored_values = [0]
label = "Time to a fall"
"""


def test_an_endpoint_is_tested_only_after_those_before_it(tmp_path: Path) -> None:
    raw = patients(300, log_hr=1.2)
    rng = np.random.default_rng(4)
    raw["waited"] = np.round(rng.exponential(20, 300) + 0.1, 2)
    raw["fell"] = rng.integers(0, 2, 300)
    folder = write(tmp_path / "w", raw, more=SECOND + NODE)
    later = ("PFS", "chance", "node")
    found = result(folder, claim(secondary_endpoints=later, hierarchy=True))
    said = ["PFS is shown", "chance is not shown", "node is not tested"]
    texts = [reason.text for reason in found.verdict.reasons if "hierarchy" in reason.rule]
    assert [text[: len(start)] for text, start in zip(texts, said, strict=True)] == said


R = Path(__file__).parent / "r"


def test_the_statistics_are_those_of_r() -> None:
    """`benchmarks/r/claims.R` on the patients of gbsg: timereg, survival, base R."""
    from validation.cohort.derive import composed_scores
    from validation.statistics.cox import cox
    from validation.statistics.mediation import additive_hazards, mediation
    from validation.statistics.survival import logrank_trend

    r = {
        name: np.array(values.split(), dtype=float)
        for name, values in (
            line.split(",") for line in (R / "claims.csv").read_text(encoding="utf-8").splitlines()
        )
    }
    table = pd.read_csv(R / "cohorts" / "gbsg.csv.gz")

    def z(name: str) -> np.ndarray:
        column = table[name]
        return ((column - column.mean()) / column.std()).to_numpy()

    t, e = table["time"].to_numpy(float), table["status"].to_numpy(float)
    apart = t + np.arange(1, len(t) + 1) * 1e-4
    x = (table["x.hormon"] == table["x.hormon"].max()).to_numpy(float)
    X = np.column_stack([z("x.nodes"), x, z("x.age")])
    hazards = additive_hazards(apart, e, X)
    assert hazards.coef == pytest.approx(r["additive.coef"], rel=1e-4)
    assert hazards.se == pytest.approx(r["additive.se"], rel=1e-4)
    natural = mediation(x, z("x.nodes"), z("x.age")[:, None], apart, e, draws=50)
    assert natural.indirect.value == pytest.approx(r["mediation.indirect"][0], rel=1e-4)
    assert natural.direct.value == pytest.approx(r["mediation.direct"][0], rel=1e-4)
    trend = logrank_trend(t, e, table["x.grade"])
    assert trend.statistic == pytest.approx(r["trend.logrank"][0], rel=1e-6)
    grade = cox(t, e, table[["x.grade"]], ["grade"])
    assert grade.coef == pytest.approx(r["trend.cox"], rel=1e-5)
    base = np.column_stack([z("x.age"), z("x.size")])
    full = np.column_stack([z("x.nodes"), z("x.pgr"), base])
    gain = cox(t, e, full, list("abcd")).loglik - cox(t, e, base, list("cd")).loglik
    assert 2 * gain == pytest.approx(r["nested.chisq"][0], rel=1e-5)
    high = (table["x.pgr"] > table["x.pgr"].median()).to_numpy(float)
    for side, name in ((1.0, "within.high"), (0.0, "within.low")):
        design = np.column_stack([x, high, x * (high - side), z("x.age")])
        fit = cox(t, e, design, list("abcd"))
        assert [fit.coef[0], fit.se[0]] == pytest.approx(r[name], rel=1e-5)
    names = ["x.age", "x.size", "x.grade", "x.nodes", "x.pgr", "x.er"]
    values = table[names].to_numpy(float).T
    for method, weights in (("mean_z", []), ("weighted", [1, 2, -1]), ("rank", [])):
        signature = GeneSignature.model_validate(
            {"genes": ["x.size", "x.nodes", "x.pgr"], "method": method, "weights": weights}
        )
        found = composed_scores(signature, values, [np.array([1, 3, 4])])[0][:5]
        assert found == pytest.approx(r[f"score.{method}"], rel=1e-6)


def test_levels_of_a_variable_are_compared_with_the_others() -> None:
    cohort = cohorts.load("gbsg2")
    key = level_key("clinical:menopausal_status", ["Post"])
    found = find_variable(cohort.dictionary(), key)
    base = cohort.column("clinical:menopausal_status")
    assert (found.kind, found.levels["yes"]) == ("binary", (base == "Post").sum())
    assert ((cohort.column(key) == "yes") == (base == "Post")).all()
    assert "clinical:menopausal_status" in cohort.parts_of(key)
    for wrong in ("clinical:menopausal_status=Peri", "clinical:age=50", "clinical:x=y"):
        assert not cohort.dictionary().has_variable(wrong)
