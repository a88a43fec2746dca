"""Outcomes defined by a column of times and a column of events."""

from __future__ import annotations

from collections.abc import Mapping

from sage_import.intake.coding import detect_coding, is_number_of_death, side_of
from sage_import.intake.guesses import Corrections
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
from sage_import.intake.outcome import Outcome, negative_times, time_guess
from sage_import.intake.time_units import detect_time_unit
from sage_import.intake.values import Column
from validation.cohort.tables import codes

COVERED = 0.8


def pair_columns(own: list[Column]) -> list[tuple[str, Column, Column]]:
    """Find the best pair of event and time columns for each endpoint name."""
    died = any(is_number_of_death(column) for column in own)
    times = [
        column
        for column in own
        if _is_time(column) and not (died and CONTACT.search(words(column.name)))
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
    both = (~event.absent) & (~time.absent)
    known = int((~event.absent).sum())
    if not known or both.sum() < COVERED * known:
        return 0.0
    return score


def _is_time(column: Column) -> bool:
    named = set(tokens(column.name))
    if not column.numeric or column.odd or len(set(column.numbers)) < 6 or (named & NO_TIME):
        return False
    if {"last"} & named and not named & TIME:
        return False
    values = column.numbers
    if values.between(1900, 2100).mean() > 0.9 or (values < 0).mean() > 0.1:
        return False
    outcome = stem(column.name)
    return bool(named & TIME) or (bool(outcome) and len(set(values)) > 10)


def is_event(column: Column) -> bool:
    """Return True for a column whose name refers to an event."""
    named = set(tokens(column.name))
    if not 2 <= len(column.counts) <= 8 or named & NO_EVENT:
        return False
    if not stem(column.name) and not named & EVENT:
        return False
    kept = set(codes(column.present))
    if kept <= {"0", "1"} or kept <= {"1", "2"}:
        return True
    sides = [side_of(value, column.name) for value in column.counts]
    if all(side is None for side in sides):
        return False
    return bool(stem(column.name)) or sides.count(None) == 0


def build_endpoint(
    name: str,
    event: Column,
    time: Column,
    own: list[Column],
    columns: Mapping[tuple[str, str], Column],
    said: Corrections,
) -> Outcome | None:
    """Build an endpoint from an event column and a time column.

    Returns
    -------
    The outcome; None if the codes do not show which side is the event.
    """
    coded = detect_coding(event, time, own)
    if coded is None:
        return None
    happened, censored, guess = coded
    contact = find_contact(own) if "death" in tokens(time.name) else None
    unit, how = detect_time_unit(time, event, happened, own)
    prefix = f"{name}."
    spec = {
        "kind": "survival",
        "table": time.table,
        "time": time.name,
        "time_unit": unit,
        "event": event.name,
        "event_values": happened,
        "censored_values": censored,
        "label": LABELS.get(name, name),
    }
    if contact is not None:
        spec["time_censored"] = contact.name
    guesses = [
        time_guess(prefix, name, time, event, contact),
        how.model_copy(update={"key": f"{prefix}unit"}),
        guess.model_copy(update={"key": f"{prefix}event", "what": f"{name}: event"}),
    ]
    guesses += negative_times(
        prefix, name, spec, [time, *([contact] if contact is not None else [])]
    )
    used = {time.name, event.name} | ({contact.name} if contact is not None else set())
    return Outcome(name, time.table, spec, used, guesses)


def find_contact(own: list[Column]) -> Column | None:
    """Find the column of times to the last contact."""
    return next(
        (
            column
            for column in own
            if CONTACT.search(words(column.name))
            and column.numeric
            and set(tokens(column.name)) & TIME
        ),
        None,
    )
