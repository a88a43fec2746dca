"""DiscoveryBench: gold is read to columns and signs, goes as contracts, and is dealt anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from benchmarks.adapters.discoverybench import (
    Gold,
    cohort_spec,
    generate,
    read_gold,
    read_table,
    read_tasks,
    score_generated,
    try_claim,
)
from sage.cli.app import app
from sage.core.errors import InputError
from sage.core.seeds import generator

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {
    "GENDER": "Gender of the respondent",
    "rainfall": "Rain that fell in a year",
    "soil_acidity": "Acidity of the soil",
    "yield_t": "Grain harvested per hectare",
    "flooded": "Whether the field was under water",
}


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
    columns = [{"name": name, "description": said} for name, said in COLUMNS.items()]
    held: dict[str, Any] = {
        "hypotheses": {"main": [{"text": text}]},
        "workflow": workflow,
        "datasets": [{"name": "farms.csv", "columns": {"raw": columns}}],
        "queries": [[{"question": "How does rain that fell relate to grain harvested?"}]],
    }
    (place / "metadata_0.json").write_text(json.dumps(held))
    return folder


FLOW = "Regression with 'rainfall' and 'soil_acidity', and 'yield_t' as the dependent variable"


def test_gold_is_read_tried_dealt_anew_and_found(tmp_path: Path) -> None:
    folder = write(tmp_path, "More rain that fell in a year increases grain harvested.", FLOW)
    run = CliRunner().invoke(app, ["bench", "discoverybench", str(folder), "--json"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    gold = found["gold"][0]
    assert (gold["exposures"], gold["beside"]) == (["rainfall"], ["soil_acidity"])
    assert (gold["outcome"], gold["relation"]) == ("yield_t", "positive")
    assert [item["verdict"] == "supported" for item in found["tried"]] == [True, False]
    assert found["scores"]["type_one"]["hits"] == 0
    assert found["scores"]["associated"]["hits"] == found["scores"]["dealt_associated"]["runs"] == 1
    assert found["generated"]["score"] == 1 > found["generated"]["chance"]


def test_what_the_workflow_does_not_say_is_told(tmp_path: Path) -> None:
    (task,) = read_tasks(write(tmp_path, "Rain lowers yields.", "Fit a regression."))
    assert "names no column as the outcome" in read_gold(task).unread
    both = f"{FLOW} with GENDER='MALE', and one with GENDER='FEMALE'"
    assert "compares groups" in read_gold(task.model_copy(update={"workflow": both})).unread
    men = read_gold(task.model_copy(update={"workflow": f"{FLOW} with GENDER='MALE'"}))
    assert men.where == {"GENDER": "MALE"}
    assert men.relation == "negative"
    where, _, _ = generate(task, "How does rain relate to grain harvested by men?")
    assert where == {"GENDER": "MALE"}
    odd = Gold(task=task.name, exposures=("rainfall",), outcome="GENDER", relation="positive")
    assert try_claim(task, odd, "rainfall", 0).verdict == "refused"


def test_a_claim_whose_analysis_names_nothing_beside_it_can_be_supported(tmp_path: Path) -> None:
    flow = "Regression of 'rainfall', and 'yield_t' as the dependent variable"
    (task,) = read_tasks(write(tmp_path, "More rain that fell in a year increases grain.", flow))
    tried = try_claim(task, read_gold(task), "rainfall", 0)
    assert tried.verdict == "supported", tried.because


def test_columns_whose_names_differ_in_a_space_stay_two(tmp_path: Path) -> None:
    folder = write(tmp_path, "More rain that fell in a year increases grain.", FLOW)
    (task,) = read_tasks(folder)
    table = pd.read_csv(task.tables[0]).rename(columns={"soil_acidity": "rain fall"})
    spec = cohort_spec(table.rename(columns={"rainfall": "rain_fall"}), "yield_t",
                       ["rain_fall", "rain fall"])  # fmt: skip
    assert {item.column for item in spec.variables.values()} == {"rain_fall", "rain fall"}


def test_words_alone_are_no_hypothesis_and_no_crash(tmp_path: Path) -> None:
    (task,) = read_tasks(write(tmp_path, "x", FLOW))
    gold = Gold(task=task.name, exposures=("GENDER",), outcome="yield_t", relation="positive")
    pd.read_csv(task.tables[0])[["GENDER", "yield_t"]].to_csv(task.tables[0], index=False)
    read_table.cache_clear()
    assert score_generated(task, gold, task.questions[0]).relation == 0


def test_the_times_of_a_survival_analysis_are_no_covariate(tmp_path: Path) -> None:
    flow = "Cox regression of 'rainfall', 'follow_up' in years, 'flooded' as the dependent variable"
    folder = write(tmp_path, "More rain that fell in a year floods more fields.", flow)
    (task,) = read_tasks(folder)
    table = pd.read_csv(task.tables[0])
    until, seen = generator(6).exponential(400, (2, len(table)))
    until *= np.exp(-table["rainfall"].to_numpy())
    table["follow_up"], table["flooded"] = np.minimum(until, seen), (until <= seen).astype(int)
    table.to_csv(task.tables[0], index=False)
    read_table.cache_clear()
    task = task.model_copy(update={"columns": {**task.columns, "follow_up": "Years observed"}})
    gold = read_gold(task)
    assert (gold.outcome, gold.exposures, gold.beside) == ("flooded", ("rainfall",), ())
    spec = cohort_spec(table, gold.outcome, gold.exposures)
    assert spec.endpoints["outcome"].kind == "survival"
    tried = try_claim(task, gold, "rainfall", 0)
    assert tried.verdict == "supported", tried.because


def test_the_score_is_the_product_of_its_parts(tmp_path: Path) -> None:
    (task,) = read_tasks(write(tmp_path, "x", FLOW))
    wrong = Gold(task=task.name, exposures=("rainfall",), outcome="yield_t", relation="negative")
    scored = score_generated(task, wrong, task.questions[0])
    assert (scored.context, scored.variables, scored.relation, scored.score) == (1, 1, 0.5, 0.5)
    elsewhere = wrong.model_copy(update={"where": {"GENDER": "MALE"}})
    assert score_generated(task, elsewhere, task.questions[0]).score == 0


def test_ranks_against_the_means_are_no_association(tmp_path: Path) -> None:
    folder = write(tmp_path, "Flooded fields have higher yields.", FLOW)
    (task,) = read_tasks(folder)
    table = pd.read_csv(task.tables[0])
    table["yield_t"] = generator(5).normal(size=len(table)) - 0.5 * table["flooded"]
    wettest = table.index[table["flooded"] == 1][:9]
    table.loc[wettest, "yield_t"] += 40
    table.to_csv(task.tables[0], index=False)
    gold = Gold(task=task.name, exposures=("flooded",), outcome="yield_t", relation="positive")
    read_table.cache_clear()
    tried = try_claim(task, gold, "flooded", 0)
    assert tried.naive
    assert not tried.associated, tried.because
    assert "the ranks point the other way than the means" in tried.because


def test_an_event_beside_a_time_is_an_outcome_in_time() -> None:
    rng = generator(4)
    rows = pd.DataFrame({"row_of_table": [f"r{n}" for n in range(60)],
                         "dose": rng.normal(size=60), "died": rng.integers(0, 2, 60),
                         "follow_up": rng.exponential(12, 60)})  # fmt: skip
    assert cohort_spec(rows, "died", ["dose"]).endpoints["outcome"].kind == "survival"
    assert cohort_spec(rows.drop(columns="follow_up"), "died", []).endpoints["outcome"].kind == (
        "binary"
    )
    with pytest.raises(InputError, match="an outcome is a number"):
        cohort_spec(rows.assign(died=np.ones(60)), "died", [])
    with pytest.raises(InputError, match="no metadata_N"):
        read_tasks(Path(__file__).parent / "absent")


def test_a_share_of_words_is_the_same_in_every_process() -> None:
    names = ("alpha beta gamma delta", "beta gamma", "gamma", "delta epsilon zeta eta theta")
    code = (
        "from benchmarks.adapters.discoverybench import overlap\n"
        f"columns = {dict(zip('abcd', names, strict=True))!r}\n"
        "print([overlap(columns, name, 'alpha gamma delta eta zeta') for name in columns])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in range(6)
    }  # fmt: skip
    assert len(told) == 1, told
