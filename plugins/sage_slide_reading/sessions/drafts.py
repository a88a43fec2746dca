"""Drafted rationales and a reviewer's decisions about them, with one round per action.

`NAME.drafts.json` is written once; each decision is a line in `NAME.decisions.jsonl`, and
the last decision for a round counts. A decision includes the hash of the drafts to which
it applies.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, ValidationError

from sage.core import clock
from sage.core.errors import InputError, explain_validation
from sage.core.files import append_line
from sage.core.models import Strict, read_model
from sage.core.printable import one_line
from sage_slide_reading.sessions.actions import Action
from sage_slide_reading.sessions.format import SUFFIX, Moment, Person, SessionHeader

CYTOLOGY_PX = 1024
"""Maximum side, in level-0 pixels, of the crop at a region's center; at most half the box."""
DRAFTS = ".drafts.json"
DECISIONS = ".decisions.jsonl"
MAX_BYTES = 32 << 20
MAX_ROUNDS = 2000
State = Literal["accepted", "revised", "rejected"]
Sentence = Annotated[str, Field(max_length=1000), AfterValidator(one_line)]


def _drop_empty(panel: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(filter(None, panel))


Panel = Annotated[tuple[Sentence, ...], Field(max_length=30), AfterValidator(_drop_empty)]
PANELS: Mapping[str, str] = {
    "thumbnail_impression": "Thumbnail impression",
    "why_zoom": "Why zoom",
    "findings": "Findings (region and cytology)",
}
_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9“\"(])")


class Rationale(Strict):
    """Reason for viewing a region, and its findings, sentence by sentence."""

    thumbnail_impression: Panel = ()
    why_zoom: Panel = ()
    findings: Panel = ()

    @property
    def words(self) -> int:
        """Number of words in all three panels."""
        return sum(len(line.split()) for panel in self for line in panel[1])


class Round(Strict):
    """An action with its drafted rationale."""

    action: Action
    rationale: Rationale


class Drafts(Strict):
    """The rounds in a session, and the author of the drafts."""

    format: Literal["sage-drafts"] = "sage-drafts"
    version: Literal[2] = 2
    session: str = Field(max_length=255, description="File name of the session")
    header: SessionHeader
    drafted_by: Literal["model", "none"]
    model: str | None = Field(default=None, max_length=200)
    statement: str = Field(max_length=1000, description="Who or what drafted them, and the limits")
    rounds: tuple[Round, ...] = Field(max_length=MAX_ROUNDS)

    @property
    def digest(self) -> str:
        """SHA-256 of the drafts."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class Decision(Strict):
    """A reviewer's decision about a round.

    `seconds` is the time from the round's display to the decision; null if it was not timed.
    """

    drafts: str = Field(pattern=r"^[0-9a-f]{64}$")
    round: int = Field(ge=0, lt=MAX_ROUNDS)
    state: State
    rationale: Rationale
    reviewer: Person
    at: Moment
    seconds: float | None = Field(default=None, ge=0, le=86_400, allow_inf_nan=False)


def cytology_size(action: Action) -> tuple[float, float]:
    """Return the sides of the crop that shows an action's cells, in level-0 pixels."""
    return min(CYTOLOGY_PX, action.w / 2), min(CYTOLOGY_PX, action.h / 2)


def sentences(text: str) -> tuple[str, ...]:
    """Split a text into sentences, with one sentence per line."""
    return tuple(part for part in _ENDS.split(one_line(text)) if part)


def drafts_path(session: Path) -> Path:
    """Return the path of a session's drafts, in the same folder."""
    return session.with_name(session.name.removesuffix(SUFFIX) + DRAFTS)


def decisions_path(drafts: Path) -> Path:
    """Return the path of the decisions about drafts, in the same folder."""
    return drafts.with_name(drafts.name.removesuffix(DRAFTS) + DECISIONS)


def read_drafts(path: Path) -> Drafts:
    """Read drafts from their file.

    Raises `InputError` if the file is missing, too large, or does not contain drafts.
    """
    _check_size(path)
    return read_model(path, Drafts)


def read_decisions(drafts_file: Path, drafts: Drafts) -> dict[int, Decision]:
    """Read the last decision for each round that was made on exactly these drafts.

    Raises `InputError` if a line is not a decision; the message names the line.
    """
    path = decisions_path(drafts_file)
    if not path.exists():
        return {}
    _check_size(path)
    found: dict[int, Decision] = {}
    digest = drafts.digest
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            decision = Decision.model_validate_json(line)
        except ValidationError as error:
            reason = explain_validation(error)[:200]
            raise InputError(f"{path}: line {number}: {reason}") from None
        if decision.drafts == digest and decision.round < len(drafts.rounds):
            found[decision.round] = decision
    return found


def decide(
    drafts_file: Path, drafts: Drafts, number: int, kept: Rationale | None, reviewer: str,
    seconds: float | None = None,
) -> Decision:  # fmt: skip
    """Record a decision durably: accepted, revised if the text was changed, rejected if None.

    Rounds are numbered from 0; `seconds` is the time of a timed review.

    Raises `InputError` if there is no such round, or the reviewer's name is missing or too long.
    """
    if not 0 <= number < len(drafts.rounds):
        raise InputError(f"no round {number + 1}; there are {len(drafts.rounds)} rounds")
    state = "rejected"
    if kept is not None:
        state = "accepted" if kept == drafts.rounds[number].rationale else "revised"
    fields = {
        "drafts": drafts.digest, "round": number, "state": state, "rationale": kept or Rationale(),
        "reviewer": reviewer, "at": clock.stamp(), "seconds": seconds,
    }  # fmt: skip
    try:
        decision = Decision.model_validate(fields)
    except ValidationError as error:
        raise InputError(explain_validation(error)) from None
    append_line(decisions_path(drafts_file), decision.model_dump_json(), durable=True)
    return decision


def _check_size(path: Path) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if size > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES >> 20} MiB")


def audit(decisions: Mapping[int, Decision]) -> dict[State, tuple[int, float | None]]:
    """Count decisions by state, with their mean seconds (A.1.1: verify, revise)."""
    found: dict[State, tuple[int, float | None]] = {}
    for state in get_args(State):
        own = [decision for decision in decisions.values() if decision.state == state]
        timed = [decision.seconds for decision in own if decision.seconds is not None]
        found[state] = len(own), fmean(timed) if timed else None
    return found
