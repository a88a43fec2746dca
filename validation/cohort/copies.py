"""Detection of patients copied under new identifiers, either exactly or with noise.

Each patient's nearest neighbors are determined from the covariates only. Among genuine
patients, the nearest neighbor's outcome is hardly closer to the patient's own than the
tenth neighbor's, however well the covariates predict it, and however many patients tie in
a few coarse columns. A copy's outcome is much closer. The measurements on real cohorts
are in `docs/cohorts.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from sage.core.errors import InputError
from validation.statistics.base import BoolArray, FloatArray, ranks

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from validation.cohort.cohort import Cohort

    IntArray = NDArray[np.int64]

FEWEST = 30
"""Minimum number of patients for copy detection."""
NEAR = 8
"""Number of neighbors that may be copies; as many others give the expected outcomes."""
DISTANCES = (0.1, 0.5, 1.0)
"""Thresholds for the nearest neighbor's distance, relative to that of neighbor `NEAR`."""
SHARES = (0.005, 0.02, 0.1)
"""Thresholds for the share of patients whose outcome is as close as the nearest neighbor's."""
INFLATION = 1.5
CONCLUSIVE = 1e-9
"""Chance probability of the close pairs below which they are considered copies.

Of 32 real cohorts, the lowest was 0.004; where the times follow from the covariates,
3e-7.
"""
REPEATS = 0.9
"""Rank correlation above which a column is considered to repeat the outcome."""
GENES, ROWS = 50, 512
EXACT = 1e-3


@dataclass(frozen=True)
class Copies:
    """Position pairs of patients who are copies of each other, each patient first at most once.

    `p` is the probability of as many close pairs among different patients.
    """

    pairs: tuple[tuple[int, int], ...]
    p: float


def require_no_copies(cohort: Cohort) -> None:
    """Raise `InputError`, naming pseudonyms, if any patients in a cohort are copies of others."""
    found = find_cohort_copies(cohort)
    if found is None:
        return
    shown = [
        " and ".join(cohort.pseudonyms[cohort.patients[at]] for at in pair)
        for pair in found.pairs[:3]
    ]
    raise InputError(
        f'{len(found.pairs)} of {len(cohort.patients)} patients in cohort "{cohort.id}" are '
        f"copies of other patients under new identifiers ({', '.join(shown)}), so each "
        "would be counted several times. `sage cohort check` lists them. Keep each "
        "patient once, or declare `cluster` under [patient] if a patient has several rows"
    )


@lru_cache(maxsize=1)
def find_cohort_copies(cohort: Cohort) -> Copies | None:
    """Find the copies among a cohort's patients; return None if there are none.

    Rows in the same `cluster` are not compared with each other. Without a time or amount as
    outcome, the variable with the most distinct values is used instead.
    """
    import pandas as pd

    cluster = cohort.spec.patient.cluster
    owner = None if cluster is None else pd.factorize(cohort.column(cluster))[0]
    columns, outcomes = _read_columns(cohort)
    if not outcomes:
        outcomes = _finest(columns)
    return _most_copies(columns, outcomes, owner)


def find_shared_patients(first: Cohort, second: Cohort) -> Copies | None:
    """Find patients who are in both cohorts; positions count from the start of `first`.

    The comparison uses variables and endpoints with the same name. Since an endpoint may have
    longer follow-up in one of the cohorts, the variable with the most distinct values also
    serves as outcome.
    """
    import pandas as pd

    both = [_read_columns(cohort) for cohort in (first, second)]
    columns = pd.concat([table for table, _ in both], join="inner", ignore_index=True)
    outcomes = {
        name: pd.concat([each[name] for _, each in both], ignore_index=True)
        for name in both[0][1]
        if name in both[1][1]
    }
    owner = np.repeat([0, 1], [len(table) for table, _ in both])
    return _most_copies(columns, outcomes | _finest(columns), owner)


def _most_copies(
    columns: pd.DataFrame, outcomes: Mapping[str, pd.DataFrame], owner: IntArray | None
) -> Copies | None:
    found = []
    for outcome in outcomes.values():
        unlike = columns.drop(columns=_repeats(columns, outcome["time"]))
        time, event = (outcome[part].to_numpy(dtype=float) for part in ("time", "event"))
        found.append(find_copies(place_patients(unlike), time, event, owner))
    known = [copies for copies in found if copies is not None]
    return max(known, key=lambda copies: len(copies.pairs), default=None)


def _repeats(columns: pd.DataFrame, values: pd.Series) -> list[str]:
    """List the columns that repeat these values, for example as their logarithm."""
    same = columns.select_dtypes("number").rank().corrwith(values.rank()).abs()
    return [*same.index[same > REPEATS]]


def _read_columns(cohort: Cohort) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Return variables and genes, and outcomes as `time` (or value) and `event`, by patient.

    Columns used by endpoints and text that identifies patients are left out.
    """
    import pandas as pd

    outcomes, read = {}, frozenset[object]()
    for name in cohort.spec.endpoints:
        try:
            outcome = cohort.outcome(name).reindex(cohort.patients)
        except InputError:
            continue  # reported by of_endpoints
        read |= cohort.outcome_columns(name)
        if "value" in outcome:
            outcome = outcome.rename(columns={"value": "time"}).assign(event=0.0)
        if outcome["time"].nunique() > 2:
            outcomes[name] = outcome
    columns: dict[str, pd.Series] = {}
    for key in cohort.variables:
        try:
            values = cohort.column(key)
        except InputError:
            continue  # reported by of_variables
        text = not pd.api.types.is_numeric_dtype(values.dtype)
        identifies = text and values.nunique() > 0.5 * values.notna().sum()
        if identifies or key == cohort.spec.patient.cluster or cohort.columns_read(key) & read:
            continue
        columns[key] = values
    return pd.concat(
        [pd.DataFrame(columns, index=cohort.patients), _genes(cohort)], axis=1
    ), outcomes


def _finest(columns: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the numeric column with the most distinct values as an uncensored outcome."""
    amounts = columns.select_dtypes("number").nunique()
    if not (amounts >= FEWEST).any():
        return {}
    return {str(amounts.idxmax()): columns[amounts.idxmax()].to_frame("time").assign(event=0.0)}


def _genes(cohort: Cohort) -> pd.DataFrame:
    import pandas as pd

    try:
        matrix = cohort.expression
    except InputError:
        matrix = None  # reported by of_expression
    if matrix is None:
        return pd.DataFrame(index=cohort.patients)
    genes = matrix.genes[:: max(1, len(matrix.genes) // GENES)][:GENES]
    values = pd.DataFrame(np.asarray(matrix.block(genes)).T, index=matrix.patients, columns=genes)
    return values.reindex(cohort.patients)


def place_patients(columns: pd.DataFrame) -> FloatArray:
    """Return (patients, dimensions) coordinates in which each column has the same weight.

    Numbers become normal scores, text gets one dimension per level; a missing value is at the
    mean, with a dimension of its own.
    """
    import pandas as pd
    from scipy.special import ndtri

    parts: list[FloatArray] = []
    for name in columns:
        column = columns[name]
        known = column.notna().to_numpy()
        if not known.any():
            continue
        if pd.api.types.is_numeric_dtype(column.dtype):
            part = np.zeros((len(column), 1))
            values = column.to_numpy(dtype=float)[known]
            part[known, 0] = ndtri((ranks(values) - 0.5) / known.sum())
        else:
            part = pd.get_dummies(column.astype("string")).to_numpy(dtype=float)
        parts += [part] if known.all() else [part, (~known).astype(float)[:, None]]
    centered = [part - part.mean(axis=0) for part in parts]
    sizes = [float(np.sqrt((part**2).sum(axis=1).mean())) for part in centered]
    kept = [part / size for part, size in zip(centered, sizes, strict=True) if size > 0]
    return np.hstack(kept) if kept else np.zeros((len(columns), 0))


def find_copies(
    points: FloatArray, time: FloatArray, event: FloatArray, owner: IntArray | None = None
) -> Copies | None:
    """Find pairs whose covariates and outcomes agree more closely than for different patients.

    Parameters
    ----------
    points : (n, d) coordinates computed from the covariates
    time, event : (n,) outcome; patients without it are left out
    owner : (n,) patients with the same owner are not compared
    """
    from scipy.stats import poisson

    usable = np.flatnonzero(np.isfinite(time) & np.isfinite(event))
    if len(usable) < FEWEST or not points.shape[1]:
        return None
    points, time, event = points[usable], time[usable], event[usable]
    who, apart = _neighbors(points, None if owner is None else owner[usable])
    share = _closer_outcomes(time, event, who)
    tied = apart <= apart[:, :1] + EXACT
    best = np.where(tied, share, 2.0)
    twin = who[np.arange(len(who)), best.argmin(axis=1)]
    chance = 1 - (1 - best.min(axis=1)) ** tied.sum(axis=1)
    middle = apart.shape[1] // 2
    nearer = np.where(apart[:, 0] <= EXACT, 0.0, apart[:, 0] / np.maximum(apart[:, middle], EXACT))
    tests: list[tuple[float, BoolArray]] = []
    for limit in DISTANCES:
        for most in SHARES:
            close = (nearer <= limit) & (chance <= most)
            usual = max(most, float((share[:, middle:] <= most).mean()))
            expected = INFLATION * usual * int((nearer <= limit).sum()) + 0.5
            tests.append((float(poisson.sf(close.sum() - 1, expected)), close))
    p, close = min(tests, key=lambda test: test[0])
    if p > CONCLUSIVE:
        return None
    pairs = {
        (min(a, b), max(a, b)) for a, b in zip(usable[close], usable[twin[close]], strict=True)
    }
    return Copies(tuple(sorted((int(a), int(b)) for a, b in pairs)), p)


def _neighbors(points: FloatArray, owner: IntArray | None) -> tuple[IntArray, FloatArray]:
    """Return (n, neighbors) positions and distances of each patient's nearest other patients."""
    count = min(2 * NEAR, len(points) // 3)
    who = np.empty((len(points), count), dtype=np.int64)
    apart = np.empty((len(points), count))
    coarse = points.astype(np.float32)
    size = (coarse**2).sum(axis=1)
    for start in range(0, len(points), ROWS):
        rows = np.arange(start, min(start + ROWS, len(points)))
        squared = size[rows, None] + size - 2 * coarse[rows] @ coarse.T
        squared[np.arange(len(rows)), rows] = np.inf
        if owner is not None:
            squared[owner[rows, None] == owner] = np.inf
        nearest = np.argpartition(squared, count - 1, axis=1)[:, :count]
        exact = np.sqrt(((points[rows, None] - points[nearest]) ** 2).sum(axis=2))
        exact[~np.isfinite(np.take_along_axis(squared, nearest, axis=1))] = np.inf
        order = np.argsort(exact, axis=1, kind="stable")
        who[rows] = np.take_along_axis(nearest, order, axis=1)
        apart[rows] = np.take_along_axis(exact, order, axis=1)
    return who, apart


def _closer_outcomes(time: FloatArray, event: FloatArray, who: IntArray) -> FloatArray:
    """Return the share of patients whose outcome is as close as each neighbor's, (n, neighbors)."""
    scale = np.log(time + 0.5) if time.min() >= 0 else time
    share = np.ones(who.shape)
    for state in np.unique(event):
        line = np.sort(scale[event == state])
        mine = np.flatnonzero(event == state)
        gap = np.abs(scale[mine, None] - scale[who[mine]]) + 1e-9
        low = np.searchsorted(line, scale[mine, None] - gap, side="left")
        high = np.searchsorted(line, scale[mine, None] + gap, side="right")
        same = event[who[mine]] == state
        share[mine] = np.where(same, (high - low - 1) / (len(time) - 1), 1.0)
    return share
