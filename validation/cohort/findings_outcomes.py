"""Find problems in a cohort's outcomes: coding, polarity, age, implausible times."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from sage.core.errors import InputError
from validation.cohort.model import CompetingSpec, SurvivalSpec
from validation.cohort.tables import Loaded, codes, text_of
from validation.core.types import Finding, Severity, finding

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
"""Standard errors. Of 33 public outcomes, a single has later events than 0.6 (76 catheters)."""
RISKS = re.compile(r"\b(age|stage|grade)\b")
SHORT_MEDIAN = 2.0
"""Months. A cohort that is followed for less was more often read in the wrong unit."""


def of_endpoints(cohort: Cohort) -> list[Finding]:
    """Endpoints that cannot be read, have few events or odd times, or contradict vital status."""
    found = []
    for name, spec in cohort.spec.endpoints.items():
        where = f"endpoints.{name}"
        try:
            outcome = cohort.outcome(name)
        except InputError as error:
            remedy = "correct the file, or what cohort.toml says of it"
            found.append(finding("error", "endpoint", where, str(error), remedy))
            continue
        if not isinstance(spec, SurvivalSpec | CompetingSpec):
            continue
        events = int((outcome["event"] == 1).sum())
        if events == 0:
            found.append(
                finding(
                    "error",
                    "no_events",
                    where,
                    f"none of {len(outcome)} patients has it",
                    "check the event coding and its polarity",
                )
            )
        elif events < FEW_EVENTS:
            found.append(
                finding(
                    "warning",
                    "few_events",
                    where,
                    f"{events} events: no model will hold",
                    "use another endpoint for primary tests",
                )
            )
        found += _polarity(cohort, name, spec, outcome)
        found += _events_last(where, spec, outcome)
        found += _risk_protects(cohort, where, outcome)
        found += _times(where, outcome["time"])
    return found


def _polarity(
    cohort: Cohort, name: str, spec: SurvivalSpec | CompetingSpec, outcome: pd.DataFrame
) -> list[Finding]:
    """Against a vital status in the same table: the dead must be events of overall survival."""
    table = cohort.tables[spec.table]
    column = next((row for row in table.rows if re.search("vital_?status", str(row), re.I)), None)
    if column is None or column == spec.event or name.upper() != "OS":
        return []
    status = table.rows[column].str.strip().str.casefold()
    state = status.map(lambda item: 1.0 if item in DEAD else 0.0 if item in ALIVE else None)
    by_patient = state.set_axis(table.patient.to_numpy()).dropna()
    by_patient = by_patient[~by_patient.index.duplicated(keep="last")]
    both = by_patient.index.intersection(outcome.index)
    if len(both) < 10:
        return []
    differ = float((by_patient[both] != (outcome.loc[both, "event"] != 0)).mean())
    where = f"endpoints.{name}"
    if differ > 0.5:
        return [
            finding(
                "error",
                "inverted_event",
                where,
                f"the event flag contradicts {column} in {differ:.0%} of the patients",
                "swap event_values and censored_values",
            )
        ]
    if differ > 0.02:
        return [
            finding(
                "warning",
                "event_disagrees",
                where,
                f"the event flag disagrees with {column} in {differ:.0%} of the patients",
                "find out which of the two is right before anything is tested",
            )
        ]
    return []


def _events_last(
    where: str, spec: SurvivalSpec | CompetingSpec, outcome: pd.DataFrame
) -> list[Finding]:
    """Events that come after the censored times: in a study that ends, those censored are last."""
    event, censored = (outcome.loc[outcome["event"] == number, "time"] for number in (1, 0))
    one_two = {text_of(value) for value in spec.event_values} == {"1"} and "2" in {
        text_of(value) for value in spec.censored_values
    }
    remedy = "if the flag is the other way round, swap event_values and censored_values"
    later, z = _later(event, censored)
    if later > EVENTS_LATER and z > FAR:
        text = (
            f"events come after censored times (median {event.median():.1f} and "
            f"{censored.median():.1f} months; an event is the later of the two in {later:.0%} of "
            "pairs): event and censored look swapped"
        )
        severity: Severity = "error" if one_two else "warning"
        return [finding(severity, "events_last", where, text, remedy)]
    if one_two:
        text = "coded 1/2 with 1 as the event; where this coding is usual (R), 2 is the event"
        return [finding("warning", "one_two_coding", where, text, remedy)]
    return []


def _later(event: pd.Series, censored: pd.Series) -> tuple[float, float]:
    """Chance that an event's time is later than a censored time, and its distance from even."""
    from validation.statistics.leakage import area_under_curve

    cases, others = len(event), len(censored)
    if min(cases, others) == 0:
        return 0.5, 0.0
    flags = np.arange(cases + others) < cases
    share = area_under_curve(np.concatenate([event.to_numpy(), censored.to_numpy()]), flags)
    return share, (share - 0.5) / float(np.sqrt((cases + others + 1) / (12 * cases * others)))


def _risk_protects(cohort: Cohort, where: str, outcome: pd.DataFrame) -> list[Finding]:
    """Age or stage that goes with fewer events: the flag, or their own coding, is turned round."""
    from validation.statistics.batched import batched_cox

    found = []
    for key, spec in cohort.variables.items():
        name = key.partition(":")[2].casefold()
        if spec.kind not in ("continuous", "ordinal") or not RISKS.search(name.replace("_", " ")):
            continue
        try:
            values = cohort.column(key).reindex(outcome.index).astype(float)
        except InputError:
            continue  # of_variables says why
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
            remedy = f"check which code is the event, and how {key} is coded"
            found.append(finding("warning", "risk_protects", where, text, remedy))
    return found


def _times(where: str, time: pd.Series) -> list[Finding]:
    """Times that are mostly nothing, all the same, or too short to be in the unit declared."""
    if len(time) < 10:
        return []
    at_zero = int((time == 0).sum())
    if time.nunique() == 1:
        text = f"all {len(time)} patients have the time {time.iloc[0]:g} months"
        return [finding("error", "one_time", where, text, "check the time column")]
    if at_zero > MANY_AT_ZERO * len(time):
        text = f"{at_zero} of {len(time)} patients have the time 0"
        remedy = "find out whether 0 stands for missing; they inform no comparison of hazards"
        return [finding("warning", "times_at_zero", where, text, remedy)]
    if time.median() < SHORT_MEDIAN:
        text = f"the median time is {time.median():.2g} months"
        return [finding("warning", "short_times", where, text, "check time_unit")]
    return []


def of_flags(cohort: Cohort, table: Loaded) -> list[Finding]:
    """Event-like columns whose coding is easily misread: 1/2, or `cens` of either polarity."""
    found = []
    used = {
        (spec.table, spec.event): (name, spec)
        for name, spec in cohort.spec.endpoints.items()
        if isinstance(spec, SurvivalSpec | CompetingSpec)
    }
    for column in table.rows.columns:
        name = str(column)
        if not EVENT_COLUMN.search(name):
            continue
        seen = codes(table.rows[column])
        values = set(seen) - table.missing
        where = f"tables.{table.name}.{name}"
        declared = used.get((table.name, name))
        if values == {"1", "2"}:
            found.append(
                finding(
                    "info" if declared else "warning",
                    "one_two_coding",
                    where,
                    "coded 1/2: which of them is the event is a convention that differs",
                    "" if declared else "name both codes in an endpoint before using it",
                )
            )
        if "cens" in name.casefold() and values <= {"0", "1"} and values:
            event = "1" if declared is None else ", ".join(map(text_of, declared[1].event_values))
            found.append(
                finding(
                    "info" if declared else "warning",
                    "censoring_flag",
                    where,
                    "named for censoring: in some sources 0 means the event, in others 1"
                    + (f"; here {event} is read as the event" if declared else ""),
                    "" if declared else "check it against vital status or the time of death",
                )
            )
    return found


def find_outdated(cohort: Cohort) -> list[Finding]:
    """Other tables' deaths against the endpoint's, for the same patients."""
    spec = cohort.spec.endpoints.get("OS")
    if not isinstance(spec, SurvivalSpec):
        return []
    try:
        outcome = cohort.outcome("OS")
    except InputError:
        return []
    found = []
    for table in cohort.tables.values():
        for column in table.rows.columns:
            if (table.name, str(column)) == (spec.table, spec.event):
                continue
            flags = _deaths(table, str(column))
            if flags is None:
                continue
            both = flags.index.intersection(outcome.index)
            if len(both) < 20:
                continue
            theirs, ours = int(flags[both].sum()), int(outcome.loc[both, "event"].sum())
            where = f"tables.{table.name}.{column}"
            numbers = f"{theirs} deaths where OS has {ours}, for the same {len(both)} patients"
            if theirs < 0.9 * ours:
                found.append(
                    finding(
                        "warning",
                        "outdated_follow_up",
                        where,
                        numbers,
                        "this follow-up is older; take outcomes from the endpoint's table",
                    )
                )
            elif ours < 0.9 * theirs:
                found.append(
                    finding(
                        "error",
                        "outdated_endpoint",
                        "endpoints.OS",
                        f"{where} has {numbers.replace('deaths', 'deaths,')}",
                        "the endpoint's follow-up is older; use the other table",
                    )
                )
    return found


def _deaths(table: Loaded, column: str) -> Any:
    """Death flags by patient, if the column is a vital status or a 0/1 overall-survival event."""
    values = codes(table.rows[column]).str.casefold()
    vital = re.search("vital_?status", column, re.I)
    event = re.fullmatch(r"(os|oc)([ ._,]*(event|status))?", column, re.I)
    if vital:
        state = values.map(lambda item: 1.0 if item in DEAD else 0.0 if item in ALIVE else None)
    elif event and set(values) - {text.casefold() for text in table.missing} <= {"0", "1"}:
        state = values.map({"0": 0.0, "1": 1.0})
    else:
        return None
    flags = state.set_axis(table.patient.to_numpy()).dropna()
    return flags.groupby(level=0).max() if len(flags) else None
