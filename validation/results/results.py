"""Results of an analysis: tests, numbers by key, figures and verdict.

Every number that a report may quote has a dotted key, a value, a unit and its printed
form. The same contract and data give identical bytes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    computed_field,
    field_validator,
    model_validator,
)

from sage.core.errors import InputError
from sage.core.files import write_text
from sage.core.models import Strict
from validation.contracts.contract import DIFFERENCES, Method, Scale, TestRole
from validation.core.dictionary import JoinReport
from validation.core.types import Number
from validation.inputs.population import Cut
from validation.inputs.prediction import PredictionModel
from validation.results.controls import Controls

Status = Literal["ok", "refused", "crashed"]
Part = Literal["all", "discovery", "confirmation", "replication"]
Quantity = Literal["n", "events", "effect", "lower", "upper", "p"]
State = Literal["reproduced", "differs", "missing", "did not converge", "no second implementation"]


class Effect(Strict):
    """An effect with its interval, on the contract's scale, for exposed versus reference."""

    value: float
    lower: float
    upper: float
    scale: Scale

    @field_validator("lower", "upper", mode="before")
    @classmethod
    def _unbounded(cls, value: Any, info: ValidationInfo) -> Any:
        """Read a null limit as unbounded, since JSON has no infinity."""
        if value is None:
            return math.inf if info.field_name == "upper" else -math.inf
        return value

    @property
    def null(self) -> float:
        """The value that means no effect."""
        return 0.0 if self.scale in DIFFERENCES else 1.0

    def distance_from_null(self, value: float) -> float:
        """Return a value on this scale as its distance from no effect (log for ratios)."""
        if self.scale in DIFFERENCES:
            return value
        return math.log(value) if value > 0 else -math.inf


class TestOutcome(Strict):
    """Outcome of a registered test. A refusal or crash has a reason and no numbers."""

    __test__ = False

    id: str
    role: TestRole | Literal["control", "replication"]
    method: Method | Literal["permutation", "random_features", "specification_curve", "timing"]
    endpoint: str
    status: Status
    claim: bool = False
    part: Part = "all"
    code: str = ""
    reason: str = ""
    n: int | None = None
    events: int | None = None
    effect: Effect | None = None
    p: float | None = None
    statistic: float | None = None
    df: int | None = None
    notes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Labels of registered covariates without a term in the model.

    They are constant in these patients, or no second level has enough patients.
    """

    @property
    def estimation_note(self) -> str:
        """Note on how the estimate was made, unless by the standard method."""
        penalized = any("Firth's penalty" in note for note in self.notes)
        return ", with Firth's penalty" if penalized else ""


class Figure(Strict):
    """A figure in the run, by file name, with its title and caption."""

    file: str
    title: str
    caption: str
    sha256: str = ""


class Reason(Strict):
    """A step in the verdict's argument."""

    rule: str
    outcome: Literal["for", "against", "limits", "prevents"]
    text: str


class Answer(Strict):
    """An answer to one of the verdict's questions, with the estimate that supports it."""

    question: Literal[
        "association", "independence", "relevance", "observed/expected ratio", "calibration slope"
    ]
    answer: Literal["yes", "no", "unclear", "not answered"]
    effect: Effect | None = None
    p: float | None = None
    text: str
    unadjusted: tuple[str, ...] = ()
    """Labels of variables that are related to the exposure but not in the model."""


Word = Literal["supported", "small_effect", "not_supported", "inconclusive"]
Because = Literal[
    "evidence",
    "power",
    "assumption",
    "data",
    "timing",
    "control",
    "independence",
    "confounding",
    "relevance",
    "reproduction",
    "replication",
    "multiplicity",
    "registration",
]


@dataclass(frozen=True)
class Objection:
    """A reason that keeps a claim from being supported.

    `words` is the text for the reason in the badge. `any_reading` is True if it rules out
    every conclusion, including "not supported".
    """

    because: Because
    rule: str
    words: str
    text: str
    any_reading: bool = False

    @property
    def reason(self) -> Reason:
        """The objection as a step in the verdict's argument."""
        return Reason(rule=self.rule, outcome="prevents", text=self.text)


class Verdict(Strict):
    """The verdict as a word, with its reasons and limits."""

    verdict: Word
    because: Because
    reasons: tuple[Reason, ...]
    limits: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    qualifiers: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _badge_is_never_read(cls, value: Any) -> Any:
        """Ignore the badge in JSON, since it is composed from the other fields."""
        if isinstance(value, dict):
            return {name: field for name, field in value.items() if name != "badge"}
        return value

    @computed_field  # type: ignore[prop-decorator]
    @property
    def badge(self) -> str:
        """The verdict and its basis, as printed in the terminal, the report and the JSON."""
        rests_on = f": {'; '.join(dict.fromkeys(self.qualifiers))}" if self.qualifiers else ""
        return self.verdict.capitalize().replace("_", " ") + rests_on


class Computed(Strict):
    """Everything that an analysis computes."""

    contract_sha256: str
    cohort: str
    simulated: bool
    cuts: tuple[Cut, ...] = ()
    model: PredictionModel | None = None
    tests: tuple[TestOutcome, ...] = ()
    numbers: dict[str, Number] = Field(default_factory=dict)
    figures: dict[str, Figure] = Field(default_factory=dict)
    tables: dict[str, tuple[dict[str, str], ...]] = Field(default_factory=dict)
    controls: Controls | None = None
    joins: tuple[JoinReport, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a result from its file; raise `InputError` if it is missing or invalid."""
        try:
            return cls.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise InputError(f"{path}: file not found") from None
        except (json.JSONDecodeError, ValidationError) as error:
            raise InputError(f"{path}: not a results file: {error}") from None

    def test(self, name: str) -> TestOutcome | None:
        """Return the outcome of a test, or None if it did not run."""
        return next((test for test in self.tests if test.id == name), None)


class AnalysisResult(Computed):
    """Result of analyzing a part, before ledger and verdict (`analysis.json`)."""

    part: Part


class Compared(Strict):
    """A registered number as computed by SAGE and by the second implementation."""

    test: str
    field: Quantity
    state: State
    sage: float | None = None
    second: float | None = None
    off: float | None = None
    tolerance: str = ""


class Reproduction(Strict):
    """Comparison of a part's registered numbers. `by` names the second implementation's author."""

    contract_sha256: str
    part: Part
    by: Literal["SAGE", "a model", "a person"]
    program_sha256: str = ""
    ran: bool = True
    compared: tuple[Compared, ...] = ()

    def with_state(self, *states: State) -> tuple[Compared, ...]:
        """Return the numbers in any of these states."""
        return tuple(comparison for comparison in self.compared if comparison.state in states)


PREFIX = {"replication": "replicate.", "discovery": "discovery."}
"""Key prefixes for numbers in patients other than those on whom the verdict is based."""


class Results(Computed):
    """A finished validation: its numbers, their interpretation, and the contract."""

    schema_version: int = 1
    hypothesis: str
    verdict: Verdict
    replicate: str | None = None
    reproduction: tuple[Reproduction, ...] = ()

    def number(self, key: str) -> Number:
        """Return a number by key.

        Raises `InputError` if the number is missing; a report that requests it must not be built.
        """
        if key not in self.numbers:
            raise InputError(f'no number "{key}" in the results')
        return self.numbers[key]

    def key(self, test: TestOutcome) -> str:
        """Build the key prefix for a test's numbers; parts with other patients add a word."""
        other = test.part != self.tests[0].part
        return f"{PREFIX.get(test.part, '') if other else ''}{test.id}"

    def save(self, path: Path) -> Path:
        """Write the results as JSON, with sorted keys and floats at twelve significant digits."""
        write_text(path, stable_json(self.model_dump(mode="json")))
        return path


def stable_json(value: Any) -> str:
    """Render JSON with floats rounded to twelve significant digits.

    The last bits of a sum, which depend on the processor, therefore do not change the file.
    """
    return json.dumps(_round_floats(value), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _round_floats(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.12g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _round_floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_round_floats(item) for item in value]
    return value


def effect_text(effect: Effect) -> str:
    """Render an effect with its interval."""
    unit = " SD" if effect.scale == "difference (SD)" else ""
    upper = f"{effect.upper:.2f}" if math.isfinite(effect.upper) else "∞"
    return f"{effect.scale} {effect.value:.2f}{unit} (95% CI {effect.lower:.2f} to {upper})"


def short_scale(scale: Scale) -> str:
    """Abbreviate a scale: "HR" for a hazard ratio."""
    short = {"hazard ratio": "HR", "odds ratio": "OR", "subdistribution hazard ratio": "sHR"}
    return short.get(scale, scale.removesuffix(" (SD)"))


def amount_text(scale: Scale, value: float) -> str:
    """Render a difference: "difference of 0.30 SD"."""
    unit = " SD" if scale == "difference (SD)" else ""
    return f"{scale.removesuffix(' (SD)')} of {value:.2f}{unit}"


def p_text(p: float) -> str:
    """Format a p-value for print: three decimals, four under 0.01, `<0.0001` below."""
    if p < 0.0001:
        return "<0.0001"
    return f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def percent(share: float, digits: int = 0) -> str:
    """Format a share as a percentage; 0% and 100% only if it is exactly zero or one."""
    text = f"{100 * share:.{digits}f}"
    while 0 < share < 1 and float(text) in (0, 100) and digits < MOST_DIGITS:
        digits += 1
        text = f"{100 * share:.{digits}f}"
    return f"{text}%"


MOST_DIGITS = 6


def p_is(p: float | None, name: str = "p") -> str:
    """Render a p-value as a relation: `p = 0.012`, `p < 0.0001`, or a note that there is none."""
    if p is None:
        return f"{name} not available"
    text = p_text(p)
    return f"{name} < {text[1:]}" if text.startswith("<") else f"{name} = {text}"


class Book:
    """Collector of numbers under dotted keys; each key can be written only once."""

    def __init__(self) -> None:
        self.numbers: dict[str, Number] = {}

    def add(self, key: str, value: float | int | None, unit: str, text: str | None = None) -> None:
        """Add a number; its text is derived from value and unit unless given.

        Parameters
        ----------
        value : None if the number could not be computed
        unit : "patients", "months", "p-value", ...

        Raises
        ------
        InputError
            If the key was already written.
        """
        if key in self.numbers:
            raise InputError(f'number "{key}" was written twice')
        if value is not None and not isinstance(value, int):
            value = float(value)
            if not math.isfinite(value):
                value, text = None, text or "not reached"
        if text is None:
            text = _text(value, unit)
        self.numbers[key] = Number(value=value, unit=unit, text=text)

    def add_effect(self, key: str, effect: Effect, p: float | None) -> None:
        """Add an effect, its interval, its p-value, and the usual short form."""
        self.add(f"{key}.effect", effect.value, effect.scale)
        self.add(f"{key}.lower", effect.lower, effect.scale)
        self.add(f"{key}.upper", effect.upper, effect.scale)
        unit = " SD" if effect.scale == "difference (SD)" else ""
        name = short_scale(effect.scale)
        upper = f"{effect.upper:.2f}" if math.isfinite(effect.upper) else "∞"
        text = f"{name} {effect.value:.2f}{unit} (95% CI {effect.lower:.2f} to {upper})"
        self.add(f"{key}.summary", effect.value, effect.scale, text)
        if p is not None:
            self.add(f"{key}.p", p, "p-value")


def _text(value: float | int | None, unit: str) -> str:
    if value is None:
        return "not available"
    if unit in ("p-value", "q-value"):
        return p_text(float(value))
    if isinstance(value, int):
        return f"{value}"
    if unit == "share":
        return percent(value, 1)
    if unit in ("months", "years"):
        return f"{value:.1f}"
    if abs(value) >= 1e6:
        return f"{value:.1e}"
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:.0f}"
