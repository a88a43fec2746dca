"""Outcomes: start of follow-up, last contact, and event of each patient.

Each outcome is a set of parts, which are columns from one or several tables. Parts are
found by column names and cells, and the user's settings replace them; then all outcomes
are built the same way. Anything that affects results and is not settled (the event code,
the time unit, or a part that no column contains) stays open until a person decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from sage_import.intake.coding import (
    Coding,
    describe_sides,
    detect_coding,
    is_number_of_death,
    side_of,
)
from sage_import.intake.guesses import NO_OUTCOME, SIDES, Corrections, Guess, make_guess
from sage_import.intake.names import (
    BIRTH,
    CONTACT,
    DEATH,
    LABELS,
    LAST,
    START,
    TIME,
    stem,
    tokens,
    unit_in,
    words,
)
from sage_import.intake.paired import is_event, is_length, pair_columns
from sage_import.intake.time_units import DAYS, detect_time_unit
from sage_import.intake.values import Column
from validation.cohort.tables import codes

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[tuple[str, str], Column]
RESPONDED = frozenset(
    {"cr", "pr", "cr/pr", "complete response", "partial response", "responder", "r", "response"}
    | {"complete", "partial"}
)
NOT_RESPONDED = frozenset(
    {"sd", "pd", "sd/pd", "stable disease", "progressive disease", "non-responder", "nr"}
    | {"nonresponder", "non-response", "no response", "stable", "progressive"}
)


@dataclass
class Outcome:
    """A `cohort.toml` endpoint and the columns that it uses; without `spec`, a part is open."""

    name: str
    table: str
    spec: dict[str, Any]
    used: set[tuple[str, str]]
    guesses: list[Guess] = field(default_factory=list)
    made: dict[str, pd.Series] = field(default_factory=dict)
    """Columns computed from others, by name."""

    def guess(self, *what: Any, **more: Any) -> None:
        """Add a guess or, with `open`, a question."""
        self.guesses.append(make_guess(*what, **more))


@dataclass
class Parts:
    """Columns of an outcome: its time, or else the first and last days that define it."""

    event: Column | None = None
    coded: Coding | None = None
    time: Column | None = None
    start: Column | None = None
    last: list[Column] = field(default_factory=list)
    death: Column | None = None
    entry: Column | None = None


def find_outcomes(
    columns: Columns, said: Corrections, people: Mapping[str, list[str | None]]
) -> list[Outcome]:
    """Find the endpoints in all tables, those set by the user first.

    Raises `InputError` if a setting names a column or code that does not exist.
    """
    if said.endpoints.get("", {}).get("time") == NO_OUTCOME:
        return []
    found = _find_parts(columns)
    if "" in said.endpoints:
        owner = _first_name(columns, said.endpoints[""], found)
        said.endpoints[owner] = said.endpoints.pop("") | said.endpoints.get(owner, {})
    names = dict.fromkeys([*said.endpoints, *found])
    built = []
    for name in names:
        fields = said.endpoints.get(name, {})
        parts = _apply(name, fields, found.get(name, Parts()), columns)
        made = _build(name, parts, fields, columns, people)
        if made.spec or fields:
            built.append(made)
    taken = {outcome.name for outcome in built}
    return [*built, *(item for item in _find_responses(columns.values()) if item.name not in taken)]


def locate_outcome(columns: Columns, said: Corrections) -> str | None:
    """Return the table of the outcome that the user set, or else the first found, or None."""
    for fields in said.endpoints.values():
        for key in ("event", "censored", "time", "start"):
            if key in fields and (column := _find_named(fields[key], columns)) is not None:
                return column.table
    for parts in _find_parts(columns).values():
        main = parts.event or parts.time or parts.death or parts.start
        return main.table if main else None
    return None


def ask_outcome(columns: Columns) -> list[Guess]:
    """Build the two questions asked when no column shows an outcome."""
    times = [c.name for c in columns.values() if is_length(c) or c.is_date]
    events = [c.name for c in columns.values() if 2 <= len(c.counts) <= 6]
    why = "no column is recognized as an outcome, and without one nothing can be tested"
    return [
        make_guess("time", "when was each patient last seen", "", f"{why}; columns of times or "
                   f"dates: {', '.join(times)[:200] or 'none'}; {NO_OUTCOME}: no outcome",
                   "unsure", open=True, choices=(*times[:12], NO_OUTCOME)),
        make_guess("event", "what says that the event happened", "", "give COLUMN:CODE; columns "
                   f"with few values: {', '.join(events)[:200] or 'none'}", "unsure", open=True),
    ]  # fmt: skip


# -- parts ---------------------------------------------------------------------------------------


def _find_parts(columns: Columns) -> dict[str, Parts]:
    found: dict[str, Parts] = {}
    contacts = any(_is_contact(column) for column in columns.values())
    tables = dict.fromkeys(table for table, _ in columns)
    for table in tables:
        own = [column for (where, _), column in columns.items() if where == table]
        for name, event, time in pair_columns(own, contacts=contacts):
            found.setdefault(name, Parts(event=event, time=time))
    if "OS" not in found and (parts := _last_seen(list(columns.values()))) is not None:
        found["OS"] = parts
    if "OS" not in found and len(tables) > 1:  # times and events in tables of their own
        pairs = pair_columns(list(columns.values()), contacts=contacts)
        found |= {n: Parts(event=event, time=time) for n, event, time in pairs if n not in found}
    return {name: found[name] for name in LABELS if name in found}


def _last_seen(own: list[Column]) -> Parts | None:
    """Find overall survival from days to death and last contact, or from dates, in any table."""
    status = [
        column
        for column in own
        if is_event(column)
        and stem(column.name) in ("OS", "")
        and {side_of(value, column.name) for value in column.counts} == {0, 1}
    ]
    flags = [c for c in own if is_event(c) and stem(c.name) == "OS" and not c.is_date]
    status.sort(key=lambda column: (stem(column.name) != "OS", column.absent.mean()))
    event = next(iter([*status, *flags]), None)
    death = next((column for column in own if is_number_of_death(column)), None)
    contacts = [column for column in own if _is_contact(column)]
    if event is not None and death is not None and contacts:
        return Parts(event=event, last=contacts, death=death)
    dates = [column for column in own if column.is_date and not BIRTH.search(words(column.name))]
    died = next((column for column in dates if DEATH.search(words(column.name))), None)
    ends = [c for c in dates if LAST.search(words(c.name)) and c is not died]
    starts = [c for c in dates if START.search(words(c.name)) and c is not died and c not in ends]
    if not starts or not ends or (died is None and event is None):
        return None
    elsewhere = [column for column in ends if column.table != ends[0].table]
    return Parts(event=event, start=starts[0], last=[ends[0], *elsewhere], death=died)


def _is_contact(column: Column) -> bool:
    timed = column.numeric and bool(set(tokens(column.name)) & TIME)
    return timed and bool(CONTACT.search(words(column.name)))


def _first_name(columns: Columns, fields: dict[str, str], found: dict[str, Parts]) -> str:
    """Return the name of the endpoint to which unnamed settings apply."""
    for key in ("event", "censored", "time"):
        if key in fields:
            column = _find_named(fields[key], columns)
            if column is not None and (outcome := stem(column.name)):
                return outcome
    return next(iter(found), "OS")


def _find_named(text: str, columns: Columns) -> Column | None:
    """Find the column named at the start of a setting: the longest prefix before a colon."""
    for end in range(len(text), 0, -1):
        if end == len(text) or text[end] == ":":
            for match in (str.__eq__, lambda a, b: a.casefold() == b.casefold()):
                for (_, own), column in columns.items():
                    if match(own, text[:end]):
                        return column
    return None


def _require_column(key: str, text: str, columns: Columns) -> Column:
    column = _find_named(text, columns)
    if column is None:
        shown = ", ".join(dict.fromkeys(own for _, own in columns))
        raise InputError(f'--set {key}: no column "{text[:60]}". Columns: {shown[:400]}')
    return column


def _apply(name: str, fields: dict[str, str], parts: Parts, columns: Columns) -> Parts:
    """Replace the outcome parts that the user set."""
    if "entry" in fields:
        entry = _require_column("entry", fields["entry"], columns)
        rest = {key: value for key, value in fields.items() if key != "entry"}
        return replace(_apply(name, rest, parts, columns), entry=entry)
    event, coded = parts.event, parts.coded
    if "event" in fields or ":" in fields.get("censored", ""):
        key = "event" if "event" in fields else "censored"
        event = _require_column(key, fields[key], columns)
    if event is not None and ("event" in fields or "censored" in fields):
        coded = _codes_as_set(name, event, fields)
    if {"start", "end", "death"} & set(fields):
        dates: dict[str, Column] = {}
        for key in ("start", "end", "death"):
            if key in fields:
                dates[key] = _require_column(key, fields[key], columns)
                if not dates[key].is_date and not dates[key].numeric:
                    raise InputError(
                        f"--set {name}.{key}: {fields[key]} contains neither dates nor numbers; "
                        "write dates as 2019-03-31"
                    )
        last = [dates["end"]] if "end" in dates else parts.last
        set_event = {"event", "censored"} & set(fields)
        return Parts(
            event=event if set_event or "death" not in dates else None,
            coded=coded,
            start=dates.get("start", parts.start),
            last=last,
            death=dates.get("death") if set_event or "death" in dates else parts.death,
        )
    if "time" in fields:
        time = _require_column("time", fields["time"], columns)
        if not time.numeric:
            shown = ", ".join(list(time.counts)[:3])
            raise InputError(
                f"--set {name}.time: {time.name} contains no numbers"
                + (f", only text ({shown})" if shown else "")
            )
        return Parts(event=event, coded=coded, time=time)
    return Parts(event, coded, parts.time, parts.start, parts.last, parts.death)


def _codes_as_set(name: str, event: Column, fields: dict[str, str]) -> Coding | None:
    """Return the event and censoring codes as set; remaining codes go to the other group."""
    known = sorted(set(codes(event.present)))
    usual = dict(zip(event.present, codes(event.present), strict=True))  # 1.0 is 1
    sides: dict[str, list[str]] = {}
    for key in SIDES:
        text = fields.get(key, "")
        if text.casefold().startswith(event.name.casefold()):
            text = text[len(event.name) :].removeprefix(":")
        given = [code.strip() for code in text.split("|") if code.strip()]
        sides[key] = [usual.get(code, code) for code in given]
        strange = [code for code in sides[key] if code not in known]
        if strange:
            raise InputError(
                f'--set {name}.{key}: {event.name} has no code "{strange[0][:40]}"; codes: '
                f"{', '.join(event.counts)}"[:300]
            )
    said = {*sides["event"], *sides["censored"]}
    if not said:
        return None
    rest = [code for code in known if code not in said]
    if sides["event"] and sides["censored"] and rest:
        raise InputError(
            f"--set {name}.censored: {', '.join(rest[:3])} is neither an event nor censored"
        )
    for key in SIDES:
        sides[key] = sides[key] or rest
        if not sides[key]:
            raise InputError(
                f"--set {name}.event: the codes in {event.name} must include both events and "
                "censored"
            )
    return Coding(sides["event"], sides["censored"], make_guess("event", "event", "", "", "given"))


# -- building ------------------------------------------------------------------------------------


def _build(
    name: str,
    parts: Parts,
    fields: dict[str, str],
    columns: Columns,
    people: Mapping[str, list[str | None]],
) -> Outcome:
    """Build an endpoint from its parts, with a guess for each and a question for missing parts."""
    main = parts.event or parts.time or parts.death or parts.start or next(iter(columns.values()))
    own = [column for column in columns.values() if column.table == main.table]
    used = [parts.event, parts.time, parts.start, *parts.last, parts.death]
    made = Outcome(name, main.table, {}, {(c.table, c.name) for c in used if c is not None})
    kind: dict[str, Any] = {
        "kind": "survival",
        "table": main.table,
        "label": LABELS.get(name, name),
    }

    def align(column: Column, how: str) -> pd.Series:
        return _align(column, main, how, people)

    last = _take_latest([align(column, "max") for column in parts.last])
    died = align(parts.death, "max") if parts.death else None
    if parts.time is not None:
        times = align(parts.time, "max")
    elif ends := [series for series in (died, last) if series is not None]:
        times = ends[0].fillna(ends[-1])
        if parts.start is not None:
            times = times - align(parts.start, "min")
    else:
        lacks = f"set {name}.time=COLUMN, or {name}.start and {name}.end"
        made.guess(f"{name}.time", f"{name}: time", "", lacks, "unsure",
                                       open=True)  # fmt: skip
        return made
    event = parts.event
    if event is None and died is not None:
        cells = died.notna().map({True: "yes", False: "no"})
        made.made[f"{name}.died"] = cells
        event = Column(main.table, f"{name}.died", cells, -1)
        coded: Coding | None = Coding(["yes"], ["no"], make_guess(
            "event", "event", f"a date in {parts.death.name if parts.death else ''}",
            f"{int(died.notna().sum())} of {len(died)} rows have one"))  # fmt: skip
    elif event is None:
        lacks = f"set {name}.event=COLUMN:CODE"
        made.guess(f"{name}.event", f"{name}: event", "", lacks, "unsure",
                                       open=True)  # fmt: skip
        return made
    else:
        coded = parts.coded or detect_coding(event, times, own)
    if coded is None:
        if fields:
            shown = describe_sides(event, times)
            made.guess(
                f"{name}.event", f"{name}: event", "", f"which code is the event? {shown}",
                "unsure", open=True,
                choices=tuple(f"{event.name}:{code}" for code in sorted(event.counts)[:12]),
            )  # fmt: skip
        return made
    how, unit = _time_guess(name, parts, main, times), None
    if parts.time is None:
        times = _compute_lengths(parts, event, coded, last, died, align, made)
        made.made[f"{name}.days"] = times.map(lambda value: "" if value != value else f"{value:g}")
        kind["time"] = f"{name}.days"
        kind |= {"time_zero": parts.start.name} if parts.start else {}
        timed = None if parts.start else parts.last[0] if parts.last else parts.death
    elif parts.time.table != main.table:
        made.made[f"{name}.time"] = times.map(lambda v: "" if v != v else f"{v:.10g}")
        kind["time"], timed = f"{name}.time", parts.time
    else:
        kind["time"], timed = parts.time.name, parts.time
    if timed is not None:
        kind["time_unit"], unit = detect_time_unit(timed, own)
    else:
        kind["time_unit"] = "days"
    if "unit" in fields:
        kind["time_unit"] = fields["unit"]
        unit = make_guess("unit", f"unit of {kind['time']}", fields["unit"], "as set", "given")
    if parts.entry is not None:
        entry = align(parts.entry, "min")
        if parts.entry.is_date and parts.start is not None:
            entry = entry - align(parts.start, "min")
        elif (own_unit := unit_in(parts.entry.name)) and not parts.entry.is_date:
            entry = entry * DAYS[own_unit] / DAYS[kind["time_unit"]]
        kind |= _add_entry(made, parts.entry, entry, times)
    guess = coded.guess
    if guess.confidence == "given":
        guess = guess.model_copy(update={
            "value": f"{event.name}:{'|'.join(coded.happened)}",
            "evidence": f"as set; censored: {'|'.join(coded.censored)}; "
                        + describe_sides(event, times)})  # fmt: skip
    made.guesses += [how, *([unit.model_copy(update={"key": f"{name}.unit"})] if unit else [])]
    made.guesses.append(guess.model_copy(update={"key": f"{name}.event", "what": f"{name}: event"}))
    below = int((times < 0).sum())
    if below:
        kind["invalid_times"] = "exclude"
        made.guess(
            f"{name}.time", f"{name}: negative times", "left out",
            f"{below} times are negative (minimum {times.min():g}); they are omitted from this "
            "outcome", "unsure", fixed=True)  # fmt: skip
    made.spec = kind | {
        "event": event.name,
        "event_values": coded.happened,
        "censored_values": coded.censored,
    }
    return made


def _add_entry(made: Outcome, column: Column, entry: pd.Series, times: pd.Series) -> dict[str, Any]:
    """Add delayed-entry times; patients with an impossible entry time are excluded."""
    made.used.add((column.table, column.name))
    made.made[f"{made.name}.entry"] = entry.map(
        lambda value: "" if value != value else f"{value:g}"
    )
    timed = times.notna()
    late = int(((entry >= times) | (entry < 0)).sum())
    evidence = f"{int(entry.notna().sum())} known, {entry.min():g} to {entry.max():g}"
    for count, what in (
        (late, "negative or not before the end"),
        (int((timed & entry.isna()).sum()), "missing"),
    ):
        evidence += f"; {count} {what}: left out of this outcome" if count else ""
    made.guess(f"{made.name}.entry", f"{made.name}: followed from",
                                   column.name, evidence, "given")  # fmt: skip
    return {"entry": f"{made.name}.entry"} | ({"invalid_times": "exclude"} if late else {})


def _time_guess(name: str, parts: Parts, main: Column, times: pd.Series) -> Guess:
    known = times.dropna()
    evidence = "no row has it"
    if len(known):
        evidence = f"{len(known)} of {len(times)} known, {known.min():g} to {known.max():g}, "
        evidence += f"median {known.median():g}"
    if parts.time is not None:
        evidence += f"; {'next to' if parts.time.table == main.table else 'joined to'} {main.name}"
        return make_guess(f"{name}.time", f"{name}: time", parts.time.name, evidence)
    ends = " or the latest ".join(column.name for column in parts.last)
    value = f"{parts.start.name} to {ends}" if parts.start else ends
    value += f", for deaths {parts.death.name}" if parts.death else ""
    return make_guess(f"{name}.{'start' if parts.start else 'time'}", f"{name}: time", value,
                      evidence)  # fmt: skip


def _compute_lengths(
    parts: Parts,
    event: Column,
    coded: Coding,
    last: pd.Series | None,
    died: pd.Series | None,
    align: Any,
    made: Outcome,
) -> pd.Series:
    """Compute times from the start: to death for patients who died, else to last contact."""
    known = codes(event.cells).where(~event.absent)
    happened = known.isin(coded.happened) | event.cells.isin(coded.happened)
    if died is None or last is None:
        ends = died if last is None else last
        assert ends is not None
    else:
        ends = last.where(~happened, died)
        undated = int((happened & died.isna()).sum())
        if undated:
            made.guess(
                f"{made.name}.time", f"{made.name}: deaths without a time", "left out",
                f"{undated} rows have the event, and no {parts.death.name if parts.death else ''}",
                "unsure", fixed=True)  # fmt: skip
    if parts.start is not None:
        ends = ends - align(parts.start, "min")
        if ends.dropna().empty:
            raise InputError(
                f"{parts.start.name}, {', '.join(c.name for c in parts.last)}: no row has both "
                "dates; set dates, start or end"
            )
    return ends


def _align(
    column: Column, main: Column, how: str, people: Mapping[str, list[str | None]]
) -> pd.Series:
    """Return a number for each row of the main table, aligned by patient if necessary.

    Values from other tables, or from several rows per patient, are reduced to the patient's
    latest or first, as given by `how`.
    """
    import pandas as pd

    values = column.values()
    owner = people.get(column.table, [])
    if column.table == main.table and (not owner or len(set(owner)) == len(owner)):
        return values
    per_patient = values.groupby(pd.Series(owner, index=values.index)).agg(how)
    rows = main.cells.index
    return pd.Series(people[main.table], index=rows).map(per_patient).astype(float)


def _take_latest(found: list[pd.Series]) -> pd.Series | None:
    import pandas as pd

    return pd.concat(found, axis=1).max(axis=1) if found else None


def _find_responses(own: Any) -> list[Outcome]:
    """Find a two-level treatment response for use as a binary outcome."""
    for column in own:
        named = set(tokens(column.name))
        if not named & {"response", "responder", "responders", "recist"} or len(column.counts) != 2:
            continue
        positive = [value for value in column.counts if value.casefold() in RESPONDED]
        negative = [value for value in column.counts if value.casefold() in NOT_RESPONDED]
        if len(positive) == len(negative) == 1:
            evidence = ", ".join(f"{value}: {rows} rows" for value, rows in column.counts.items())
            value = f"{column.name}:{positive[0]}"
            guess = make_guess("response.event", "response", value, evidence, fixed=True)
            spec = {
                "kind": "binary",
                "table": column.table,
                "column": column.name,
                "positive_values": positive,
                "negative_values": negative,
                "label": "Response to treatment",
            }
            used = {(column.table, column.name)}
            return [Outcome("response", column.table, spec, used, [guess])]
    return []
