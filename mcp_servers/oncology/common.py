"""Shared parts of the oncology tools: cohorts, groups, and protection of small counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.spec import InputPath
from sage.core.errors import InputError
from sage.core.hashes import hash_text
from sage.core.models import Strict
from validation.core.hypothesis import Filter
from validation.disclosure import (
    MIN_COUNT,
    Looks,
    find_spread,
    is_mixed,
    round_count,
    round_to_error,
    shown_months,
)

if TYPE_CHECKING:
    import pandas as pd

    from validation.cohort.cohort import Cohort
    from validation.statistics.competing import CumulativeIncidence
    from validation.statistics.survival import KaplanMeier

C = TypeVar("C", "KaplanMeier", "CumulativeIncidence")
EXPLORATORY = (
    "Exploratory: this test was neither registered in a validation contract nor counted in a "
    "run's ledger of tests."
)

CohortName = Annotated[
    str,
    Field(
        description='Cohort folder or cohort.toml under the roots, or the built-in "gbsg2"',
        max_length=1024,
    ),
]
Key = Annotated[
    str, Field(description='Variable of the cohort, e.g. "clinical:age", "expression:FABP5"')
]
Cut = Literal["median", "tertile", "levels"]


class CohortChoice(Strict):
    """Choice of a cohort."""

    cohort: CohortName
    data_root: str | None = Field(
        default=None,
        description="Folder of the cohort's data files, if it differs from the description",
        max_length=1024,
    )
    tables: list[InputPath] = Field(
        default_factory=list,
        max_length=20,
        description="Tables of measurements to join by patient (save_table, measure_cohort, or "
        "a CSV with a column patient); each numeric column becomes imaging:TABLE_COLUMN",
    )


class CohortInput(CohortChoice):
    """A cohort, an outcome, and a selection of patients."""

    endpoint: str = Field(description='Endpoint of the cohort, e.g. "OS"')
    filters: list[Filter] = Field(
        default_factory=list,
        description="Include only patients that match all of these",
        max_length=20,
    )


class GroupedInput(CohortInput):
    """A cohort, an outcome, a selection of patients, and a grouping."""

    group: Key
    cut: Cut | None = Field(
        default=None,
        description="How to turn a number into groups; default: median, or its levels if it has "
        "few",
    )
    threshold: float | None = Field(
        default=None, description="Fixed cut-point instead, in the variable's unit"
    )


def show_curve(
    curve: C,
    name: str,
    at_risk: Callable[[NDArray[Any]], NDArray[Any]],
    happened: Sequence[NDArray[Any]],
    last: float,
) -> C:
    """Return what of a curve may leave the cohort, for tables and figures alike.

    Parameters
    ----------
    name : the field that holds the estimates
    at_risk : counts the patients at risk just before each of the given months
    happened : times of each kind of event
    last : end of the curve, the same for all groups, in months

    Raises
    ------
    InputError
        If no point can be shown.
    """
    months = shown_months(happened, last)
    left = at_risk(months)
    months, left = months[left >= MIN_COUNT], left[left >= MIN_COUNT]
    if not len(months):
        raise InputError(f"fewer than {MIN_COUNT} patients have an event; no curve is shown")
    where = np.searchsorted(curve.times, months, side="right") - 1
    error = (curve.upper - curve.lower) / 3.92

    def rounded(values: NDArray[Any], start: float) -> NDArray[Any]:
        shown = [round_to_error(float(values[at]), float(error[at])) if at >= 0 else start
                 for at in where]  # fmt: skip
        return np.asarray(shown)

    start = 1.0 if name == "survival" else 0.0
    shown: dict[str, Any] = {
        field: rounded(getattr(curve, field), start) for field in (name, "lower", "upper")
    }
    shown |= {"n": round_count(curve.n) or 0, "n_events": round_count(curve.n_events) or 0}
    return replace(curve, times=months, at_risk=left // MIN_COUNT * MIN_COUNT, **shown)


def pick_points(months: NDArray[Any], every: float) -> list[int]:
    """Return the places of the last shown month at or before each multiple of `every`."""
    wanted = np.arange(0.0, months[-1] + every, every)
    return sorted({at for at in (np.searchsorted(months, wanted, side="right") - 1) if at >= 0})


def open_cohort(given: CohortChoice, context: ToolContext) -> Cohort:
    """Open the cohort with its joined tables; each worker keeps it open.

    Raises `InputError` if the cohort, or a file that it names, does not exist or is outside the
    roots.
    """
    tables = [context.input(table, "file") for table in given.tables]
    cohort, key = _open_cohort(given, context)
    for table in tables:
        if table.resolve() in cohort.files():
            raise InputError(f"{table.name}: is a file of the cohort, not a table of measurements")
        seen = table.stat()
        key = (*key, str(table), seen.st_mtime_ns, seen.st_size)
        cohort = context.share_handle(key, partial(cohort.with_features, table))
    return cohort


def _open_cohort(given: CohortChoice, context: ToolContext) -> tuple[Cohort, tuple[Any, ...]]:
    from validation.cohort import load
    from validation.cohort.builtin import NAMES
    from validation.cohort.model import read_spec

    name = given.cohort
    if name.lower() in NAMES:
        key: tuple[Any, ...] = ("cohort", name.lower())
        return context.share_handle(key, lambda: load(name.lower())), key
    path = context.roots.input(name)
    description = path / "cohort.toml" if path.is_dir() else path
    folder = path if path.is_dir() else path.parent
    if description.name.endswith(".toml") and description.is_file():
        spec = read_spec(description)
        folder = (description.parent / (spec.root or ".")).resolve()
        if given.data_root is not None:
            folder = context.roots.input(given.data_root, "folder")
        if not context.roots.allows(folder):
            raise InputError(
                f'cohort "{name}": its root folder is outside the allowed folders; add a root'
            )
        names = [table.file for table in spec.tables.values()]
        names += [spec.expression.file] if spec.expression else []
        for text in names:  # before anything is read
            context.input(folder / text, "file")
        context.read.append(description)
    else:  # a study folder in a known layout: all of it is its data
        context.input(path)
    files = {*context.read, *(path for path in folder.iterdir() if path.is_file())}
    stamp = tuple(
        (str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(files)
    )
    root = folder if given.data_root is not None else None
    key = ("cohort", str(path), str(root), stamp)
    cohort: Cohort = context.share_handle(key, lambda: load(path, root=root))
    for file in cohort.files():
        context.input(file)
    return cohort, key


def analysis_table(
    cohort: Cohort,
    given: CohortInput,
    context: ToolContext,
    keys: list[str],
    kinds: tuple[str, ...] = ("survival",),
    *,
    entered: bool = False,
    optional: Sequence[str] = (),
) -> pd.DataFrame:
    """Return filtered, complete rows with the keys and endpoint (`time`, `event`, `entry`).

    `entered` is true for tools that count patients as at risk from their entry; keys that are
    `optional` may be missing. Raises `InputError` if the endpoint is of another kind or has
    delayed entry that the tool does not support, or if there are fewer patients, with or without
    the event, than may be described.
    """
    from validation.inputs.population import apply_filters

    kind = endpoint_kind(cohort, given.endpoint)
    if kind not in kinds:
        raise InputError(
            f'endpoint "{given.endpoint}" is {kind}; this tool requires {" or ".join(kinds)}'
        )
    if "entry" in cohort.outcome(given.endpoint) and not entered:
        raise InputError(
            f'endpoint "{given.endpoint}" has delayed entry, which this tool does not support; '
            "use survival.kaplan_meier, survival.logrank or survival.cox"
        )
    wanted = list(dict.fromkeys([*keys, *(condition.variable for condition in given.filters)]))
    table = cohort.table(wanted, [given.endpoint])
    chosen = apply_filters(table, tuple(given.filters))
    admit_choices(cohort, given, context, table, keys, chosen)
    table = table[chosen]
    table = table.rename(
        columns={
            f"{given.endpoint}.time": "time",
            f"{given.endpoint}.event": "event",
            f"{given.endpoint}.entry": "entry",
            f"{given.endpoint}.value": "value",
        }
    )
    table = table.dropna(subset=[key for key in [*keys, "time", "event"] if key not in optional])
    if not is_mixed(table["event"], np.zeros(len(table))):
        raise InputError(
            f"fewer than {MIN_COUNT} patients with values for all variables have the event, or do "
            "not; too few to describe"
        )
    return table


def admit_choices(
    cohort: Cohort,
    given: CohortInput,
    context: ToolContext,
    table: pd.DataFrame,
    keys: list[str],
    chosen: pd.Series,
) -> None:
    """Reject filters, groups and columns chosen by the caller that single out a few patients.

    Raises `InputError`; see `validation.disclosure.Looks`.
    """
    import pandas as pd

    from validation.inputs.population import apply_filters

    looks = Looks(hash_text(cohort.id, *map(str, cohort.patients), digits=32), context.caller)
    for condition in given.filters:
        if condition.op in ("lt", "le", "gt", "ge"):
            others = tuple(item for item in given.filters if item is not condition)
            values = table[condition.variable][apply_filters(table, others)].dropna()
            passed = int(chosen[values.index].sum())
            require_sides([passed, len(values) - passed], condition.variable)
    if given.filters:
        looks.admit(np.where(chosen, 1.0, np.nan))
    made = {context.input(name, "file").resolve() for name in given.tables}
    for key in keys:
        values = table[key].where(chosen)
        if made & {path for path, _ in cohort.columns_read(key)}:
            looks.admit(_as_numbers(values))
        if key == getattr(given, "group", None):
            rule = getattr(given, "cut", None), getattr(given, "threshold", None)
            groups = pd.Series(np.nan, values.index, dtype=object)
            groups[chosen] = assign_groups(values[chosen].dropna(), *rule)[0]
            looks.admit(_as_numbers(groups))


def require_sides(sizes: Sequence[int], name: str) -> None:
    """Reject groups or sides of a cut under the minimum; the message is the same for nobody.

    Otherwise the cut at which it changes would be the lowest or highest value.
    """
    if min(sizes) < MIN_COUNT:
        raise InputError(
            f'"{name}": a group or side of the cut has fewer than {MIN_COUNT} patients; merge '
            "levels, move the cut, or filter out the group"
        )


def _as_numbers(values: pd.Series) -> NDArray[np.float64]:
    """Convert a column to numbers, coding text by its sort order; missing values become NaN."""
    import pandas as pd

    numbers = pd.to_numeric(values, errors="coerce")
    if numbers.isna().all():
        coded = pd.Series(pd.factorize(values, sort=True)[0], values.index)
        numbers = coded.where(coded >= 0)
    return np.asarray(numbers, dtype=float)


def entry_of(table: pd.DataFrame) -> NDArray[Any] | None:
    """Return the time at which each patient came under observation; None without delayed entry."""
    return table["entry"].to_numpy(dtype=float) if "entry" in table else None


def endpoint_kind(cohort: Cohort, name: str) -> str:
    """Return an endpoint's kind; raise `InputError` listing the known endpoints if unknown."""
    cohort.outcome(name)
    return str(cohort.spec.endpoints[name].kind)


def cut_groups(
    values: pd.Series, cut: Cut | None, threshold: float | None
) -> tuple[pd.Series, str]:
    """Assign patients to groups and describe the rule in words, without reading any outcome."""
    import pandas as pd

    group = values.name
    numbers = pd.to_numeric(values, errors="coerce")
    numeric = bool((numbers.notna() | values.isna()).all())
    few = values.nunique() <= 6
    rule: str = cut or ("levels" if few or not numeric else "median")
    if threshold is not None:
        rule = "threshold"
    if rule != "levels" and not numeric:
        raise InputError(f'"{group}" is not numeric; use cut = "levels"')
    if rule == "levels":
        return values.map(_level), f"levels of {group}"
    known = numbers.dropna()
    error = float(known.std()) / math.sqrt(max(len(known), 1))
    if rule == "tertile":
        low, high = (float(item) for item in np.quantile(known, [1 / 3, 2 / 3]))
        three = np.select([numbers <= low, numbers > high], ["low", "high"], "middle")
        words = " and ".join(f"{round_to_error(at, error):g}" for at in (low, high))
        return pd.Series(three, values.index), f"{group} by tertiles at {words}"
    at = float(np.median(known)) if rule == "median" else float(threshold or 0.0)
    shown = round_to_error(at, error) if rule == "median" else at
    if at == numbers.max():
        at = float(numbers[numbers < at].max()) if (numbers < at).any() else at
    labels = pd.Series(np.where(numbers > at, "high", "low"), values.index)
    return labels, f"{group} high above {shown:.6g} ({rule})"


def assign_groups(
    values: pd.Series, cut: Cut | None, threshold: float | None, event: pd.Series | None = None
) -> tuple[pd.Series, str]:
    """Assign the analyzed patients to groups; see `cut_groups`.

    Raises `InputError` if a group would have fewer than five patients or, given the events,
    fewer than five with or without one.
    """
    labels, words = cut_groups(values, cut, threshold)
    sizes = labels.value_counts().tolist()
    require_sides(sizes if len(sizes) > 1 else [0], words)
    if len(sizes) > 12:
        raise InputError(f"{words}: too many groups ({len(sizes)}); choose a cut")
    if event is not None and not is_mixed(event, labels):
        raise InputError(
            f"{words}: fewer than {MIN_COUNT} patients of a group have the event, or do not; "
            "merge levels or filter out the group"
        )
    return labels, words


def strata_of(table: pd.DataFrame, key: str | None) -> NDArray[Any] | None:
    """Return each patient's stratum; None without strata.

    Raises `InputError` if a stratum has fewer than five patients, which a test would leave
    out.
    """
    if key is None:
        return None
    strata = table[key].astype(str)
    if strata.value_counts().min() < MIN_COUNT:
        raise InputError(f'strata "{key}": a stratum has fewer than {MIN_COUNT} patients')
    return strata.to_numpy()


def _level(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def finite(value: float | None) -> float | None:
    """Return the number, or None if it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(value)


def require_spread(
    names: Sequence[str],
    matrix: NDArray[Any],
    strata: NDArray[Any] | None = None,
    *,
    jointly: bool = True,
) -> None:
    """Reject a model with a term that is in effect about a few patients.

    Each term is judged within the strata and, if they are fitted `jointly`, beside the others.
    """
    import pandas as pd

    fixed = pd.get_dummies(strata, dtype=float).to_numpy() if strata is not None else None
    for at, name in enumerate(names):
        others = np.delete(matrix, at, axis=1)[:, : None if jointly else 0]
        beside = others if fixed is None else np.column_stack([others, fixed])
        column = matrix[:, at]
        if not find_spread(column[:, None], beside)[0]:
            raise InputError(
                f'"{name}": fewer than {2 * MIN_COUNT} patients differ from the others, or fewer '
                f"than {MIN_COUNT} dominate the variable beside the strata and other terms; "
                "results for so few patients are not shown. Use logarithms or ranks if values are "
                "extreme"
            )


def design_matrix(table: pd.DataFrame, keys: list[str]) -> tuple[Any, list[str], list[str]]:
    """Encode covariates as numbers: (n, k) values, k names, and a note per coded variable.

    A text variable becomes indicators relative to its most frequent level; rare levels are
    rejected.
    """
    import pandas as pd

    columns: dict[str, pd.Series] = {}
    notes = []
    for key in keys:
        numbers = pd.to_numeric(table[key], errors="coerce")
        if numbers.notna().all():
            columns[key] = numbers.astype(float)
            continue
        levels = table[key].map(_level)
        sizes = levels.value_counts()
        if sizes.min() < MIN_COUNT or len(sizes) > 12:
            raise InputError(
                f'covariate "{key}": must have 2 to 12 levels of at least {MIN_COUNT} patients; '
                "merge levels or filter"
            )
        reference = str(sizes.index[0])
        notes.append(f"{key}: reference level {reference}")
        for level in sorted(set(sizes.index) - {reference}):
            columns[f"{key}={level}"] = (levels == level).astype(float)
    frame = pd.DataFrame(columns, index=table.index)
    return frame.to_numpy(dtype=float), list(frame.columns), notes


def relative(path: Path, root: Path) -> str:
    """Return a path relative to a root."""
    return path.relative_to(root).as_posix()
