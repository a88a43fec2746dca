"""The data dictionary: a description of a cohort without any patient's row.

It is the only view of a cohort that a reasoner has before results exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import Field

from sage.core.models import Name, Passage, Strict
from validation.core.hypothesis import KnownAt
from validation.core.signature import read_signature

Modality = Literal["clinical", "expression", "imaging", "immune", "mutation", "derived"]

SINCE = "@known_at"


def known_since(key: str) -> str:
    """Name the column with the months at which each patient's value for a variable became known."""
    return key + SINCE


class Variable(Strict):
    """A patient-level variable. `levels` counts categories, those under five pooled.

    `before` is the value, until then, of a variable known at each patient's own time ("not
    yet").
    """

    key: str
    label: Name
    modality: Modality
    kind: Literal["continuous", "binary", "categorical", "ordinal"]
    unit: Name | None = None
    source: Passage = ""
    n: int
    missing: float = Field(ge=0.0, le=1.0)
    levels: dict[Name, int] = Field(default_factory=dict)
    synonyms: tuple[Name, ...] = ()
    known_at: KnownAt = "unknown"
    before: Name | float | None = None
    note: Passage = ""

    @property
    def late(self) -> bool:
        """True if declared to have become known after the start of follow-up."""
        return self.known_at not in ("baseline", "unknown")

    @property
    def terms(self) -> int:
        """Number of model terms: one, or the number of levels minus one if categorical."""
        return max(1, len(self.levels) - 1) if self.kind == "categorical" else 1


class Endpoint(Strict):
    """Outcome. `n` patients have it, `events` of them had the event.

    `contained_in` names variables that hold the outcome itself and so cannot adjust it. `entry` is
    true if patients were followed from a time of their own on (delayed entry). `time_zero` names
    the event from which times count; empty if the cohort does not declare it.
    """

    key: str
    label: Name
    kind: Literal["survival", "binary", "continuous", "competing"]
    unit: Name | None = None
    n: int
    events: int | None = None
    median_follow_up: float | None = None
    coding: Passage = ""
    contained_in: tuple[str, ...] = ()
    entry: bool = Field(default=False, exclude_if=lambda given: not given)
    time_zero: Name = Field(default="", exclude_if=lambda given: not given)
    note: Passage = ""


class JoinReport(Strict):
    """Patients or samples kept by a step, and the reasons why the others were lost."""

    step: Name
    before: int
    after: int
    reason: Passage


def level_key(key: str, levels: Sequence[str]) -> str:
    """Name the yes/no variable for patients at some levels of another variable."""
    return f"{key}={'|'.join(levels)}"


def split_level_key(key: str) -> tuple[str, tuple[str, ...]] | None:
    """Split a level key into the variable's key and the levels; return None for other keys."""
    base, equals, levels = key.partition("=")
    return (base, tuple(levels.split("|"))) if equals and levels else None


def find_levels(variables: Iterable[Variable], key: str) -> Variable | None:
    """Describe the yes/no variable named by a level key, if the cohort has those levels."""
    found = split_level_key(key)
    base = next((item for item in variables if found and item.key == found[0]), None)
    if found is None or base is None or base.known_at == "column":
        return None
    if not set(found[1]) < set(base.levels):
        return None
    n = sum(base.levels[level] for level in found[1])
    rest = sum(base.levels.values()) - n
    label = f"{base.label} {' or '.join(found[1])}"
    return base.model_copy(
        update={"key": key, "label": label, "kind": "binary", "levels": {"no": rest, "yes": n}}
        | {"unit": None, "synonyms": ()}
    )


POOLED = "other (pooled)"
"""The level that combines small levels."""


def pool_levels(counts: Mapping[str, int], minimum: int) -> dict[str, int]:
    """Pool levels under `minimum` into one, which is left out if it is still too small."""
    shown = {level: n for level, n in counts.items() if n >= minimum and level != POOLED}
    rest = sum(counts.values()) - sum(shown.values())
    return shown | ({POOLED: rest} if rest and rest >= minimum else {})


class DataDictionary(Strict):
    """A cohort as its analysts may see it before the outcome is read.

    `genes` counts expression variables; `variables` holds all others. Expression variables
    are looked up by key ("expression:FABP5") in `expression`, the sorted list of symbols.
    Higher values of a risk factor are known to mean earlier events.
    """

    cohort: Name
    title: Name
    simulated: bool
    n_patients: int
    variables: tuple[Variable, ...]
    expression: tuple[str, ...] = ()
    expression_unit: Name | None = None
    expression_n: int = 0
    expression_known_at: KnownAt = "unknown"
    endpoints: tuple[Endpoint, ...]
    joins: tuple[JoinReport, ...] = ()
    cluster: str | None = None
    site: str | None = None
    risk_factors: tuple[str, ...] = Field(default=(), exclude_if=lambda given: not given)
    slides: int = 0
    license: Name = ""
    notes: tuple[Passage, ...] = ()

    def has_variable(self, key: str) -> bool:
        """Check whether `key` names a variable in this cohort."""
        if key.startswith("expression:"):
            return key.removeprefix("expression:") in set(self.expression)
        if (signature := read_signature(key)) is not None:
            return len(signature.split_measured(set(self.expression))[0]) > 1
        return any(variable.key == key for variable in self.variables) or (
            find_levels(self.variables, key) is not None
        )

    def endpoint(self, key: str) -> Endpoint | None:
        """Return the endpoint named `key`, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.key == key), None)
