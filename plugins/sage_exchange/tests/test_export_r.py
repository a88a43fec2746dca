"""The exported script gives SAGE's numbers in R, from the table alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sage_exchange.r.cli import export_script
from tests.draws import few_draws
from tests.validation.core_help import NODE, cause_of_death, patients, validate, write
from validation.analysis.analysis import Analysis

__all__ = ["few_draws"]
RSCRIPT = shutil.which("Rscript")
pytestmark = pytest.mark.skipif(RSCRIPT is None, reason="R is not installed")
COVARIATES = ["clinical:stage", "clinical:sex"]
PAIR = [
    {"variable": "clinical:marker", "label": "marker"},
    {"variable": "clinical:stage", "label": "stage"},
]


AMOUNT = {"variable": "clinical:amount", "label": "amount"}
SEX = {"variable": "clinical:sex", "label": "sex"}
GIVEN = {"variable": "clinical:given", "label": "given"}
LATE = """
[variables.amount]
table = "clinical"
column = "amount"
kind = "continuous"
label = "Amount"

[variables.given]
table = "clinical"
column = "given"
kind = "binary"
label = "Given"
known_at = { column = "since", before = "no" }

[endpoints.late]
table = "clinical"
entry = "entered"
time = "left"
time_unit = "months"
event = "dead"
event_values = [1]
censored_values = [0]

[endpoints.late_cause]
kind = "competing"
table = "clinical"
entry = "entered"
time = "left"
time_unit = "months"
event = "cause"
event_values = ["tumor"]
competing_values = ["other"]
censored_values = ["alive"]
"""


Script = Callable[[Path], tuple[int, str]]
SERVER = """
invisible(loadNamespace("survival"))
before <- search()
input <- file("stdin", open = "r")
while (length(path <- readLines(input, n = 1))) {
  own <- new.env(parent = globalenv())
  own$commandArgs <- function(...) paste0("--file=", path)
  own$quit <- function(status = 0, ...) {
    stop(structure(list(status = status), class = c("ended", "condition")))
  }
  code <- tryCatch({ sys.source(path, own); 0 }, ended = function(e) e$status,
                   error = function(e) { cat(conditionMessage(e), "\\n"); 2 })
  for (name in setdiff(search(), before)) detach(name, character.only = TRUE)
  cat("ended with", code, "\\n")
  flush(stdout())
}
"""
"""Runs scripts one after the other, each in an environment of its own with nothing attached."""


def by_itself(script: Path) -> tuple[int, str]:
    """Run a script as its user does: exit code, and what it prints."""
    assert RSCRIPT is not None
    line = [RSCRIPT, "--vanilla", str(script)]
    done = subprocess.run(line, capture_output=True, text=True, cwd="/")
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def r() -> Iterator[Script]:
    """The same in one R for all scripts: it takes longer to start and load than they do."""
    assert RSCRIPT is not None
    server = subprocess.Popen(
        [RSCRIPT, "--vanilla", "-e", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, cwd="/",
    )  # fmt: skip
    assert server.stdin is not None and server.stdout is not None

    def run(script: Path) -> tuple[int, str]:
        server.stdin.write(f"{script}\n")
        server.stdin.flush()
        said = ""
        for line in server.stdout:
            if line.startswith("ended with "):
                return int(line.split()[2]), said
            said += line
        raise AssertionError(said)

    yield run
    server.stdin.close()
    assert server.wait(60) == 0


def repeated(
    tmp_path: Path,
    *options: str,
    run: Script,
    patients_in: int = 160,
    **changes: object,
) -> str:
    """Validate, export to R, run the script from another folder, return what it prints."""
    raw = patients(patients_in, log_hr=0.5)
    raw.loc[::11, "stage"] = None
    raw["cause"] = ["alive"] * len(raw)
    raw.loc[raw.dead == 1, "cause"] = "tumor"
    raw.loc[(raw.dead == 1) & (raw.index % 4 == 0), "cause"] = "other"
    rng = np.random.default_rng(5)
    raw["amount"] = np.round(np.exp(raw.marker) * 10, 4)
    raw["given"] = np.where(rng.random(len(raw)) < 0.6, "yes", "no")
    raw["since"] = np.where(raw.given == "yes", np.round(rng.exponential(20, len(raw)), 1), np.nan)
    raw["entered"] = np.round(rng.exponential(15, len(raw)))
    raw["left"] = raw.entered + np.ceil(raw.months)
    more = cause_of_death("tumor", "other", "alive") + LATE
    cohort = write(tmp_path / "cohort", raw, endpoint=NODE, more=more)
    moved = tmp_path / "elsewhere"
    with pytest.MonkeyPatch.context() as patch:  # the script repeats no control
        patch.setattr(Analysis, "_run_controls", lambda self, study: None)
        validate(tmp_path, cohort, *options, **changes)
    export_script(tmp_path / "out" / "marker-os", moved)
    code, said = run(moved / "analysis.R")
    assert code == 0, said
    return said


CONTINUOUS = PAIR[0] | {"cut": "continuous"}
STAGE = ["clinical:stage"]
MEDIATION = {"exposures": [SEX, CONTINUOUS], "comparison": "mediation", "covariates": STAGE}
MEN = [{"variable": "clinical:sex", "op": "eq", "value": "male"}]
SCORE = {"exposures": [CONTINUOUS], "comparison": "calibrated", "covariates": []}
LINEAR = {"values": "linear", "thresholds": [0.2, 0.6]}
CALIBRATED = ["primary.effect", "primary.p", "slope.lower", "decision_curve.score"]
NESTED = ["primary.p", "primary.effect", "adjusted.p", "adjusted.upper"]


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        (
            {"population": {"description": "men", "filters": MEN}, "covariates": STAGE,
             "subgroups": [{"variable": "clinical:stage", "op": "ge", "value": 2}]},
            ["primary.p", "adjusted.effect", "schoenfeld.global_p", "rmst.difference",
             "subgroup.1.effect"],
        ),
        (
            {"exposures": [PAIR[0] | {"cut": "tertile", "level": "low"}, PAIR[1]],
             "comparison": "extremes"},
            ["primary.effect", "joint_groups.p"],
        ),
        (
            {"exposures": [item | {"cut": "continuous"} for item in PAIR],
             "comparison": "interaction", "covariates": ["clinical:sex"]},
            ["primary.effect", "concordance.with.harrell"],
        ),
        (
            {"exposures": [AMOUNT | {"cut": "fixed", "threshold": 0.7, "transform": "rank"}],
             "endpoint": "node"},
            ["primary.p", "primary.effect", "adjusted.upper"],
        ),
        ({"endpoint": "size"}, ["primary.p", "adjusted.lower"]),
        ({"endpoint": "cause"}, ["gray.p", "fine_gray.effect", "fine_gray_adjusted.p"]),
        ({"endpoint": "late_cause"}, ["primary.p", "adjusted.upper", "fine_gray_adjusted.effect"]),
        (
            {"endpoint": "late", "strata": ["clinical:sex"], "covariates": STAGE},
            ["primary.p", "adjusted.p", "schoenfeld.global_p", "kaplan_meier.exposed.at_36",
             "kaplan_meier.reference.median"],
        ),
        (
            {"endpoint": "late", "exposures": [PAIR[0] | {"cut": "quartile", "level": "low"}],
             "comparison": "trend"},
            ["primary.effect", "ordered_groups.p"],
        ),
        (
            {"endpoint": "late", "exposures": [PAIR[0] | {"cut": "spline"}]},
            ["primary.nonlinearity.p"],
        ),
        (
            {"endpoint": "late", "exposures": [GIVEN], "time_dependent": True},
            ["primary.n", "primary.events", "primary.p", "adjusted.effect"],
        ),
        ({"exposures": [GIVEN], "landmark": 12}, ["primary.n", "adjusted.effect"]),
        (
            {"exposures": [AMOUNT | {"cut": "continuous", "transform": "log2_plus_1"}],
             "comparison": "per_sd"},
            ["primary.effect", "adjusted.effect"],
        ),
        (
            {"exposures": [CONTINUOUS, SEX], "comparison": "predictive", "covariates": STAGE},
            ["primary.p", "within.2.exposed.effect", "within.2.reference.lower",
             "within.1.exposed.p", "within.1.reference.n"],
        ),
        ({"exposures": [CONTINUOUS, SEX], "comparison": "combined", "covariates": STAGE}, NESTED),
        (
            {"exposures": [SEX, CONTINUOUS], "comparison": "added", "direction": "either",
             "covariates": STAGE, "endpoint": "node"},
            NESTED,
        ),
        (SCORE | {"calibration": LINEAR | {"horizon": 24, "baseline": 0.5}}, CALIBRATED),
        (SCORE | {"calibration": LINEAR, "endpoint": "node"}, [*CALIBRATED, "primary.intercept"]),
        (MEDIATION, ["primary.p", "primary.effect", "adjusted.effect"]),
        (MEDIATION | {"endpoint": "size"}, ["primary.p", "primary.effect", "adjusted.effect"]),
    ],
)  # fmt: skip
def test_r_repeats_every_kind_of_contract(tmp_path, r, changes, needs) -> None:
    printed = repeated(tmp_path, run=r, **({"covariates": COVARIATES} | changes))
    for key in needs:
        assert f" {key} " in printed, printed
    assert "FALSE" not in printed


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        (
            {"exposures": [PAIR[0] | {"cut": "spline"}]},
            ["primary.effect", "adjusted.lower", "adjusted.upper", "adjusted.p"],
        ),
        ({"endpoint": "node", "patients_in": 70}, ["adjusted.effect", "adjusted.p"]),
        ({"endpoint": "cause"}, ["adjusted.effect"]),
        ({"exposures": [GIVEN], "time_dependent": True}, ["adjusted.lower"]),
    ],
)
def test_r_repeats_firths_penalty(tmp_path, r, changes, needs) -> None:
    given = {"covariates": COVARIATES, "patients_in": 34} | changes
    printed = repeated(tmp_path, run=r, **given)
    for key in needs:
        assert f" {key} " in printed, printed
    assert "FALSE" not in printed
    assert "adjusted" not in "".join(line for line in printed.splitlines() if "not comp" in line)


@pytest.mark.parametrize(
    "changes",
    [
        {"exposures": [AMOUNT], "comparison": "per_doubling"},
        {"exposures": [PAIR[0] | {"cut": "quartile"}], "comparison": "trend"},
    ],
)
def test_confirmation_uses_the_cuts_of_the_discovery(tmp_path, r, changes) -> None:
    given = {"covariates": COVARIATES} | changes
    printed = repeated(tmp_path, "--split", "0.5", run=r, **given)
    assert "primary.effect" in printed


def test_a_script_that_meets_other_data_says_so(tmp_path, r) -> None:
    repeated(tmp_path, run=r, covariates=COVARIATES)
    table = tmp_path / "elsewhere" / "table.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join(lines[:100]) + "\n")
    script = tmp_path / "elsewhere" / "analysis.R"
    code, said = by_itself(script)
    assert code == 1
    assert "FALSE" in said
    assert r(script) == (code, said)
    script.write_text("library(survival)\nnonsense()\n")
    assert r(script)[0] != 0


def test_no_text_of_a_contract_becomes_r_code(tmp_path, r) -> None:
    evil = 'x"); system("touch /tmp/sage-r-owned"); ("\n`q()`\\ 你好 \u2028 end'
    printed = repeated(tmp_path, run=r, statement=f"Claim {evil}", covariates=COVARIATES)
    assert "numbers agree" in printed
    assert not Path("/tmp/sage-r-owned").exists()
