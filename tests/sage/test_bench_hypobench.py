"""Planted rules: found where they are, confirmed on other rows, silent where nothing is planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.adapters.hypobench import (
    Rows,
    false_rules,
    find_rules,
    read_settings,
    score_settings,
)
from sage.cli.app import app
from sage.core.errors import InputError

RUN = CliRunner()


def write_setting(folder: Path, noise: float = 0.0, rows: int = 200) -> None:
    """Admitted with an A in math and at least two letters, or for donors; `art` tells nothing."""
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
    ours, tree = score_settings(read_settings(tmp_path))
    assert ours.recall == ours.precision == 1.0
    assert ours.planted == 1.0 and ours.accuracy == pytest.approx(1 - noise, abs=0.05)
    # Conditions that only tell together; which of two equivalent rules is said is open.
    assert all(said.count(" and ") == 1 for said in ours.found)
    assert not any("art" in said for said in ours.found)
    assert tree.method == "tree" and (noise == 0 or tree.precision < 1)


def test_nothing_is_claimed_where_nothing_is_planted(tmp_path: Path) -> None:
    write_setting(tmp_path / "one")
    claimed, of = false_rules(read_settings(tmp_path), 20)
    assert of == 20 and claimed <= 2


def test_what_only_the_training_rows_show_is_not_claimed() -> None:
    rng = np.random.default_rng(1)
    column = rng.choice(list("AB"), 200)
    train = Rows({"x": column}, column == "A")
    validation = Rows({"x": column}, rng.permutation(column == "A"))
    assert find_rules(train, validation) == []
    assert len(find_rules(train, train)) >= 1


def test_the_command_and_what_it_refuses(tmp_path: Path) -> None:
    write_setting(tmp_path / "bench" / "one")
    done = RUN.invoke(app, ["bench", "hypobench", str(tmp_path / "bench"), "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["mean"]["rules"]["precision"] == 1.0
    assert json.loads(done.stdout)["cpu_seconds"] > 0
    with pytest.raises(InputError, match=r"no metadata\.json"):
        read_settings(tmp_path / "absent")
    (tmp_path / "bench" / "one" / "admission_val.json").write_text("[]")
    with pytest.raises(InputError, match="not a setting of HypoBench"):
        read_settings(tmp_path / "bench")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda held: held.pop("art"), "test rows have other columns than training rows"),
        (lambda held: held["art"].pop(), "art has 199 values, admission_x 200"),
        (lambda held: held.update(art=list(range(200))), "art is words in one split and numbers"),
    ],
)
def test_splits_that_do_not_fit_are_refused(tmp_path: Path, change: Any, said: str) -> None:
    write_setting(tmp_path / "one")
    path = tmp_path / "one" / "admission_test.json"
    held = json.loads(path.read_text())
    change(held)
    path.write_text(json.dumps(held))
    with pytest.raises(InputError, match=f"not a setting of HypoBench: .*{said}"):
        read_settings(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match=r"holds 0 files \*_test\.json, not one"):
        read_settings(tmp_path)
