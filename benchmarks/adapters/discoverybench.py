"""DiscoveryBench: published hypotheses on published tables, as contracts and with permutation.

A table becomes a cohort of rows with a continuous, binary or survival outcome. A gold hypothesis
becomes claims, with the columns named by its workflow and the sign given by its wording. Each claim
goes through the steps of `sage validate` to measure power, and again with the exposure's values
permuted (POPPER's protocol) to measure the Type I error. A claim takes one to twenty seconds.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import typer
from pydantic import Field

from benchmarks.adapters.calibration import PURPOSE, Permuted
from benchmarks.runner import Rate, Report, Row, cpu_seconds, rate, run_missing
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
SMALL_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by for from has have how if in into is it its of on or over per that"
        " the their this to variable variables was what which whether who with equals otherwise"
        " respondent represents rate rates used data dataset did does do",
    )
)
LEVELS = 12
"""Maximum number of distinct values of a categorical variable."""
NULL = re.compile(r"\bno (significant )?(association|effect|relation\w*)|not significant", re.I)
SIGNS: tuple[tuple[str, Relation], ...] = (
    (r"-\d", "negative"),
    (r"\bnegative", "negative"),
    (r"\bpositive|\bpostive", "positive"),
    (r"\b(decreas|reduc|lower|less|fewer)", "negative"),
    (r"\b(increas|higher|more|greater)", "positive"),
)
"""Patterns for the sign of a hypothesis; the first match counts, numbers before words."""
TIMES = re.compile(r"time|duration|follow.?up", re.I)
SURVIVAL = re.compile(r"\b(cox|hazards?|surviv\w*|kaplan)\b", re.I)


def words_of(text: str) -> set[str]:
    """Return the stems of the content words of a text."""
    found = re.findall(r"[a-z]+", text.replace("_", " ").lower())
    return {word[:8].rstrip("s") for word in found} - {w[:8].rstrip("s") for w in SMALL_WORDS}


def overlap(columns: Mapping[str, str], name: str, text: str) -> float:
    """Compute the share of a column's own words found in a text; rare words weigh more."""
    all_words = {column: words_of(f"{column} {said}") for column, said in columns.items()}
    weight = {
        word: math.log(1 + len(all_words) / sum(word in held for held in all_words.values()))
        for word in all_words[name]
    }
    said = words_of(text)
    whole = math.fsum(weight.values())  # exact, so that ties do not depend on the order of a set
    return math.fsum(w for word, w in weight.items() if word in said) / whole if whole else 0.0


class Task(Strict):
    """A gold hypothesis with its tables and the descriptions of their columns."""

    name: str
    text: str
    workflow: str
    tables: tuple[str, ...]
    columns: dict[str, str]


class Gold(Strict):
    """A parsed claim: rows, exposures, outcome and sign; or why it was not parsed."""

    task: str
    where: dict[str, str] = Field(default_factory=dict)
    exposures: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    outcome: str = ""
    relation: Relation = "none"
    unread: str = ""


class Tried(Strict):
    """A claim and its verdict; `permutation` is 0 for the original table.

    `naive` is true if the primary p alone was below 0.05, `associated` if the verdict's first
    question was answered with yes.
    """

    task: str
    exposure: str
    relation: Relation
    permutation: int
    verdict: str
    because: str = ""
    naive: bool = False
    associated: bool = False


def load_tasks(folder: Path) -> list[Task]:
    """Load every metadata_N.json below a folder.

    Raises
    ------
    InputError
        If there is no such file, or a file has another format.
    """
    paths = sorted(folder.rglob("metadata_*.json"))
    if not paths:
        raise InputError(f"{folder}: no metadata_N.json found; give discoverybench/real/train")
    tasks = []
    for path in paths:
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            tasks.append(
                Task(
                    name=f"{path.parent.name}/{path.stem.removeprefix('metadata_')}",
                    text=" ".join(item["text"] for item in held["hypotheses"]["main"]),
                    workflow=str(held["workflow"]),
                    tables=tuple(str(path.parent / Path(t["name"]).name) for t in held["datasets"]),
                    columns={
                        column["name"]: column["description"]
                        for table in held["datasets"]
                        for column in table["columns"]["raw"]
                    },
                )
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: unexpected format ({error!r})") from None
    return tasks


@lru_cache(maxsize=4)
def load_table(paths: tuple[str, ...]) -> pd.DataFrame:
    """Load a task's tables, joined on their common columns."""
    parts = []
    for path in map(Path, paths):
        try:
            parts.append(pd.read_stata(path) if path.suffix == ".dta" else pd.read_csv(path))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: not a table ({error})") from None
    shared = [name for name in parts[0] if all(name in part for part in parts)]
    out = parts[0]
    for part in parts[1:]:
        if not shared or part.duplicated(shared).any():
            raise InputError(f"{paths[0]}: its tables have no common key to be joined by")
        out = out.merge(part, on=shared, how="inner")
    return out.replace([np.inf, -np.inf], np.nan)


def parse_gold(task: Task) -> Gold:
    """Parse a gold hypothesis from those columns of its workflow that exist in its tables.

    The times of a survival analysis are part of the outcome.
    """
    names = sorted(task.columns, key=len, reverse=True)
    any_name = "|".join(map(re.escape, names))
    named = dict.fromkeys(re.findall(rf"(?<!\w)({any_name})(?!\w)", task.workflow))
    outcome = re.search(
        rf"['\"]?({any_name})['\"]? as (?:the )?dependent|\bdependent variable:? ?\(?['\"]?"
        rf"({any_name})(?!\w)",
        task.workflow,
    )
    if not outcome:
        return Gold(task=task.name, unread="its workflow names no column as the outcome")
    target = outcome.group(1) or outcome.group(2)
    conditions = re.findall(rf"(?<!\w)({any_name})=[\"']?(\w+)", task.workflow)
    where = dict(conditions)
    if len(set(conditions)) > len(where):
        return Gold(task=task.name, unread="it compares groups, by a regression in each")
    in_time = SURVIVAL.search(task.workflow)
    free = [
        name for name in named
        if name != target and name not in where and not (in_time and TIMES.search(name))
    ]  # fmt: skip
    about = {name: overlap(task.columns, name, task.text) for name in free}
    best = max(about.values(), default=0.0)
    if not best:
        return Gold(task=task.name, unread="none of its exposures is a column")
    exposures = tuple(name for name in free if about[name] >= 0.7 * best)
    try:
        table = load_table(task.tables)
    except InputError as error:
        return Gold(task=task.name, unread=str(error))
    if gone := [name for name in (target, *exposures, *where) if name not in table]:
        return Gold(task=task.name, unread=f"its tables have no column {gone[0]}")
    relation: Relation = "none"
    if not NULL.search(task.text):
        relation = next((sign for words, sign in SIGNS if re.search(words, task.text, re.I)),
                        "positive")  # fmt: skip
    return Gold(
        task=task.name,
        where=where,
        exposures=exposures,
        beside=tuple(name for name in free if name not in exposures and name in table),
        outcome=target,
        relation=relation,
    )


def _key(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.+-]", "_", name)
    return plain if plain == name else f"{plain}.{hash_text(name)[:8]}"


def build_spec(table: pd.DataFrame, outcome: str, use: Sequence[str]) -> CohortSpec:
    """Build a cohort from a table's rows, with a continuous, binary or survival outcome.

    An outcome of 0 and 1 together with a column of times ("time", "duration", "follow-up" in its
    name, none negative) is a survival outcome, in months since no unit is stated.

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
        raise InputError(f"{values.name}: more than {LEVELS} categories")
    return "categorical"


def try_claim(task: Task, gold: Gold, exposure: str, permutation: int, seed: int = 0) -> Tried:
    """Validate a claim of a gold hypothesis on the original or permuted table."""
    from validation.drafting.draft import draft
    from validation.drafting.freezing import freeze
    from validation.ledger.ledger import Ledger
    from validation.run.runner import run

    about: dict[str, Any] = {"task": task.name, "exposure": exposure, "relation": gold.relation,
                            "permutation": permutation}  # fmt: skip
    own = int(hash_text(f"{seed}/{task.name}/{exposure}/{permutation}")[:8], 16) % 2**31
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        try:
            table = load_table(task.tables)
            for name, value in gold.where.items():
                table = table[table[name].astype(str).str.removesuffix(".0") == value]
            others = [name for name in (*gold.exposures, *gold.beside) if name != exposure]
            rows = table.drop(columns="row_of_table", errors="ignore").reset_index(drop=True)
            rows.insert(0, "row_of_table", [f"r{n}" for n in range(len(rows))])
            rows.to_csv(place / "rows.csv", index=False)
            cohort = Permuted(build_spec(rows, gold.outcome, [exposure, *others]), place)
            slope = classify(rows[exposure]) == "continuous"
            if permutation:
                cohort.permuted = f"clinical:{_key(exposure)}"
                cohort.permutation = int(generator(own, PURPOSE).integers(2**31))
            claim = Hypothesis(
                id="claim",
                statement=task.text[:300],
                population=Population(description="all rows"),
                exposures=(
                    Exposure(variable=f"clinical:{_key(exposure)}", label=exposure,
                             **({"cut": CutRule.CONTINUOUS} if slope else {})),
                ),
                comparison=Comparison.PER_SD if slope else Comparison.EXPOSED_VS_REST,
                endpoint=OUTCOME,
                direction=Direction.LOWER_RISK
                if gold.relation == "negative"
                else Direction.HIGHER_RISK,
                covariates=tuple(f"clinical:{_key(name)}" for name in others),
                unadjusted_because="" if others else "the published analysis adjusts for nothing",
            )  # fmt: skip
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
    """Compute power over claims of an effect, and false claims over permuted columns."""
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
    task = next(task for task in load_tasks(folder) if task.name == name)
    return try_claim(task, parse_gold(task), exposure, permutation, seed)


def run(
    folder: Annotated[Path, typer.Argument(help="DiscoveryBench's real/train.")],
    permutations: Annotated[int, typer.Option(min=0, help="Permutations per claim.")] = 1,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Results so far, to resume.")] = None,
) -> Report:
    """Validate gold hypotheses, original and permuted."""
    golds = {task.name: parse_gold(task) for task in load_tasks(folder)}
    if all(gold.unread for gold in golds.values()):
        raise InputError(f"{folder}: no task can be read; {next(iter(golds.values())).unread}")
    keys = [
        (name, exposure, permutation, seed)
        for permutation in range(permutations + 1)
        for name, gold in golds.items() for exposure in gold.exposures
    ]  # fmt: skip
    tried = run_missing(
        partial(_try_key, folder), keys, Tried,
        lambda item: (item.task, item.exposure, item.permutation, seed),
        keep=keep, jobs=jobs, title="claims",
    )  # fmt: skip
    return summarize(tried, list(golds.values()))
