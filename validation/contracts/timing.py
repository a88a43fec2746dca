"""Timing of variables: late ones are rejected, or counted from the time they became known.

An exposure that becomes known during follow-up gives exposed patients immortal time: they
had to survive until then. Two methods avoid this bias. With a landmark, follow-up
restarts among patients still at risk, with values known by then (Anderson, Cain and
Gelber 1983, Journal of Clinical Oncology). With a time-dependent covariate, each patient
counts as unexposed until the exposure occurs, in start-stop records (Crowley and Hu 1977,
Journal of the American Statistical Association).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sage.core.errors import InputError
from validation.contracts.contract import Contract, VariableUse
from validation.core.dictionary import Endpoint, JoinReport, known_since
from validation.core.hypothesis import CutRule, Hypothesis, KnownAt

if TYPE_CHECKING:
    import pandas as pd


def known_text(known_at: KnownAt) -> str:
    """Describe when a variable became known."""
    if isinstance(known_at, float):
        return f"{known_at:g} months"
    return "each patient's own time" if known_at == "column" else known_at


def is_late(use: VariableUse) -> bool:
    """Check whether a variable became known after the start of follow-up."""
    return use.known_at == "column" or isinstance(use.known_at, float)


def require_known(
    hypothesis: Hypothesis, uses: list[VariableUse], endpoints: list[Endpoint]
) -> None:
    """Reject variables known after the start of follow-up, unless the hypothesis handles them.

    Raises `InputError` with the remedies: landmark analysis, or a time-dependent covariate.
    """
    late = [use for use in uses if is_late(use)]
    landmark = hypothesis.landmark
    if landmark is not None or hypothesis.time_dependent:
        asked = "landmark" if landmark is not None else "time_dependent"
        kinds = ("survival", "competing") if landmark is not None else ("survival",)
        other = next((endpoint for endpoint in endpoints if endpoint.kind not in kinds), None)
        if other is not None:
            raise InputError(
                f'`{asked}` requires {" and ".join(kinds)} endpoints, but "{other.key}" is '
                f"{other.kind}"
            )
    for use in late:
        if landmark is None and not hypothesis.time_dependent:
            raise InputError(
                f"{_describe_use(use)} became known {_describe_time(use)}: {_remedies(use)}"
            )
        if landmark is not None and isinstance(use.known_at, float) and use.known_at > landmark:
            raise InputError(
                f"{_describe_use(use)} became known {_describe_time(use)}, later than the "
                f"landmark at {landmark:g} months; set `landmark` to {use.known_at:g} or "
                "later"
            )
    if hypothesis.time_dependent:
        _require_records(late, endpoints, hypothesis)


def _require_records(late: list[VariableUse], endpoints: list[Endpoint], claim: Hypothesis) -> None:
    """Reject hypotheses and variables that start-stop records cannot represent."""
    for use in late:
        if use.known_at != "column" or use.before is None:
            raise InputError(
                f"{_describe_use(use)} cannot be followed over time; declare in cohort.toml when "
                "each patient's value became known and its value before, as known_at = "
                '{ column = "...", before = "no" }; or set `landmark`'
            )
        if use.role not in ("exposure", "covariate"):
            raise InputError(
                f"{_describe_use(use)} changes over time, so it cannot be used as {use.role}"
            )
        if use.role == "exposure" and use.kind != "binary":
            raise InputError(
                f"{_describe_use(use)} is {use.kind}; a time-dependent exposure must be yes or no"
            )
    if not late and endpoints:
        raise InputError(
            "`time_dependent`: every variable was known at baseline; remove this setting"
        )
    if any(exposure.cut is CutRule.OPTIMAL for exposure in claim.exposures):
        raise InputError("`time_dependent` does not support a searched cut")
    if claim.subgroups:
        raise InputError(
            "`time_dependent` does not support subgroups; define the subgroup as the population"
        )


def _describe_use(use: VariableUse) -> str:
    return f"{use.role.replace('_', ' ')} {use.label} ({use.key})"


def _describe_time(use: VariableUse) -> str:
    if isinstance(use.known_at, float):
        return f"{known_text(use.known_at)} after the start of follow-up"
    return "during follow-up, at a different time for each patient"


def _remedies(use: VariableUse) -> str:
    months = f"{use.known_at:g}" if isinstance(use.known_at, float) else "6"
    text = (
        "exposed patients had to be followed until then (immortal time). In the hypothesis, set "
        f'"landmark": {months} to compare the patients at risk {months} months after the start '
        "by what was known then"
    )
    if use.role in ("exposure", "covariate"):
        text += ', or "time_dependent": true to count each patient from the time it was known'
    return text


def timing_limits(contract: Contract) -> tuple[str, ...]:
    """List notes on timing to print next to the verdict."""
    landmark = contract.hypothesis.landmark
    if landmark is None:
        return ()
    return (f"landmark: does not cover events before month {landmark:g}",)


def as_known(table: pd.DataFrame, contract: Contract) -> tuple[pd.DataFrame, list[JoinReport]]:
    """Return the patients and values that the contract may compare, and a report of losses.

    With a landmark, patients whose follow-up ended before it are left out, times count from
    the landmark, and an outcome that had already ended is unknown. A value not known by then
    (without a landmark: a value that never became known) is the variable's declared `before`,
    or else unknown.
    """
    landmark = contract.hypothesis.landmark
    months = float("inf") if landmark is None else landmark
    total = len(table)
    if landmark is not None:
        table = table[~(table[f"{contract.primary_test.endpoint}.time"] <= landmark)].copy()
        for column in [str(column) for column in table.columns if str(column).endswith(".time")]:
            over = table[column] <= landmark
            table.loc[over, [column, column.removesuffix("time") + "event"]] = float("nan")
            table[column] -= landmark
            entry = column.removesuffix("time") + "entry"
            if entry in table:
                table[entry] = (table[entry] - landmark).clip(lower=0.0)
    for use in contract.variables:
        if use.known_at == "column" and use.key in table.columns:
            known = table[known_since(use.key)] <= months
            table = table.assign(**{use.key: table[use.key].where(known, use.before)})
    if landmark is None:
        return table, []
    reason = f"at risk {landmark:g} months after the start of follow-up, which restarts there"
    return table, [JoinReport(step="landmark", before=total, after=len(table), reason=reason)]


START = "follow_up.start"
"""Column with a record's start, in months, while records are built."""


def records(rows: pd.DataFrame, contract: Contract) -> pd.DataFrame:
    """Build start-stop records: each patient before and after a value became known.

    The value counts after its time, so an event at exactly that time belongs to the earlier
    state. A record has the entry, end and event of every outcome, except those that ended
    before the record or began after it.
    """
    import pandas as pd

    found, stop = rows.assign(**{START: 0.0}), np.full(len(rows), np.inf)
    late = [variable for variable in contract.variables if variable.known_at == "column"]
    for use in {
        variable.key: variable for variable in late if variable.key in rows.columns
    }.values():
        when = found[known_since(use.key)].fillna(np.inf).to_numpy(dtype=float)
        start = found[START].to_numpy()
        parted = (start < when) & (when < stop)
        later = found[parted].assign(**{START: when[parted]})
        until = found.assign(**{use.key: found[use.key].where(when <= start, use.before)})
        found = pd.concat([until, later])
        stop = np.concatenate([np.where(parted, when, stop), stop[parted]])
    for column in [str(column) for column in rows.columns if str(column).endswith(".time")]:
        flag, entry = (column.removesuffix("time") + name for name in ("event", "entry"))
        begin, end = found[START].to_numpy(), found[column].to_numpy(dtype=float)
        if entry in found:
            begin = np.maximum(begin, found[entry].to_numpy(dtype=float))
        over = np.minimum(end, stop) <= begin
        found[entry] = np.where(over, np.nan, begin)
        found[column] = np.where(over, np.nan, np.minimum(end, stop))
        found[flag] = np.where(over, np.nan, np.where(end <= stop, found[flag], 0.0))
    order = np.lexsort((found[START].to_numpy(), found.index.to_numpy(dtype=str)))
    return found.iloc[order].drop(columns=START)
