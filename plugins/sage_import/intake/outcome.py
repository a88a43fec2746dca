"""An endpoint of `cohort.toml`, and the guesses about its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sage.core.errors import InputError
from sage_import.intake.guesses import Guess, make_guess
from sage_import.intake.values import Column


@dataclass
class Outcome:
    """An endpoint of `cohort.toml` and the columns that it uses."""

    name: str
    table: str
    spec: dict[str, Any]
    used: set[str]
    guesses: list[Guess] = field(default_factory=list)
    made: dict[str, Any] = field(default_factory=dict)
    """Columns computed from dates, by name."""


def find_column(
    name: str, columns: Mapping[tuple[str, str], Column], key: str, whole: str = ""
) -> Column:
    """Find the column that a setting names; with `whole`, the longest prefix that is a column.

    Raises `InputError` if the column does not exist.
    """
    for end in range(len(whole), 0, -1):
        if end == len(whole) or whole[end] == ":":
            for (_, own), column in columns.items():
                if own == whole[:end]:
                    return column
    for (_, own), column in columns.items():
        if own.casefold() == name.casefold():
            return column
    shown = ", ".join(dict.fromkeys(own for _, own in columns))
    raise InputError(f'--set {key}: no column "{name[:60]}". Columns: {shown[:400]}')


def time_guess(
    prefix: str, name: str, time: Column, event: Column, contact: Column | None = None
) -> Guess:
    """Build the guess about a time column, with its range and median."""
    values = time.numbers
    evidence = (
        f"{len(values)} of {len(time.cells)} known, {values.min():g} to {values.max():g}, median "
        f"{values.median():g}; next to {event.name}"
    )
    if contact is not None:
        evidence += f"; of those without the event {contact.name}"
    return make_guess(f"{prefix}time", f"{name}: time", time.name, evidence)


def negative_times(
    prefix: str, name: str, spec: dict[str, Any], times: list[Column]
) -> list[Guess]:
    """Report negative times, which are excluded."""
    below = sum(int((time.numbers < 0).sum()) for time in times)
    if not below:
        return []
    spec["invalid_times"] = "exclude"
    lowest = min(float(time.numbers.min()) for time in times)
    return [
        make_guess(
            f"{prefix}time",
            f"{name}: negative times",
            "left out",
            (
                f"{below} times are negative (minimum {lowest:g}); they are omitted from this "
                "outcome"
            ),
            "unsure",
            fixed=True,
        )
    ]
