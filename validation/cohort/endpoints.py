"""Decoding of outcomes by the codes declared in the cohort, rejecting contradictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage.core.errors import InputError
from validation.cohort.collapse import collapse
from validation.cohort.model import (
    BinarySpec,
    CompetingSpec,
    ContinuousSpec,
    EndpointSpec,
    SurvivalSpec,
    TimedSpec,
)
from validation.cohort.tables import Loaded, codes, numeric, text_of

if TYPE_CHECKING:
    import pandas as pd

DAYS_PER_MONTH = 365.25 / 12
TO_MONTHS = {"days": 1 / DAYS_PER_MONTH, "weeks": 7 / DAYS_PER_MONTH, "months": 1.0, "years": 12.0}


def decode(name: str, spec: EndpointSpec, table: Loaded) -> pd.DataFrame:
    """Decode each patient's outcome.

    Returns
    -------
    Frame indexed by patient: `time` in months and `event` (0 censored, 1 event, 2 competing)
    for time-to-event outcomes, and `entry` in months if delayed entry is declared; `value`
    for binary (0/1) and continuous outcomes. Patients without the outcome are left out.

    Raises
    ------
    InputError
        For undeclared codes, impossible times, and entries after the end of follow-up.
    """
    if isinstance(spec, TimedSpec):
        return _in_time(name, spec, table)
    if isinstance(spec, BinarySpec):
        return _binary(name, spec, table)
    return _continuous(name, spec, table)


def _in_time(name: str, spec: TimedSpec, table: Loaded) -> pd.DataFrame:
    import pandas as pd

    where = f'endpoint "{name}" ({table.path.name})'
    time = numeric(table.column(spec.time, f"endpoints.{name}.time"), table.missing, where)
    sides = [(0, spec.censored_values), (1, spec.event_values)]
    other = spec.competing if isinstance(spec, CompetingSpec) else None
    if isinstance(spec, CompetingSpec) and other is None:
        sides.append((2, spec.competing_values))
    column = table.column(spec.event, f"endpoints.{name}.event")
    event = _code_events(column, sides, table.missing, where, spec.event)
    if isinstance(spec, CompetingSpec) and other is not None:
        column = table.column(other, f"endpoints.{name}.competing")
        sides = [(0, spec.censored_values), (2, spec.competing_values)]
        second = _code_events(column, sides, table.missing, where, other)
        # Without the event, the second flag decides. If the deciding flag is missing, the
        # patient has no outcome.
        event = event.where(event != 0, second)
    if isinstance(spec, SurvivalSpec) and spec.time_censored is not None:
        contact = table.column(spec.time_censored, f"endpoints.{name}.time_censored")
        time = time.where(event == 1, numeric(contact, table.missing, where))
    time = time * TO_MONTHS[spec.time_unit]
    columns = {"time": time, "event": event}
    if spec.entry is not None:
        raw = table.column(spec.entry, f"endpoints.{name}.entry")
        columns["entry"] = numeric(raw, table.missing, where) * TO_MONTHS[spec.time_unit]
    data = pd.DataFrame(columns).dropna()
    data = _check_times(data, where, spec)
    owner = table.patient.loc[data.index]
    if owner.duplicated().any():
        last = _last_contact(data, owner, table.spec.rows_per_patient, where)
        return last
    return data.set_axis(owner.to_numpy())


def followed(outcome: pd.DataFrame) -> pd.Series:
    """Return each patient's months of follow-up for a decoded time-to-event outcome."""
    return outcome["time"] - outcome["entry"] if "entry" in outcome else outcome["time"]


def _check_times(data: pd.DataFrame, where: str, spec: TimedSpec) -> pd.DataFrame:
    """Reject (or, with `invalid_times = "exclude"`, drop) impossible times and entries.

    Raises `InputError` if there are such times and they are not dropped.
    """
    time, limit = data["time"], spec.max_months
    wrong = {
        f"times are negative (minimum {time.min():.1f} months). Correct them": time < 0,
        f"times exceed {limit:g} months (maximum {time.max():.0f}). Check `time_unit`; if the "
        "follow-up is real, increase `max_months`": time > limit,
    }
    if "entry" in data:
        wrong["entries are negative. Count entry and time from the same start"] = data["entry"] < 0
        after = "patients enter at or after the end of their follow-up. Correct `entry` or `time`"
        wrong[after] = (data["entry"] >= time) & (time >= 0)
    keep = time.notna()
    for problem, rows in wrong.items():
        if spec.invalid_times == "refuse" and rows.any():
            raise InputError(
                f"{where}: {int(rows.sum())} {problem}, or set `invalid_times = "
                '"exclude"` for this endpoint'
            )
        keep &= ~rows
    return data[keep]


def _last_contact(data: pd.DataFrame, owner: pd.Series, rule: str, where: str) -> pd.DataFrame:
    """Keep each patient's latest follow-up row, from the first entry; an event wins a tie."""
    if rule == "error":
        raise InputError(
            f"{where}: {int(owner[owner.duplicated()].nunique())} patients have several rows. "
            'Specify how to merge them with `rows_per_patient` ("last" uses the latest follow-up)'
        )
    rows = data.assign(owner=owner.to_numpy())
    if rule == "identical":
        conflict = int((rows.groupby("owner")[list(data)].nunique().max(axis=1) > 1).sum())
        if conflict:
            raise InputError(
                f"{where}: {conflict} patients have rows with different outcomes. "
                'Use rows_per_patient = "last" to take the latest follow-up'
            )
    rows = rows.sort_values(["time", "event"], kind="stable")
    if "entry" in rows:
        rows["entry"] = rows.groupby("owner")["entry"].transform("min")
    return rows.groupby("owner").last()[list(data)]


def _code_events(
    column: pd.Series,
    sides: list[tuple[int, tuple[str | int | float | bool, ...]]],
    missing: frozenset[str],
    where: str,
    name: str,
    words: tuple[str, ...] = ("censored", "event", "competing event"),
) -> pd.Series:
    seen = codes(column)
    meaning: dict[str, int] = {}
    for code, values in sides:
        for value in values:
            text = text_of(value)
            if text in meaning:
                raise InputError(
                    f'{where}: code "{text}" in column "{name}" is listed for both outcomes'
                )
            meaning[text] = code
    unknown = sorted(set(seen) - set(meaning) - missing)
    if unknown:
        counts = seen.value_counts()
        shown = ", ".join(f"{item} ({counts[item]} rows)" for item in unknown[:5])
        raise InputError(
            f'{where}: column "{name}" contains undeclared codes: {shown}. Declared: '
            f"{', '.join((f'{text} = {words[code]}' for text, code in meaning.items()))}. "
            "Declare the others; event flags can have either polarity or be coded 1/2"
        )
    return seen.map(meaning)


def _binary(name: str, spec: BinarySpec, table: Loaded) -> pd.DataFrame:
    where = f'endpoint "{name}" ({table.path.name})'
    column = table.column(spec.column, f"endpoints.{name}.column")
    missing = table.missing | {text_of(value) for value in spec.missing_values}
    sides = [(0, spec.negative_values), (1, spec.positive_values)]
    value = _code_events(column, sides, missing, where, spec.column, ("no", "yes"))
    reduced = collapse(value, table.patient, table.spec.rows_per_patient, where)
    return reduced.dropna().to_frame("value")


def _continuous(name: str, spec: ContinuousSpec, table: Loaded) -> pd.DataFrame:
    where = f'endpoint "{name}" ({table.path.name})'
    value = numeric(table.column(spec.column, f"endpoints.{name}.column"), table.missing, where)
    reduced = collapse(value, table.patient, table.spec.rows_per_patient, where)
    return reduced.dropna().to_frame("value")


def coding_text(spec: EndpointSpec) -> str:
    """Describe an outcome's coding for the data dictionary."""
    if isinstance(spec, ContinuousSpec):
        return f"column {spec.column}"
    if isinstance(spec, BinarySpec):
        positive = ", ".join(map(text_of, spec.positive_values))
        negative = ", ".join(map(text_of, spec.negative_values))
        return f"column {spec.column}: {positive} = 1; {negative} = 0"
    text = f"column {spec.event}: {', '.join(map(text_of, spec.event_values))} = event; "
    if isinstance(spec, CompetingSpec):
        second = f"column {spec.competing}: " if spec.competing else ""
        text += f"{second}{', '.join(map(text_of, spec.competing_values))} = competing event; "
    entry = f"; followed from column {spec.entry} on" if spec.entry is not None else ""
    return text + f"{', '.join(map(text_of, spec.censored_values))} = censored{entry}"
