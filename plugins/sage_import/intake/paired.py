"""Recognition of time and event columns, and of the pairs that belong together."""

from __future__ import annotations

from sage_import.intake.coding import FLAGS, is_number_of_death, side_of
from sage_import.intake.names import (
    CONTACT,
    DEATHS,
    EVENT,
    LABELS,
    NO_EVENT,
    NO_TIME,
    TIME,
    stem,
    tokens,
    words,
)
from sage_import.intake.values import Column
from validation.cohort.tables import codes

COVERED = 0.8
NAMED_EVENT = (("e",), ("observed",), ("delta",))
"""Full event column names used in tutorials."""


def pair_columns(own: list[Column], *, contacts: bool) -> list[tuple[str, Column, Column]]:
    """Find the best pair of event and time columns for each endpoint name.

    With `contacts`, times to death apply only to patients who died; the others have a last
    contact.
    """
    died = any(is_number_of_death(column) for column in own)
    times = [
        column
        for column in own
        if is_length(column)
        and not (died and CONTACT.search(words(column.name)))
        and not (contacts and is_number_of_death(column))
    ]
    events = [column for column in own if is_event(column)]
    best: dict[str, tuple[float, Column, Column]] = {}
    for event in events:
        name = stem(event.name)
        for time in times:
            if time.name == event.name:
                continue
            score = _fit(event, time, name, own)
            label = name or stem(time.name) or "OS"
            if score > 0 and (label not in best or score > best[label][0]):
                best[label] = (score, event, time)
    order = list(LABELS)
    return [
        (name, event, time)
        for name, (_, event, time) in sorted(best.items(), key=lambda item: order.index(item[0]))
    ]


def _fit(event: Column, time: Column, name: str, own: list[Column]) -> float:
    of_time = stem(time.name)
    shared = set(tokens(event.name)) & set(tokens(time.name))
    score = 2.0 * len(shared) + (1.5 if abs(event.place - time.place) == 1 else 0.0)
    score -= 0.4 * len(tokens(event.name)) + 0.2 * len(tokens(time.name))
    if name and of_time == name:
        score += 10
    elif not name or (not of_time and name in DEATHS):
        score += 5
    elif of_time == "OS" and name in DEATHS:
        score += 4
    else:
        return 0.0
    if event.table != time.table:
        return score
    both = (~event.absent) & (~time.absent)
    known = int((~event.absent).sum())
    return score if known and both.sum() >= COVERED * known else 0.0


def is_length(column: Column) -> bool:
    """Return True for a column whose name and numbers indicate follow-up times."""
    named = set(tokens(column.name))
    if not column.numeric or len(set(column.numbers)) < 6 or (named & NO_TIME):
        return False
    if {"last"} & named and not named & TIME:
        return False
    values = column.numbers
    if values.between(1900, 2100).mean() > 0.9 or (values < 0).mean() > 0.1:
        return False
    outcome = stem(column.name)
    return (
        bool(named & TIME)
        or tokens(column.name) == ("t",)
        or (bool(outcome) and len(set(values)) > 10)
    )


def is_event(column: Column) -> bool:
    """Return True for a column whose name refers to an event."""
    named = set(tokens(column.name))
    if not 2 <= len(column.counts) <= 8 or named & NO_EVENT:
        return False
    if not stem(column.name) and not named & EVENT and tokens(column.name) not in NAMED_EVENT:
        return False
    if tuple(sorted({code.casefold() for code in codes(column.present)})) in FLAGS:
        return True
    sides = [side_of(value, column.name) for value in column.counts]
    if all(side is None for side in sides):
        return False
    return bool(stem(column.name)) or sides.count(None) == 0
