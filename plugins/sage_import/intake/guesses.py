"""Guesses about a cohort's files with their evidence, and the user's corrections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, cast

from pydantic import Field

from sage.core.errors import InputError
from sage.core.models import Strict

Confidence = Literal["sure", "likely", "unsure", "given"]
WHOLE = {
    "name": "ID of the cohort, and name of its folder",
    "title": "its title",
    "delimiter": 'field delimiter: ",", ";", "tab" or "|"',
    "encoding": "encoding: utf-8, utf-16, cp1252, latin-1 or another",
    "decimal": "decimal sign: . or ,",
    "dates": "order of dates: dmy, mdy or ymd",
    "columns": "column names, separated by commas, for a file without a header",
    "id": "column that identifies the patient",
    "where": "COLUMN:VALUE|VALUE, the rows to keep",
    "missing": "additional codes for missing values, separated by commas",
    "known_at": '"baseline": every variable was known before follow-up began',
    "risk_factors": "columns of which more is known to mean earlier events, separated by commas",
    "drop": "columns to omit, separated by commas",
}
OF_ENDPOINT = {
    "time": "column with the times; none for a cohort without an outcome",
    "entry": "column with the time or date from which the patient was followed (delayed entry)",
    "unit": "days, weeks, months or years",
    "event": "COLUMN:CODE|CODE, the codes of the event",
    "censored": "COLUMN:CODE|CODE, or CODE|CODE; by default, every other code is censored",
    "start": "column with the dates at which follow-up begins",
    "end": "column with the dates of the last contact",
    "death": "column with the dates of death",
}
OF_COLUMN = {
    "kind": "continuous, binary, categorical, ordinal or skip",
    "order": "LEVEL<LEVEL<LEVEL, the order of an ordinal variable",
    "known_at": "baseline or unknown",
    "missing": "additional codes for missing in this column, or none if all codes are levels",
}
SIDES = ("event", "censored")
NO_OUTCOME = "none"
"""Value of `time` for a cohort without an outcome."""


class Guess(Strict):
    """A guess inferred from the files.

    `key` is the key for `--set KEY=VALUE`. An `open` guess must be confirmed by a person; a
    `fixed` guess is shown but cannot be changed by its key.
    """

    key: str
    what: str
    value: str
    evidence: str
    confidence: Confidence
    choices: tuple[str, ...] = ()
    open: bool = False
    fixed: bool = False

    @property
    def settable(self) -> bool:
        """True if `--set` can replace the value."""
        plain = ("delimiter", "encoding", "decimal", "dates", "id")
        field = self.key.rpartition(".")[2]
        named = (
            self.key in plain or self.key.startswith("id.") or field in ("time", "unit", "event")
        )
        return self.open or (named and not self.fixed)


def make_guess(
    key: str,
    what: str,
    value: str,
    evidence: str,
    confidence: str = "likely",
    *,
    choices: tuple[str, ...] = (),
    open: bool = False,
    fixed: bool = False,
) -> Guess:
    """Build a guess with its evidence; the default confidence is `likely`."""
    return Guess(
        key=key,
        what=what,
        value=value,
        evidence=evidence,
        confidence=cast("Confidence", confidence),
        choices=choices,
        open=open,
        fixed=fixed,
    )


class Loss(Strict):
    """Rows, sheets, files or genes that were omitted."""

    what: str
    count: int
    reason: str
    remedy: str


class Corrections(Strict):
    """Settings given by the user, grouped by subject."""

    whole: dict[str, str] = Field(default_factory=dict)
    endpoints: dict[str, dict[str, str]] = Field(default_factory=dict)
    columns: dict[str, dict[str, str]] = Field(default_factory=dict)
    ids: dict[str, str] = Field(default_factory=dict)

    @property
    def dropped_columns(self) -> frozenset[str]:
        """Columns that are omitted."""
        named = self.whole.get("drop", "").split(",")
        skipped = (name for name, said in self.columns.items() if said.get("kind") == "skip")
        return frozenset({*(name.strip() for name in named if name.strip()), *skipped})

    def event_codes(self, column: str) -> frozenset[str]:
        """Codes that the user assigned to event or censoring, and so are not missing."""
        start = f"{column}:"
        texts = [said.get(key, "") for said in self.endpoints.values() for key in SIDES]
        named = [text.removeprefix(start) for text in texts if text.startswith(start)]
        return frozenset(code.strip() for text in named for code in text.split("|"))

    @property
    def missing(self) -> frozenset[str]:
        """Additional codes for missing values."""
        return frozenset(code.strip() for code in self.whole.get("missing", "").split(",")) - {""}


def read_corrections(settings: Iterable[str]) -> Corrections:
    """Parse corrections given as `--set KEY=VALUE`.

    `KEY` refers to the cohort (`id`, `decimal`), the endpoint (`time`, `event`; `PFS.time`
    for an endpoint other than the first), a column (`STAGE.kind`), or a file's id
    (`id.samples`).

    Raises `InputError` if a key is unknown or a value is empty.
    """
    found = Corrections()
    for setting in settings:
        key, equals, value = setting.partition("=")
        key, value = key.strip(), value.strip()
        if not equals or not value or len(setting) > 4000:
            raise InputError(f'--set {setting[:80]}: expected KEY=VALUE, such as time="os_months"')
        owner, dot, field = key.rpartition(".")
        if key in WHOLE:
            found.whole[key] = value
        elif key in OF_ENDPOINT:
            found.endpoints.setdefault("", {})[key] = value
        elif owner == "id" and dot:
            found.ids[field] = value
        elif dot and field in OF_ENDPOINT:
            found.endpoints.setdefault(owner, {})[field] = value
        elif dot and field in OF_COLUMN:
            found.columns.setdefault(owner, {})[field] = value
        else:
            raise InputError(
                f"--set {key[:60]}: unknown key. Cohort keys: {', '.join(WHOLE)}. Endpoint "
                f"keys: {', '.join(OF_ENDPOINT)} (OS.time also names the endpoint). "
                f"Column keys: {', '.join(f'COLUMN.{field}' for field in OF_COLUMN)}. ID "
                "column in a file: id.FILE"
            )
    _check(found)
    return found


def _check(found: Corrections) -> None:
    allowed = {
        "decimal": (".", ","),
        "dates": ("dmy", "mdy", "ymd"),
        "known_at": ("baseline", "unknown"),
        "delimiter": (",", ";", "|", "tab"),
    }
    checked = [(key, value, allowed.get(key)) for key, value in found.whole.items()]
    units = ("days", "weeks", "months", "years")
    checked += [
        (f"{name}.unit".lstrip("."), said["unit"], units)
        for name, said in found.endpoints.items()
        if "unit" in said
    ]
    kinds = ("continuous", "binary", "categorical", "ordinal", "skip")
    for name, said in found.columns.items():
        if "kind" in said:
            checked.append((f"{name}.kind", said["kind"], kinds))
        if "known_at" in said:
            checked.append((f"{name}.known_at", said["known_at"], ("baseline", "unknown")))
    for key, value, choices in checked:
        if choices is not None and value not in choices:
            raise InputError(f'--set {key}: "{value[:40]}" is not one of {" ".join(choices)}')
