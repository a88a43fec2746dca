"""Endpoints set by a person; anything that was not set is guessed as usual."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sage.core.errors import InputError
from sage_import.intake.coding import describe_sides
from sage_import.intake.dated import build_dated_outcome
from sage_import.intake.guesses import make_guess
from sage_import.intake.names import LABELS
from sage_import.intake.outcome import Outcome, find_column, negative_times, time_guess
from sage_import.intake.time_units import detect_time_unit
from sage_import.intake.values import Column
from validation.cohort.tables import codes


def apply_settings(
    name: str,
    columns: Mapping[tuple[str, str], Column],
    fields: dict[str, str],
    guessed: Outcome | None,
) -> Outcome:
    """Build an endpoint according to a person's settings.

    Raises `InputError` if a setting names a column or code that does not exist, or leaves
    something open.
    """
    own_all = list(columns.values())
    if "start" in fields or "end" in fields or "death" in fields:
        return _dates_as_set(name, fields, columns, own_all)
    spec = dict(guessed.spec) if guessed else {"kind": "survival", "label": LABELS.get(name, name)}
    guesses = list(guessed.guesses) if guessed else []
    used = set(guessed.used) if guessed else set()
    if "time" in fields:
        time = find_column(fields["time"], columns, "time")
        if not time.numeric or time.odd:
            raise InputError(
                f"--set {name}.time: {time.name} contains no numbers"
                + (f", only text ({', '.join(time.odd[:3])})" if time.odd else "")
            )
        if spec.get("time") != time.name:
            spec.pop("time_censored", None)
        spec |= {"table": time.table, "time": time.name}
        used.add(time.name)
    if "time" not in spec:
        raise InputError(f"--set {name}: specify the column with its time, {name}.time=COLUMN")
    timed = columns.get((spec["table"], spec["time"]))
    if "event" in fields:
        event = find_column(fields["event"].split(":")[0], columns, "event", whole=fields["event"])
        spec |= _codes_as_set(name, event, fields, spec)
        used.add(event.name)
    elif "event" not in spec:
        raise InputError(f"--set {name}: specify its event code, {name}.event=COLUMN:CODE")
    guesses = [
        guess
        for guess in guesses
        if not ("event" in fields and guess.key.endswith(".event"))
        and not ("time" in fields and guess.key.endswith((".time", ".unit")))
        and not ("unit" in fields and guess.key.endswith(".unit"))
    ]
    if "time" in fields and timed is not None and "event" in spec:
        guesses.append(
            time_guess(
                f"{name}.", name, timed, find_column(spec["event"], columns, "event")
            ).model_copy(update={"confidence": "given"})
        )
        unit, how = detect_time_unit(
            timed, None, [], [column for column in own_all if column.table == timed.table]
        )
        spec["time_unit"] = unit
        if "unit" not in fields:
            guesses.append(how.model_copy(update={"key": f"{name}.unit"}))
        guesses += negative_times(f"{name}.", name, spec, [timed])
    if "unit" in fields:
        spec["time_unit"] = fields["unit"]
        guesses.append(
            make_guess(f"{name}.unit", f"unit of {spec['time']}", fields["unit"], "as set", "given")
        )
    if "event" in fields:
        guesses.append(
            make_guess(
                f"{name}.event",
                f"{name}: event",
                f"{spec['event']}:{'|'.join(spec['event_values'])}",
                (
                    f"as set; censored: {'|'.join(spec['censored_values'])}; "
                    + (describe_sides(event, timed) if timed is not None else "")
                ),
                "given",
            )
        )
    made = guessed.made if guessed else {}
    return Outcome(name, spec["table"], spec, used, guesses, made)


def _codes_as_set(
    name: str, event: Column, fields: dict[str, str], spec: dict[str, Any]
) -> dict[str, Any]:
    """Return the codes on each side as set; the remaining codes are censored."""
    known = dict.fromkeys([*event.counts, *codes(event.present)])
    said = fields["event"][len(event.name) + 1 :]
    if said:
        happened = [code.strip() for code in said.split("|")]
    elif spec.get("event") == event.name:
        happened = list(spec["event_values"])
    else:
        raise InputError(
            f"--set {name}.event: specify the code, {event.name}:CODE; codes: "
            f"{', '.join(event.counts)}"[:300]
        )
    strange = [code for code in happened if code not in known]
    if strange:
        raise InputError(
            f'--set {name}.event: {event.name} has no code "{strange[0][:40]}"; codes: '
            f"{', '.join(event.counts)}"[:300]
        )
    if "censored" in fields:
        censored = [code.strip() for code in fields["censored"].split("|")]
        left = set(codes(event.present)) - set(happened) - set(censored) - set(event.counts)
        rest = [
            code for code in event.counts if code not in {*happened, *censored} and code in left
        ]
        if rest:
            raise InputError(
                f"--set {name}.censored: {', '.join(rest[:3])} is neither an event nor censored"
            )
    else:
        plain = set(codes(event.present)) if set(happened) <= set(codes(event.present)) else set()
        censored = sorted((plain or set(event.counts)) - set(happened))
    if not censored:
        raise InputError(
            f"--set {name}.event: all codes would be events, so nobody would be censored"
        )
    return {"event": event.name, "event_values": happened, "censored_values": censored}


def _dates_as_set(
    name: str, fields: dict[str, str], columns: Mapping[tuple[str, str], Column], own: list[Column]
) -> Outcome:
    for key in ("start", "end"):
        if key not in fields:
            raise InputError(
                f"--set {name}: dates require both start and end; set {name}.{key}=COLUMN"
            )
    start, end = (find_column(fields[key], columns, key) for key in ("start", "end"))
    died = find_column(fields["death"], columns, "death") if "death" in fields else None
    for column in (start, end, *([died] if died else [])):
        if not column.is_date:
            why = "two-digit years" if column.short_years else "no dates"
            raise InputError(
                f"--set {name}: {column.name} contains {why}; write dates as 2019-03-31"
            )
    event = None
    if "event" in fields:
        event = find_column(fields["event"].split(":")[0], columns, "event", whole=fields["event"])
    if died is None and event is None:
        raise InputError(
            f"--set {name}: specify which patients had the event, with {name}.event or {name}.death"
        )
    same = [column for column in own if column.table == start.table]
    codes_of = None
    if event is not None and fields["event"] != event.name:
        codes_of = partial(_codes_as_set, name, event, fields)
    return build_dated_outcome(name, start, end, died, event, same, codes_of)
