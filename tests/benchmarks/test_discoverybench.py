"""DiscoveryBench: gold is parsed to columns and signs, validated, and permuted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.adapters.discoverybench import (
    Gold,
    load_table,
    load_tasks,
    parse_gold,
    run,
    try_claim,
)
from sage.core.errors import InputError
from sage.core.seeds import generator

COLUMNS = {
    "GENDER": "Gender of the respondent",
    "rainfall": "Rain that fell in a year",
    "soil_acidity": "Acidity of the soil",
    "yield_t": "Grain harvested per hectare",
    "flooded": "Whether the field was under water",
}
FLOW = "Regression with 'rainfall' and 'soil_acidity', and 'yield_t' as the dependent variable"


def write(folder: Path, text: str, workflow: str, n: int = 300) -> Path:
    rng = generator(3)
    rain = rng.normal(size=n)
    rows = {
        "GENDER": rng.choice(["MALE", "FEMALE"], n),
        "rainfall": rain,
        "soil_acidity": rng.normal(size=n),
        "yield_t": 0.9 * rain + rng.normal(size=n),
        "flooded": (rain + rng.normal(size=n) > 0).astype(int),
    }
    place = folder / "farms"
    place.mkdir()
    pd.DataFrame(rows).to_csv(place / "farms.csv", index=False)
    columns = [{"name": name, "description": words} for name, words in COLUMNS.items()]
    held: dict[str, Any] = {
        "hypotheses": {"main": [{"text": text}]},
        "workflow": workflow,
        "datasets": [{"name": "farms.csv", "columns": {"raw": columns}}],
    }
    (place / "metadata_0.json").write_text(json.dumps(held))
    load_table.cache_clear()
    return folder


def test_gold_is_supported_and_its_permutation_is_not(tmp_path: Path) -> None:
    folder = write(tmp_path, "More rain that fell in a year increases grain harvested.", FLOW)
    gold = parse_gold(load_tasks(folder)[0])
    assert (gold.exposures, gold.beside) == (("rainfall",), ("soil_acidity",))
    assert (gold.outcome, gold.relation) == ("yield_t", "positive")
    report = run(folder, permutations=1, keep=tmp_path / "kept.jsonl")
    assert [item["verdict"] == "supported" for item in report.data] == [True, False]
    assert [row.sage[:6] for row in report.rows] == ["100.0%", "0.0% ("]
    assert run(folder, permutations=1, keep=tmp_path / "kept.jsonl").data == report.data


def test_a_workflow_that_names_too_little_is_reported(tmp_path: Path) -> None:
    (task,) = load_tasks(write(tmp_path, "Rain lowers yields.", "Fit a regression."))
    assert "outcome" in parse_gold(task).unread
    both = f"{FLOW} with GENDER='MALE', and one with GENDER='FEMALE'"
    assert parse_gold(task.model_copy(update={"workflow": both})).unread
    men = parse_gold(task.model_copy(update={"workflow": f"{FLOW} with GENDER='MALE'"}))
    assert men.where == {"GENDER": "MALE"} and men.relation == "negative"
    odd = Gold(task=task.name, exposures=("rainfall",), outcome="GENDER", relation="positive")
    assert try_claim(task, odd, "rainfall", 0).verdict == "refused"
    with pytest.raises(InputError, match="no metadata_N"):
        load_tasks(tmp_path / "absent")
