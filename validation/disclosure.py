"""The gate for aggregates that leave a cohort: to prompts, tools, pages and reports for others.

Counts under a minimum are suppressed together with those that would reveal them; numbers
are described by quantiles and winsorized moments, which no single patient changes;
estimates are rounded to the precision justified by their standard error. A grouping or
column supplied by a caller is refused if, in effect, fewer patients than the minimum
separate it from the rest of the cohort or from an earlier one, because the difference
between both results would be about these patients (docs/cohorts.md states the guarantee).
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from validation.core.dictionary import pool_levels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from validation.core.dictionary import Endpoint, Variable
    from validation.core.types import Finding

MIN_COUNT = 5
"""Smallest count of patients that may be shown."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
PATIENTS_PER_LOOK = 4
"""Patients of a cohort for each column, or group after the first, that a caller may query.

With one for every two patients, the outcomes of nearly all follow from the results.
"""
MOST_GROUPS = 12
SAME = 0.01
"""Difference between two values, in units of their usual deviation, that counts as none."""
SHARED = frozenset(
    [
        "constant",
        "empty",
        "endpoint",
        "events_last",
        "expression",
        "grows_with_follow_up",
        "happens_during_follow_up",
        "inverted_event",
        "mostly_missing",
        "no_events",
        "normal_samples",
        "one_two_coding",
        "outcome_proxy",
        "recorded_by_outcome",
        "repeated_header",
        "risk_protects",
        "several_aliquots",
        "short_times",
        "timing_undeclared",
        "versioned_ids",
        "weak_join",
    ]
)
"""Codes of findings whose messages contain no patient's value or name and no small count."""


def safe_count(count: int | None, total: int | None = None) -> int | None:
    """Return a count, or None if it or the rest of `total` is from 1 to 4."""
    if count is None or 0 < count < MIN_COUNT:
        return None
    return None if total is not None and 0 < total - count < MIN_COUNT else count


def round_count(count: int | None, minimum: int = MIN_COUNT) -> int | None:
    """Round a count to a multiple of the minimum, halves up; return None if it is smaller.

    Rounded counts never differ by just a few patients, so that no small count follows from
    their difference.
    """
    if count is None or 0 < count < minimum:
        return None
    step = max(minimum, 1)
    return (count + step // 2) // step * step


def count_text(count: int, total: int | None = None) -> str:
    """Format a count, or state only that it, or the rest of `total`, is under the minimum."""
    if 0 < count < MIN_COUNT:
        return f"fewer than {MIN_COUNT}"
    if safe_count(count, total) is None:
        return f"more than {(total or 0) - MIN_COUNT}"
    return str(count)


def shown_quantiles(values: NDArray[np.float64], minimum: int = MIN_COUNT) -> dict[str, float]:
    """Describe numbers by quantiles that never depend on a single patient's value.

    Each is the mean of the `minimum` values around it, to three digits; quantiles with fewer
    patients than `minimum` beyond them are left out.
    """
    import numpy as np

    ordered, half, last = np.sort(values), minimum // 2, len(values) - 1
    return {
        f"{share:.0%}": float(f"{ordered[max(at - half, 0) : at + half + 1].mean():.3g}") + 0.0
        for share in QUANTILES
        if min(share, 1 - share) * len(values) >= max(minimum, 1)
        for at in [round(share * last)]
    }


def shown_variable(variable: Variable, patients: int, minimum: int = MIN_COUNT) -> Variable:
    """Describe a variable in a cohort of `patients`; `n` is 0 if too few have a known value."""
    n = min(round_count(variable.n, minimum) or 0, patients)
    levels = pool_levels(variable.levels, minimum).items()
    return variable.model_copy(
        update={
            "n": n,
            "missing": round(1 - n / max(patients, 1), 3),
            "levels": {level: shown for level, k in levels if (shown := round_count(k, minimum))},
        }
    )


def shown_endpoint(endpoint: Endpoint, patients: int, minimum: int = MIN_COUNT) -> Endpoint:
    """Describe an outcome in a cohort of `patients`; `n` is 0 if too few have a known value."""
    follow_up = endpoint.median_follow_up
    return endpoint.model_copy(
        update={
            "n": min(round_count(endpoint.n, minimum) or 0, patients),
            "events": round_count(endpoint.events, minimum),
            "median_follow_up": None if follow_up is None else float(f"{follow_up:.2g}"),
        }
    )


def shown_months(
    happened: Sequence[NDArray[np.float64]], last: float, minimum: int = MIN_COUNT
) -> NDArray[np.float64]:
    """Select the months at which a curve may be shown, so that no step is about a few patients.

    Years are joined until at least `minimum` patients have each event in them, and divided into
    half-years, quarters and months where each part has no event or as many. The choice depends on
    the patients alone, so that two calls about the same ones show no narrower interval.

    Parameters
    ----------
    happened : times of each kind of event, in months
    last : end of the curve, in months

    Returns
    -------
    (m,) months in ascending order, from 0 unless a few have events at 0; those after a step of a
    few are left out.
    """
    import numpy as np

    ordered = [np.sort(times) for times in happened]

    def count(month: int) -> NDArray[np.int64]:
        return np.asarray([np.searchsorted(times, month, side="right") for times in ordered])

    def is_safe(begin: NDArray[np.int64], end: NDArray[np.int64]) -> bool:
        return bool(((end == begin) | (end - begin >= minimum)).all())

    def divide(begin: int, end: int) -> list[int]:
        """List the months after `begin`, up to `end`."""
        for step in (12, 6, 3, 1):
            ends = list(range(begin, end + 1, step))
            if len(ends) > 2 and (count(begin) != count(end)).any():
                if all(is_safe(count(a), count(b)) for a, b in pairwise(ends)):
                    return [month for a, b in pairwise(ends) for month in divide(a, b)]
                break
        return [end]

    before, years = np.zeros(len(ordered), dtype=np.int64), list[int]()
    for year in range(0, int(last) + 12, 12):
        if not is_safe(count(years[-1]) if years else before, count(year)):
            while len(years) > 1 and (count(years[-1]) == count(years[-2])).all():
                years.pop()  # else its end would be the beginning of the few
            continue
        years.append(year)
    months = years[:1] + [month for a, b in pairwise(years) for month in divide(a, b)]
    return np.asarray(months, dtype=np.float64)


def winsorized(values: NDArray[np.float64], minimum: int = MIN_COUNT) -> NDArray[np.float64]:
    """Move the `minimum` most extreme values on each side to the next value, so none is disclosed.

    Returns
    -------
    The values sorted by size, since the original row order could be inferred from the data
    and affects the last digits.
    """
    import numpy as np

    ordered = np.sort(values)
    at = min(minimum, (len(ordered) - 1) // 2)
    return np.clip(ordered, ordered[at], ordered[-1 - at])


def round_to_error(value: float, error: float) -> float:
    """Round to the first digit of the standard error; unchanged if there is none."""
    if not (math.isfinite(value) and math.isfinite(error) and error > 0):
        return value
    digits = -math.floor(math.log10(error))
    return round(value, digits) + 0.0


def round_ratio(value: float, lower: float, upper: float) -> tuple[float, float, float]:
    """Round a ratio and its 95% interval to the precision justified by its standard error."""
    if not (0 < lower < upper and math.isfinite(upper)):
        return value, lower, upper
    error = value * math.log(upper / lower) / 3.92
    step = min(error, value, lower)
    return round_to_error(value, step), round_to_error(lower, step), round_to_error(upper, error)


def shown_p(p: float) -> float:
    """Round a p-value to two significant digits."""
    return float(f"{p:.2g}")


def shown_finding(finding: Finding) -> Finding:
    """Withhold a finding's details on single patients, which only the cohort's owner sees."""
    if finding.code in SHARED:
        return finding
    here = "details only where the data are: `sage cohort check`"
    return finding.model_copy(update={"message": here, "remedy": here})


def suppressed_cells(counts: NDArray[np.int64], minimum: int) -> NDArray[np.bool_]:
    """Find the cells in a table of patients that may not be shown.

    Small cells are suppressed, and along every axis the smallest partner of a single hidden
    cell as well, so that no sum over a row or column reveals it.

    Parameters
    ----------
    counts : patients by one level of each variable; any number of axes
    minimum : smallest count that may be shown; empty cells may be shown
    """
    import numpy as np

    hidden = (counts > 0) & (counts < minimum)
    changed = bool(hidden.any())
    while changed:
        changed = False
        for axis in range(counts.ndim):
            lines = np.moveaxis(hidden, axis, -1).reshape(-1, counts.shape[axis])
            places = np.moveaxis(np.arange(counts.size).reshape(counts.shape), axis, -1)
            places = places.reshape(lines.shape)
            for line, place in zip(lines, places, strict=True):
                if line.sum() == 1 and len(line) > 1:
                    shown = place[~line]
                    hidden.flat[shown[np.argmin(counts.flat[shown])]] = True
                    changed = True
    return hidden


def suppressed_counts(counts: Mapping[str, int], minimum: int) -> set[str]:
    """Find the keys of counts that may not be shown: small counts, and partners revealing them.

    `X.exposed.n` and `X.reference.n` add up to a shown total, so both are suppressed if
    either is small.
    """
    small = {key for key, count in counts.items() if 0 < count < minimum}
    pairs = {"exposed": "reference", "reference": "exposed"}
    for key in list(small):
        parts = key.split(".")
        for at, part in enumerate(parts):
            if part in pairs:
                small.add(".".join([*parts[:at], pairs[part], *parts[at + 1 :]]))
    return small & set(counts)


def count_effective(deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the effective number of patients by whom numbers differ, along the first axis.

    The inverse participation ratio of the squares, `(sum d^2)^2 / sum d^4`: k if k patients
    deviate equally, near 1 if one outweighs all others, and 0 if there is no deviation.

    Source: Hill 1973, Ecology 54:427 (numbers equivalent of order 2).
    """
    import numpy as np

    squares = np.square(deviations / max(float(np.abs(deviations).max(initial=0.0)), 1e-300))
    above = np.square(squares.sum(axis=0))
    found: NDArray[np.float64] = above / np.maximum(np.square(squares).sum(axis=0), 1e-300)
    return np.where(above > 0, found, 0.0)


def find_spread(
    values: NDArray[np.float64], beside: NDArray[np.float64] | None = None
) -> NDArray[np.bool_]:
    """Find the columns (second axis) in which no small group of patients outweighs all others.

    Otherwise a model's estimate for the column, or for another one, would be about these patients.
    The same must hold for the part of a column that the columns `beside` it do not explain
    linearly, because the estimate depends on that part. A constant column is safe.
    """
    import numpy as np

    known = ~np.isnan(values)
    filled = np.where(known.any(axis=0), values, 0.0)  # a column without any value is constant
    apart = ((filled != np.nanmedian(filled, axis=0)) & ~np.isnan(filled)).sum(axis=0)
    centered = np.nan_to_num(filled - np.nanmean(filled, axis=0))
    # among fewer, what happened to all could be told
    found: NDArray[np.bool_] = apart >= 2 * MIN_COUNT
    found &= count_effective(centered) >= MIN_COUNT
    if beside is not None:
        base = np.column_stack([np.ones(len(values)), beside])
        rest = centered - base @ np.linalg.lstsq(base, centered, rcond=None)[0]
        rest[:, np.abs(rest).max(axis=0) <= 1e-9 * np.abs(centered).max(axis=0)] = 0.0
        count = count_effective(rest)
        found &= (count == 0) | (count >= MIN_COUNT)
    found |= apart == 0
    return found


def is_mixed(event: Any, group: Any) -> bool:
    """Check that every group has at least the minimum of patients with and without the event.

    Otherwise a result says of nearly everybody in a group what happened, or did not.
    """
    import numpy as np

    codes = np.unique(np.asarray(group), return_inverse=True)[1]
    sides = (codes[np.asarray(event) == 1], codes[np.asarray(event) != 1])
    return all((np.bincount(side, minlength=codes.max() + 1) >= MIN_COUNT).all() for side in sides)


class Looks:
    """Record of callers' queries on a cohort: a value per patient, none for excluded patients.

    Two queries that group, order or weigh all but a few patients identically are about these
    few. The file holds patients' values by their position in the cohort and the caller's
    name, but no outcome.
    """

    def __init__(self, cohort: str, caller: str = "", folder: Path | None = None) -> None:
        base = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
        self.path = (folder or base / "sage" / "looks") / f"{cohort}.jsonl"
        self.caller = caller

    def admit(self, values: NDArray[np.float64]) -> None:
        """Record a caller's query; `values` is NaN for patients who are left out.

        Raises
        ------
        InputError
            If the query separates 1 to 4 patients from the others or from an earlier query by any
            caller, if this caller has exceeded the limit, or if earlier queries cannot be read.
        """
        import numpy as np

        known = ~np.isnan(values)
        look = _standardize(values)
        apart = int(known.sum() - np.unique(look[known], return_counts=True)[1].max(initial=0))
        apart = apart or int((~known).sum())
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            try:
                before = [
                    (line["by"], np.asarray(line["values"], dtype=float))
                    for line in map(json.loads, file)
                ]
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"{self.path}: cannot be read as earlier queries ({error!r}), and no results "
                    "are shown without it. Restore it, or remove it to discard all "
                    "earlier queries"
                ) from error
            if any(
                np.array_equal(look, earlier, equal_nan=True)
                for by, earlier in before
                if by == self.caller
            ):
                return
            near = ["the whole cohort"] if 0 < apart < MIN_COUNT else []
            for by, earlier in sorted(before, key=lambda each: each[0] != self.caller):
                if len(earlier) == len(look) and _is_near(look, earlier):
                    near.append(
                        f"an earlier choice of {'yours' if by == self.caller else 'another caller'}"
                    )
            if near:
                raise InputError(
                    f"this choice of patients or values differs from {near[0]} in fewer than "
                    f"{MIN_COUNT} patients, and the two results together would disclose "
                    "them; choose patients or values that differ in more"
                )
            most = len(look) // PATIENTS_PER_LOOK
            own = [earlier for by, earlier in before if by == self.caller]
            if sum(map(_cost, [*own, look])) > most:
                raise InputError(
                    f"the limit of {most} columns and groups for {len(look)} patients has been "
                    "reached; the owner of the cohort can declare columns in cohort.toml"
                )
            kept = [None if math.isnan(value) else value for value in look.tolist()]
            line = {"by": self.caller, "values": kept}
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def _standardize(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Express values as deviations from their median, in units of the median deviation.

    A few changed values affect neither, so that all other values stay as they were.
    """
    import numpy as np

    apart = values - np.nanmedian(values) if (~np.isnan(values)).any() else values
    usual = np.abs(apart[np.abs(apart) > 0])
    return apart / np.median(usual) if len(usual) else apart


def _levels(look: NDArray[np.float64]) -> NDArray[np.bool_] | None:
    """Return the patients (second axis) in each group of a query; None if it does not group them.

    Patients outside of a single group are a group as well, by subtraction from the cohort.
    """
    import numpy as np

    names = np.unique(look[~np.isnan(look)])
    groups = look == names[:, None]
    if len(names) == 1:
        groups = np.vstack([groups, ~groups])
    return groups if len(names) <= MOST_GROUPS else None


def _cost(look: NDArray[np.float64]) -> int:
    groups = _levels(look)
    return 1 if groups is None else max(len(groups) - 1, 1)


def _is_near(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    """Check whether two queries differ, in effect, by fewer patients than the minimum.

    Every group of one is compared with every group of the other, regardless of their names; ranks
    and values are compared in either direction. Patients excluded from only one of the queries
    count once each.
    """
    import numpy as np

    if (one := _levels(first)) is not None and (other := _levels(second)) is not None:
        gaps = (one[:, None] != other).sum(axis=2)
        return bool(((gaps > 0) & (gaps < MIN_COUNT)).any())
    both = ~np.isnan(first) & ~np.isnan(second)
    apart = int((np.isnan(first) != np.isnan(second)).sum())
    if apart >= MIN_COUNT or both.sum() < 2:
        return False
    pairs = [(first[both], second[both]), (_rank(first[both]), _rank(second[both]))]
    found = []
    for (ours, theirs), least in zip(pairs, (SAME, 0.0), strict=True):
        gap = min((ours - theirs, ours + theirs), key=lambda gap: float(np.square(gap).sum()))
        found.append(float(count_effective(np.where(np.abs(gap) > least, gap, 0.0))))
    return any(0 < apart + count < MIN_COUNT for count in found)


def _rank(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank values from -1 to 1, with ties in the middle."""
    import numpy as np

    ordered = np.sort(values)
    left, right = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    found: NDArray[np.float64] = (left + right) / len(values) - 1
    return found
