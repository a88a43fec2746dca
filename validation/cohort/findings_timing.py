"""Detection of variables that reveal the outcome or grow with follow-up, only for `check`.

Findings go to the person who runs `sage cohort check`, never into the data dictionary: a
hypothesis drafted with them would have seen the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from sage.core.errors import InputError
from validation.cohort.codes import report
from validation.cohort.endpoints import followed
from validation.cohort.model import (
    ContinuousSpec,
    SurvivalSpec,
    TimedSpec,
    declaration_remedy,
)
from validation.cohort.tables import codes
from validation.cohort.timing import known_at
from validation.core.types import Finding

if TYPE_CHECKING:
    import pandas as pd

    from validation.cohort.cohort import Cohort

MOST_LEVELS = 12
FEWEST_OF_A_LEVEL = 5
FEWEST_TIMES = 10
AGREE = 0.95
"""Minimum share of patients in whom a column of times must agree with a yes/no variable."""
NAMED = 12
EXACT, SHORT_OF = 0.995, 0.98
"""R² thresholds for follow-up with another variable, and for the other variable without it."""
CODES = {"outcome": "outcome_proxy", "follow_up": "grows_with_follow_up"}


def of_timing(cohort: Cohort) -> Iterator[Finding]:
    """Find proxies of an outcome, variables that grow with follow-up, and undeclared timing."""
    undeclared = []
    for key in cohort.keys():  # noqa: SIM118 (a method, not a mapping)
        try:
            when, values = known_at(cohort, key), cohort.column(key)
        except InputError:
            continue  # reported by of_variables
        if when == "unknown":
            undeclared.append(key)
        if when in ("unknown", "baseline"):
            leak = next(_leaks(cohort, key, values), None)
            yield from () if leak is None else (leak,)
            yield from _own_times(cohort, key)
    for key, name, text in find_held_follow_up(cohort, cohort.keys()):
        yield report("contains_follow_up", f"variables.{key}", f"{name}: {text}")
    if undeclared:
        more = f" and {len(undeclared) - NAMED} more" if len(undeclared) > NAMED else ""
        text = f"it is not known when these were measured: {', '.join(undeclared[:NAMED])}{more}"
        remedy = f"{declaration_remedy(undeclared[:NAMED])}; until then they cannot support a claim"
        yield report("timing_undeclared", "variables", text, remedy=remedy)


def require_no_follow_up(cohort: Cohort, keys: Iterable[str], endpoint: str) -> None:
    """Raise `InputError` if a variable contains follow-up, or its times contradict its declaration.

    The endpoint's time, either by itself or added to another variable (the age at the end of
    follow-up), is an outcome whenever it was recorded. A variable with times within follow-up
    (`_own_times`) counts as baseline only if it has its own declaration, not through a
    declaration for its table or the cohort.
    """
    for key in keys:
        spec = cohort.variables.get(key)
        if spec is not None and spec.known_at is None and known_at(cohort, key) == "baseline":
            for found in _own_times(cohort, key):
                section = f"[variables.{key.split(':', 1)[1]}]"
                raise InputError(
                    f"{key}: {found.message}. Under {section}, write {found.remedy}, or "
                    'known_at = "baseline" if it was in fact known by then'
                )
    for key, name, text in find_held_follow_up(cohort, keys):
        if name == endpoint:
            raise InputError(
                f"{key} is not a baseline variable: {text}. Use information known before follow-up"
            )


def find_held_follow_up(cohort: Cohort, keys: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Find numbers that equal an endpoint's time, or its sum with another variable, up to rounding.

    Yields each such variable in `keys`, the endpoint, and a description of the relation.
    """
    import pandas as pd

    numbers = {}
    for key, spec in cohort.variables.items():
        if spec.kind in ("continuous", "ordinal"):
            try:
                numbers[key] = cohort.column(key).astype(float)
            except (InputError, ValueError):
                continue  # reported by of_variables
    frame = pd.DataFrame(numbers)
    mine = [
        key for key in dict.fromkeys(keys) if key in frame and known_at(cohort, key) != "column"
    ]
    for name, endpoint in cohort.spec.endpoints.items() if mine else ():
        if not isinstance(endpoint, TimedSpec):
            continue
        try:
            outcome = cohort.outcome(name).reindex(frame.index)
        except InputError:
            continue  # reported by of_endpoints
        parts = {"time": outcome["time"], "followed": followed(outcome)}
        parts |= {"entry": outcome["entry"]} if endpoint.entry is not None else {}
        found = frame.assign(**parts).corr(min_periods=FEWEST_TIMES)
        names, r = [str(column) for column in found], found.to_numpy()
        time, lasted = names.index("time"), names.index("followed")
        for key in mine:
            at = names.index(key)
            if np.nanmax(r[at, [time, lasted]] ** 2, initial=0.0) > EXACT:
                yield key, name, "it is the length of follow-up"
                continue
            own, t = r[at], r[time]
            with np.errstate(divide="ignore", invalid="ignore"):
                explained = (own[time] ** 2 + own**2 - 2 * own[time] * own * t) / (1 - t**2)
            sums = (explained > EXACT) & (own**2 < SHORT_OF)
            sums &= (own > own[time] * t) & (own[time] > own * t)
            sums[[at, time, lasted]] = False
            if sums.any():
                other = names[int(np.where(sums, explained, 0.0).argmax())]
                other = str(endpoint.entry) if other == "entry" else other
                yield key, name, f"it is {other} plus the length of follow-up"


def _leaks(cohort: Cohort, key: str, values: pd.Series) -> Iterator[Finding]:
    """Yield a finding for each outcome that a variable reveals."""
    from validation.statistics.leakage import find_leak

    for name, spec in cohort.spec.endpoints.items():
        if isinstance(spec, ContinuousSpec) or key in getattr(spec, "contained_in", ()):
            continue
        try:
            outcome = cohort.outcome(name)
        except InputError:
            continue  # reported by of_endpoints
        timed = "time" in outcome.columns
        event = outcome["event" if timed else "value"].to_numpy(dtype=float)
        time = followed(outcome).to_numpy(dtype=float) if timed else None
        for level, numbers in indicators(values.reindex(outcome.index)):
            leak = find_leak(numbers.to_numpy(dtype=float), event, time)
            if leak is not None:
                code = CODES.get(leak.kind, "recorded_by_outcome")
                text = f"{name}{f' ({level})' if level else ''}: {leak.text}"
                yield report(code, f"variables.{key}", text)


def indicators(values: pd.Series) -> Iterator[tuple[str, pd.Series]]:
    """Yield a variable as numbers, or an indicator for each of its levels."""
    import pandas as pd

    numbers = pd.to_numeric(values, errors="coerce")
    if numbers.notna().sum() == values.notna().sum():
        yield "", numbers
        return
    counts = values.value_counts()
    levels = [level for level, count in counts.items() if count >= FEWEST_OF_A_LEVEL]
    if len(counts) > MOST_LEVELS:
        yield "", values.notna().astype(float).where(values.notna())
        return
    for level in levels[1:] if len(counts) == 2 else levels:
        yield str(level), (values == level).astype(float).where(values.notna())


def _own_times(cohort: Cohort, key: str) -> Iterator[Finding]:
    """Find a column of times within follow-up that is filled for only one answer."""
    import pandas as pd

    spec = cohort.variables.get(key)
    if spec is None:
        return
    table = cohort.tables[spec.table]
    answers = codes(table.rows[spec.column])
    answers = answers.where(~answers.isin(table.missing))
    ends = {
        endpoint.time
        for endpoint in cohort.spec.endpoints.values()
        if isinstance(endpoint, SurvivalSpec) and endpoint.table == spec.table
    }
    if not ends or answers.nunique() != 2:
        return
    numbers = {
        str(name): pd.to_numeric(table.rows[name], errors="coerce") for name in table.rows.columns
    }
    for column, times in numbers.items():
        known = times.notna()
        if column in (*ends, spec.column) or known.sum() < FEWEST_TIMES or times.nunique() < 5:
            continue
        for answer in answers.dropna().unique():
            happened = answers == answer
            within = any((times[known] <= numbers[end][known]).mean() >= AGREE for end in ends)
            alone = known[happened].mean() >= AGREE and known[~happened].mean() <= 1 - AGREE
            if alone and (times[known] >= 0).all() and within:
                other = next(item for item in answers.dropna().unique() if item != answer)
                text = (
                    f'column "{column}" contains a time within follow-up only for those with '
                    f'"{answer}": it happened during follow-up and was not known at baseline'
                )
                remedy = f'known_at = {{ column = "{column}", before = "{other}" }}'
                where = f"variables.{key}"
                yield report("happens_during_follow_up", where, text, remedy=remedy)
                return
