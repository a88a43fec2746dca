"""Pairs of sound and flawed analyses, and agents that search until a result is significant.

Every claim is registered and tested as in `sage validate run`, with one ledger per
analysis. The baseline accepts a plain adjusted Cox model (lifelines) with p below .05 as
claimed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import typer

from benchmarks.runner import Report, Row, cpu_seconds, run_missing, share
from benchmarks.simulate.pairs import PAIRS, Step, claim, draw_pair, follow, patients, write_step
from sage.core.models import Strict
from sage.core.seeds import generator

ALPHA = 0.05
MOST_DRAWS = 100
MOST_TRIES = 8
"""Maximum number of analyses that agents try on the same patients until one is significant."""


class Reported(Strict):
    """The claim that an analysis reports, with SAGE's verdict and that of the baseline.

    `verdict` is "refused" if SAGE does not test it, and "not shown" if nothing was
    significant and the rest was skipped; `asked` counts all claims in the analysis.
    """

    kind: str
    seed: int
    flawed: bool
    verdict: str
    because: str = ""
    reason: str = ""
    plain: bool
    asked: int = 1


def plain_p(step: Step, given: dict[str, Any]) -> float:
    """Compute the p-value from a plain adjusted Cox model; 1 in the direction not claimed."""
    import pandas as pd
    from lifelines import CoxPHFitter

    rows = step.table
    for item in given["population"].get("filters", ()):
        rows = rows[rows[item["variable"].partition(":")[2]] == item["value"]]
    exposure, columns = given["exposures"][0], step.endpoints[given["endpoint"]]
    x = rows[exposure["variable"].partition(":")[2]]
    if x.dtype == object:
        x = (x == "yes").astype(float)
    elif exposure["cut"] in ("median", "tertile", "fixed"):
        share = 2 / 3 if exposure["cut"] == "tertile" else 0.5
        x = (x > exposure.get("threshold", x.quantile(share))).astype(float)
    model = pd.DataFrame({"time": rows[columns[0]], "event": rows[columns[1]], "x": x})
    strata = [key.partition(":")[2] for key in given.get("strata", ())]
    for name in [*strata, *(key.partition(":")[2] for key in given["covariates"])]:
        values = rows[name]
        number = name not in strata and values.dtype != object
        model[name] = values if number else pd.factorize(values, sort=True)[0]
    entry = columns[2] if len(columns) > 2 else None
    if entry:
        model[entry] = rows[entry]
    model = model.dropna().astype(float)
    model = model.loc[:, model.nunique() > 1]
    fit = CoxPHFitter().fit(model, "time", "event", entry_col=entry,
                            strata=strata or None)  # fmt: skip
    claimed = (fit.params_["x"] > 0) == (given["direction"] == "higher_risk")
    return float(fit.summary.loc["x", "p"]) if claimed else 1.0


def report(kind: str, seed: int, flawed: bool, steps: Sequence[Step], place: Path) -> Reported:
    """Carry out an analysis, and report the best-looking claim from its last step."""
    from sage.api import Claim, test_claims
    from sage.core.errors import InputError
    from validation.cohort import load
    from validation.core.hypothesis import Hypothesis
    from validation.ledger.ledger import Ledger

    ps = [plain_p(steps[-1], given) for given in steps[-1].claims]
    best = steps[-1].claims[ps.index(min(ps))]
    asked = sum(len(step.claims) for step in steps)
    done = partial(Reported, kind=kind, seed=seed, flawed=flawed, plain=min(ps) < ALPHA,
                   asked=asked)  # fmt: skip
    with patch.dict(os.environ, {"SAGE_LEDGER": str(place / "ledger.sqlite")}):
        ledger = Ledger(place / "ledger.jsonl")
        for at, step in enumerate(steps):
            write_step(place / f"{at}", step)
            claims, results = [], []
            try:
                cohort = load(place / f"{at}")
                for given in step.claims:
                    one = Claim(Hypothesis.model_validate(given))
                    claims.append((one, one.freeze(cohort)))
                results = test_claims(claims, cohort, place / f"out-{at}", ledger, figures=False)
            except InputError as error:
                if at == len(steps) - 1:
                    return done(verdict="refused", reason=str(error))
    found = next(item for item in results if item.hypothesis == best["id"]).verdict
    against = [item for item in found.reasons if item.outcome in ("prevents", "against")]
    return done(verdict=found.verdict, because=found.because,
                reason=against[0].text if against else "")  # fmt: skip


def judge_pair(key: tuple[str, bool, int]) -> Reported:
    """Draw an analysis, repeatedly if flawed until the baseline accepts it, and carry it out."""
    kind, flawed, seed = key
    for attempt in range(MOST_DRAWS if flawed else 1):
        steps = draw_pair(kind, flawed, seed, attempt)
        if not flawed or min(plain_p(steps[-1], given) for given in steps[-1].claims) < ALPHA:
            break
    with tempfile.TemporaryDirectory() as place:
        return report(kind, seed, flawed, steps, Path(place))


def judge_agents(seed: int) -> Reported:
    """Let agents vary marker, cut-point, covariates, subgroup and endpoint until significance."""
    rng = generator(seed, 99)
    table = follow(patients(rng).assign(other=rng.normal(size=400).round(4)), 0.0, rng)
    table = follow(table, 0.0, rng, "recurrence_")
    ends = {"OS": ("time", "dead"), "REC": ("recurrence_time", "recurrence_dead")}
    held: tuple[list[str], ...] = (
        [],
        ["clinical:age"],
        ["clinical:age", "clinical:sex"],
        ["clinical:stage"],
    )
    steps: list[Step] = []
    while len(steps) < MOST_TRIES:
        sex = rng.choice(["", "", "f", "m"])
        filters = [{"variable": "clinical:sex", "op": "eq", "value": sex}] if sex else []
        given = claim(
            str(rng.choice(["marker", "other"])),
            cut=str(rng.choice(["median", "tertile", "continuous"])),
            endpoint=str(rng.choice(list(ends))),
            covariates=held[rng.integers(len(held))],
            population={"description": f"patients {sex}", "filters": filters},
        )
        given["id"] = f"try-{len(steps)}"
        steps.append(Step(table, (given,), endpoints=ends))
        if plain_p(steps[-1], given) == 1:  # the direction is taken from the data, too
            given["direction"] = "lower_risk"
        if plain_p(steps[-1], given) < ALPHA:
            with tempfile.TemporaryDirectory() as place:
                return report("agents", seed, True, steps, Path(place))
    return Reported(kind="agents", seed=seed, flawed=True, verdict="not shown", plain=False,
                    asked=len(steps))  # fmt: skip


def run(
    worlds: Annotated[int, typer.Option(min=0, help="Cohorts on which agents try.")] = 20,
    kind: Annotated[str | None, typer.Option(help="Only this kind of pair.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first draw.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Folder of results so far, to resume.")] = None,
) -> Report:
    """Judge pairs of analyses, and the claims that agents report after many attempts."""
    keys = [(name, flawed, seed) for name in PAIRS if kind in (None, name) for flawed in (1, 0)]
    pairs = run_missing(judge_pair, [(a, bool(b), c) for a, b, c in keys], Reported,
                        lambda item: (item.kind, item.flawed, item.seed), jobs=jobs, title="pairs",
                        keep=keep / "pairs.jsonl" if keep else None)  # fmt: skip
    tried = run_missing(judge_agents, range(seed, seed + worlds), Reported,
                        lambda item: item.seed, jobs=jobs, title="agents",
                        keep=keep / "agents.jsonl" if keep else None)  # fmt: skip
    rows = []
    for name, found in (("Flawed analyses", [item for item in pairs if item.flawed]),
                        ("Sound analyses", [item for item in pairs if not item.flawed]),
                        ("Best of many tries on null data", tried)):  # fmt: skip
        rows.append(Row(
            benchmark=name,
            measured=f"{len(found)} analyses, {sum(item.asked for item in found)} claims;"
            " supported",
            baseline=share(sum(item.plain for item in found), len(found)),
            sage=share(sum(item.verdict == "supported" for item in found), len(found)),
            cost=cpu_seconds(),
            notes=tuple(
                f"{item.kind} (seed {item.seed}): {item.verdict} {item.because}. {item.reason}"
                for item in found
                if item.flawed == (item.verdict == "supported")
            ),
        ))  # fmt: skip
    return Report(command=f"pairs --seed {seed} --json", rows=tuple(rows))
