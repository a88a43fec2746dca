"""Outcomes computed from dates: a start, an end, and a day of death or a status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sage.core.errors import InputError
from sage_import.intake.coding import detect_coding, is_number_of_death, side_of
from sage_import.intake.guesses import Corrections, Guess, make_guess
from sage_import.intake.names import BIRTH, DEATH, LABELS, LAST, START, stem, words
from sage_import.intake.outcome import Outcome
from sage_import.intake.paired import build_endpoint, find_contact, is_event, pair_columns
from sage_import.intake.values import Column


def find_dated_outcomes(
    own: list[Column], columns: Mapping[tuple[str, str], Column], said: Corrections, taken: set[str]
) -> list[Outcome]:
    """Find overall survival in days to death and to last contact, or in dates."""
    if "OS" in taken or any(name == "OS" for name, _, _ in pair_columns(own)):
        return []
    event = next(
        (
            column
            for column in own
            if is_event(column)
            and stem(column.name) in ("OS", "")
            and {side_of(value, column.name) for value in column.counts} == {0, 1}
        ),
        None,
    )
    death = next((column for column in own if is_number_of_death(column)), None)
    contact = find_contact(own)
    if event is not None and death is not None and contact is not None:
        made = build_endpoint("OS", event, death, own, columns, said)
        return [made] if made is not None else []
    dates = [column for column in own if column.is_date and not BIRTH.search(words(column.name))]
    died = next((column for column in dates if DEATH.search(words(column.name))), None)
    last = next(
        (column for column in dates if LAST.search(words(column.name)) and column is not died), None
    )
    start = next(
        (
            column
            for column in dates
            if START.search(words(column.name)) and column is not died and column is not last
        ),
        None,
    )
    if start is None or last is None or (died is None and event is None):
        return []
    return [build_dated_outcome("OS", start, last, died, event, own)]


def build_dated_outcome(
    name: str,
    start: Column,
    last: Column,
    died: Column | None,
    event: Column | None,
    own: list[Column],
    codes_of: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Outcome:
    """Build an endpoint whose times are date differences, adding the computed columns to the table.

    Parameters
    ----------
    event : column of events; None if a date of death shows them
    codes_of : the codes that were set for each side; None to detect them in the column
    """
    used = {start.name, last.name} | ({died.name} if died else set())
    begin = start.dates()
    end = last.dates()
    dead = died.dates() if died else None
    spec: dict[str, Any] = {
        "kind": "survival",
        "table": start.table,
        "time": f"{name}.days",
        "time_unit": "days",
        "label": LABELS.get(name, name),
    }
    how = f"{start.name} to {last.name}"
    guesses: list[Guess] = []
    if event is not None:
        used.add(event.name)
        lasting = Column(start.table, f"{name}.days", (end - begin).map(_text), -1)
        if codes_of is not None:
            spec |= codes_of(spec)
        else:
            coded = detect_coding(event, lasting, own)
            if coded is None:
                raise InputError(
                    f"{event.name}: specify the event's code with event={event.name}:CODE"
                )
            spec |= {"event": event.name, "event_values": coded[0], "censored_values": coded[1]}
            guesses.append(
                coded[2].model_copy(update={"key": f"{name}.event", "what": f"{name}: event"})
            )
        happened = spec["event_values"]
        if dead is not None:
            end = end.where(~event.cells.isin(happened) | dead.isna(), dead)
            how += f", for deaths to {(died.name if died else '')}"
        made = {f"{name}.days": (end - begin).map(_text)}
    else:
        assert dead is not None and died is not None
        happened_at = dead.notna()
        end = end.where(~happened_at, dead)
        how += f", for deaths to {died.name}"
        guesses.append(
            make_guess(
                f"{name}.event",
                f"{name}: event",
                f"a date in {died.name}",
                f"{int(happened_at.sum())} of {len(happened_at)} rows have a date",
                fixed=True,
            )
        )
        spec |= {"event": f"{name}.died", "event_values": ["yes"], "censored_values": ["no"]}
        made = {
            f"{name}.days": (end - begin).map(_text),
            f"{name}.died": happened_at.map({True: "yes", False: "no"}),
        }
    lasted = (end - begin).dropna()
    if lasted.empty:
        raise InputError(
            f"{start.name}, {last.name}: no row has both dates; set dates, start or end"
        )
    below = int((lasted < 0).sum())
    evidence = f"{len(lasted)} differences, {lasted.min():g} to {lasted.max():g} days"
    if below:
        spec["invalid_times"] = "exclude"
        evidence += f"; {below} negative times are omitted from this outcome"
    guesses.insert(
        0,
        make_guess(
            f"{name}.start", f"{name}: time", how, evidence, "unsure" if below else "likely"
        ),
    )
    return Outcome(name, start.table, spec, used, guesses, made)


def _text(days: float) -> str:
    return "" if days != days else format(days, "g")
