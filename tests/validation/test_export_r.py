"""The exported script gives SAGE's numbers in R, from the table alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.validation.core_help import NODE, cause_of_death, patients, validate, write

RSCRIPT = shutil.which("Rscript")
pytestmark = pytest.mark.skipif(RSCRIPT is None, reason="R is not installed")
COVARIATES = ["clinical:stage", "clinical:sex"]
PAIR = [
    {"variable": "clinical:marker", "label": "marker"},
    {"variable": "clinical:stage", "label": "stage"},
]


def repeated(tmp_path: Path, *options: str, **changes: object) -> str:
    """Validate with --export-r, run the script in a folder of its own, return what it prints."""
    raw = patients(300, log_hr=0.5)
    raw.loc[::11, "stage"] = None
    raw["cause"] = ["alive"] * len(raw)
    raw.loc[raw.dead == 1, "cause"] = "tumor"
    raw.loc[(raw.dead == 1) & (raw.index % 4 == 0), "cause"] = "other"
    more = cause_of_death("tumor", "other", "alive")
    cohort = write(tmp_path / "cohort", raw, endpoint=NODE, more=more)
    validate(tmp_path, cohort, "--export-r", *options, **changes)
    moved = tmp_path / "elsewhere"
    shutil.move(tmp_path / "out" / "marker-os" / "r", moved)
    assert RSCRIPT is not None
    done = subprocess.run(
        [RSCRIPT, "--vanilla", str(moved / "analysis.R")], capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({}, ["primary.p", "adjusted.effect", "schoenfeld.global_p", "rmst.difference"]),
        ({"exposures": [PAIR[0] | {"cut": "tertile", "level": "low"}]}, ["primary.effect"]),
        ({"exposures": [PAIR[0] | {"cut": "spline"}]}, ["primary.nonlinearity.p"]),
        ({"exposures": [PAIR[0] | {"cut": "fixed", "threshold": 0.3}]}, ["primary.effect"]),
        ({"exposures": PAIR, "comparison": "extremes"}, ["joint_groups.p"]),
        (
            {"exposures": [one | {"cut": "continuous"} for one in PAIR],
             "comparison": "interaction", "covariates": ["clinical:sex"]},
            ["primary.effect", "concordance.with.harrell"],
        ),
        ({"covariates": ["clinical:stage"], "strata": ["clinical:sex"]}, ["primary.p"]),
        ({"endpoint": "node"}, ["primary.p", "adjusted.upper"]),
        ({"endpoint": "size"}, ["primary.p", "adjusted.lower"]),
        ({"endpoint": "cause"}, ["gray.p", "fine_gray.effect", "fine_gray_adjusted.p"]),
        (
            {"population": {"description": "men", "filters": [
                {"variable": "clinical:sex", "op": "eq", "value": "male"}]},
             "covariates": ["clinical:stage"],
             "subgroups": [{"variable": "clinical:stage", "op": "ge", "value": 2}]},
            ["subgroup.1.effect"],
        ),
    ],
)  # fmt: skip
def test_r_repeats_every_kind_of_contract(tmp_path, changes, needs) -> None:
    printed = repeated(tmp_path, **({"covariates": COVARIATES} | changes))
    for key in needs:
        assert f" {key} " in printed, printed
    assert "FALSE" not in printed


def test_r_repeats_records_of_what_happened_during_follow_up(tmp_path) -> None:
    raw = patients(300, log_hr=0.5)
    raw["treated"] = ["yes" if at % 3 else "no" for at in range(len(raw))]
    raw["since"] = [float(at % 17) if at % 3 else None for at in range(len(raw))]
    treated = """
[variables.treated]
table = "clinical"
column = "treated"
kind = "binary"
known_at = { column = "since", unit = "months", before = "no" }
"""
    cohort = write(tmp_path / "cohort", raw, more=treated)
    exposure = {"variable": "clinical:treated", "label": "treated"}
    validate(tmp_path, cohort, "--export-r", exposures=[exposure], covariates=["clinical:sex"],
             time_dependent=True)  # fmt: skip
    script = tmp_path / "out" / "marker-os" / "r" / "analysis.R"
    assert RSCRIPT is not None
    done = subprocess.run([RSCRIPT, "--vanilla", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 of 12 numbers agree" in done.stdout


def test_confirmation_uses_the_cuts_of_the_discovery(tmp_path) -> None:
    printed = repeated(tmp_path, "--split", "0.5", covariates=COVARIATES)
    assert "primary.effect" in printed


def test_a_script_that_meets_other_data_says_so(tmp_path) -> None:
    repeated(tmp_path, covariates=COVARIATES)
    table = tmp_path / "elsewhere" / "table.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join(lines[:200]) + "\n")
    assert RSCRIPT is not None
    script = str(tmp_path / "elsewhere" / "analysis.R")
    done = subprocess.run([RSCRIPT, "--vanilla", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "FALSE" in done.stdout


def test_no_text_of_a_contract_becomes_r_code(tmp_path) -> None:
    evil = 'x"); system("touch /tmp/sage-r-owned"); ("\n`q()`\\ 你好 \u2028 end'
    printed = repeated(tmp_path, statement=f"Claim {evil}", covariates=COVARIATES)
    assert "numbers agree" in printed
    assert not Path("/tmp/sage-r-owned").exists()
