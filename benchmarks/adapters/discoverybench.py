"""DiscoveryBench: published hypotheses on published tables, tested as contracts and permuted.

A table becomes a cohort of rows with a continuous, binary or survival outcome. A gold
hypothesis becomes claims (`discoverybench_gold.jsonl`), with the columns in its workflow
and the sign in its wording. Each goes through the steps of `sage validate` to measure
power, and again with the exposure's values permuted (POPPER's protocol) to measure the
Type I error. A claim takes one to twenty seconds.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import typer
from pydantic import Field

from benchmarks.adapters.calibration import PURPOSE, Permuted
from benchmarks.runner import Rate, Report, Row, cpu_seconds, load_lines, rate, run_missing
from sage.core.errors import InputError
from sage.core.hashes import hash_text
from sage.core.models import Strict
from sage.core.seeds import generator
from validation.cohort.model import CohortSpec
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Direction,
    Exposure,
    Hypothesis,
    Population,
)

Relation = Literal["positive", "negative", "none"]
OUTCOME = "outcome"
GOLD = Path(__file__).parents[1] / "discoverybench_gold.jsonl"
LEVELS = 12
"""Maximum number of distinct values of a categorical variable."""
TIMES = re.compile(r"time|duration|follow.?up", re.I)


class Gold(Strict):
    """A gold hypothesis as claims (rows, exposures, covariates, outcome, sign), or the refusal."""

    task: str
    where: dict[str, str] = Field(default_factory=dict)
    exposures: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    outcome: str = ""
    relation: Relation = "none"
    unread: str = ""


class Task(Strict):
    """A gold hypothesis with its tables."""

    gold: Gold
    text: str
    tables: tuple[str, ...]


class Tried(Strict):
    """A tested claim and its verdict; `permutation` is 0 for the original table.

    `naive` is true if the primary p alone was below 0.05; `associated` is true if the answer
    to the verdict's first question was yes.
    """

    task: str
    exposure: str
    relation: Relation
    permutation: int
    verdict: str
    because: str = ""
    naive: bool = False
    associated: bool = False


def load_tasks(folder: Path, gold: Path = GOLD) -> list[Task]:
    """Load the tasks in a folder (`DATASET/metadata_N.json`) whose claims are defined in `gold`.

    Raises
    ------
    InputError
        If a task is missing, or its file has another format.
    """
    tasks = []
    for each in load_lines(gold, Gold, given=True):
        name, _, number = each.task.partition("/")
        path = folder / name / f"metadata_{number}.json"
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            text = " ".join(item["text"] for item in held["hypotheses"]["main"])
            tables = tuple(str(path.parent / Path(t["name"]).name) for t in held["datasets"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: not a discoverybench/real task ({error!r})") from None
        tasks.append(Task(gold=each, text=text, tables=tables))
    return tasks


@lru_cache(maxsize=4)
def load_table(paths: tuple[str, ...]) -> pd.DataFrame:
    """Load a task's tables, joined on their common columns."""
    parts = []
    for path in map(Path, paths):
        try:
            parts.append(pd.read_stata(path) if path.suffix == ".dta" else pd.read_csv(path))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: could not be read as a table ({error})") from None
    shared = [name for name in parts[0] if all(name in part for part in parts)]
    out = parts[0]
    for part in parts[1:]:
        if not shared or part.duplicated(shared).any():
            raise InputError(f"{paths[0]}: its tables have no common key to join on")
        out = out.merge(part, on=shared, how="inner")
    return out.replace([np.inf, -np.inf], np.nan)


def _key(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.+-]", "_", name)
    return plain if plain == name else f"{plain}.{hash_text(name)[:8]}"


def build_cohort(table: pd.DataFrame, outcome: str, use: Sequence[str], place: Path) -> Permuted:
    """Write a table's rows to a folder and open them as a cohort."""
    rows = table.drop(columns="row_of_table", errors="ignore").reset_index(drop=True)
    rows.insert(0, "row_of_table", [f"r{n}" for n in range(len(rows))])
    rows.to_csv(place / "rows.csv", index=False)
    return Permuted(build_spec(rows, outcome, use), place)


def build_claim(
    name: str, values: pd.Series, others: Sequence[str], lower: bool, statement: str = ""
) -> Hypothesis:
    """Build the claim that an exposure is associated with the outcome, with adjustment."""
    slope = classify(values) == "continuous"
    key = f"clinical:{_key(str(values.name))}"
    cut = {"cut": CutRule.CONTINUOUS} if slope else {}
    return Hypothesis(
        id=name,
        statement=statement or f"{values.name} goes with the outcome.",
        population=Population(description="all rows"),
        exposures=(Exposure(variable=key, label=str(values.name), **cut),),
        comparison=Comparison.PER_SD if slope else Comparison.EXPOSED_VS_REST,
        endpoint=OUTCOME,
        direction=Direction.LOWER_RISK if lower else Direction.HIGHER_RISK,
        covariates=tuple(f"clinical:{_key(other)}" for other in others),
        unadjusted_because="" if others else "no other column belongs to the claim",
    )


def build_spec(table: pd.DataFrame, outcome: str, use: Sequence[str]) -> CohortSpec:
    """Build a cohort from a table's rows, with a continuous, binary or survival outcome.

    An outcome coded 0 and 1 together with a time column ("time", "duration", "follow-up" in
    its name, none negative) is a survival outcome, in months since no unit is stated.

    Raises
    ------
    InputError
        If the outcome is not numeric.
    """
    values = table[outcome].dropna()
    levels = sorted(values.unique().tolist())
    if not pd.api.types.is_numeric_dtype(values) or len(levels) < 2:
        raise InputError(f"{outcome}: the outcome must be numeric or binary")
    endpoint: dict[str, Any] = {"kind": "continuous", "table": "rows", "column": outcome}
    if len(levels) == 2:
        low, high = levels
        endpoint = {"kind": "binary", "table": "rows", "column": outcome,
                    "positive_values": (high,), "negative_values": (low,)}  # fmt: skip
        times = [
            name for name in table
            if TIMES.search(str(name)) and name not in use
            and pd.api.types.is_numeric_dtype(table[name])
            and table[name].min() >= 0 and table[name].nunique() > LEVELS
        ]  # fmt: skip
        if len(times) == 1:
            endpoint = {"kind": "survival", "table": "rows", "time": times[0], "event": outcome,
                        "time_unit": "months", "max_months": float(table[times[0]].max()),
                        "event_values": (high,), "censored_values": (low,)}  # fmt: skip
    variables = {
        _key(name): {"table": "rows", "column": name, "kind": classify(table[name]), "label": name}
        for name in use
    }
    return CohortSpec.model_validate(
        {
            "id": "table",
            "title": "Rows of a table",
            "known_at": "baseline",
            "patient": {"table": "rows"},
            "tables": {"rows": {"file": "rows.csv", "key": "row_of_table"}},
            "variables": variables,
            "endpoints": {OUTCOME: endpoint},
        }
    )


def classify(values: pd.Series) -> str:
    """Classify a column as binary, continuous or categorical."""
    known = values.dropna()
    if known.nunique() == 2:
        return "binary"
    if pd.api.types.is_numeric_dtype(known):
        return "continuous"
    if known.nunique() > LEVELS:
        raise InputError(f"{values.name}: categorical columns are limited to {LEVELS} categories")
    return "categorical"


def try_claim(task: Task, exposure: str, permutation: int, seed: int = 0) -> Tried:
    """Validate a claim from a gold hypothesis on the original or permuted table."""
    from validation.drafting.draft import draft
    from validation.drafting.freezing import freeze
    from validation.ledger.ledger import Ledger
    from validation.run.runner import run

    gold = task.gold
    about: dict[str, Any] = {"task": gold.task, "exposure": exposure, "relation": gold.relation,
                            "permutation": permutation}  # fmt: skip
    own = int(hash_text(f"{seed}/{gold.task}/{exposure}/{permutation}")[:8], 16) % 2**31
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        try:
            table = load_table(task.tables)
            for name, value in gold.where.items():
                table = table[table[name].astype(str).str.removesuffix(".0") == value]
            others = [name for name in (*gold.exposures, *gold.beside) if name != exposure]
            cohort = build_cohort(table, gold.outcome, [exposure, *others], place)
            if permutation:
                cohort.permuted = f"clinical:{_key(exposure)}"
                cohort.permutation = int(generator(own, PURPOSE).integers(2**31))
            claim = build_claim("claim", table[exposure], others, gold.relation == "negative",
                                task.text[:300])  # fmt: skip
            frozen = freeze(draft(claim, cohort.dictionary(), seed=own), cohort)
            found = run(frozen, cohort, place / "out", ledger=Ledger(place / "ledger.jsonl"),
                        figures=False, reproduce=False)  # fmt: skip
        except InputError as error:
            return Tried(verdict="refused", because=str(error)[:300], **about)
    primary = next(test for test in found.tests if test.role == "primary")
    reasons = [reason.text for reason in found.verdict.reasons if reason.outcome != "for"]
    return Tried(
        verdict=found.verdict.verdict,
        because="; ".join(reasons)[:300],
        naive=primary.p is not None and primary.p < 0.05,
        associated=any(
            answer.question == "association" and answer.answer == "yes"
            for answer in found.verdict.answers
        ),
        **about,
    )


def summarize(tried: Sequence[Tried], golds: Sequence[Gold]) -> Report:
    """Compute power over claims of an effect, and the false-claim rate over permuted columns."""
    original = [item for item in tried if not item.permutation]
    permuted = [item for item in tried if item.permutation]
    effects = [item for item in original if item.relation != "none"]
    none = [item for item in original if item.relation == "none"]

    def supported(items: Sequence[Tried]) -> Rate:
        return rate("supported", [item.verdict == "supported" for item in items])

    def associated(items: Sequence[Tried]) -> Rate:
        return rate("associated", [item.associated for item in items])

    read = sum(not gold.unread for gold in golds)
    power, type_one = supported(effects), supported(permuted)
    naive = rate("naive", [item.naive for item in permuted])
    kept = len(none) - supported(none).hits
    rows = (
        Row(
            benchmark="DiscoveryBench, real/train: gold as contracts",
            measured=f"{power.runs} claims of an effect in {read} of {len(golds)} tasks; supported",
            sage=str(power),
            cost=cpu_seconds(),
            notes=(
                f"association alone is found in {associated(effects)}; of claims of no effect"
                f" {kept} of {len(none)} were not supported; {len(golds) - read} tasks could not"
                " be read.",
            ),
        ),
        Row(
            benchmark="DiscoveryBench, real/train: permuted columns",
            measured=f"{type_one.runs} claims; falsely supported",
            baseline=f"{naive} (p below 0.05 alone)",
            sage=str(type_one),
            notes=(f"associated, regardless of the other questions: {associated(permuted)}.",),
        ),
    )
    return Report(command="discoverybench FOLDER --permutations 20 --json", rows=rows,
                  data=[item.model_dump() for item in tried])  # fmt: skip


def _try_key(folder: Path, key: tuple[str, str, int, int]) -> Tried:
    name, exposure, permutation, seed = key
    task = next(task for task in load_tasks(folder) if task.gold.task == name)
    return try_claim(task, exposure, permutation, seed)


def run(
    folder: Annotated[Path, typer.Argument(help="DiscoveryBench's real/train.")],
    permutations: Annotated[int, typer.Option(min=0, help="Permutations per claim.")] = 1,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Results so far, to resume.")] = None,
) -> Report:
    """Validate gold hypotheses, original and permuted."""
    golds = [task.gold for task in load_tasks(folder)]
    keys = [
        (gold.task, exposure, permutation, seed)
        for permutation in range(permutations + 1)
        for gold in golds for exposure in gold.exposures
    ]  # fmt: skip
    tried = run_missing(
        partial(_try_key, folder), keys, Tried,
        lambda item: (item.task, item.exposure, item.permutation, seed),
        keep=keep, jobs=jobs, title="claims",
    )  # fmt: skip
    return summarize(tried, golds)
