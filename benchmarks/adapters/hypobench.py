"""HypoBench: planted rules of its admission settings, found in some rows and confirmed in others.

Rules are conjunctions ("math is A or B and science is A"), searched in the training rows and
confirmed in the validation rows: the whole rule (Fisher's exact test, one-sided, Bonferroni over
the rules that may be tried) and each of its conditions among the rows that meet the other
conditions, so that a condition is kept only if the rule needs it. Only confirmed rules are claimed.
Test rows are used once. The comparison is a decision tree on the same rows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from benchmarks.runner import Report, Row, cpu_seconds
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.seeds import generator

Mask = NDArray[np.bool_]
LABEL = "admission_"
PURPOSE = 61
MOST_RULES, DEEPEST, BEAM = 12, 3, 24
ALPHA = 0.05
LEAST_ROWS = 6
MOST_TOGETHER = 3
"""Maximum number of categories that a condition combines."""
_IDLE = {"num", "to", "of", "the", "status", "school", "rate", "index", "member", "record"}


@dataclass(frozen=True)
class Rows:
    """Rows of a split: columns by name, and for each row whether it has the first label."""

    columns: dict[str, NDArray[Any]]
    label: Mask


@dataclass(frozen=True)
class Setting:
    """A setting with its three splits and the planted rule as text."""

    name: str
    train: Rows
    validation: Rows
    test: Rows
    labels: tuple[str, str]
    planted: tuple[str, ...]


@dataclass(frozen=True)
class Condition:
    """Allowed values of a column: a set of categories, or a lower or upper bound."""

    column: str
    values: tuple[Any, ...] = ()
    least: float | None = None
    most: float | None = None

    def holds(self, rows: Rows) -> Mask:
        """Return the mask of the rows that meet the condition."""
        given = rows.columns[self.column]
        if self.values:
            return np.isin(given, np.array(self.values, dtype=given.dtype))
        if self.least is not None:
            return np.asarray(given >= self.least)
        return np.asarray(given <= self.most, dtype=bool)

    def __str__(self) -> str:
        if self.values:
            return f"{self.column} is {' or '.join(str(value) for value in self.values)}"
        at_least = self.least is not None
        bound = self.least if self.least is not None else self.most
        return f"{self.column} is {'at least' if at_least else 'at most'} {bound:g}"


@dataclass(frozen=True)
class Rule:
    """Conditions that jointly predict a label."""

    conditions: tuple[Condition, ...]
    label: bool

    def holds(self, rows: Rows) -> Mask:
        """Return the mask of the rows that meet all conditions."""
        met = [condition.holds(rows) for condition in self.conditions]
        return np.asarray(np.logical_and.reduce(met), dtype=bool)


class Score(Strict):
    """Scores of a method on a setting, shares from 0 to 1.

    `planted` is agreement with the noise-free rule on test rows, `accuracy` with their labels.
    """

    setting: str
    method: str
    recall: float
    precision: float
    accuracy: float
    planted: float
    found: tuple[str, ...]


def load_settings(folder: Path) -> list[Setting]:
    """Load every setting below a folder.

    Raises
    ------
    InputError
        If there are no settings, or one is damaged.
    """
    found = []
    for about in sorted(folder.rglob("metadata.json")):
        try:
            truth = json.loads(about.read_text(encoding="utf-8"))["ground_truth_hypotheses"]
            splits = [_rows(about.parent, split) for split in ("train", "val", "test")]
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise InputError(f"{about.parent}: not a HypoBench setting: {error}") from error
        texts = sorted({text for _, given in splits for text in given})
        if len(texts) != 2:
            raise InputError(f"{about.parent}: has {len(texts)} labels, not two")
        train, validation, test = (
            Rows(columns, np.array([text == texts[0] for text in given]))
            for columns, given in splits
        )
        name = about.parent.relative_to(folder).as_posix()
        found.append(
            Setting(name, train, validation, test, (texts[0], texts[1]), tuple(map(str, truth)))
        )
    if not found:
        raise InputError(f"{folder}: holds no metadata.json of a HypoBench setting")
    return found


def _rows(folder: Path, split: str) -> tuple[dict[str, NDArray[Any]], list[str]]:
    paths = sorted(folder.glob(f"*_{split}.json"))
    if len(paths) != 1:
        raise ValueError(f"holds {len(paths)} files *_{split}.json; expected a single file")
    (path,) = paths
    held: dict[str, list[Any]] = json.loads(path.read_text(encoding="utf-8"))
    label = [name for name in held if name.startswith(LABEL)][-1]
    columns = {
        name: np.array([str(v) for v in values]) if isinstance(values[0], str | bool) else
        np.array(values, dtype=float)
        for name, values in held.items() if name != label
    }  # fmt: skip
    return columns, [str(value) for value in held[label]]


def find_rules(train: Rows, validation: Rows) -> list[Rule]:
    """Find rules in the training rows that are confirmed by the validation rows."""
    rules: list[Rule] = []
    conditions = _conditions(train)
    free = [np.full(len(rows.label), True) for rows in (train, validation)]
    tried: set[frozenset[Condition]] = set()
    for _ in range(MOST_RULES):
        rule = _best(train, free[0], conditions, tried)
        if rule is None:
            break
        tried.add(frozenset(rule.conditions))
        kept = _confirmed(rule, validation, free[1])
        if kept is None:
            continue
        rules.append(kept)
        for left, rows in zip(free, (train, validation), strict=True):
            left &= ~kept.holds(rows)
    return rules


def _conditions(rows: Rows) -> list[Condition]:
    found = []
    for name, given in rows.columns.items():
        values = sorted(set(given.tolist()))
        if given.dtype.kind == "f":
            bounds = (
                values if len(values) <= 12 else np.quantile(given, np.linspace(0.05, 0.95, 12))
            )
            for bound in sorted({float(bound) for bound in bounds}):
                found += [Condition(name, least=bound), Condition(name, most=bound)]
        else:
            for size in range(1, min(MOST_TOGETHER, len(values) - 1) + 1):
                found += [Condition(name, values=part) for part in combinations(values, size)]
    return found


def _gain(hit: Mask, label: Mask) -> tuple[float, bool]:
    """Compute the G statistic of a condition, and the label that the condition favors."""
    n, k = len(label), int(hit.sum())
    if k < LEAST_ROWS or n - k < LEAST_ROWS:
        return 0.0, True
    inside, every = int((hit & label).sum()), int(label.sum())
    table = np.array([[inside, k - inside], [every - inside, n - k - every + inside]], dtype=float)
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(table > 0, table * np.log(table / expected), 0.0)
    return float(2 * terms.sum()), inside * n > every * k


def _best(
    rows: Rows, free: Mask, conditions: Sequence[Condition], tried: set[frozenset[Condition]]
) -> Rule | None:
    """Find the most informative conjunction among the rows that no rule covers.

    Each condition must add more information than expected by chance from selecting among so many.
    """
    label = rows.label[free]
    if len(label) < 2 * LEAST_ROWS or label.all() or not label.any():
        return None
    price = 2 * np.log(len(conditions))
    held = [condition.holds(rows)[free] for condition in conditions]
    beam: list[tuple[float, tuple[int, ...], Mask]] = [(0.0, (), np.full(len(label), True))]
    best: tuple[float, Rule] | None = None
    for _ in range(DEEPEST):
        longer = {}
        for _, chosen, mask in beam:
            for number, hit in enumerate(held):
                if any(conditions[each].column == conditions[number].column and
                       bool(conditions[each].values) for each in chosen):  # fmt: skip
                    continue
                key = tuple(sorted({*chosen, number}))
                if len(key) == len(chosen) or key in longer:
                    continue
                both = mask & hit
                gain, towards = _gain(both, label)
                longer[key] = (gain, both, towards)
        ranked = sorted(longer.items(), key=lambda item: (-item[1][0], item[0]))[:BEAM]
        beam = [(gain, key, both) for key, (gain, both, _) in ranked]
        for key, (gain, _, towards) in ranked:
            rule = Rule(tuple(conditions[number] for number in key), towards)
            worth = gain - price * len(key)
            if frozenset(rule.conditions) not in tried and (best is None or worth > best[0]):
                best = worth, rule
    return best[1] if best is not None and best[0] > 0 else None


def _confirmed(rule: Rule, rows: Rows, free: Mask) -> Rule | None:
    """Drop conditions that the rule does not need in these rows; None if the rule fails."""
    conditions = list(rule.conditions)
    while conditions:
        whole = Rule(tuple(conditions), rule.label)
        needed = [
            _p(
                condition.holds(rows),
                rows.label == rule.label,
                free & _meet_others(whole, condition, rows),
            )
            for condition in conditions
        ]
        worst = int(np.argmax(needed))
        if len(conditions) == 1 or needed[worst] <= ALPHA:
            p = _p(whole.holds(rows), rows.label == rule.label, free)
            return whole if p <= ALPHA / MOST_RULES else None
        del conditions[worst]
    return None


def _meet_others(rule: Rule, condition: Condition, rows: Rows) -> Mask:
    met = [each.holds(rows) for each in rule.conditions if each is not condition]
    every = np.full(len(rows.label), True)
    return np.asarray(np.logical_and.reduce([every, *met]), dtype=bool)


def _p(hit: Mask, label: Mask, among: Mask) -> float:
    """Compute the one-sided p-value that rows with the condition have the label more often."""
    hit, label = hit[among], label[among]
    table = [[int((hit & label).sum()), int((hit & ~label).sum())],
             [int((~hit & label).sum()), int((~hit & ~label).sum())]]  # fmt: skip
    return float(fisher_exact(table, alternative="greater").pvalue)


def predict(rules: Sequence[Rule], known: Sequence[Rows], rows: Rows) -> Mask:
    """Predict each row's label by the first rule that applies, or else by the majority."""
    label = np.concatenate([each.label for each in known])
    left = np.full(len(label), True)
    for rule in rules:
        left &= ~np.concatenate([rule.holds(each) for each in known])
    rest = label[left] if left.any() else label
    out = np.full(len(rows.label), bool(rest.mean() > 0.5))
    for rule in reversed(rules):
        out[rule.holds(rows)] = rule.label
    return out


def find_planted_columns(setting: Setting) -> set[str]:
    """Find the columns whose words occur in the planted rules."""
    mentioned = {word[:5] for word in re.findall(r"[a-z]+", " ".join(setting.planted).lower())}
    return {
        name
        for name in setting.train.columns
        if any(word[:5] in mentioned for word in name.split("_") if word not in _IDLE)
    }


def predict_planted(setting: Setting) -> Mask:
    """Predict each test row by the majority of rows with the same values in the planted columns."""
    columns = sorted(find_planted_columns(setting)) or sorted(setting.train.columns)
    votes: dict[tuple[Any, ...], Counter[bool]] = {}
    for rows in (setting.train, setting.validation, setting.test):
        for key, label in zip(_keys(rows, columns), rows.label, strict=True):
            votes.setdefault(key, Counter())[bool(label)] += 1
    return np.array([votes[key].most_common(1)[0][0] for key in _keys(setting.test, columns)])


def _keys(rows: Rows, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(rows.columns[name].tolist() for name in columns), strict=True))


def score_settings(settings: Sequence[Setting], seed: int = 0) -> list[Score]:
    """Score both methods on every setting."""
    out = []
    for setting in settings:
        known = (setting.train, setting.validation)
        rules = find_rules(*known)
        named = {condition.column for rule in rules for condition in rule.conditions}
        said = tuple(
            f"{' and '.join(map(str, rule.conditions))}: {setting.labels[0 if rule.label else 1]}"
            for rule in rules
        )
        out.append(_score(setting, "rules", named, predict(rules, known, setting.test), said))
        used, guessed = _tree(setting, seed)
        out.append(_score(setting, "tree", used, guessed, tuple(sorted(used))))
    return out


def count_false_rules(settings: Sequence[Setting], times: int, seed: int = 0) -> tuple[int, int]:
    """Count the shuffles of labels with a claimed rule, and all shuffles.

    No column predicts shuffled labels, so each claim is false.
    """
    claimed = 0
    for setting in settings:
        for turn in range(times):
            rng = generator(seed, PURPOSE, turn)
            shuffled = [
                Rows(rows.columns, rng.permutation(rows.label))
                for rows in (setting.train, setting.validation)
            ]
            claimed += bool(find_rules(*shuffled))
    return claimed, times * len(settings)


def _score(
    setting: Setting, method: str, named: set[str], guessed: Mask, found: tuple[str, ...]
) -> Score:
    truth = find_planted_columns(setting)
    right = len(named & truth)
    return Score(
        setting=setting.name,
        method=method,
        recall=right / len(truth) if truth else 0.0,
        precision=right / len(named) if named else 0.0,
        accuracy=float((guessed == setting.test.label).mean()),
        planted=float((guessed == predict_planted(setting)).mean()),
        found=found,
    )


def _tree(setting: Setting, seed: int) -> tuple[set[str], Mask]:
    """Fit scikit-learn's default decision tree on training and validation rows."""
    from sklearn.tree import DecisionTreeClassifier

    names: list[str] = []
    parts: list[list[NDArray[Any]]] = [[], [], []]
    splits = (setting.train, setting.validation, setting.test)
    for name, given in setting.train.columns.items():
        if given.dtype.kind == "f":
            names.append(name)
            for part, rows in zip(parts, splits, strict=True):
                part.append(rows.columns[name])
        else:
            for value in sorted(set(given.tolist())):
                names.append(name)
                for part, rows in zip(parts, splits, strict=True):
                    part.append((rows.columns[name] == value).astype(float))
    train, validation, test = (np.stack(part, axis=1) for part in parts)
    tree = DecisionTreeClassifier(random_state=seed)
    tree.fit(
        np.concatenate([train, validation]),
        np.concatenate([setting.train.label, setting.validation.label]),
    )
    used = {name for name, weight in zip(names, tree.feature_importances_, strict=True) if weight}
    return used, np.asarray(tree.predict(test), dtype=bool)


def run(
    folder: Annotated[Path, typer.Argument(help="Folder of settings.")],
    permuted: Annotated[int, typer.Option(min=0, help="Shuffles of each setting's labels.")] = 0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> Report:
    """Find planted rules, beside a decision tree, and false rules in shuffled labels."""
    settings = load_settings(folder)
    scores = score_settings(settings, seed)
    claimed, shuffles = count_false_rules(settings, permuted, seed)

    def average(method: str) -> str:
        own = [row for row in scores if row.method == method]
        return ", ".join(
            f"{fmean(getattr(row, name) for row in own):.3f}"
            for name in ("recall", "precision", "accuracy")
        )

    row = Row(
        benchmark="HypoBench, admission",
        measured=f"{len(settings)} of 13 settings; planted columns named, named ones right, test"
        " rows right",
        baseline=f"{average('tree')} (decision tree)",
        published="38.8% of rules found (its authors' best)",
        sage=average("rules"),
        cost=cpu_seconds(),
        notes=(
            f"with shuffled labels a rule was claimed in {claimed} of {shuffles}.",
            "the published figure (Liu and others 2025, abstract) is that of language models on all"
            " synthetic tasks: not comparable.",
        ),
    )
    return Report(command="hypobench FOLDER --permuted 50 --json", rows=(row,),
                  data=[item.model_dump() for item in scores])  # fmt: skip
