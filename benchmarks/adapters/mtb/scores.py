"""Accuracy with intervals that draw patients, beside the best constant answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.adapters.mtb.types import Row
from sage.core.models import Strict

DRAWS = 2000


class Score(Strict):
    """Questions of one group.

    `low` to `high` is the 95% interval of accuracy, percentiles of draws of patients with
    replacement. `floor` is the best single letter, chosen with the answers in view; `over` is
    accuracy less that letter's, with its own interval over the same draws.
    """

    group: str
    questions: int
    patients: int
    accuracy: float
    low: float
    high: float
    floor: float
    floor_letter: str
    over: float
    over_low: float
    over_high: float
    unanswered: int
    files_read: float
    hallucinated: int
    tokens: int

    @property
    def above_floor(self) -> bool:
        """Whether the interval of accuracy excludes the floor."""
        return self.low > self.floor


class Scored(Strict):
    """A track: all questions, each type, each half of the patients, and the floor by type."""

    track: str
    agent: str
    groups: tuple[Score, ...]
    floor_by_type: float
    usd: float
    seconds: float


def score(rows: Sequence[Row], agent: str, *, seed: int = 1) -> Scored:
    """The figures of one track.

    Parameters
    ----------
    rows : of one track, not empty
    agent : who answered
    seed : of the draws
    """
    groups = {"all": list(rows)}
    for kind in dict.fromkeys(row.kind for row in rows):
        groups[kind] = [row for row in rows if row.kind == kind]
    for half in ("development", "held-out"):
        groups[f"{half} half"] = [row for row in rows if row.half == half]
    kinds = [group for name, group in groups.items() if name in {row.kind for row in rows}]
    best = sum(Counter(row.truth for row in group).most_common(1)[0][1] for group in kinds)
    return Scored(
        track=rows[0].track.value,
        agent=agent,
        groups=tuple(_score(name, own, seed) for name, own in groups.items() if own),
        floor_by_type=best / len(rows),
        usd=sum(row.usd for row in rows),
        seconds=round(sum(row.seconds for row in rows), 1),
    )


def _score(group: str, rows: Sequence[Row], seed: int) -> Score:
    import numpy as np

    from sage.core.seeds import generator

    letter = min(Counter(row.truth for row in rows).items(), key=lambda item: (-item[1], item[0]))[
        0
    ]
    patients = sorted({row.case for row in rows})
    place = {patient: number for number, patient in enumerate(patients)}
    right, floor, asked = (np.zeros(len(patients)) for _ in range(3))
    for row in rows:
        right[place[row.case]] += row.right
        floor[place[row.case]] += row.truth == letter
        asked[place[row.case]] += 1
    drawn = generator(seed).integers(len(patients), size=(DRAWS, len(patients)))
    sums = asked[drawn].sum(axis=1)
    accuracy = right[drawn].sum(axis=1) / sums
    over = accuracy - floor[drawn].sum(axis=1) / sums
    ends = [2.5, 97.5]
    low, high = (float(value) for value in np.percentile(accuracy, ends))
    over_low, over_high = (float(value) for value in np.percentile(over, ends))
    if len(patients) == 1:  # drawn again, one patient is always the same
        low, high, over_low, over_high = 0.0, 1.0, -1.0, 1.0
    return Score(
        group=group,
        questions=len(rows),
        patients=len(patients),
        accuracy=float(right.sum() / len(rows)),
        low=low,
        high=high,
        floor=float(floor.sum() / len(rows)),
        floor_letter=letter,
        over=float((right.sum() - floor.sum()) / len(rows)),
        over_low=over_low,
        over_high=over_high,
        unanswered=sum(row.answer is None for row in rows),
        files_read=sum(len(row.files) for row in rows) / len(rows),
        hallucinated=sum(len(row.hallucinated) for row in rows),
        tokens=sum(row.tokens for row in rows),
    )
