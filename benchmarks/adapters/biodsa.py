"""BioDSA-1K: statements of papers, judged on the papers' own tables or called non-verifiable.

Two measures. The verdict, on studies whose tables are given: the statement goes SAGE's usual path
(question, hypothesis, frozen contract, verdict). Feasibility alone, on all rows: is a statement one
that such tables can decide? Rows carry the evidence that the papers report; it is empty exactly
where the label is non-verifiable, so nothing here reads it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd

from benchmarks.adapters.null_statistics import Rate, rate
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.seeds import generator
from validation.statistics.base import FloatArray
from validation.statistics.binary import area_under_curve

if TYPE_CHECKING:
    from sage.settings import Settings

Label = Literal["true", "false", "non-verifiable"]
Verdict = Literal["true", "false", "non-verifiable", "abstained"]
PURPOSE = 71
COLUMNS = ("sample_id", "PMID", "Title", "cBioPortal_ID", "hypothesis", "hypothesis_label")
DENIED = re.compile(r"\b(is|are|was|were|do|does|did|can) not\b", re.I)
"""A statement that denies is asked without its denial, and the answer turned around."""
BEYOND: dict[str, str] = {
    "possible": r"\b(can|may|might|could|potential(ly)?|candidates?|promising|feasib\w+)\b",
    "other data": r"\b(TCGA|other (solid )?(tumou?r|cancer)s?|previous(ly)?|known|published|"
    r"external|established|current)\b",
    "experiment": r"\b(mice|mouse|xenografts?|cell lines?|in vitro|in vivo|organoids?|knock\w+|"
    r"CRISPR\S*|inhibit\w*|overexpress\w*|induces?|assays?)\b",
    "no table": r"\b(radiolog\w*|imaging|histolog\w*|patholog\w*|single[- ]cell|metabol\w*|"
    r"microbio\w*)\b",
    "method": r"\b(predict\w*|classif\w*|improv\w*|outperform\w*|signatures?|accura\w*|"
    r"integrat\w*|sequencing)\b",
}
"""Why a study's tables may not decide a statement: kinds of words, none weighted or fitted."""


class Item(Strict):
    """One statement. `study` is its cBioPortal identifier."""

    id: str
    pmid: str
    study: str
    title: str
    statement: str
    label: Label


class Judged(Strict):
    """What SAGE said of a statement, and why."""

    id: str
    label: Label
    verdict: Verdict
    because: str = ""


class Verdicts(Strict):
    """Three-way scores, with exact 95% intervals.

    Type I: false statements called true. Type II: true ones called false. An abstention is no
    error of either type and is never accurate.
    """

    accuracy: Rate
    type_one: Rate
    type_two: Rate
    abstained: Rate
    constant: float


class Area(Strict):
    """How well a score tells verifiable statements; the interval draws papers."""

    method: str
    auc: float
    lower: float
    upper: float


def read_items(path: Path) -> list[Item]:
    """The statements of a parquet file, or of those in a folder.

    Raises
    ------
    InputError
        If there is no such file, or a column is not as published.
    """
    paths = sorted(path.glob("*biodsa*.parquet")) if path.is_dir() else [path]
    if not paths:
        raise InputError(f"{path}: holds no *biodsa*.parquet; give BioDSA-1K's file")
    items = []
    for part in paths:
        try:
            table = pd.read_parquet(part)
        except (OSError, ValueError) as error:
            raise InputError(f"{part}: not BioDSA-1K's table ({error})") from None
        if gone := [name for name in COLUMNS if name not in table]:
            raise InputError(f"{part}: not BioDSA-1K's table (it has no column {gone[0]})")
        odd = sorted(set(table["hypothesis_label"]) - set(get_args(Label)))
        if odd or table.empty:
            raise InputError(f"{part}: hypothesis_label holds {odd or 'nothing'}")
        items += [
            Item(
                id=str(row.sample_id), pmid=str(row.PMID), study=str(row.cBioPortal_ID),
                title=str(row.Title), statement=str(row.hypothesis),
                label=row.hypothesis_label,
            )
            for row in table.itertuples()
        ]  # fmt: skip
    return items


def judge_all(
    items: Sequence[Item],
    studies: Mapping[str, str],
    settings: Settings,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Judged]:
    """Judge the statements whose study's tables are given.

    Parameters
    ----------
    items : statements
    studies : a cohort's folder, cohort.toml or name by cBioPortal identifier
    settings : whose reasoner reads and drafts
    progress : told how many of how many are done
    """
    mine = [item for item in items if item.study in studies]
    out = []
    for done, item in enumerate(mine):
        progress(done, len(mine))
        verdict, because = _judge(item, studies[item.study], settings)
        out.append(Judged(id=item.id, label=item.label, verdict=verdict, because=because[:300]))
    return out


def _judge(item: Item, cohort: str, settings: Settings) -> tuple[Verdict, str]:
    from agents.question.carried import account
    from sage.run.begin import Request, begin
    from sage.run.hypothesis_nodes import ontologist, path_generation, scientist
    from sage.run.questions import Corrections
    from sage.run.wiring import load_cohort
    from validation.contracts.draft import draft
    from validation.contracts.freezing import freeze
    from validation.ledger.ledger import Ledger
    from validation.runner import run
    from validation.verdict import TURNED_ROUND

    asked = DENIED.sub(r"\1", item.statement)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        request = Request(prompt=asked, cohort=cohort, auto_approve=True, out=place / "run",
                          corrections=Corrections(yes=True))  # fmt: skip
        try:
            services = begin(request, settings, lambda stage, done, total: None)
            try:
                question = services.question
                state: dict[str, Any] = {"prompt": asked, "question": question}
                paths = path_generation(services, {**state})["paths"]  # type: ignore[typeddict-item]
                brief = ontologist(services, {**state, "paths": paths})["brief"]  # type: ignore[typeddict-item]
                drafts = scientist(services, {**state, "brief": brief})["drafts"]  # type: ignore[typeddict-item]
            finally:
                services.folder.release()
            claim = drafts[0].hypothesis
            lost = [row.words for row in account(question, claim) if not row.kept]
            if lost:
                return "non-verifiable", f"the cohort cannot carry: {', '.join(lost)}"
            held = load_cohort(cohort, settings)
            frozen = freeze(draft(claim, held.dictionary()), held)
            found = run(frozen, held, place / "out", ledger=Ledger(place / "ledger.jsonl"),
                        figures=False, reproduce=False)  # fmt: skip
        except InputError as error:
            return "non-verifiable", str(error)
    said: dict[str, Verdict] = {"supported": "true", "not_supported": "false"}
    verdict = said.get(found.verdict.verdict, "abstained")
    # Without a direction in the statement SAGE conjectures one; the other way round it holds too.
    if question.direction is None and TURNED_ROUND in found.verdict.qualifiers:
        verdict = "true"
    if asked != item.statement and verdict != "abstained":
        verdict = "false" if verdict == "true" else "true"
    return verdict, found.verdict.because


def score_verdicts(judged: Sequence[Judged]) -> Verdicts:
    """Three-way scores beside the most frequent label for all.

    Raises
    ------
    InputError
        If nothing was judged.
    """
    if not judged:
        raise InputError("no statement was judged: none of the studies is among the rows")

    def share(name: str, label: str | None, verdict: str) -> Rate:
        mine = [item for item in judged if label in (None, item.label)]
        return rate(name, [item.verdict == verdict for item in mine])

    labels = pd.Series([item.label for item in judged])
    return Verdicts(
        accuracy=rate("accuracy", [item.verdict == item.label for item in judged]),
        type_one=share("type I", "false", "true"),
        type_two=share("type II", "true", "false"),
        abstained=share("abstained", None, "abstained"),
        constant=float(labels.value_counts(normalize=True).iloc[0]),
    )


def beyond_tables(statement: str) -> tuple[str, ...]:
    """Why a study's tables may not decide a statement, by its words alone."""
    return tuple(name for name, words in BEYOND.items() if re.search(words, statement, flags=re.I))


def score_feasibility(items: Sequence[Item], *, times: int = 1000, seed: int = 0) -> list[Area]:
    """Area under the curve of each score for "verifiable", with intervals that draw papers.

    The rules count what speaks against the tables; a constant and the statement's length are the
    floor; a model of its words is fitted on other papers' statements (five parts, by paper).

    Parameters
    ----------
    items : statements of any label
    times : resamples of papers
    seed : of the resamples
    """
    verifiable = np.array([item.label != "non-verifiable" for item in items])
    if verifiable.all() or not verifiable.any():
        raise InputError("feasibility needs statements that are verifiable and some that are not")
    texts = [item.statement for item in items]
    papers = np.array([item.pmid for item in items])
    return _areas(
        {
            "constant": np.zeros(len(items)),
            "length of text": -np.array([len(text) for text in texts], dtype=float),
            "rules": -np.array([len(beyond_tables(text)) for text in texts], dtype=float),
            "words, fitted on other papers": learned(texts, verifiable, papers),
        },
        verifiable,
        papers,
        times,
        seed,
    )


def score_wording(items: Sequence[Item], *, times: int = 1000, seed: int = 0) -> list[Area]:
    """How well true and false statements are told apart by their wording, with no data at all."""
    mine = [item for item in items if item.label != "non-verifiable"]
    label = np.array([item.label == "true" for item in mine])
    if label.all() or not label.any():
        return []
    texts = [item.statement for item in mine]
    papers = np.array([item.pmid for item in mine])
    scores = {
        "no denial in it": np.array([not DENIED.search(text) for text in texts], dtype=float),
        "words, fitted on other papers": learned(texts, label, papers),
    }
    return _areas(scores, label, papers, times, seed)


def learned(texts: Sequence[str], label: np.ndarray[Any, Any], papers: Any) -> FloatArray:
    """A logistic model's score of words and pairs, each statement by a model of other papers."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import make_pipeline

    score = np.zeros(len(texts))
    given = np.array(texts, dtype=object)
    for known, new in GroupKFold(min(5, len(set(papers)))).split(given, label, papers):
        if len(set(label[known])) < 2:
            continue
        model = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            LogisticRegression(class_weight="balanced", max_iter=1000),
        )
        score[new] = model.fit(given[known], label[known]).decision_function(given[new])
    return score


def _areas(
    scores: Mapping[str, Any],
    label: np.ndarray[Any, Any],
    papers: np.ndarray[Any, Any],
    times: int,
    seed: int,
) -> list[Area]:
    groups = [np.flatnonzero(papers == paper) for paper in dict.fromkeys(papers)]
    rng = generator(seed, PURPOSE)
    drawn = []
    for _ in range(times):
        chosen = np.concatenate([groups[i] for i in rng.integers(0, len(groups), len(groups))])
        if 0 < label[chosen].sum() < len(chosen):
            drawn.append(chosen)
    out = []
    for method, score in scores.items():
        found = [area_under_curve(label[rows], score[rows]) for rows in drawn]
        lower, upper = np.quantile(found, (0.025, 0.975))
        auc = area_under_curve(label, score)
        out.append(Area(method=method, auc=auc, lower=float(lower), upper=float(upper)))
    return out
