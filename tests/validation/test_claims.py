"""The richer language of claims: each kind from its fields to its verdict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from sage.core.errors import InputError
from tests.validation.core_help import NODE, claim, frozen_for, load, patients, write
from validation import cohort as cohorts
from validation.contracts.draft import draft
from validation.hypothesis import Exposure, Hypothesis
from validation.inputs.derive import Ranking, ssgsea
from validation.ledger.ledger import Ledger
from validation.results import Results
from validation.runner import run
from validation.signature import GeneSignature, read_signature

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
    raw["months"], raw["dead"] = np.round(np.minimum(time, stop) + 0.1, 2), (time <= stop).astype(int)
    raw["node"] = np.where(rng.random(n) < 1 / (1 + np.exp(-risk)), "N1", "N0")
    write(folder, raw, more=NODE + EXPRESSION)
    expression.to_csv(folder / "expression.csv")
    return folder


def result(folder: Path, hypothesis: Hypothesis, *, reproduce: bool = True) -> Results:
    cohort = cohorts.load(folder)
    out = folder.parent / f"{folder.name}-out"
    shutil.rmtree(out, ignore_errors=True)
    frozen = frozen_for(cohort, hypothesis)
    return run(
        frozen, cohort, out, ledger=Ledger(out / "l"), figures=False, reproduce=reproduce
    )


AMOUNT = {"variable": "clinical:amount", "label": "amount"}
MARKER = {"variable": "clinical:marker", "label": "marker"}
TREATED = {"variable": "clinical:treated", "label": "treatment", "randomized": True}
KINDS: dict[str, tuple[dict[str, object], dict[str, float]]] = {
    "signature": ({"exposures": [SCORE], "comparison": "per_sd"}, {"score": 0.7}),
    "rank score": (
        {"exposures": [{"label": "s", "signature": {"genes": GENES[:6], "method": "rank"}}]},
        {"score": 0.9},
    ),
    "weighted": (
        {"exposures": [{"label": "s", "signature": {
            "genes": GENES[:6], "method": "weighted", "weights": [1, 1, 1, 1, 1, 0.5]}}]},
        {"score": 0.9},
    ),
    "doubling": ({"exposures": [AMOUNT], "comparison": "per_doubling"}, {"amount": 0.4}),
    "percentile": (
        {"exposures": [AMOUNT | {"transform": "rank", "cut": "continuous"}],
         "comparison": "per_sd"},
        {"amount": 0.5},
    ),
    "trend": (
        {"exposures": [AMOUNT | {"cut": "quartile"}], "comparison": "trend"}, {"amount": 0.5},
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
    assert found.reproduction and not found.reproduction[0].of("differs", "missing")


@pytest.mark.parametrize("kind", KINDS)
def test_null_worlds_support_almost_nothing(tmp_path: Path, kind: str) -> None:
    changes, _ = KINDS[kind]
    supported = sum(
        result(
            world(tmp_path / f"w{seed}", 160, seed=seed), claim(**changes), reproduce=False
        ).verdict.verdict
        == "supported"
        for seed in range(6)
    )
    assert supported <= 1
