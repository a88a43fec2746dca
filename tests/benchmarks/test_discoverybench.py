"""DiscoveryBench: gold claims are validated, and permuted."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.adapters import discoverybench
from benchmarks.adapters.discoverybench import GOLD, Gold, Task, load_tasks, run, try_claim
from benchmarks.runner import load_lines
from sage.core.errors import InputError
from sage.core.seeds import generator


def test_gold_is_supported_and_its_permutation_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, n = generator(3), 300
    rain = rng.normal(size=n)
    (tmp_path / "farms").mkdir()
    pd.DataFrame({
        "GENDER": rng.choice(["MALE", "FEMALE"], n), "rainfall": rain,
        "soil_acidity": rng.normal(size=n), "yield_t": 0.9 * rain + rng.normal(size=n),
    }).to_csv(tmp_path / "farms" / "farms.csv", index=False)  # fmt: skip
    held = {"hypotheses": {"main": [{"text": "More rain, more grain."}]},
            "datasets": [{"name": "farms.csv"}]}  # fmt: skip
    (tmp_path / "farms" / "metadata_0.json").write_text(json.dumps(held))
    gold = Gold(task="farms/0", exposures=("rainfall",), beside=("soil_acidity",),
                outcome="yield_t", relation="positive")  # fmt: skip
    (tmp_path / "gold.jsonl").write_text(gold.model_dump_json() + "\n")
    tasks = load_tasks(tmp_path, tmp_path / "gold.jsonl")
    monkeypatch.setattr(discoverybench, "load_tasks", lambda folder: tasks)
    kept = tmp_path / "kept.jsonl"
    for permutation in (0, 1):
        line = try_claim(tasks[0], "rainfall", permutation).model_dump_json()
        kept.write_text(kept.read_text() + line + "\n" if permutation else line + "\n")
    report = run(tmp_path, permutations=1, keep=kept)
    assert [item["verdict"] == "supported" for item in report.data] == [True, False]
    assert [row.sage[:6] for row in report.rows] == ["100.0%", "0.0% ("]
    odd = gold.model_copy(update={"outcome": "GENDER"})
    task = Task(gold=odd, text="", tables=tasks[0].tables)
    assert try_claim(task, "rainfall", 0).verdict == "refused"
    with pytest.raises(InputError, match="farms"):
        load_tasks(tmp_path / "absent", tmp_path / "gold.jsonl")


def test_what_is_no_claim_says_why() -> None:
    golds = load_lines(GOLD, Gold)
    assert len(golds) == 14
    assert all(bool(gold.unread) != bool(gold.exposures and gold.outcome) for gold in golds)
