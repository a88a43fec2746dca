"""Recognition of patients by recorded values, regardless of file, identifiers or column names.

Each patient has a 64-bit fingerprint for every *view*: a measured variable, a few
variables together, or an outcome with variables. Values are reduced to three significant
digits without their power of ten, times to whole months; names and order are ignored.
Most views therefore survive rounding, another export, omitted rows and columns, and new
identifiers. An outcome in a unit other than declared is looked up in the usual units. The
ledger keeps the fingerprints of `PILOTS` patients from each population; a cohort that
contains enough of them has the same patients. On the shared patients, a variable is
identified by its ranks, and an outcome by its ranks and events, up to a cutoff in
follow-up.

Fingerprints are unkeyed hashes: anyone with a patient's exact values can tell that the
patient is in the ledger. They contain no identifier.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sage.core.errors import InputError

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort

PILOTS = 128
VIEWS = 64
MEASURED = 20
"""Minimum number of distinct values for a variable to count as measured."""
DISTINCT = 0.9
"""Share of patients whom a view must distinguish from all others.

The remaining 10% bounds the share of patients in an unrelated cohort with the same
distribution that would be mistaken for this cohort's.
"""
SAME, ALONE = 0.3, 0.5
"""Minimum share of the possible common patients for two cohorts to have the same patients.

The first applies if several views identify the same patients, the second to a single
view.
"""
FEWEST = 8
SHARED = 16
"""Minimum number of common patients for comparing two variables by rank."""
TWIN = 0.95
"""Minimum rank correlation for two columns of the same patients to be the same variable."""
COLUMNS = 7
"""Number of variables with the most distinct values, whose pairs and triples are views."""
UNITS = (1.0, 7.0, 10.0, 12.0, 30.4375, 365.25)
"""Conversion factors between the units in which times are exported; inverses are also tried."""
SKETCH = 32
"""Number of fingerprints stored in the index for each view, the lowest values."""
ABSENT = 255

Tokens = NDArray[np.uint64]
Values = NDArray[np.float64]
ONE = np.uint64(1)


@dataclass(frozen=True)
class Population:
    """Fingerprints of a cohort's patients for the ledger.

    `views` is (views, pilots), with 0 if a view does not identify a pilot; `known` is the
    number of patients that each view distinguishes; `outcomes` has the pilots' ranks in time,
    with the event, by endpoint (`courses`).
    """

    patients: int
    views: Tokens
    known: tuple[int, ...]
    outcomes: dict[str, Tokens]

    @cached_property
    def pack(self) -> bytes:
        """Serialize the population to bytes, which are equal for equal populations."""
        names = sorted(self.outcomes)
        header = {"patients": self.patients, "known": self.known, "outcomes": names}
        blocks = [self.views, *(self.outcomes[name] for name in names)]
        return pack(header, np.vstack(blocks) if len(blocks) > 1 else self.views)

    @property
    def digest(self) -> str:
        """Hash of these patients as described in this cohort."""
        return hashlib.sha256(self.pack).hexdigest()

    @classmethod
    def unpack(cls, data: bytes) -> Population:
        """Parse the output of `pack`."""
        header, block = unpack(data)
        views = len(header["known"])
        return cls(
            header["patients"],
            block[:views].astype(np.uint64),
            tuple(header["known"]),
            {name: block[views + at] for at, name in enumerate(header["outcomes"])},
        )


@dataclass(frozen=True)
class Match:
    """Patients shared by a stored population and a cohort: positions of pilots and of patients."""

    pilots: NDArray[np.int64]
    patients: NDArray[np.int64]


class Patients:
    """A cohort's patients with the fingerprints for every view.

    Outcomes leave this class only as hashes and ranks.
    """

    def __init__(self, cohort: Cohort) -> None:
        self.cohort = cohort
        self.compared: dict[str, tuple[Population, Match] | None] = {}
        """Stored populations compared so far, by digest; None without common patients."""
        self.ids = cohort.patients
        self.outcomes = {name: outcome for name in cohort.spec.endpoints
                         if (outcome := self._outcome(name)) is not None}  # fmt: skip
        columns = self._columns()
        months = [_month_tokens(*outcome) for outcome in self.outcomes.values()]
        whole = sum((mix(tokens) for tokens in (*months, *columns)), np.zeros(len(self.ids), "u8"))
        self.whole: Tokens = whole
        order = np.lexsort((np.arange(len(self.ids)), self.whole))
        self.pilots: NDArray[np.int64] = order[:PILOTS]
        kept = _distinguishing(
            joined for size in range(1, COLUMNS + 1) for joined in _joined(columns, size)
        )
        self._partners = [joined for size in (1, 2, 3) for joined in _joined(columns[:4], size)]
        kept += self._with_months(1.0)
        self._tokens = np.asarray(kept or [self._everybody()])

    @cached_property
    def population(self) -> Population:
        """The fingerprints stored in the ledger."""
        tokens = self._tokens
        if self.is_coarse:
            views = np.zeros((1, len(self.pilots)), dtype=np.uint64)
            views[0, 0] = tokens[0, 0]
        else:
            views = tokens[:, self.pilots]
        return Population(
            patients=len(self.ids),
            views=views,
            known=tuple(int(item) for item in (tokens != 0).sum(axis=1)),
            outcomes={
                name: courses(*(part[self.pilots] for part in outcome))
                for name, outcome in self.outcomes.items()
            },
        )

    @property
    def is_coarse(self) -> bool:
        """True if no view distinguishes patients, so only an identical table is recognized."""
        return bool(self._tokens.shape[1] != len(self.ids))

    @cached_property
    def sketch(self) -> list[int]:
        """The fingerprints to look up in the index: the lowest in each view, as signed integers."""
        views = [view for block in self._blocks for view in block]
        wanted = np.concatenate([np.sort(item[item != 0])[: 8 * SKETCH] for item in views])
        return [int(item) for item in np.unique(wanted).view(np.int64)]

    @cached_property
    def _blocks(self) -> list[Tokens]:
        """The views as stored, and outcome views for each other unit and rounding of time."""
        scales = [factor for unit in UNITS[1:] for factor in (unit, 1 / unit)]
        others = [self._with_months(scale) for scale in scales]
        others += [self._with_months(1.0, later) for later in (-1, 1)]
        return [self._tokens, *(np.asarray(views) for views in others if views)]

    @cached_property
    def _sorted_blocks(self) -> list[tuple[Tokens, NDArray[np.int64]]]:
        """The sorted fingerprints in each block, and the patients they belong to."""
        found = []
        for block in self._blocks:
            flat = block.ravel()
            order = np.argsort(flat, kind="stable")
            found.append((flat[order], order % block.shape[1]))
        return found

    def match(self, stored: Population) -> Match | None:
        """Find the common patients; return None if no view shows enough of them.

        Each pilot is assigned the patient matched by the most views.
        """
        best: Match | None = None
        for tokens, owner in self._sorted_blocks:
            named: list[NDArray[np.int64]] = []
            share = 0.0
            for view, known in zip(stored.views, stored.known, strict=True):
                pilots = np.flatnonzero(view)
                at = np.minimum(np.searchsorted(tokens, view[pilots]), len(tokens) - 1)
                hit = tokens[at] == view[pilots]
                possible = len(pilots) * min(1.0, max(len(self.ids), 1) / max(known, 1))
                if hit.sum() >= min(FEWEST, len(pilots)) > 0:
                    share = max(share, hit.sum() / possible)
                named.append(np.column_stack((pilots[hit], owner[at[hit]])))
            if share < SAME:
                continue
            match, sure = _most_named(np.concatenate(named))
            enough = sure or share >= ALONE
            if enough and (best is None or len(match.pilots) > len(best.pilots)):
                best = match
        if best is not None and self.is_coarse:
            nobody = np.empty(0, dtype=np.int64)
            return Match(nobody, nobody)
        return best

    def same_outcome(self, name: str, stored: Population, other: str, match: Match) -> bool:
        """Check whether an endpoint matches a stored population's outcome, up to scale and cutoff.

        Either may be the other with follow-up cut at some time.
        """
        mine, theirs = self.outcomes.get(name), stored.outcomes.get(other)
        if mine is None or theirs is None or len(match.pilots) < FEWEST:
            return False
        both = [read_courses(courses(*(part[match.patients] for part in mine))),
                read_courses(theirs[match.pilots])]  # fmt: skip
        known = np.isfinite(both[0][0]) & np.isfinite(both[1][0])
        if known.sum() < FEWEST or known.mean() < TWIN:
            return False
        first, second = ((time[known], event[known]) for time, event in both)
        return _same_course(first, second) or _same_course(second, first)

    def profile(self, key: str) -> bytes:
        """Return the ranks of a variable among the pilots, one byte each."""
        ranks: bytes = profiles(numbers(self.cohort.column(key))[None, self.pilots])[0].tobytes()
        return ranks

    def twins(self, key: str, stored: NDArray[np.uint8], match: Match) -> NDArray[np.int64]:
        """Find stored variables (rows of ranks) that equal this one, ignoring name and scale."""
        values = numbers(self.cohort.column(key))[match.patients]
        return twins(values, stored[:, match.pilots])

    def _outcome(self, name: str) -> tuple[Values, Values] | None:
        """Return each patient's months (or value) and event; NaN if unknown."""
        try:
            found = self.cohort.outcome(name).reindex(self.ids)
        except InputError:
            return None
        time = found["value" if "value" in found else "time"].to_numpy(dtype=float)
        event = found["event"].to_numpy(dtype=float) if "event" in found else 0 * time + 1
        return time, event

    def _columns(self) -> list[Tokens]:
        """Fingerprint each variable, in descending order of distinct values."""
        found = []
        for key in self.cohort.variables:
            try:
                found.append(column_tokens(self.cohort.column(key)))
            except InputError:
                continue  # Reported where the column is used.
        return sorted(found, key=lambda tokens: -len(np.unique(tokens)))

    def _with_months(self, scale: float, later: int = 0) -> list[Tokens]:
        """Return views of outcomes in another unit, both on their own and joined with variables."""
        timed = self.outcomes.values()
        months = [_month_tokens(time * scale, event, later) for time, event in timed]
        exact = [_month_tokens(100 * time * scale + 0.5, event, later) for time, event in timed]
        joined = (_join(pair) for pair in product([*months, *exact], self._partners))
        return _distinguishing(chain(months, exact, joined))

    def _everybody(self) -> Tokens:
        """Compute a fingerprint of the whole table, for patients with barely distinct records."""
        text = np.sort(self.whole).tobytes()
        return np.frombuffer(hashlib.sha256(text).digest()[:8], dtype=np.uint64)


def _most_named(pairs: NDArray[np.int64]) -> tuple[Match, bool]:
    """Assign each pilot the most frequently matched patient; report whether several views agree.

    If they do, pilots matched by far fewer views than others are left out as chance matches.
    """
    unique, votes = np.unique(pairs, axis=0, return_counts=True)
    order = np.lexsort((-votes, unique[:, 0]))
    pilots, first = np.unique(unique[order, 0], return_index=True)
    patients, votes = unique[order, 1][first], votes[order][first]
    agreed = votes >= max(2.0, 0.5 * float(np.quantile(votes, 0.9)))
    sure = bool(agreed.sum() >= FEWEST)
    return (Match(pilots[agreed], patients[agreed]) if sure else Match(pilots, patients)), sure


def _join(views: Sequence[Tokens]) -> Tokens:
    """Combine views, in any order; 0 where any is 0."""
    known = np.all([view != 0 for view in views], axis=0)
    total = sum((mix(view) for view in views), np.zeros(len(views[0]), dtype=np.uint64))
    return np.where(known, mix(total), np.uint64(0))


def _joined(columns: Sequence[Tokens], size: int) -> Iterator[Tokens]:
    """Join every combination of `size` columns among the first ones."""
    return (_join(group) for group in combinations(columns[:COLUMNS], size))


def _distinguishing(views: Iterable[Tokens]) -> list[Tokens]:
    """Return the first views that distinguish most patients, with 0 for indistinct patients."""
    kept: list[Tokens] = []
    for view in views:
        present, alone = int((view != 0).sum()), _unique(view)
        if present >= min(MEASURED, len(view)) and (alone != 0).sum() >= DISTINCT * present:
            kept.append(alone)
        if len(kept) == VIEWS // 2:
            break
    return kept


def _month_tokens(time: Values, event: Values, later: int = 0) -> Tokens:
    """Fingerprint whole months (or a value's whole units) with the event; 0 if unknown."""
    known = np.isfinite(time) & np.isfinite(event)
    months = np.where(known, np.floor(np.where(known, time, 0) + 1e-6) + later, 0).astype(np.int64)
    events = np.where(known, event, 0).astype(np.int64)
    tokens = combine(mix(months.view(np.uint64)), mix(events.view(np.uint64) + ONE))
    return np.where(known, tokens, np.uint64(0))


def courses(time: Values, event: Values) -> Tokens:
    """Encode each patient's rank in time, in half ranks, with the event; 0 if unknown."""
    known = np.isfinite(time) & np.isfinite(event)
    ranks = half_ranks(np.where(known, time, np.inf)[None, :])[0]
    coded = 1 + ranks + (np.where(known, event, 0).astype(np.int64) << 32)
    return np.where(known, coded, 0).astype(np.uint64)


def read_courses(coded: Tokens) -> tuple[Values, Values]:
    """Decode `courses` to ranks and events; NaN if unknown."""
    values = coded.astype(np.int64)
    rank, event = (values & 0xFFFFFFFF).astype(float), (values >> 32).astype(float)
    return np.where(values == 0, np.nan, rank), np.where(values == 0, np.nan, event)


def _same_course(full: tuple[Values, Values], cut: tuple[Values, Values]) -> bool:
    """Check whether the outcomes match when follow-up in one is cut at the other's longest time."""
    time, event = cut
    late = int(((time == time.max()) & (event == 0)).sum())
    ranks, events = full
    if late > 1:
        limit = np.sort(ranks)[-late]
        events = np.where(ranks >= limit, 0, events)
        ranks = np.minimum(ranks, limit)
    if np.ptp(ranks) == 0 or np.ptp(time) == 0 or (events == event).mean() < TWIN:
        return False
    first, second = half_ranks(np.vstack([ranks, time]))
    likeness = float(np.corrcoef(first, second)[0, 1])
    return likeness >= TWIN


def index_of(population: Population) -> list[int]:
    """Return the fingerprints under which a population is indexed, as signed integers."""
    wanted = [np.sort(view[view != 0])[:SKETCH] for view in population.views]
    return [int(item) for item in np.unique(np.concatenate(wanted)).view(np.int64)]


def mix(values: Tokens) -> Tokens:
    """Scramble the bits with the splitmix64 finalizer."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Tokens = x ^ (x >> np.uint64(31))
    return mixed


def combine(first: Tokens, second: Tokens) -> Tokens:
    """Combine two fingerprints; order matters."""
    return mix(first * np.uint64(0x100000001B3) + mix(second))


def column_tokens(column: pd.Series) -> Tokens:
    """Fingerprint each value, 0 if missing; numbers by sign and three significant digits."""
    missing = column.isna().to_numpy()
    if pd.api.types.is_numeric_dtype(column.dtype):
        values = column.to_numpy(dtype=float, na_value=np.nan)
        safe = np.where(missing | ~np.isfinite(values) | (values == 0), 1.0, values)
        digits = np.rint(100 * safe / 10.0 ** np.floor(np.log10(np.abs(safe))))
        digits = np.where(np.abs(digits) >= 1000, digits / 10, digits)
        tokens = mix(np.where(values == 0, 0, digits).astype(np.int64).view(np.uint64))
    else:
        codes, levels = pd.factorize(column.astype("string"), use_na_sentinel=True)
        each = [
            hashlib.sha256(str(level).strip().lower().encode()).digest()[:8] for level in levels
        ]
        table = np.frombuffer(b"".join(each) + bytes(8), dtype="<u8").astype(np.uint64)
        tokens = table[codes]
    return np.where(missing, np.uint64(0), tokens)


def _unique(view: Tokens) -> Tokens:
    """Return the fingerprints, with 0 in place of duplicates."""
    _, inverse, counts = np.unique(view, return_inverse=True, return_counts=True)
    return np.where(counts[inverse] == 1, view, np.uint64(0))


# -- variables by their ranks -----


def numbers(column: pd.Series) -> NDArray[np.float64]:
    """Convert a column to numbers; text becomes the position of its level by frequency."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        values = column.to_numpy(dtype=float, na_value=np.nan)
        return np.asarray(np.where(np.isfinite(values), values, np.nan), dtype=np.float64)
    order = {level: at for at, level in enumerate(column.value_counts().index)}
    return column.map(order).to_numpy(dtype=float, na_value=np.nan)


def profiles(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return (variables, pilots) mid-ranks as bytes, in half ranks from 0; `ABSENT` if missing."""
    missing = np.isnan(values)
    ranks = half_ranks(np.where(missing, np.inf, values))
    return np.where(missing, ABSENT, ranks).astype(np.uint8)


def half_ranks(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Compute twice the mid-ranks of each row, from 0; ties share their mean rank."""
    from scipy.stats import rankdata

    ranks: NDArray[np.float64] = rankdata(values, axis=1)
    return np.rint(2 * ranks - 2).astype(np.int64)


def twins(values: NDArray[np.float64], stored: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Find the rows of stored ranks that order patients as these values do, or in reverse.

    If either has few levels, the other is first cut into groups of the same sizes, so that a
    variable that was cut at its median still counts as the same variable.
    """
    present = np.isfinite(values)
    values, stored = values[present], stored[:, present]
    if len(values) < SHARED:
        return np.empty(0, dtype=np.int64)
    here = stored != ABSENT
    rows = np.where(here, stored, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        centered = np.nan_to_num(rows - np.nanmean(rows, axis=1, keepdims=True))
        mine = profiles(values[None, :])[0].astype(float)
        mine = mine - mine.mean()
        size = np.sqrt((centered**2).sum(axis=1) * (mine**2).sum())
        rough = np.abs(centered @ mine / np.where(size > 0, size, np.inf))
    near = np.flatnonzero((rough >= 0.5) & (here.sum(axis=1) >= SHARED))
    return np.asarray(
        [at for at in near if _same_order(values[here[at]], stored[at, here[at]].astype(float))],
        dtype=np.int64,
    )


def _same_order(left: NDArray[np.float64], right: NDArray[np.float64]) -> bool:
    for sign in (1.0, -1.0):
        first, second = _to_levels(left, sign * right)
        if first.std() == 0 or second.std() == 0:
            return False
        if np.corrcoef(first, second)[0, 1] >= TWIN:
            return True
    return False


def _to_levels(
    left: NDArray[np.float64], right: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rank both, cutting the finer into groups of the same sizes as the coarser one's levels."""
    ranks = [each.astype(float) for each in half_ranks(np.vstack([left, right]))]
    levels = [np.unique(each) for each in ranks]
    coarse = 0 if len(levels[0]) < len(levels[1]) else 1
    if len(levels[coarse]) <= FEWEST:
        sizes = [int((ranks[coarse] == level).sum()) for level in levels[coarse]]
        if min(sizes) >= FEWEST:
            cut = np.repeat(levels[coarse], sizes)
            fine = np.argsort(ranks[1 - coarse], kind="stable")
            grouped = np.empty(len(cut))
            grouped[fine] = cut
            ranks[1 - coarse] = grouped
    return ranks[0], ranks[1]


# -- serialization -----


def pack(header: dict[str, Any], block: NDArray[Any]) -> bytes:
    """Serialize to a JSON line, followed by the array's bytes."""
    said = {**header, "shape": block.shape, "dtype": block.dtype.str}
    return json.dumps(said, sort_keys=True).encode() + b"\n" + np.ascontiguousarray(block).tobytes()


def unpack(data: bytes) -> tuple[dict[str, Any], NDArray[Any]]:
    """Parse the output of `pack`."""
    line, _, raw = data.partition(b"\n")
    header = json.loads(line)
    return header, np.frombuffer(raw, dtype=header["dtype"]).reshape(header["shape"])


def pack_features(names: Sequence[str], ranks: NDArray[np.uint8]) -> bytes:
    """Serialize features with their ranks among the pilots."""
    return pack({"names": list(names)}, ranks)
