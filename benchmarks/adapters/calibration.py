"""Calibration with claims about permuted variables in real patients, none of which is true.

A variable and an endpoint from a public cohort are drawn, and the variable's values are
permuted among the patients; outcome and covariates are unchanged. The claim then goes
through the steps of `sage validate`: contract, freezing, tests, controls, verdict. The
protocol follows POPPER, which permutes columns in the same way. A claim takes one to four
seconds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import typer

from benchmarks.runner import Report, Row, rate, run_missing
from sage.core.errors import InputError
from sage.core.hashes import hash_text
from sage.core.models import Strict
from sage.core.seeds import generator
from validation.cohort.cohort import Cohort
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Direction,
    Exposure,
    Hypothesis,
    Population,
)
from validation.results.results import Word

PURPOSE = 62
FEWEST = 20
"""Minimum number of patients with a value for a variable to be drawn."""


class Permuted(Cohort):
    """A cohort in which the known values of a single variable are permuted."""

    permuted: str = ""
    permutation: int = 0

    def column(self, key: str) -> pd.Series:
        """Return a column, permuted if it belongs to the chosen variable."""
        held = super().column(key)
        if key != self.permuted:
            return held
        known = held.notna().to_numpy()
        given = held.to_numpy(copy=True)
        given[known] = generator(self.permutation, PURPOSE, 1).permutation(given[known])
        return pd.Series(given, index=held.index, name=held.name)


class Claim(Strict):
    """A claim and its verdict; `naive` is true if its primary p alone was below 0.05."""

    cohort: str
    number: int
    variable: str
    endpoint: str
    verdict: Word | Literal["refused"]
    because: str = ""
    naive: bool = False


@lru_cache(maxsize=8)
def open_cohort(name: str, root: str = "") -> Cohort:
    """Load a cohort once; `root` is the folder with its files, if they are stored elsewhere."""
    from validation.cohort import load

    return load(name, root=Path(root) if root else None)


def judge(cohort: str, root: str, number: int, seed: int = 0) -> Claim:
    """Draw claim `number` for a cohort and validate it.

    Raises
    ------
    InputError
        If the cohort has no variable or no endpoint to draw from.
    """
    from validation.drafting.draft import draft
    from validation.drafting.freezing import freeze
    from validation.ledger.ledger import Ledger
    from validation.run.runner import run

    whole = open_cohort(cohort, root)
    dictionary = whole.dictionary()
    variables = [
        item for item in dictionary.variables
        if item.kind in ("continuous", "binary", "ordinal") and item.n >= FEWEST
        and not item.key.endswith("_months")
    ]  # fmt: skip
    endpoints = [item for item in dictionary.endpoints if item.kind in ("survival", "binary")]
    if not variables or not endpoints:
        raise InputError(f"{cohort}: no variables or no endpoints to sample from")
    own = int(hash_text(f"{whole.id}/{number}")[:8], 16)
    rng = generator(seed, PURPOSE, own)
    variable = variables[int(rng.integers(len(variables)))]
    endpoint = endpoints[int(rng.integers(len(endpoints)))]
    cut = CutRule.CONTINUOUS if variable.kind == "continuous" and rng.random() < 0.5 else None
    exposure = Exposure(
        variable=variable.key, label=variable.label, **({"cut": cut} if cut else {})
    )
    claim = Hypothesis(
        id=f"claim-{number}",
        statement=f"{variable.label} predicts {endpoint.label}.",
        population=Population(description="all patients"),
        exposures=(exposure,),
        comparison=Comparison.PER_SD if cut else Comparison.EXPOSED_VS_REST,
        endpoint=endpoint.key,
        direction=Direction.HIGHER_RISK if rng.random() < 0.5 else Direction.LOWER_RISK,
    )
    permuted = Permuted(whole.spec, whole.root, cache=whole.cache)
    permuted.permuted, permuted.permutation = variable.key, own
    about = {"cohort": whole.id, "number": number, "variable": variable.key,
            "endpoint": endpoint.key}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        try:
            frozen = freeze(draft(claim, permuted.dictionary(), seed=own % 2**31), permuted)
            found = run(
                frozen, permuted, place / "out", ledger=Ledger(place / "ledger.jsonl"),
                figures=False, reproduce=False,
            )  # fmt: skip
        except InputError as error:
            return Claim(verdict="refused", because=str(error)[:300], **about)
    primary = next(test for test in found.tests if test.role == "primary")
    return Claim(
        verdict=found.verdict.verdict,
        because=found.verdict.because,
        naive=primary.p is not None and primary.p < 0.05,
        **about,
    )


def summarize(claims: Sequence[Claim]) -> Report:
    """Compute rates per cohort and overall; a refused claim counts as not supported."""
    names = dict.fromkeys(claim.cohort for claim in claims)
    rates = {
        name: rate(name, (c.verdict == "supported" for c in claims if name in ("all", c.cohort)))
        for name in (*names, "all")
    }
    every = rates["all"]
    naive = sum(claim.naive for claim in claims) / len(claims)
    row = Row(
        benchmark="Calibration: permuted variables",
        measured=f"{every.runs:,} claims on {len(names)} cohorts; falsely supported",
        baseline=f"{naive:.1%} (p below 0.05 alone)",
        sage=str(every),
        notes=(
            "; ".join(f"{name} {rates[name].hits} of {rates[name].runs}" for name in names)
            + f"; refused {sum(claim.verdict == 'refused' for claim in claims)}.",
        ),
    )
    return Report(
        command="calibration COHORT… --json", rows=(row,),
        data={"rates": [item.model_dump() for item in rates.values()], "naive": naive},
    )  # fmt: skip


def _judge_key(key: tuple[str, str, int, int]) -> Claim:
    return judge(*key)


def run(
    cohorts: Annotated[
        list[str], typer.Argument(help="Cohorts; NAME=FOLDER if files are elsewhere.")
    ],
    claims: Annotated[int, typer.Option(min=1, help="Claims per cohort.")] = 400,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Results so far, to resume.")] = None,
) -> Report:
    """Validate claims about permuted variables."""
    named = [(name, root) for name, _, root in (text.partition("=") for text in cohorts)]
    by_id = {open_cohort(name, root).id: (name, root) for name, root in named}
    keys = [(*by_id[name], number, seed) for name in by_id for number in range(claims)]
    return summarize(
        run_missing(
            _judge_key,
            keys,
            Claim,
            lambda claim: (*by_id[claim.cohort], claim.number, seed),
            keep=keep,
            jobs=jobs,
            title="claims",
        )
    )
