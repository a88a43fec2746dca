"""Detection of problems in a cohort's outcomes: coding, polarity, age, implausible times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from validation.cohort.codes import SWAP, report
from validation.cohort.endpoints import decode, followed
from validation.cohort.model import SurvivalSpec, TimedSpec
from validation.cohort.tables import Loaded, codes, text_of
from validation.core.types import Finding

if TYPE_CHECKING:
    import pandas as pd

    from validation.cohort.cohort import Cohort

EVENT_COLUMN = re.compile(
    r"^(os|dss|pfi|dfi|pfs|dfs|rfs)([ ._,]*(event|status|cens))?$|vital_?status|^cens|"
    r"^(oc|os), event$|censor|^(overall|(cancer|disease).specific)[._ ]?survival$",
    re.IGNORECASE,
)
DEAD = {"dead", "deceased", "1:deceased"}
ALIVE = {"alive", "living", "0:living"}
FEW_EVENTS = 20
MANY_AT_ZERO = 0.1
EVENTS_LATER = 0.65
FAR = 4.0
"""Threshold in standard errors for `_later`.

Of 33 public outcomes, only one exceeds 0.6 (76 catheters).
"""
AFTER_DEATH = 1.0, 0.02
"""Months after death, and share of deceased patients, beyond which follow-up is an error."""
SHORT_MEDIAN = 2.0
"""Median time in months below which the declared unit is more often wrong than right."""
_VITAL = re.compile("vital_?status", re.IGNORECASE)


def of_endpoints(cohort: Cohort) -> Iterator[Finding]:
    """Find unreadable endpoints, few events, odd times, and contradictory vital status."""
    for name, spec in cohort.spec.endpoints.items():
        where = f"endpoints.{name}"
        try:
            outcome = cohort.outcome(name)
        except InputError as error:
            yield report("endpoint", where, str(error))
            continue
        if not isinstance(spec, TimedSpec):
            continue
        events = int((outcome["event"] == 1).sum())
        if events == 0:
            yield report("no_events", where, f"none of {len(outcome)} patients has it")
        elif events < FEW_EVENTS:
            yield report("few_events", where, f"{events} events: no model is reliable")
        yield from _polarity(cohort, name, spec, outcome)
        if after := find_after_death(cohort, name):
            yield report("followed_after_death", where, after)
        if spec.entry is not None:
            plain = decode(name, spec.model_copy(update={"entry": None}), cohort.tables[spec.table])
            if lost := len(plain.index.intersection(cohort.patients)) - len(outcome):
                text = f"{lost} of {lost + len(outcome)} patients have no possible entry: left out"
                yield report("entry_left_out", where, text)
        outcome = outcome.assign(time=followed(outcome))
        yield from _events_last(where, spec, outcome)
        yield from _risk_protects(cohort, where, outcome)
        yield from _times(where, outcome["time"])


def find_after_death(cohort: Cohort, name: str) -> str:
    """Describe patients whom an endpoint follows beyond their OS death; "" if there are none.

    If deceased patients count as event-free to the end of a study, lethal factors look
    protective.
    """
    if name == "OS" or not all(
        isinstance(cohort.spec.endpoints.get(key), TimedSpec) for key in ("OS", name)
    ):
        return ""
    outcome, death = cohort.outcome(name), cohort.outcome("OS")
    death = death[death["event"] == 1].loc[lambda dead: dead.index.isin(outcome.index)]
    months, share = AFTER_DEATH
    lasted = followed(outcome.loc[death.index])  # an endpoint may count from another origin
    late = int((lasted > death["time"] + months).sum())
    if late <= max(share * len(death), 2):
        return ""
    return f"{late} of {len(death)} patients who died (OS) are followed for it after their death"


def _vital_state(values: pd.Series) -> pd.Series:
    """Code deceased patients as 1, living patients as 0, and anything else as missing."""
    return values.map(lambda item: 1.0 if item in DEAD else 0.0 if item in ALIVE else None)


def _polarity(
    cohort: Cohort, name: str, spec: TimedSpec, outcome: pd.DataFrame
) -> Iterator[Finding]:
    """Compare overall survival with vital status in the same table: deaths must be events."""
    table = cohort.tables[spec.table]
    column = next((row for row in table.rows if _VITAL.search(str(row))), None)
    if column is None or column == spec.event or name.upper() != "OS":
        return
    state = _vital_state(table.rows[column].str.strip().str.casefold())
    by_patient = state.set_axis(table.patient.to_numpy()).dropna()
    by_patient = by_patient[~by_patient.index.duplicated(keep="last")]
    both = by_patient.index.intersection(outcome.index)
    if len(both) < 10:
        return
    differ = float((by_patient[both] != (outcome.loc[both, "event"] != 0)).mean())
    if differ > 0.02:
        code, verb = "event_disagrees", "disagrees with"
        if differ > 0.5:
            code, verb = "inverted_event", "contradicts"
        text = f"the event flag {verb} {column} in {differ:.0%} of the patients"
        yield report(code, f"endpoints.{name}", text)


def _events_last(where: str, spec: TimedSpec, outcome: pd.DataFrame) -> Iterator[Finding]:
    """Find events later than censored times; in a study that ends, censored times come last."""
    event, censored = (outcome.loc[outcome["event"] == number, "time"] for number in (1, 0))
    one_two = {text_of(value) for value in spec.event_values} == {"1"} and "2" in {
        text_of(value) for value in spec.censored_values
    }
    later, z = _later(event, censored)
    if later > EVENTS_LATER and z > FAR:
        text = (
            f"events come after censored times (median {event.median():.1f} and "
            f"{censored.median():.1f} months; an event is the later of the two in {later:.0%} of "
            "pairs): event and censored appear to be swapped"
        )
        yield report("events_last", where, text, severity="error" if one_two else "warning")
    elif one_two:
        text = "coded 1/2 with 1 as the event; in the usual 1/2 coding (R), 2 is the event"
        yield report("one_two_coding", where, text, remedy=SWAP)


def _later(event: pd.Series, censored: pd.Series) -> tuple[float, float]:
    """Return the probability that an event is later than a censored time, and its z against 1/2."""
    from validation.statistics.leakage import area_under_curve

    cases, others = len(event), len(censored)
    if min(cases, others) == 0:
        return 0.5, 0.0
    flags = np.arange(cases + others) < cases
    share = area_under_curve(np.concatenate([event.to_numpy(), censored.to_numpy()]), flags)
    return share, (share - 0.5) / float(np.sqrt((cases + others + 1) / (12 * cases * others)))


def _risk_protects(cohort: Cohort, where: str, outcome: pd.DataFrame) -> Iterator[Finding]:
    """Find risk factors associated with fewer events, a sign of an inverted flag or coding."""
    from validation.statistics.batched import batched_cox

    for key in cohort.spec.risk_factors:
        try:
            values = cohort.column(key).reindex(outcome.index).astype(float)
        except InputError:
            continue  # reported by of_variables
        keep = values.notna().to_numpy()
        x = values[keep].to_numpy(dtype=float)
        flags = (outcome.loc[keep, "event"] == 1).to_numpy()
        if flags.sum() < FEW_EVENTS or np.ptp(x) == 0:
            continue
        z = (x - x.mean()) / x.std()
        fit = batched_cox(outcome.loc[keep, "time"].to_numpy(), flags, z[:, None], workers=1)
        if fit.converged[0] and fit.coef[0] / fit.se[0] < -FAR:
            ratio = float(np.exp(fit.coef[0]))
            text = f"higher {key} goes with fewer events (hazard ratio per SD {ratio:.2f})"
            yield report("risk_protects", where, text)


def _times(where: str, time: pd.Series) -> Iterator[Finding]:
    """Find times that are often zero, all identical, or too short for the declared unit."""
    at_zero = int((time == 0).sum())
    if len(time) < 10:
        return
    if time.nunique() == 1:
        text = f"all {len(time)} patients have the time {time.iloc[0]:g} months"
        yield report("one_time", where, text)
    elif at_zero > MANY_AT_ZERO * len(time):
        yield report("times_at_zero", where, f"{at_zero} of {len(time)} patients have the time 0")
    elif time.median() < SHORT_MEDIAN:
        yield report("short_times", where, f"the median time is {time.median():.2g} months")


def of_flags(cohort: Cohort, table: Loaded) -> Iterator[Finding]:
    """Find event-like columns with easily misread coding: 1/2, or `cens` of either polarity."""
    used = {
        (spec.table, spec.event): spec
        for spec in cohort.spec.endpoints.values()
        if isinstance(spec, TimedSpec)
    }
    for name in map(str, table.rows.columns):
        if not EVENT_COLUMN.search(name):
            continue
        values = set(codes(table.rows[name])) - table.missing
        where = f"tables.{table.name}.{name}"
        declared = used.get((table.name, name))
        found = {}
        if values == {"1", "2"}:
            found["one_two_coding"] = "coded 1/2: conventions differ on which one is the event"
        if "cens" in name.casefold() and values <= {"0", "1"} and values:
            text = "named for censoring: in some sources 0 means the event, in others 1"
            if declared is not None:
                event = ", ".join(map(text_of, declared.event_values))
                text += f"; here {event} is treated as the event"
            found["censoring_flag"] = text
        for code, text in found.items():
            if declared is None:
                yield report(code, where, text)
            else:
                yield report(code, where, text, remedy="", severity="info")


def find_outdated(cohort: Cohort) -> Iterator[Finding]:
    """Compare deaths in other tables with those in the endpoint, for the same patients."""
    spec = cohort.spec.endpoints.get("OS")
    if not isinstance(spec, SurvivalSpec):
        return
    try:
        outcome = cohort.outcome("OS")
    except InputError:
        return
    for table in cohort.tables.values():
        for column in map(str, table.rows.columns):
            if (table.name, column) == (spec.table, spec.event):
                continue
            flags = _deaths(table, column)
            both = outcome.index[:0] if flags is None else flags.index.intersection(outcome.index)
            if flags is None or len(both) < 20:
                continue
            theirs, ours = int(flags[both].sum()), int(outcome.loc[both, "event"].sum())
            where = f"tables.{table.name}.{column}"
            of_same = f"where OS has {ours}, for the same {len(both)} patients"
            if theirs < 0.9 * ours:
                yield report("outdated_follow_up", where, f"{theirs} deaths {of_same}")
            elif ours < 0.9 * theirs:
                text = f"{where} has {theirs} deaths, {of_same}"
                yield report("outdated_endpoint", "endpoints.OS", text)


def _deaths(table: Loaded, column: str) -> Any:
    """Return death flags by patient if the column is a vital status or 0/1 survival event."""
    values = codes(table.rows[column]).str.casefold()
    event = re.fullmatch(r"(os|oc)([ ._,]*(event|status))?", column, re.I)
    if _VITAL.search(column):
        state = _vital_state(values)
    elif event and set(values) - {text.casefold() for text in table.missing} <= {"0", "1"}:
        state = values.map({"0": 0.0, "1": 1.0})
    else:
        return None
    flags = state.set_axis(table.patient.to_numpy()).dropna()
    return flags.groupby(level=0).max() if len(flags) else None
