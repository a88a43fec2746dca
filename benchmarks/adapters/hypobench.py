"""HypoBench: columns in its planted admission rules, seen in some rows and confirmed in others.

For each column, the number or category most strongly associated with admission in the
training rows (Pearson's p below 0.05) becomes a claim in the observed direction, adjusted
for the associated values in the other columns. The claims for a setting are registered
together and tested in its validation rows, as in `sage validate`; a column is named if
its claim is supported. The baseline is a decision tree on both halves, which names the
columns that it uses.
"""

from __future__ import annotations

import json
import re
import tempfile
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated

import pandas as pd
import typer

from benchmarks.adapters.discoverybench import build_claim, build_cohort
from benchmarks.runner import Report, Row, cpu_seconds, rate, run_missing
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.seeds import generator

PURPOSE = 61
IDLE = {"num", "to", "of", "the", "status", "school", "rate", "index", "member", "record"}
"""Uninformative words in column names."""


class Setting(Strict):
    """A setting: its training and validation rows as JSON, and the columns in its planted rules."""

    name: str
    train: str
    validation: str
    planted: tuple[str, ...]


class Named(Strict):
    """Columns named by SAGE and by the tree; `shuffle` is 0 for the original labels."""

    setting: str
    shuffle: int
    planted: tuple[str, ...]
    sage: tuple[str, ...]
    tree: tuple[str, ...]
    claims: int


def load_settings(folder: Path) -> list[Setting]:
    """Load every setting below a folder.

    Raises
    ------
    InputError
        If there are no settings, or one is damaged.
    """
    found = []
    for path in sorted(folder.rglob("metadata.json")):
        try:
            text = " ".join(json.loads(path.read_text(encoding="utf-8"))["ground_truth_hypotheses"])
            train, validation = (
                (path.parent / next(path.parent.glob(f"*_{split}.json"))).read_text("utf-8")
                for split in ("train", "val")
            )
            columns = list(json.loads(train))[:-1]
        except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
            raise InputError(f"{path.parent}: not a HypoBench setting: {error!r}") from error
        words = {word[:5] for word in re.findall(r"[a-z]+", text.lower())}
        planted = tuple(
            name for name in columns
            if any(word[:5] in words for word in name.split("_") if word not in IDLE)
        )  # fmt: skip
        found.append(Setting(name=path.parent.relative_to(folder).as_posix(), train=train,
                             validation=validation, planted=planted))  # fmt: skip
    if not found:
        raise InputError(f"{folder}: no metadata.json for a HypoBench setting")
    return found


def read_rows(held: str) -> pd.DataFrame:
    """Read rows as numbers: a column `NAME=VALUE` per category, `label` last (1: first label)."""
    table = pd.DataFrame(json.loads(held))
    label = table.pop(table.columns[-1])
    words = [name for name in table if not pd.api.types.is_float_dtype(table[name])
             and not pd.api.types.is_integer_dtype(table[name])]  # fmt: skip
    table = pd.get_dummies(table, columns=words, prefix_sep="=", dtype=int)
    return table.assign(label=(label == min(label)).astype(int))


def name_columns(folder: Path, key: tuple[str, int], seed: int = 0) -> Named:
    """Name a setting's columns by confirmed claims and by a tree, after any label shuffle."""
    from scipy.stats import pearsonr
    from sklearn.tree import DecisionTreeClassifier

    from validation.drafting.freezing import draft_on, freeze
    from validation.ledger.ledger import Ledger
    from validation.run.runner import finalize
    from validation.run.runner import run as run_contract

    name, shuffle = key
    setting = next(item for item in load_settings(folder) if item.name == name)
    train, validation = read_rows(setting.train), read_rows(setting.validation)
    if shuffle:
        rng = generator(seed, PURPOSE, shuffle)
        for rows in (train, validation):
            rows["label"] = rng.permutation(rows["label"].to_numpy())
    shared = [column for column in map(str, train) if column in validation and column != "label"
              and min(train[column].nunique(), validation[column].nunique()) > 1]  # fmt: skip
    both = pd.concat([train, validation])
    tree = DecisionTreeClassifier(random_state=seed).fit(both[shared], both["label"])
    used = [column for column, weight in zip(shared, tree.feature_importances_, strict=True)
            if weight]  # fmt: skip
    best: dict[str, tuple[float, str, float]] = {}  # per column: p, its part, correlation
    for column in shared:
        found = pearsonr(train[column], train["label"])
        part = (float(found.pvalue), column, float(found.statistic))
        best[column.partition("=")[0]] = min(part, best.get(column.partition("=")[0], part))
    chosen = {column: sign for p, column, sign in best.values() if p < 0.05}
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        cohort = build_cohort(validation[[*chosen, "label"]], "label", list(chosen), place)
        ledger, claims = Ledger(place / "ledger.jsonl"), {}
        for number, (column, sign) in enumerate(chosen.items()):
            others = [other for other in chosen if other != column]
            claim = build_claim(f"c{number}", validation[column], others, sign < 0)
            try:
                claims[column] = (freeze(draft_on(claim, cohort), cohort), place / f"c{number}")
            except InputError:
                continue
            ledger.register(claims[column][0], cohort)
        for frozen, out in claims.values():
            run_contract(frozen, cohort, out, ledger=ledger, figures=False, reproduce=False)
        results = finalize([*claims.values()], ledger, reproduce=False)
    supported = [column for column, result in zip(claims, results, strict=True)
                 if result.verdict.verdict == "supported"]  # fmt: skip
    return Named(
        setting=name, shuffle=shuffle, planted=setting.planted, claims=len(claims),
        **{who: tuple(sorted({column.partition("=")[0] for column in columns}))
           for who, columns in (("sage", supported), ("tree", used))},
    )  # fmt: skip


def run(
    folder: Annotated[Path, typer.Argument(help="Folder of settings.")],
    permuted: Annotated[int, typer.Option(min=0, help="Shuffles of each setting's labels.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Results so far, to resume.")] = None,
) -> Report:
    """Name planted columns, and columns of shuffled labels, in comparison with a decision tree."""
    settings = load_settings(folder)
    keys = [(item.name, shuffle) for shuffle in range(permuted + 1) for item in settings]
    found = run_missing(partial(name_columns, folder), keys, Named,
                        lambda item: (item.setting, item.shuffle), keep=keep, jobs=jobs,
                        title="settings")  # fmt: skip
    given = [item for item in found if not item.shuffle]

    def show(who: str) -> str:
        hits = [len({*getattr(item, who)} & {*item.planted}) for item in given]
        recall = fmean(n / max(len(item.planted), 1) for n, item in zip(hits, given, strict=True))
        return f"{recall:.3f}; {sum(hits)} of {sum(len(getattr(item, who)) for item in given)}"

    shuffled = rate("shuffled", (bool(item.sage) for item in found if item.shuffle))
    row = Row(
        benchmark="HypoBench, admission",
        measured=f"{len(settings)} of 13 settings; planted columns named; named ones planted",
        baseline=f"{show('tree')} (decision tree)",
        published="38.8% of rules found (its authors' best)",
        sage=show("sage"),
        cost=cpu_seconds(),
        notes=(
            f"with shuffled labels a column was named in {shuffled.hits} of {shuffled.runs}.",
            "the published figure (Liu et al. 2025, abstract) is for language models on all"
            " synthetic tasks, and so is not comparable.",
        ),
    )
    return Report(command="hypobench FOLDER --permuted 20 --json", rows=(row,),
                  data=[item.model_dump(mode="json") for item in found])  # fmt: skip
