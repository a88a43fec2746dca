"""DiscoveryBench: published hypotheses on published tables, as contracts, and found from questions.

A table becomes a cohort whose rows are its units and whose outcome is continuous, yes or no, or a
time with an event. A gold hypothesis becomes claims: the columns are those that its workflow names,
the sign is that of its words. Each claim goes the usual path (contract, freezing, tests, controls,
verdict): power. The same with the exposure's values dealt anew (POPPER's protocol): Type I error.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from benchmarks.adapters.null_statistics import Rate, rate
from benchmarks.adapters.permuted import PURPOSE, Dealt
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
from validation.statistics.multiplicity import bh

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
"""A column of words with more values than this is no variable."""
NULL = re.compile(r"\bno (significant )?(association|effect|relation\w*)|not significant", re.I)
SIGNS: tuple[tuple[str, Relation], ...] = (
    (r"-\d", "negative"),
    (r"\bnegative", "negative"),
    (r"\bpositive|\bpostive", "positive"),
    (r"\b(decreas|reduc|lower|less|fewer)", "negative"),
    (r"\b(increas|higher|more|greater)", "positive"),
)
"""How a hypothesis says its sign; the first that fits counts, figures before words."""
TIMES = re.compile(r"time|duration|follow.?up", re.I)
SURVIVAL = re.compile(r"\b(cox|hazards?|surviv\w*|kaplan)\b", re.I)
MEN = {"male": ("male", "men", "man", "males"), "female": ("female", "women", "woman", "females")}


def words_of(text: str) -> set[str]:
    """Stems of the content words of a text."""
    found = re.findall(r"[a-z]+", text.replace("_", " ").lower())
    return {word[:8].rstrip("s") for word in found} - {w[:8].rstrip("s") for w in SMALL_WORDS}


def overlap(columns: Mapping[str, str], name: str, text: str) -> float:
    """Share of a column's own words that a text contains; rare words weigh more."""
    all_words = {column: words_of(f"{column} {said}") for column, said in columns.items()}
    weight = {
        word: math.log(1 + len(all_words) / sum(word in held for held in all_words.values()))
        for word in all_words[name]
    }
    said = words_of(text)
    whole = math.fsum(weight.values())  # exact, so that ties do not hang on the order of a set
    return math.fsum(w for word, w in weight.items() if word in said) / whole if whole else 0.0


class Task(Strict):
    """One gold hypothesis with its questions, its table, and what the columns mean."""

    name: str
    text: str
    workflow: str
    tables: tuple[str, ...]
    columns: dict[str, str]
    questions: tuple[str, ...]


class Gold(Strict):
    """What a task claims: rows, exposures with their signs, outcome; or why it was not read."""

    task: str
    where: dict[str, str] = Field(default_factory=dict)
    exposures: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    outcome: str = ""
    relation: Relation = "none"
    unread: str = ""


class Tried(Strict):
    """One claim and its verdict; `dealt` is the number of the deal, 0 for the table as it is.

    `naive` is whether the primary p alone was below 0.05, `associated` whether the verdict's first
    question was answered by yes, whatever was then said of independence and relevance.
    """

    task: str
    exposure: str
    relation: Relation
    dealt: int
    verdict: str
    because: str = ""
    naive: bool = False
    associated: bool = False


class Generated(Strict):
    """A hypothesis found for a question, and its score: context x variables x relation."""

    task: str
    question: str
    statement: str
    context: float
    variables: float
    relation: float
    score: float


class Scores(Strict):
    """Power over claims of an effect, and false claims over those whose values were dealt anew.

    Beside each stands what the association alone would make of them.
    """

    power: Rate
    associated: Rate
    null_kept: Rate
    type_one: Rate
    dealt_associated: Rate
    naive: Rate


def read_tasks(folder: Path) -> list[Task]:
    """Every metadata_N.json below a folder.

    Raises
    ------
    InputError
        If there is none, or one is not as published.
    """
    paths = sorted(folder.rglob("metadata_*.json"))
    if not paths:
        raise InputError(f"{folder}: no metadata_N.json below it; give discoverybench/real/train")
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
                    questions=tuple(q["question"] for group in held["queries"] for q in group),
                )
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: not as DiscoveryBench has it ({error!r})") from None
    return tasks


@lru_cache(maxsize=4)
def read_table(paths: tuple[str, ...]) -> pd.DataFrame:
    """A task's tables, joined by the columns that all of them have."""
    parts = []
    for path in map(Path, paths):
        try:
            parts.append(pd.read_stata(path) if path.suffix == ".dta" else pd.read_csv(path))
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: is no table ({error})") from None
    shared = [name for name in parts[0] if all(name in part for part in parts)]
    out = parts[0]
    for part in parts[1:]:
        if not shared or part.duplicated(shared).any():
            raise InputError(f"{paths[0]}: its tables have no common key to be joined by")
        out = out.merge(part, on=shared, how="inner")
    return out.replace([np.inf, -np.inf], np.nan)


def read_gold(task: Task) -> Gold:
    """What a gold hypothesis claims, of the columns that its workflow names and its tables have.

    The times of a survival analysis belong to the outcome.
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
        table = read_table(task.tables)
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


def cohort_spec(table: pd.DataFrame, outcome: str, use: Sequence[str]) -> CohortSpec:
    """A cohort of a table's rows: its outcome continuous, yes or no, or a time with an event.

    An outcome of zeros and ones beside a column of times ("time", "duration", "follow-up" in its
    name, none negative) is an event in time. A table does not say in which unit: they count as
    months.

    Parameters
    ----------
    table : rows of units
    outcome : a column
    use : the columns that become variables

    Raises
    ------
    InputError
        If the outcome is no number.
    """
    values = table[outcome].dropna()
    levels = sorted(values.unique().tolist())
    if not pd.api.types.is_numeric_dtype(values) or len(levels) < 2:
        raise InputError(f"{outcome}: an outcome is a number, or yes or no")
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
        _key(name): {"table": "rows", "column": name, "kind": kind_of(table[name]), "label": name}
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


def kind_of(values: pd.Series) -> str:
    """What a column is: binary, continuous or categorical."""
    known = values.dropna()
    if known.nunique() == 2:
        return "binary"
    if pd.api.types.is_numeric_dtype(known):
        return "continuous"
    if known.nunique() > LEVELS:
        raise InputError(f"{values.name}: words of more than {LEVELS} kinds are no variable")
    return "categorical"


def try_claim(task: Task, gold: Gold, exposure: str, deal: int, seed: int = 0) -> Tried:
    """One claim of a gold hypothesis along the usual path, as it is or dealt anew.

    Parameters
    ----------
    task : whose table is read
    gold : what it claims
    exposure : one of its exposures; its others and what it is beside are adjusted for
    deal : number of the deal of the exposure's values among the rows; 0 leaves them
    seed : of deals and tests
    """
    from validation.drafting.draft import draft
    from validation.drafting.freezing import freeze
    from validation.ledger.ledger import Ledger
    from validation.run.runner import run

    told: dict[str, Any] = {"task": task.name, "exposure": exposure, "relation": gold.relation,
                            "dealt": deal}  # fmt: skip
    own = int(hash_text(f"{seed}/{task.name}/{exposure}/{deal}")[:8], 16) % 2**31
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        try:
            table = read_table(task.tables)
            for name, value in gold.where.items():
                table = table[table[name].astype(str).str.removesuffix(".0") == value]
            others = [name for name in (*gold.exposures, *gold.beside) if name != exposure]
            rows = table.drop(columns="row_of_table", errors="ignore").reset_index(drop=True)
            rows.insert(0, "row_of_table", [f"r{n}" for n in range(len(rows))])
            rows.to_csv(place / "rows.csv", index=False)
            cohort = Dealt(cohort_spec(rows, gold.outcome, [exposure, *others]), place)
            slope = kind_of(rows[exposure]) == "continuous"
            if deal:
                cohort.dealt = f"clinical:{_key(exposure)}"
                cohort.deal = int(generator(own, PURPOSE).integers(2**31))
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
            return Tried(verdict="refused", because=str(error)[:300], **told)
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
        **told,
    )


def score_claims(tried: Sequence[Tried]) -> Scores:
    """Power over claims of an effect, "no effect" left unsupported, and false claims among deals.

    A claim that was refused is not supported.
    """
    asis = [item for item in tried if not item.dealt]
    dealt = [item for item in tried if item.dealt]

    def supported(items: Sequence[Tried]) -> list[bool | None]:
        return [item.verdict == "supported" for item in items]

    return Scores(
        power=rate("power", supported([t for t in asis if t.relation != "none"])),
        associated=rate("associated", [t.associated for t in asis if t.relation != "none"]),
        null_kept=rate("no effect, not supported", [
            t.verdict != "supported" for t in asis if t.relation == "none"
        ]),
        type_one=rate("Type I", supported(dealt)),
        dealt_associated=rate("dealt anew, associated", [item.associated for item in dealt]),
        naive=rate("p below 0.05 alone", [item.naive for item in dealt]),
    )  # fmt: skip


def generate(task: Task, question: str) -> tuple[dict[str, str], tuple[str, ...], Relation]:
    """A hypothesis for a question, from the columns' descriptions and the table's rows alone.

    The column that the question says most of is the outcome, the next the exposure; where it says
    only one, the exposure is the most strongly related of all. Groups that are named are the
    context. The relation is the sign of the rank correlation, "none" where p > 0.05 (adjusted for
    the columns tried).

    Returns
    -------
    The context as column and value, the exposure with the outcome, and the relation. No variables
    where fewer than two columns hold numbers.
    """
    from scipy.stats import spearmanr

    table = read_table(task.tables)
    said = words_of(question)
    where: dict[str, str] = {}
    for name in map(str, table):
        values = set(table[name].dropna().astype(str).str.lower().unique()[: LEVELS + 1])
        if values == set(MEN):
            for value, words in MEN.items():
                if re.search(rf"\b({'|'.join(words)})\b", question, re.I):
                    where[name] = value.upper()
        elif values <= {"0", "1", "0.0", "1.0"} and words_of(name) <= said and len(name) > 3:
            where[name] = "1"
    rows = table
    for name, value in where.items():
        rows = rows[rows[name].astype(str).str.removesuffix(".0") == value]
    columns = [
        name for name in map(str, table)
        if name in task.columns and name not in where
        and pd.api.types.is_numeric_dtype(rows[name]) and rows[name].nunique() > 1
    ]  # fmt: skip
    if len(columns) < 2:
        return where, (), "none"
    order = sorted(columns, key=lambda name: -overlap(task.columns, name, question))
    outcome, others = order[0], order[1:]
    linked = [name for name in others if overlap(task.columns, name, question) >= 0.25]
    asked = linked[:1] or others
    found = [spearmanr(rows[name], rows[outcome], nan_policy="omit") for name in asked]
    p = bh([float(test.pvalue) if test.pvalue == test.pvalue else 1.0 for test in found])
    strongest = int(np.argmax([abs(float(test.statistic)) for test in found]))
    sign: Relation = "positive" if found[strongest].statistic > 0 else "negative"
    relation: Relation = sign if p[strongest] <= 0.05 else "none"
    return where, (asked[strongest], outcome), relation


def score_generated(task: Task, gold: Gold, question: str) -> Generated:
    """The rubric's structure: context (0 or 1) x F1 of variables x relation (1, 0.5 or 0).

    The published rubric asks a language model whether two texts agree; here columns are compared,
    so the figures are no hypothesis match scores of others. Half a point is for an association
    that is there with the other sign.
    """
    where, variables, relation = generate(task, question)
    told = "".join(f" where {name} is {value}" for name, value in where.items())
    return Generated(
        task=task.name,
        question=question,
        statement=f"{' and '.join(variables)}: {relation}{told}",
        **_rubric(gold, where, variables, relation),
    )


def chance(task: Task, gold: Gold, draws: int = 200, seed: int = 0) -> float:
    """The mean score of two columns drawn at random, "positive", in all rows.

    Parameters
    ----------
    task : whose columns are drawn
    gold : what is scored against
    draws : how many pairs
    seed : of the draws
    """
    columns = sorted(task.columns)
    rng = generator(seed, PURPOSE, len(columns))
    pairs = [rng.choice(len(columns), 2, replace=False) for _ in range(draws)]
    scores = [
        _rubric(gold, {}, tuple(columns[i] for i in pair), "positive")["score"] for pair in pairs
    ]
    return float(np.mean(scores))


def _rubric(
    gold: Gold, where: dict[str, str], variables: tuple[str, ...], relation: Relation
) -> dict[str, float]:
    wanted = {*gold.exposures, gold.outcome}
    shared = len(wanted & set(variables))
    f1 = 2 * shared / (len(wanted) + len(variables))
    context = float({k: v.upper() for k, v in gold.where.items()} == where)
    same = 1.0 if relation == gold.relation else 0.0
    related = same or (0.5 if "none" not in (relation, gold.relation) else 0.0)
    return {
        "context": context,
        "variables": f1,
        "relation": related,
        "score": context * f1 * related,
    }
