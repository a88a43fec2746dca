"""HypoBench: planted columns are confirmed on other rows, and none in shuffled labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.adapters.hypobench import load_settings, name_columns
from sage.core.errors import InputError


def test_noisy_planted_columns_are_named_and_neither_distractors_nor_shuffled_labels(
    tmp_path: Path,
) -> None:
    (tmp_path / "one").mkdir()
    rng = np.random.default_rng(5)
    for split in ("train", "val", "test"):
        math, art = (rng.choice(list("ABC"), 200) for _ in range(2))
        yes = (math == "A") ^ (rng.random(200) < 0.2)
        held = {
            "math": math.tolist(), "art": art.tolist(),
            "num_letters": rng.integers(0, 5, 200).tolist(),
            "admission_x": np.where(yes, "admitted", "rejected").tolist(),
        }  # fmt: skip
        (tmp_path / "one" / f"admission_{split}.json").write_text(json.dumps(held))
    truth = ["Admitted with an A in Math."]
    (tmp_path / "one" / "metadata.json").write_text(json.dumps({"ground_truth_hypotheses": truth}))
    found = name_columns(tmp_path, ("one", 0))
    assert found.planted == found.sage == ("math",)
    assert set(found.tree) > {"math"}
    assert name_columns(tmp_path, ("one", 1)).sage == ()
    with pytest.raises(InputError, match="HypoBench"):
        load_settings(tmp_path / "absent")
