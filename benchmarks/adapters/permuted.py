"""Claims about real patients that cannot be true: how many does the whole path support?

Of a public cohort a variable and an endpoint are drawn, and the variable's values are dealt anew
among the patients; outcome and covariates stay as they are. The claim then goes the usual path of
`sage validate`: contract, freezing, tests, controls, verdict. Every "supported" is a false claim.
Source of the protocol: POPPER permutes columns likewise.
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from benchmarks.adapters.null_statistics import Rate, rate
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

if TYPE_CHECKING:
    from collections.abc import Sequence

PURPOSE = 62
FEWEST = 20
"""Patients with a value, below which a variable is not drawn."""


class Dealt(Cohort):
    """A cohort in which one variable's known values are dealt anew among those who have one."""

    dealt: str = ""
    deal: int = 0

    def column(self, key: str) -> pd.Series:
        """See `Cohort.column`."""
        held = super().column(key)
        if key != self.dealt:
            return held
        known = held.notna().to_numpy()
        given = held.to_numpy(copy=True)
        given[known] = generator(self.deal, PURPOSE, 1).permutation(given[known])
        return pd.Series(given, index=held.index, name=held.name)


class Claim(Strict):
    """One claim and what became of it; `naive` is whether its primary p alone was below 0.05."""

    cohort: str
    number: int
    variable: str
    endpoint: str
    verdict: Literal["supported", "not_supported", "inconclusive", "refused"]
    because: str = ""
    naive: bool = False


class Outcome(Strict):
    """A cohort's claims, or all. Rates with their exact 95% interval."""

    cohort: str
    claims: int
    refused: int
    supported: int
    rate: float
    lower: float
    upper: float
    naive: float


@lru_cache(maxsize=8)
def opened(name: str, root: str = "") -> Cohort:
    """A cohort, read once; `root` is where its files lie when not beside it."""
    from validation.cohort import load

    return load(name, root=Path(root) if root else None)


def judge(cohort: str, root: str, number: int, seed: int = 0) -> Claim:
    """Draw claim `number` of a cohort, and take it the whole path.

    Parameters
    ----------
    cohort : a folder, a cohort.toml or a built-in name
    root : where its files lie, when not beside it; "" for beside
    number : of the claim
    seed : of the draws

    Raises
    ------
    InputError
        If the cohort has no variable or no survival endpoint to draw from.
    """
    from validation.drafting.draft import draft
    from validation.drafting.freezing import freeze
    from validation.ledger.ledger import Ledger
    from validation.run.runner import run

    whole = opened(cohort, root)
    dictionary = whole.dictionary()
    variables = [
        item for item in dictionary.variables
        if item.kind in ("continuous", "binary", "ordinal") and item.n >= FEWEST
        and not item.key.endswith("_months")
    ]  # fmt: skip
    endpoints = [item for item in dictionary.endpoints if item.kind in ("survival", "binary")]
    if not variables or not endpoints:
        raise InputError(f"{cohort}: has no variable or no endpoint to draw a claim from")
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
        statement=f"{variable.label} tells {endpoint.label}.",
        population=Population(description="all patients"),
        exposures=(exposure,),
        comparison=Comparison.PER_SD if cut else Comparison.EXPOSED_VS_REST,
        endpoint=endpoint.key,
        direction=Direction.HIGHER_RISK if rng.random() < 0.5 else Direction.LOWER_RISK,
    )
    dealt = Dealt(whole.spec, whole.root, cache=whole.cache)
    dealt.dealt, dealt.deal = variable.key, own
    told = {"cohort": whole.id, "number": number, "variable": variable.key,
            "endpoint": endpoint.key}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        try:
            frozen = freeze(draft(claim, dealt.dictionary(), seed=own % 2**31), dealt)
            found = run(
                frozen, dealt, place / "out", ledger=Ledger(place / "ledger.jsonl"),
                figures=False, reproduce=False,
            )  # fmt: skip
        except InputError as error:
            return Claim(verdict="refused", because=str(error)[:300], **told)
    primary = next(test for test in found.tests if test.role == "primary")
    return Claim(
        verdict=found.verdict.verdict,
        because=found.verdict.because,
        naive=primary.p is not None and primary.p < 0.05,
        **told,
    )


def summarize(claims: Sequence[Claim]) -> list[Outcome]:
    """Per cohort and in all; a refused claim counts as one that was not supported."""
    out = []
    for name in [*dict.fromkeys(claim.cohort for claim in claims), "all"]:
        mine = [claim for claim in claims if name in ("all", claim.cohort)]
        found: Rate = rate(name, (claim.verdict == "supported" for claim in mine))
        out.append(
            Outcome(
                cohort=name,
                claims=len(mine),
                refused=sum(claim.verdict == "refused" for claim in mine),
                supported=found.hits,
                rate=found.rate,
                lower=found.lower,
                upper=found.upper,
                naive=float(np.mean([claim.naive for claim in mine])),
            )
        )
    return out
