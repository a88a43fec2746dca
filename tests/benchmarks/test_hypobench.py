"""HypoBench: planted rules are found, confirmed on other rows, and absent in shuffled labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.adapters.hypobench import (
    Rows,
    count_false_rules,
    find_rules,
    load_settings,
    score_settings,
)


def write_setting(folder: Path, noise: float = 0.0, rows: int = 200) -> None:
    """Admitted with an A in math and at least two letters, or as donors; `art` is noise."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(5)
    for split in ("train", "val", "test"):
        math, art = (rng.choice(list("ABC"), rows) for _ in range(2))
        letters, donated = rng.integers(0, 5, rows), rng.random(rows) < 0.15
        yes = ((math == "A") & (letters >= 2)) | donated
        yes ^= rng.random(rows) < noise
        held = {
            "math": math.tolist(), "art": art.tolist(), "num_letters": letters.tolist(),
            "donated_to_school": donated.tolist(),
            "admission_x": np.where(yes, "admitted", "rejected").tolist(),
        }  # fmt: skip
        (folder / f"admission_{split}.json").write_text(json.dumps(held))
    truth = ["Admitted with an A in Math and two or more letters, or if they donated."]
    (folder / "metadata.json").write_text(json.dumps({"ground_truth_hypotheses": truth}))


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_an_interaction_is_found_and_the_distractor_is_not(tmp_path: Path, noise: float) -> None:
    write_setting(tmp_path / "one", noise)
    ours, tree = score_settings(load_settings(tmp_path))
    assert ours.recall == ours.precision == 1.0
    assert ours.planted == 1.0 and ours.accuracy == pytest.approx(1 - noise, abs=0.05)
    assert not any("art" in rule for rule in ours.found)
    assert tree.method == "tree" and (noise == 0 or tree.precision < 1)


def test_shuffled_labels_and_training_noise_give_no_rules(tmp_path: Path) -> None:
    write_setting(tmp_path / "one")
    claimed, runs = count_false_rules(load_settings(tmp_path), 20)
    assert runs == 20 and claimed <= 2
    rng = np.random.default_rng(1)
    column = rng.choice(list("AB"), 200)
    train = Rows({"x": column}, column == "A")
    assert find_rules(train, Rows({"x": column}, rng.permutation(column == "A"))) == []
    assert len(find_rules(train, train)) >= 1
