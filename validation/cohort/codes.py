"""Codes for cohort-check findings, each with its severity and remedy."""

from __future__ import annotations

from validation.core.types import Finding, Severity

READ = "correct the file, or its description in cohort.toml"
TIMING = (
    "find out when it was recorded; declare known_at (a time, or a column with each patient's "
    "time) and use a landmark or a time-dependent covariate, or omit it"
)
SWAP = "if the flag is inverted, swap event_values and censored_values"

CODES: dict[str, tuple[Severity, str]] = {
    "censoring_flag": ("warning", "compare it with vital status or the time of death"),
    "cleaned_text": ("info", ""),
    "contains_follow_up": (
        "warning",
        "it is an outcome: omit it; if patients were followed from the other variable on, declare "
        "both as `entry` and `time` of the endpoint",
    ),
    "copied_patients": (
        "error",
        "keep each patient once; if a patient has several rows, declare `cluster` under [patient]",
    ),
    "constant": ("warning", "omit it: it cannot be related to anything"),
    "duplicate_symbols": ("info", ""),
    "empty": ("error", "check its column and its codes for missing values, or omit it"),
    "endpoint": ("error", READ),
    "event_disagrees": ("warning", "find out which of the two is right before testing anything"),
    "entry_left_out": ("warning", "enter when each patient came under observation, before `time`"),
    "events_last": ("warning", SWAP),
    "expression": ("error", READ),
    "few_events": ("warning", "use another endpoint for primary tests"),
    "grows_with_follow_up": ("warning", TIMING),
    "happens_during_follow_up": ("warning", TIMING),
    "followed_after_death": (
        "error",
        "end the time of those who died without the event at their death, or declare competing "
        "deaths",
    ),
    "ids_in_another_form": ("error", "write them the same way in both files"),
    "ids_twice": (
        "error",
        "spell each patient's identifier the same way: different spellings count as different "
        "patients",
    ),
    "impossible_value": ("error", "correct them, or add them to the table's `missing`"),
    "inverted_event": ("error", "swap event_values and censored_values"),
    "many_levels": ("warning", "pool them, or omit the variable"),
    "missing_code": ("warning", "if it means missing, add it to the table's `missing`"),
    "mixed_spelling": ("error", "map them to one spelling in `values`"),
    "mixed_units": ("error", "convert all patients to the same unit"),
    "mostly_missing": ("warning", "do not use it as a covariate"),
    "no_events": ("error", "check the event coding and its polarity"),
    "normal_samples": ("info", ""),
    "not_binary": ("error", 'map them in `values`, or declare kind = "categorical"'),
    "one_time": ("error", "check the time column"),
    "one_two_coding": ("warning", "include both codes in an endpoint before using it"),
    "outcome_proxy": ("warning", TIMING),
    "outdated_endpoint": ("error", "the endpoint's follow-up is older; use the other table"),
    "outdated_follow_up": (
        "warning",
        "this follow-up is older; take outcomes from the endpoint's table",
    ),
    "outlier": (
        "warning",
        "check them: means, slopes and z-scores depend strongly on the largest value",
    ),
    "recorded_by_outcome": ("warning", TIMING),
    "repeated_header": ("error", "set header_rows"),
    "risk_protects": ("warning", "check which code is the event, and how the variable is coded"),
    "several_aliquots": ("info", ""),
    "several_rows": ("error", 'set rows_per_patient = "identical", "first", "last" …'),
    "short_ids": (
        "error",
        "map them to full barcodes first: the ends of barcodes are not unique across sites",
    ),
    "short_times": ("warning", "check time_unit"),
    "times_at_zero": (
        "warning",
        "find out whether 0 means missing; these patients do not contribute to any comparison "
        "of hazards",
    ),
    "timing_undeclared": ("warning", TIMING),
    "training_slides": (
        "warning",
        "keep the test rows with `where`, or use these variables for sensitivity analyses only",
    ),
    "variable": ("error", "correct the column, or its description in cohort.toml"),
    "versioned_ids": ("info", ""),
    "weak_join": ("warning", "check the key column and its format"),
}


def report(
    code: str,
    where: str,
    message: str,
    *,
    remedy: str | None = None,
    severity: Severity | None = None,
) -> Finding:
    """Build a finding; severity and remedy default to those for its code."""
    usual, advice = CODES[code]
    return Finding(
        severity=severity or usual,
        code=code,
        where=where,
        message=message,
        remedy=advice if remedy is None else remedy,
    )
