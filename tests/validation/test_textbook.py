"""Textbook effects, judged as a reviewer would.

`textbook_effects.csv` has claims on cohorts that the R package survival ships (`r/README.md`) and
on METABRIC (`../shared`). Hazard ratio and interval are those of R's coxph with the covariates;
`benchmarks/r/textbook.R` recreates them. `word` follows from R's interval: a small effect if it
leaves out 1.5 between the halves of the marker (1.29 per standard deviation), else supported.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.validation.core_help import frozen_for, keep_claim_tests, run, shared
from validation import cohort as cohorts
from validation.cohort.cohort import Cohort
from validation.core.hypothesis import Hypothesis
from validation.ledger.ledger import Ledger

HERE = Path(__file__).parent
with (HERE / "textbook_effects.csv").open(encoding="utf-8") as file:
    EFFECTS = list(csv.DictReader(file))


TOML = """
id = "textbook"
title = "Textbook"
patient = { table = "clinical" }

[tables.clinical]
file = "clinical.csv"
key = "patient"
known_at = "baseline"

[endpoints.OS]
kind = "survival"
table = "clinical"
time = "months"
time_unit = "months"
event = "dead"
event_values = [1]
censored_values = [0]
label = "Survival"
"""
VARIABLE = """
[variables."{key}"]
table = "clinical"
column = "{key}"
kind = "{kind}"
label = "{key}"
"""


def read_metabric() -> pd.DataFrame:
    """Patients of METABRIC as DeepSurv ships them, training and test part together.

    The file names no columns. The progesterone receptor is the gene that goes with estrogen
    receptor status (column 7; correlation 0.40, others at most -0.11).
    """
    h5py = pytest.importorskip("h5py")
    path = shared("cohorts") / "deepsurv" / "metabric_IHC4_clinical_train_test.h5"
    with h5py.File(path) as held:
        parts = [held[name] for name in ("train", "test")]
        values = np.vstack([part["x"][:] for part in parts])
        table = pd.DataFrame(values[:, [1, 8]], columns=["x.pgr", "x.age"])
        table["time"] = np.concatenate([part["t"][:] for part in parts])
        table["status"] = np.concatenate([part["e"][:] for part in parts]).astype(int)
    return table[table["time"] > 0]


def cohort_of(effect: dict[str, str], folder: Path) -> Cohort:
    name = effect["cohort"]
    path = HERE / "r" / "cohorts" / f"{name}.csv.gz"
    found = read_metabric() if name == "metabric" else pd.read_csv(path)
    keys = [effect["exposure"], *effect["covariates"].split()]
    table = pd.DataFrame({key: found[f"x.{key}"] for key in keys})
    table.insert(0, "patient", [f"P{at:05d}" for at in range(len(found))])
    per_month = 1.0 if name == "metabric" else 30.4375
    table["months"] = found["time"] / per_month
    table["dead"] = (found["status"] == int(effect["event"])).astype(int)
    folder.mkdir()
    table.to_csv(folder / "clinical.csv", index=False)
    toml = TOML + "".join(
        VARIABLE.format(key=key, kind="binary" if table[key].nunique() == 2 else
                        "ordinal" if table[key].nunique() <= 6 else "continuous")
        for key in keys
    )  # fmt: skip
    (folder / "cohort.toml").write_text(toml, encoding="utf-8")
    return cohorts.load(folder)


@pytest.mark.slow
@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect["claim"].replace(" ", "-"))
def test_a_textbook_effect_is_called_as_a_reviewer_would(
    effect: dict[str, str], tmp_path: Path
) -> None:
    cohort = cohort_of(effect, tmp_path / "cohort")
    comparison, _, transform = effect["comparison"].partition(":")
    cut, _, threshold = effect["cut"].partition(":")
    exposure = {
        "variable": f"clinical:{effect['exposure']}", "label": effect["exposure"], "cut": cut,
        "threshold": float(threshold) if threshold else None, "level": effect["level"],
        "transform": transform or "none",
    }  # fmt: skip
    claim = Hypothesis.model_validate(
        {
            "id": "textbook", "population": {"description": "all"}, "exposures": [exposure],
            "comparison": comparison, "endpoint": "OS", "direction": "higher_risk",
            "covariates": [f"clinical:{key}" for key in effect["covariates"].split()],
        }
    )  # fmt: skip
    frozen = keep_claim_tests(frozen_for(cohort, claim), cohort)
    found = run(frozen, cohort, tmp_path / "out", ledger=Ledger(tmp_path / "ledger.jsonl"))
    adjusted = found.test("adjusted")
    assert adjusted is not None and adjusted.effect is not None
    estimate = (adjusted.effect.value, adjusted.effect.lower, adjusted.effect.upper)
    assert estimate == pytest.approx([float(effect[k]) for k in ("hr", "lower", "upper")], rel=1e-3)
    assert found.verdict.verdict == effect["word"], found.verdict.badge
