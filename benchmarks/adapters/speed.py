"""Speed of the screen, with a Cox model per feature, compared with lifelines."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.runner import Report, Row, measure_time, median_time
from benchmarks.simulate.samples import survival_sample


def time_screen(covariates: int, features: int, peer: int) -> Row:
    """Time the screen on 400 patients, and lifelines on the first `peer` features."""
    import pandas as pd
    from lifelines import CoxPHFitter

    from validation.screening.rank import screen

    sample = survival_sample(400, [0.4, 0.3, -0.2, 0.2], seed=1, censored=0.5)
    when = np.ceil(sample.time * 700)
    values = np.random.default_rng(1).normal(size=(400, features)) * 1.5 + 6
    beside = sample.X[:, 1 : 1 + covariates] if covariates else None
    own = median_time(lambda: screen(when, sample.event, values, beside)) / features
    found = screen(when, sample.event, values, beside, per_sd=False)
    fitted: list[Any] = []

    def fit_peer() -> None:
        for at in range(peer):
            columns = [values[:, at], *(() if beside is None else beside.T)]
            frame = pd.DataFrame(np.column_stack(columns)).assign(t=when, e=sample.event)
            fitted.append(CoxPHFitter().fit(frame, "t", "e").params_.iloc[0])

    other = measure_time(fit_peer) / peer
    difference = float(np.abs(found.coef[:peer] - fitted).max())
    return Row(
        benchmark=f"Cox screen, {covariates} covariates",
        measured=f"400 patients, {features:,} features; milliseconds per feature",
        baseline=f"{1000 * other:.2f} (lifelines)",
        sage=f"{1000 * own:.3f}",
        notes=(f"largest difference of a coefficient {difference:.1e}.",),
    )


def run(
    features: Annotated[int, typer.Option(min=10)] = 20_000,
    peer: Annotated[int, typer.Option(min=1, help="Features that lifelines fits.")] = 20,
) -> Report:
    """Time the screen on many features."""
    return Report(rows=tuple(time_screen(count, features, peer) for count in (0, 3)))
