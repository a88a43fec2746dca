"""Builders for cohorts on disk, and the way to the shared real data."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from validation import cohort as cohorts
from validation.cohort.cohort import Cohort
from validation.contracts.contract import FrozenContract
from validation.core.hypothesis import Hypothesis
from validation.drafting.draft import draft
from validation.drafting.freezing import freeze
from validation.ledger.ledger import Ledger
from validation.results.results import Results
from validation.run import runner

ROOT = Path(__file__).resolve().parents[2]
STRONG = 1.1
"""A log hazard ratio that no test misses."""


def shared(name: str) -> Path:
    """A folder of the shared real data, or a skip that says what is missing."""
    base = Path(os.environ.get("SAGE_SHARED", ROOT.parent / "shared"))
    folder = base / "data" / name
    if not folder.is_dir():
        pytest.skip(f"shared real data not here: {folder}")
    return folder


TOML = """
id = "toy"
title = "Toy cohort"
risk_factors = ["clinical:stage"]
patient = {{ table = "clinical" }}

[tables.clinical]
file = "clinical.csv"
key = "patient"
known_at = "baseline"
{table}

[variables.marker]
table = "clinical"
column = "marker"
kind = "continuous"
label = "Marker"
unit = "units"

[variables.stage]
table = "clinical"
column = "stage"
kind = "ordinal"
label = "Stage"

[variables.sex]
table = "clinical"
column = "sex"
kind = "binary"
label = "Sex"

[endpoints.OS]
kind = "survival"
table = "clinical"
time = "months"
time_unit = "months"
event = "dead"
event_values = [1]
censored_values = [0]
label = "Overall survival"
{endpoint}
{more}
"""


def patients(n: int = 240, *, log_hr: float = 0.0, seed: int = 3) -> pd.DataFrame:
    """A clinical table: a marker with a chosen effect, stage with a strong one."""
    rng = np.random.default_rng(seed)
    marker = rng.normal(size=n)
    stage = rng.integers(1, 5, size=n)
    risk = log_hr * (marker > np.median(marker)) + 0.6 * (stage - 2.5)
    time = rng.exponential(40 / np.exp(risk))
    stop = rng.uniform(12, 90, size=n)
    return pd.DataFrame(
        {
            "patient": [f"ID{at:04d}" for at in range(n)],
            "marker": np.round(marker, 4),
            "stage": stage,
            "sex": np.where(rng.random(n) < 0.6, "male", "female"),
            "months": np.round(np.minimum(time, stop) + 0.1, 2),
            "dead": (time <= stop).astype(int),
            "node": np.where(rng.random(n) < 0.3, "N1", "N0"),
            "size": np.round(20 + 4 * marker + rng.normal(size=n) * 8, 2),
        }
    )


def write(
    folder: Path, table: pd.DataFrame, *, extra_table: str = "", endpoint: str = "", more: str = ""
) -> Path:
    """Write a cohort folder around a clinical table."""
    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / "clinical.csv", index=False)
    text = TOML.format(table=extra_table, endpoint=endpoint, more=more)
    (folder / "cohort.toml").write_text(text, encoding="utf-8")
    return folder


def load(folder: Path, table: pd.DataFrame, **options: str) -> Cohort:
    """Write and load."""
    return cohorts.load(write(folder, table, **options))


NODE = """
[endpoints.node]
kind = "binary"
table = "clinical"
column = "node"
positive_values = ["N1"]
negative_values = ["N0"]
label = "Node positivity"

[endpoints.size]
kind = "continuous"
table = "clinical"
column = "size"
unit = "mm"
label = "Tumor size"
"""


def claim(**changes: object) -> Hypothesis:
    """High marker, shorter overall survival."""
    values: dict[str, object] = {
        "id": "marker-os",
        "statement": "A high marker shortens overall survival.",
        "population": {"description": "everybody"},
        "exposures": [{"variable": "clinical:marker", "label": "marker"}],
        "comparison": "exposed_vs_rest",
        "endpoint": "OS",
        "direction": "higher_risk",
    }
    return Hypothesis.model_validate(values | changes)


def frozen_for(cohort: Cohort, hypothesis: Hypothesis | None = None, **options: object):
    """Draft and freeze with few permutations, for speed."""
    plan = draft(hypothesis or claim(), cohort.dictionary(), seed=1, **options)
    controls = plan.controls.model_copy(update={"permutations": 400, "random_features": 200})
    return freeze(plan.model_copy(update={"controls": controls}), cohort)


def keep_claim_tests(frozen: FrozenContract, cohort: Cohort) -> FrozenContract:
    """Leave a contract its primary and adjusted tests alone, beside all controls."""
    plan = frozen.contract
    kept = tuple(test for test in plan.tests if test.role in ("primary", "adjusted"))
    return freeze(plan.model_copy(update={"tests": kept}), cohort)


def run(
    frozen: FrozenContract, cohort: Cohort, out: Path, *, figures: bool = False,
    reproduce: bool = False, **options: Any,
) -> Results:  # fmt: skip
    """Run with figures and the second implementation only where a test reads them."""
    return runner.run(frozen, cohort, out, figures=figures, reproduce=reproduce, **options)


def run_once(
    tmp_path: Path, raw: pd.DataFrame, *, more: str = "", claim_tests: bool = False,
    reproduce: bool = False, **options: object,
) -> Results:  # fmt: skip
    """Write the table as a cohort, freeze a contract on it (the claim's tests alone, if asked for),
    and run it.
    """
    cohort = load(tmp_path / "cohort", raw, more=more)
    frozen = frozen_for(cohort, options.pop("hypothesis", None), **options)  # type: ignore[arg-type]
    if claim_tests:
        frozen = keep_claim_tests(frozen, cohort)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    return run(frozen, cohort, tmp_path / "out", ledger=ledger, reproduce=reproduce)


def validate(
    tmp_path: Path, cohort: Path, *options: str, figures: bool = False, **changes: object
) -> dict[str, Any]:
    """Run `sage validate run` without its second implementation on a claim in one --out."""
    from typer.testing import CliRunner

    from sage.cli.validate import app

    path = tmp_path / "h.json"
    path.write_text(claim(**changes).model_dump_json())
    given = [str(path), "--cohort", str(cohort), "--out", str(tmp_path / "out"), "--json"]
    drawn = [] if figures else ["--no-figures"]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("run", "finalize"):
            plain = getattr(runner, name)
            patch.setattr(runner, name, partial(plain, reproduce=False))
        done = CliRunner().invoke(app, ["run", *given, *drawn, *options])
    if done.exception is not None:
        raise done.exception
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


def cause_of_death(event: object, competing: object, censored: object) -> str:
    """An endpoint `cause` with a competing event, by the values that its column holds."""
    return f"""
[endpoints.cause]
kind = "competing"
table = "clinical"
time = "months"
time_unit = "months"
event = "cause"
event_values = [{json.dumps(event)}]
competing_values = [{json.dumps(competing)}]
censored_values = [{json.dumps(censored)}]
label = "Death from the tumor"
"""
