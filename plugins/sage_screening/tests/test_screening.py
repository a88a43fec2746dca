"""`sage screen`: what it ranks, leaves out and refuses, and its volcano plot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from click.testing import Result
from typer.testing import CliRunner

from benchmarks.simulate.samples import survival_sample
from sage.cli.app import app
from sage.core.errors import InputError
from sage_screening.volcano import volcano
from tests.validation.core_help import patients, write
from validation.screening.rank import screen as rank


def run_screen(*options: str) -> Result:
    return CliRunner().invoke(app, ["screen", *options])


def test_screen_ranks_and_writes_table_and_volcano(tmp_path: Path) -> None:
    folder = tmp_path / "world"
    made = CliRunner().invoke(app, ["cohort", "simulate", str(folder), "--seed", "3"])
    assert made.exit_code == 0
    options = ["--cohort", str(folder), "--covariate", "clinical:age", "--out", str(tmp_path / "o")]
    done = run_screen(*options, "--json")
    found = json.loads(done.stdout)
    assert found["simulated"] is True
    assert found["features"] > 100
    assert found["top"] == sorted(found["top"], key=lambda row: row["p"])
    assert (tmp_path / "o" / "volcano.svg").is_file()
    assert (tmp_path / "o" / "screen.csv").read_text().startswith("feature,hr")


def test_screen_says_whom_it_left_out_and_warns_when_most_are(tmp_path: Path) -> None:
    raw = patients(300)
    raw["sex"] = raw["sex"].where(raw.index % 3 == 0)
    folder = write(tmp_path / "cohort", raw)
    options = ["--cohort", str(folder), "--covariate", "clinical:sex"]
    found = json.loads(run_screen(*options, "--json").stdout)
    assert (found["n"], found["left_out"]) == (100, {"clinical:sex": 200})
    assert "only 100 of 300 patients" in found["warnings"][0]
    shown = run_screen(*options).stdout
    assert "left out: 200 without clinical:sex" in shown
    assert "warning only 100 of 300" in shown
    plain = json.loads(run_screen(*options[:2], "--json").stdout)
    assert (plain["n"], plain["left_out"], plain["warnings"]) == (300, {}, [])


def test_screen_refuses_an_endpoint_that_is_no_survival_endpoint(tmp_path: Path) -> None:
    done = run_screen("--cohort", "gbsg2", "--endpoint", "OS")
    assert isinstance(done.exception, InputError)
    assert "endpoints: RFS" in str(done.exception)


def test_a_screen_names_what_it_cannot_estimate(tmp_path: Path) -> None:
    """No nan for a reader, valid JSON for a program, and no hit that is the outcome itself."""
    raw = patients(200)
    raw = raw.assign(marker=raw["dead"] + raw["marker"] / 100, stage=1)
    cohort = write(tmp_path / "cohort", raw)
    more = '[variables.size]\ntable = "clinical"\ncolumn = "size"\nkind = "continuous"\n'
    (cohort / "cohort.toml").write_text((cohort / "cohort.toml").read_text() + more)
    given = ["--cohort", str(cohort), "--endpoint", "OS"]
    done = run_screen(*given)
    assert "clinical:stage" in done.output and "not estimated: constant_feature" in done.output
    assert "clinical:marker is excluded: it separates all patients with OS" in done.output
    assert "nan" not in done.output and "clinical:marker  " not in done.output

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    found = json.loads(run_screen(*given, "--json").stdout, parse_constant=refuse)
    assert [row["p"] for row in found["top"] if row["feature"] == "clinical:stage"] == [None]


def test_the_same_volcano_plot_is_the_same_file(tmp_path: Path) -> None:
    s = survival_sample(150, [0.5, 0.3], seed=3)
    genes = np.random.default_rng(0).normal(size=(150, 80))
    genes[:, 0] = s.X[:, 0]
    found = rank(s.time, s.event, genes, names=[f"GENE{i}" for i in range(80)])
    files = [
        volcano(found, tmp_path / f"{name}.svg", title="Screen", simulated=True).read_bytes()
        for name in "ab"
    ]
    assert files[0] == files[1]
