"""The specification curve as marks that a reader can point at or step through by keyboard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from validation.contracts.contract import DIFFERENCES

HEIGHT = 150
"""Height in pixels of the panel with the estimates; each row of choices takes ROW pixels."""
ROW = 18
MARGIN = 8
NUMBERS = ("estimate", "lower", "upper", "n", "events", "p", "reason", "same fit")
RATIOS = (0.1, 0.2, 0.33, 0.5, 0.67, 1, 1.5, 2, 3, 5, 10)
LIMITS = (0.05, 20.0)


@dataclass(frozen=True)
class Point:
    """A specification with its positions in pixels from the top, its choices and its result."""

    at: float
    low: float
    high: float
    shown: bool
    marks: tuple[int, ...]
    choices: tuple[tuple[str, str], ...]
    row: dict[str, str]


@dataclass(frozen=True)
class Curve:
    """All specifications sorted by estimate, with rows of choices, ticks and failed fits."""

    scale: str
    points: tuple[Point, ...]
    rows: tuple[tuple[str, str], ...]
    ticks: tuple[tuple[float, str], ...]
    null: float
    failed: int

    @property
    def top(self) -> int:
        """Height of the panel with the estimates, in pixels."""
        return HEIGHT

    @property
    def height(self) -> int:
        """Height of a column, in pixels."""
        return HEIGHT + ROW * len(self.rows)


def curve_of(rows: Sequence[dict[str, str]], scale: str) -> Curve | None:
    """Build the curve from a results table; return None if nothing could be estimated."""
    whole = [row for row in rows if all(_number(row.get(name)) for name in NUMBERS[:3])]
    fitted = sorted(whole, key=lambda row: float(row["estimate"]))
    if len(fitted) < 2:
        return None
    names = [name for name in fitted[0] if name not in NUMBERS]
    used = {name: list(dict.fromkeys(row.get(name, "") for row in fitted)) for name in names}
    choices = [(name, value) for name in names if len(used[name]) > 1 for value in used[name]]
    ratio = scale not in DIFFERENCES
    null = 1.0 if ratio else 0.0
    ends = [float(row[end]) for row in fitted for end in ("lower", "upper")] + [null]
    low, high = min(ends), max(ends)
    if ratio:
        low, high = max(LIMITS[0], low), min(LIMITS[1], high)

    def place(value: float) -> float:
        if ratio:
            value = min(max(value, LIMITS[0]), LIMITS[1])
            share = math.log(value / low) / math.log(high / low)
        else:
            share = (value - low) / (high - low)
        return round(HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN), 1)

    points = tuple(
        Point(
            at=place(float(row["estimate"])),
            low=place(float(row["lower"])),
            high=place(float(row["upper"])),
            shown=not float(row["lower"]) <= null <= float(row["upper"]),
            marks=tuple(
                HEIGHT + ROW * number + ROW // 2
                for number, (name, value) in enumerate(choices)
                if row.get(name, "") == value
            ),
            choices=tuple((name, row.get(name, "")) for name in names),
            row=row,
        )
        for row in fitted
    )
    steps = RATIOS if ratio else (null,)
    ticks = [(place(step), f"{step:g}") for step in steps if low <= step <= high]
    apart: list[tuple[float, str]] = [(place(null), f"{null:g}")]
    for at, label in ticks:
        if all(abs(at - other) >= 14 for other, _ in apart):
            apart.append((at, label))
    return Curve(scale, points, tuple(choices), tuple(apart), place(null), len(rows) - len(fitted))


def _number(text: str | None) -> bool:
    try:
        return math.isfinite(float(text or ""))
    except ValueError:
        return False
