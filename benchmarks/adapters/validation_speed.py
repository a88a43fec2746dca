"""Speed of validation: screening beside R, lifelines and scikit-survival; one whole hypothesis."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.runner import Report, Row, median_time
from validation.simulate import survival_sample

ROOT = Path(__file__).resolve().parents[2]
COHORTS = {
    "rotterdam": ("pgr", ["age", "nodes", "er"]),
    "flchain": ("kappa", ["age", "creatinine"]),
}
"""Cohorts of R's survival package: the exposure and its covariates."""


def run(
    features: Annotated[int, typer.Option(min=10)] = 20_000,
    peer_features: Annotated[int, typer.Option(min=1, help="Fitted by each Python peer.")] = 100,
    r_features: Annotated[int, typer.Option(min=1, help="Fitted by R's coxph.fit.")] = 2_000,
) -> Report:
    """Time the screen of many features, and one hypothesis with all controls."""
    rows = [_screen(name, count, features, peer_features, r_features)
            for name, count in (("no covariates", 0), ("three covariates", 3))]  # fmt: skip
    return Report(rows=(*rows, *(_hypothesis(name) for name in COHORTS)))


def _screen(name: str, covariates: int, features: int, peer: int, r_features: int) -> Row:
    import pandas as pd
    from lifelines import CoxPHFitter
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.util import Surv

    from validation.screening.rank import screen

    warnings.filterwarnings("ignore")
    sample = survival_sample(400, [0.4, 0.3, -0.2, 0.2], seed=1, censored=0.5)
    when = np.ceil(sample.time * 700)
    values = np.random.default_rng(1).normal(size=(400, features)) * 1.5 + 6
    beside = sample.X[:, 1 : 1 + covariates] if covariates else None
    own = median_time(lambda: screen(when, sample.event, values, beside))
    found = screen(when, sample.event, values, beside, per_sd=False)
    y = Surv.from_arrays(sample.event, when)

    def design(at: int) -> Any:
        column = values[:, at : at + 1]
        return column if beside is None else np.column_stack((column, beside))

    start = time.perf_counter()
    exact = [
        CoxPHSurvivalAnalysis(ties="efron", tol=1e-13, n_iter=200).fit(design(at), y).coef_[0]
        for at in range(peer)
    ]
    sksurv = (time.perf_counter() - start) / peer
    few = max(1, peer // 5)
    start = time.perf_counter()
    for at in range(few):
        frame = pd.DataFrame(design(at)).assign(t=when, e=sample.event)
        CoxPHFitter().fit(frame, "t", "e")
    lifelines = (time.perf_counter() - start) / few
    peers = {"scikit-survival": sksurv, "lifelines": lifelines}
    if (r := _screen_with_r(when, sample.event, values[:, :r_features], beside)) is not None:
        peers["R coxph.fit"] = r
    difference = float(np.abs(found.coef[:peer] - exact).max())
    return Row(
        benchmark=f"Cox screen, {name}",
        measured=f"400 patients, {features:,} features; seconds per 1,000",
        baseline=", ".join(f"{peer} {1000 * cost:.2f}" for peer, cost in peers.items()),
        sage=f"{1000 * own / features:.3f}",
        notes=(f"largest difference of a coefficient from scikit-survival {difference:.1e}.",),
    )


def _screen_with_r(when: Any, event: Any, values: Any, covariates: Any) -> float | None:
    """Seconds per feature of R's coxph.fit; None without Rscript."""
    program = shutil.which("Rscript")
    if program is None:
        return None
    parts = [when, event, *(() if covariates is None else covariates.T), *values.T]
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        head = ",".join(f"c{at}" for at in range(len(parts)))
        np.savetxt(table, np.column_stack(parts), delimiter=",", fmt="%.17g", header=head,
                   comments="")  # fmt: skip
        script = ROOT / "benchmarks" / "r" / "screen.R"
        held = 0 if covariates is None else covariates.shape[1]
        printed = subprocess.run([program, str(script), str(table), str(held)],
                                 capture_output=True, text=True, check=True).stdout  # fmt: skip
    return float(printed.split()[0]) / values.shape[1]


def _hypothesis(name: str) -> Row:
    """Time one hypothesis with all controls, a second implementation and figures."""
    from validation.cohort import load
    from validation.core.hypothesis import Hypothesis
    from validation.drafting.draft import draft
    from validation.drafting.freezing import freeze
    from validation.ledger.ledger import Ledger
    from validation.run.runner import run as validate

    exposure, covariates = COHORTS[name]
    claim = Hypothesis.model_validate({
        "id": name,
        "statement": f"A high {exposure} goes with shorter survival.",
        "population": {"description": "all patients"},
        "exposures": [{"variable": f"clinical:{exposure}", "label": exposure}],
        "comparison": "exposed_vs_rest",
        "endpoint": "OS",
        "direction": "higher_risk",
        "covariates": [f"clinical:{key}" for key in covariates],
    })  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_cohort(place / "cohort", name, [exposure, *covariates])
        start, before = time.perf_counter(), sum(os.times()[:4])
        cohort = load(place / "cohort")
        frozen = freeze(draft(claim, cohort.dictionary()), cohort)
        found = validate(frozen, cohort, place / "out", ledger=Ledger(place / "ledger.jsonl"))
        return Row(
            benchmark=f"One hypothesis, {name}",
            measured=f"{len(cohort.patients):,} patients, all controls and figures",
            sage=f"{time.perf_counter() - start:.1f} s",
            cost=f"{sum(os.times()[:4]) - before:.1f} s of a CPU",
            notes=(f"verdict: {found.verdict.badge}.",),
        )


def write_cohort(folder: Path, name: str, columns: list[str]) -> None:
    """Write a cohort of R's survival package as a folder, all columns known at baseline."""
    import pandas as pd

    source = ROOT / "tests" / "validation" / "r" / "cohorts" / f"{name}.csv.gz"
    table = pd.read_csv(source)
    table = table[table["time"] > 0].reset_index(drop=True)
    table.insert(0, "row", [f"P{at}" for at in range(len(table))])
    folder.mkdir()
    table.to_csv(folder / "table.csv", index=False)
    text = (
        f'known_at = "baseline"\nid = "{name}"\ntitle = "{name} of R\'s survival package"\n'
        'patient = { table = "all" }\ntables.all = { file = "table.csv", key = "row" }\n'
        '[endpoints.OS]\ntable = "all"\ntime = "time"\ntime_unit = "days"\nevent = "status"\n'
        "event_values = [1, 2]\ncensored_values = [0]\n"
    )
    for column in columns:
        text += f'[variables.{column}]\ntable = "all"\ncolumn = "x.{column}"\nkind = "continuous"\n'
    (folder / "cohort.toml").write_text(text, encoding="utf-8")
