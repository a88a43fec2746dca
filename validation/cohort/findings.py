"""What would mislead an analysis of a cohort.

Each rule looks for one trap that real cohorts held: event flags of either polarity, follow-up that
is older than another table's, normal samples among tumors, a detector's own training slides.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from validation.cohort.ids import BARCODE
from validation.cohort.model import CompetingSpec, SurvivalSpec
from validation.cohort.tables import Loaded, codes, text_of
from validation.errors import InputError
from validation.types import Finding

if TYPE_CHECKING:
    import pandas as pd

    from validation.cohort.cohort import Cohort

TRAINING = {"train", "training"}
TRAINING_COLUMN = re.compile(r"(slide_?set|split|partition|subset|^set$)", re.IGNORECASE)
EVENT_COLUMN = re.compile(
    r"^(os|dss|pfi|dfi|pfs|dfs|rfs)([ ._,]*(event|status|cens))?$|vital_?status|^cens|"
    r"^(oc|os), event$|censor|^(overall|(cancer|disease).specific)[._ ]?survival$",
    re.IGNORECASE,
)
DEAD = {"dead", "deceased", "1:deceased"}
ALIVE = {"alive", "living", "0:living"}
ORDER = {"error": 0, "warning": 1, "info": 2}
MOST_MISSING = 0.5
FEW_EVENTS = 20


def check_cohort(cohort: Cohort) -> list[Finding]:
    """All findings, errors first."""
    findings: list[Finding] = []
    findings += _endpoints(cohort)
    for table in cohort.tables.values():
        findings += _identifiers(cohort, table)
        findings += _headers(table)
        findings += _training(cohort, table)
        findings += _several_rows(table)
        findings += _flags(cohort, table)
    findings += _outdated(cohort)
    findings += _expression(cohort)
    findings += _variables(cohort)
    unique = {(one.code, one.where, one.message): one for one in findings}
    return sorted(unique.values(), key=lambda one: (ORDER[one.severity], one.code, one.where))


def _endpoints(cohort: Cohort) -> list[Finding]:
    found = []
    for name, spec in cohort.spec.endpoints.items():
        where = f"endpoints.{name}"
        try:
            outcome = cohort.outcome(name)
        except InputError as error:
            found.append(_finding("error", "endpoint", where, str(error)))
            continue
        if not isinstance(spec, SurvivalSpec | CompetingSpec):
            continue
        events = int((outcome["event"] == 1).sum())
        if events == 0:
            found.append(
                _finding(
                    "error",
                    "no_events",
                    where,
                    f"none of {len(outcome)} patients has it",
                    "check the event coding and its polarity",
                )
            )
        elif events < FEW_EVENTS:
            found.append(
                _finding(
                    "warning",
                    "few_events",
                    where,
                    f"{events} events: no model will hold",
                    "use another endpoint for primary tests",
                )
            )
        found += _polarity(cohort, name, spec, outcome)
    return found


def _polarity(
    cohort: Cohort, name: str, spec: SurvivalSpec | CompetingSpec, outcome: pd.DataFrame
) -> list[Finding]:
    """Against a vital status in the same table: the dead must be events of overall survival."""
    table = cohort.tables[spec.table]
    column = next((one for one in table.rows if re.search("vital_?status", str(one), re.I)), None)
    if column is None or column == spec.event or name.upper() != "OS":
        return []
    status = table.rows[column].str.strip().str.casefold()
    state = status.map(lambda one: 1.0 if one in DEAD else 0.0 if one in ALIVE else None)
    by_patient = state.set_axis(table.patient.to_numpy()).dropna()
    by_patient = by_patient[~by_patient.index.duplicated(keep="last")]
    both = by_patient.index.intersection(outcome.index)
    if len(both) < 10:
        return []
    differ = float((by_patient[both] != (outcome.loc[both, "event"] != 0)).mean())
    where = f"endpoints.{name}"
    if differ > 0.5:
        return [
            _finding(
                "error",
                "inverted_event",
                where,
                f"the event flag contradicts {column} in {differ:.0%} of the patients",
                "swap event_values and censored_values",
            )
        ]
    if differ > 0.02:
        return [
            _finding(
                "warning",
                "event_disagrees",
                where,
                f"the event flag disagrees with {column} in {differ:.0%} of the patients",
            )
        ]
    return []


def _identifiers(cohort: Cohort, table: Loaded) -> list[Finding]:
    """Short ids that look like the tail of a barcode, and tables that hardly join."""
    if table.name == cohort.spec.patient.table:
        return []
    everybody = set(cohort.patients)
    shared = len(everybody & set(table.patient)) / max(len(set(table.patient)), 1)
    where = f"tables.{table.name}"
    raw = table.rows[table.spec.key].str.strip()
    short = raw.str.fullmatch(r"[A-Za-z0-9]{4}(-\d{2}[A-Z]?)?")
    tails = {one[-4:] for one in everybody if BARCODE.match(one)}
    if shared < 0.5 and short.mean() > 0.8 and tails & set(raw[short].str[:4]):
        return [
            _finding(
                "error",
                "short_ids",
                where,
                f"{int(short.sum())} identifiers have four characters, the tail of a barcode; "
                f"only {shared:.0%} join",
                "map them to full barcodes first: tails are not unique across sites",
            )
        ]
    if shared < 0.5:
        return [
            _finding(
                "warning",
                "weak_join",
                where,
                f"only {shared:.0%} of its patients are in {cohort.spec.patient.table}",
                "check the key column and its form",
            )
        ]
    return []


def _headers(table: Loaded) -> list[Finding]:
    """Rows that repeat the header (TCGA biotab writes it three times)."""
    columns = [str(one).casefold() for one in table.rows.columns]
    first = table.rows.head(3)
    repeated = 0
    for _, row in first.iterrows():
        values = [str(one).strip().casefold() for one in row]
        same = sum(a == b for a, b in zip(values, columns, strict=True))
        codes_row = sum(one.startswith("cde_id") for one in values)
        repeated += same >= max(2, len(columns) // 3) or codes_row >= 2
    if not repeated:
        return []
    return [
        _finding(
            "error",
            "repeated_header",
            f"tables.{table.name}",
            f"{table.path.name}: {repeated} data rows repeat the header",
            f"set header_rows = {table.spec.header_rows + repeated}",
        )
    ]


def _training(cohort: Cohort, table: Loaded) -> list[Finding]:
    """Rows on which an imaging detector was trained."""
    for column in table.rows.columns:
        if not TRAINING_COLUMN.search(str(column)):
            continue
        values = table.rows[column].str.strip().str.casefold()
        count = int(values.isin(TRAINING).sum())
        used = [
            key
            for key, spec in cohort.spec.variables.items()
            if spec.table == table.name and spec.modality == "imaging"
        ]
        if count and used:
            return [
                _finding(
                    "warning",
                    "training_slides",
                    f"tables.{table.name}.{column}",
                    f"{count} of {len(values)} rows are the detector's own training slides; "
                    f"used by {', '.join(used)}",
                    f"keep the test rows with where = {{ {column} = ... }}, or use these "
                    "variables for sensitivity analyses only",
                )
            ]
        excluded = table.spec.where.get(str(column))
        if excluded is not None:
            return [
                _finding(
                    "info",
                    "training_slides",
                    f"tables.{table.name}.{column}",
                    f"training slides are left out ({column} = {excluded})",
                )
            ]
    return []


def _several_rows(table: Loaded) -> list[Finding]:
    repeated = int(table.patient[table.patient.duplicated()].nunique())
    if not repeated:
        return []
    rule = table.spec.rows_per_patient
    severity = "error" if rule == "error" else "info"
    return [
        _finding(
            severity,
            "several_rows",
            f"tables.{table.name}",
            f"{repeated} patients have several rows ({table.path.name}); rule: {rule}",
            "" if rule != "error" else 'set rows_per_patient = "identical", "first", "last" …',
        )
    ]


def _flags(cohort: Cohort, table: Loaded) -> list[Finding]:
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
                _finding(
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
                _finding(
                    "info" if declared else "warning",
                    "censoring_flag",
                    where,
                    "named for censoring: in some sources 0 means the event, in others 1"
                    + (f"; here {event} is read as the event" if declared else ""),
                    "" if declared else "check it against vital status or the time of death",
                )
            )
    return found


def _outdated(cohort: Cohort) -> list[Finding]:
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
                    _finding(
                        "warning",
                        "outdated_follow_up",
                        where,
                        numbers,
                        "this follow-up is older; take outcomes from the endpoint's table",
                    )
                )
            elif ours < 0.9 * theirs:
                found.append(
                    _finding(
                        "error",
                        "outdated_endpoint",
                        "endpoints.OS",
                        f"{where} has {numbers.replace('deaths', 'deaths,')}",
                        "the endpoint's follow-up is the older one; use the other table",
                    )
                )
    return found


def _deaths(table: Loaded, column: str) -> Any:
    """Death flags by patient, if the column is a vital status or a 0/1 overall-survival event."""
    values = codes(table.rows[column]).str.casefold()
    vital = re.search("vital_?status", column, re.I)
    event = re.fullmatch(r"(os|oc)([ ._,]*(event|status))?", column, re.I)
    if vital:
        state = values.map(lambda one: 1.0 if one in DEAD else 0.0 if one in ALIVE else None)
    elif event and set(values) - {one.casefold() for one in table.missing} <= {"0", "1"}:
        state = values.map({"0": 0.0, "1": 1.0})
    else:
        return None
    flags = state.set_axis(table.patient.to_numpy()).dropna()
    return flags.groupby(level=0).max() if len(flags) else None


def _expression(cohort: Cohort) -> list[Finding]:
    spec = cohort.spec.expression
    if spec is None:
        return []
    try:
        matrix = cohort.expression
    except InputError as error:
        return [_finding("error", "expression", "expression", str(error))]
    assert matrix is not None
    found = []
    texts = {
        "sample types": ("normal_samples", "samples that are not primary tumors"),
        "aliquots": ("several_aliquots", "patients with several samples"),
        "genes": ("duplicate_symbols", "rows without a symbol or with one that repeats"),
    }
    for report in matrix.reports:
        code, what = texts[report.step.split(": ")[1]]
        found.append(
            _finding(
                "info",
                code,
                "expression",
                f"{what}: {report.before} to {report.after}; {report.reason}",
            )
        )
    for note in matrix.notes:
        found.append(_finding("info", "versioned_ids", "expression", note))
    missing = sum(one not in set(matrix.patients) for one in cohort.patients)
    if missing > 0.5 * len(cohort.patients):
        found.append(
            _finding(
                "warning",
                "weak_join",
                "expression",
                f"{missing} of {len(cohort.patients)} patients have no expression",
                "check sample identifiers, sample_split and sample_types",
            )
        )
    return found


def _variables(cohort: Cohort) -> list[Finding]:
    found = []
    keys = cohort.keys()
    for key in keys:
        where = f"variables.{key}"
        try:
            values = cohort.column(key)
        except InputError as error:
            found.append(_finding("error", "variable", where, str(error)))
            continue
        known = values.dropna()
        share = 1 - len(known) / max(len(values), 1)
        if known.empty:
            found.append(_finding("error", "empty", where, "no patient has a value"))
        elif known.nunique() == 1:
            found.append(
                _finding("warning", "constant", where, f"one value for all: {known.iloc[0]}")
            )
        elif share > MOST_MISSING:
            found.append(
                _finding(
                    "warning",
                    "mostly_missing",
                    where,
                    f"missing in {share:.0%}",
                    "do not use it as a covariate",
                )
            )
    return found


def _finding(severity: str, code: str, where: str, message: str, remedy: str = "") -> Finding:
    return Finding.model_validate(
        {
            "severity": severity,
            "code": code,
            "where": where,
            "message": message,
            "remedy": remedy,
        }
    )
