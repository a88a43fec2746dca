"""Lines in a ledger: attempts, registrations, unlocks, screens, and damage to its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import Field

from sage.core.hashes import hash_text
from sage.core.models import Strict
from validation.contracts.contract import FrozenContract
from validation.core.types import canonical_json
from validation.ledger.store import Kind, Mark
from validation.results.results import TestOutcome

FILE = "ledger.jsonl"
PROSE = {"id", "statement", "rationale", "feasibility", "untested", "notes", "amendment"}
"""Fields of a hypothesis or contract that do not affect the computation."""


class Entry(Strict):
    """A test attempt. `claim` entries form the family over which errors are controlled.

    `draw` identifies the split of the patients (data, seed, share) if the contract has a
    split.
    """

    contract: str
    hypothesis: str
    cohort: str
    test: str
    role: str
    part: str
    claim: bool
    status: str
    p: float | None = None
    n: int | None = None
    code: str = ""
    reason: str = ""
    draw: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Key of the attempt.

        The same test for the same contract on the same part is a single attempt, however often it
        is run.
        """
        return (self.contract, self.test, self.part)


class Registration(Strict):
    """A contract, frozen when the ledger contained the lines above it.

    `claim` identifies the computation, regardless of the hypothesis's name: contracts with
    the same claim are the same attempt. `asks` identifies the question among those on these
    patients, `also` its names elsewhere. `screened` lists the exposures that were screened
    before. `frozen` is False for a contract first recorded when it was run. `place` is the
    claim's place in a campaign's online control, and `within` contains the levels that apply
    to its patients.
    """

    registered: str
    hypothesis: str
    cohort: str
    endpoint: str
    exposures: tuple[str, ...]
    parent: str | None = None
    claim: str = ""
    population: str = ""
    asks: str = ""
    also: tuple[str, ...] = ()
    screened: tuple[str, ...] = ()
    frozen: bool = True
    place: int | None = None
    within: dict[str, str] = Field(default_factory=dict)

    @property
    def contract(self) -> str:
        """The contract's hash."""
        return self.registered

    @property
    def question(self) -> tuple[str, ...]:
        """Question and patients; contracts that share both ask the same question again."""
        return (self.asks,) if self.asks else (self.cohort, self.endpoint, *self.exposures)


class Unlock(Strict):
    """The opening of a cohort's confirmation patients for a contract."""

    unlock: str
    contract: str
    hypothesis: str
    cohort: str = ""


class Screened(Strict):
    """A ranking of features by an endpoint in these patients."""

    screen: str
    cohort: str
    endpoint: str
    features: int
    population: str = ""
    contract: str = ""


class Incident(Strict):
    """An event that affected this file and remains recorded."""

    incident: Literal["emptied", "torn"]
    why: str
    contract: str = ""


Said = Entry | Registration | Unlock | Screened | Incident
S = TypeVar("S", Entry, Registration, Unlock, Screened, Incident)
KINDS: dict[type[Strict], Kind] = {
    Entry: "entry",
    Registration: "registration",
    Unlock: "unlock",
    Screened: "screen",
}
FIELDS: dict[str, type[Said]] = {
    "registered": Registration,
    "unlock": Unlock,
    "screen": Screened,
    "incident": Incident,
    "test": Entry,
}


@dataclass(frozen=True)
class Line:
    """A line in the file. `elsewhere` marks entries from other folders on the same patients."""

    said: Said
    at: str
    elsewhere: bool
    mark: Mark | None = None
    number: int = 0

    @property
    def order(self) -> tuple[str, int]:
        """Sort key that puts earlier lines first."""
        return (self.at, self.number)


def line_model(body: dict[str, Any]) -> Said:
    """Parse the content of a line, using the field that identifies its kind."""
    kind = next((model for field, model in FIELDS.items() if field in body), Entry)
    return kind.model_validate(body)


def line_text(said: Said) -> str:
    """Serialize the content of a line; equal content gives identical text."""
    return canonical_json(line_body(said))


def line_body(said: Said) -> dict[str, Any]:
    """Convert the content to JSON values, leaving out empty fields added in later versions."""
    value = said.model_dump(mode="json")
    return {key: part for key, part in value.items() if part or key not in ("place", "within")}


def claim_of(frozen: FrozenContract) -> str:
    """Compute a key for a contract's computation, ignoring the hypothesis's name and rationale.

    Fields at their default are excluded, so that a later version of SAGE, whose contracts
    have more fields, computes the same key.
    """
    value = frozen.contract.model_dump(mode="json", exclude_defaults=True)
    value = {key: part for key, part in value.items() if key not in PROSE}
    hypothesis = value["hypothesis"]
    value["hypothesis"] = {key: part for key, part in hypothesis.items() if key not in PROSE}
    if any(exposure.signature is not None for exposure in frozen.contract.hypothesis.exposures):
        value = _without_given_names(value)
    return hash_text(canonical_json([value, frozen.data_hashes]))[:16]


def _without_given_names(value: dict[str, Any]) -> dict[str, Any]:
    """Remove a signature's given names from a contract, since its key defines the computation."""
    named = {"label", "signature", "source"}
    hypothesis = value["hypothesis"]
    exposures = [
        {key: part for key, part in exposure.items() if key not in named}
        for exposure in hypothesis["exposures"]
    ]
    variables = [
        {key: part for key, part in variable.items() if key not in named}
        for variable in value["variables"]
    ]
    kept = {key: part for key, part in value.items() if key not in ("exposed", "reference")}
    return kept | {
        "hypothesis": hypothesis | {"exposures": exposures}, "variables": variables,
        "tests": [{key: part for key, part in test.items() if key != "note"}
                  for test in value["tests"]],
    }  # fmt: skip


def entry_of(frozen: FrozenContract, outcome: TestOutcome) -> Entry:
    """Build the ledger entry for a test outcome."""
    return Entry(
        contract=frozen.sha256,
        hypothesis=frozen.contract.hypothesis.id,
        cohort=frozen.contract.cohort,
        test=outcome.id,
        role=outcome.role,
        part=outcome.part,
        claim=outcome.claim,
        status=outcome.status,
        p=None if outcome.p is None else float(f"{outcome.p:.12g}"),
        n=outcome.n,
        code=outcome.code,
        reason=outcome.reason,
        draw=draw_of(frozen),
    )


HOLDING_BACK = 2
"""Version of the rule for holding out patients; version 1 also used the cohort description."""


def draw_of(frozen: FrozenContract) -> str:
    """Compute a key for the patients held out by a contract; empty if there are none."""
    split = frozen.contract.split
    if split.policy == "none":
        return ""
    parts = [HOLDING_BACK, frozen.data_hashes, frozen.contract.seed, split.confirmation]
    return hash_text(canonical_json(parts))[:12]
