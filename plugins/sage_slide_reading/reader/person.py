"""People who intervene during a reading, at the terminal or remotely through a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field, TypeAdapter, ValidationError

from agents.core.base import View
from sage.core.errors import InputError, explain_validation
from sage.core.files import read_new_lines, write_bytes, write_text
from sage.core.models import Name
from sage.core.printable import one_line
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import Box, Region, Step, parse_box

Stage = Literal["selected", "described", "missing"]
STAGES: dict[Stage, str] = {
    "selected": "before the first look",
    "described": "after the descriptions",
    "missing": "before the next look",
}
HELP = (
    "region X,Y,W,H   also look there (level-0 pixels)\nedit ID WORDS    replace the shown "
    "description with yours\nmissing WORDS    say what to look for next\nzoom 20          look "
    "closer, at this magnification\nempty line       continue"
)
SAID, NOW, STEPS = "said.jsonl", "now.json", "steps.json"
STEPS_FORM = TypeAdapter(tuple[Step, ...])
PATIENCE_S, POLL_S = 1800.0, 0.2
"""Seconds without a message after which a paused reader continues, and between checks."""


class Intervention(View):
    """A person's changes at a step, and whether to pause at every step or to continue."""

    region: Box | None = Field(
        default=None, description="Additional region to look at, in level-0 pixels"
    )
    edit: (
        tuple[Annotated[str, Field(max_length=80)], Annotated[str, Field(max_length=2000)]] | None
    ) = Field(default=None, description="Region ID and its description")
    missing_info: str | None = Field(default=None, min_length=1, max_length=500)
    magnification: float | None = Field(default=None, ge=1, le=80)
    pause: bool | None = Field(default=None, description="Whether to pause from now on")
    go: bool = Field(default=False, description="Continue if the reader is paused")
    by: Name = Field(
        default="", max_length=80, description="Name of the person, if people are identified"
    )

    def describe(self) -> str:
        """Describe the changes in words; empty if there are none."""
        said = []
        if (box := self.region) is not None:
            said.append(f"look at {box.x},{box.y},{box.width},{box.height}")
        if self.edit is not None:
            said.append(f"{self.edit[0]} reads: {self.edit[1]}")
        if self.missing_info is not None:
            said.append(f"look for: {self.missing_info}")
        if self.magnification is not None:
            said.append(f"magnification {self.magnification:g}x")
        return ("; ".join(said) + (f" ({self.by})" if said and self.by else ""))[:2000]

    def check(self, scope: Scope, steps: Sequence[Step]) -> None:
        """Check the changes against the slide and the regions seen.

        Raises `InputError` if the region is outside the slide, the description is of a region that
        was not seen, or the slide has no such magnification.
        """
        if self.magnification is not None and self.magnification > 1.05 * scope.native:
            raise InputError(f"the maximum magnification of this slide is {scope.native:.3g}x")
        if self.region is not None:
            scope.region(self.region, 1.0, "check")
        known = {view.region.id for step in steps for view in step.seen}
        if self.edit is not None and (self.edit[0] not in known or not self.edit[1].strip()):
            names = ", ".join(sorted(known)) or "none yet"
            raise InputError(f"edit needs a region that was seen ({names}) and a description")


class Person(Protocol):
    """Interface for a person who may intervene."""

    def intervene(self, stage: Stage, steps: Sequence[Step]) -> list[Intervention]:
        """Return changes to make now, given the steps so far; empty to continue."""


class TerminalPerson:
    """Person at the terminal, who is asked again if the input cannot be applied.

    `read` returns the next typed line, or raises EOFError at the end.
    """

    def __init__(
        self, scope: Scope, read: Callable[[], str], report: Callable[[str], None]
    ) -> None:
        self.scope, self.read, self.report = scope, read, report
        self.ended = False

    def intervene(self, stage: Stage, steps: Sequence[Step]) -> list[Intervention]:
        """Read typed lines until an empty one."""
        if self.ended:
            return []
        round_ = steps[-1].round if steps else 1
        self.report(f"-- round {round_}, {STAGES[stage]}; ? for help, an empty line to continue")
        for view in steps[-1].seen if stage == "described" else ():
            where = f"{view.region.id} at {view.region.magnification:.3g}x"
            self.report(f"   {where}: {one_line(view.text)}")
        changes: list[Intervention] = []
        while True:
            try:
                line = self.read().strip()
            except EOFError:
                self.ended = True
                return changes
            if not line:
                return changes
            try:
                change = parse_line(line)
                change.check(self.scope, steps)
                changes.append(change)
            except InputError as error:
                self.report(f"   {error}")


def parse_line(line: str) -> Intervention:
    """Parse a typed line as an intervention.

    Raises `InputError` if the line is not an intervention.
    """
    word, _, rest = line.partition(" ")
    name, _, words = (rest := rest.strip()).partition(" ")
    fields: dict[str, dict[str, object]] = {
        "region": {"region": parse_box(rest)},
        "edit": {"edit": (name, words.strip()[:2000])},
        "missing": {"missing_info": rest[:500]},
        "zoom": {"magnification": rest.removesuffix("x")},
    }
    try:
        change = Intervention.model_validate(fields.get(word, {}))
    except ValidationError as error:
        raise InputError(explain_validation(error)) from None
    if not change.describe():
        raise InputError(HELP)
    return change


class Now(View):
    """Content of `now.json`, the reader's current activity."""

    stage: Stage | None = None
    round: int = 0
    waiting: bool = False
    pause: bool = False
    looking_at: Region | None = Field(
        default=None, description="Region whose pixels were read last"
    )
    refused: tuple[str, ...] = Field(default=(), description="Changes that could not be applied")


class FolderPerson:
    """A remote person who communicates through files in the reading's folder.

    Interventions are lines of `said.jsonl`; `steps.json` has the steps so far. With `pause`, the
    reader stops at every step, starting with the first.
    """

    def __init__(self, scope: Scope, folder: Path, *, pause: bool = False) -> None:
        self.scope, self.folder = scope, folder
        self.now = Now(pause=pause)
        self.heard = 0
        self._told = 0.0
        for name in (SAID, STEPS):
            (folder / name).unlink(missing_ok=True)
        self._tell()
        scope.watch = self.watch

    def watch(self, region: Region) -> None:
        """Report which region is being read, at most ten times per second."""
        if time.monotonic() - self._told >= 0.1:
            self._tell(looking_at=region)

    def intervene(self, stage: Stage, steps: Sequence[Step]) -> list[Intervention]:
        """Return changes since the last step; a paused reader waits for permission to continue."""
        write_bytes(self.folder / STEPS, STEPS_FORM.dump_json(tuple(steps)), durable=False)
        self._tell(stage=stage, round=steps[-1].round if steps else 1, looking_at=None)
        changes, go = self._hear(steps)
        end = time.monotonic() + PATIENCE_S
        while self.now.pause and not go:
            if time.monotonic() > end:
                self._tell(pause=False)
                break
            if not self.now.waiting:
                self._tell(waiting=True)
            time.sleep(POLL_S)
            more, go = self._hear(steps)
            changes += more
        if self.now.waiting:
            self._tell(waiting=False)
        return changes

    def _tell(self, **changed: object) -> None:
        self._told = time.monotonic()
        self.now = self.now.model_copy(update=changed)
        write_text(self.folder / NOW, self.now.model_dump_json() + "\n", durable=False)

    def _hear(self, steps: Sequence[Step]) -> tuple[list[Intervention], bool]:
        """Return valid changes and whether to continue; `now.json` lists rejected changes."""
        changes: list[Intervention] = []
        refused: list[str] = []
        go, pause = False, self.now.pause
        for line in (lines := read_new_lines(self.folder / SAID, self.heard)):
            self.heard += len(line)
            try:
                said = Intervention.model_validate_json(line)
                said.check(self.scope, steps)
            except ValidationError as error:
                refused.append(explain_validation(error)[:300])
                continue
            except InputError as error:
                refused.append(str(error)[:300])
                continue
            if said.describe():
                changes.append(said)
            pause = pause if said.pause is None else said.pause
            go = go or said.go
        if lines:
            self._tell(pause=pause, refused=(*self.now.refused, *refused)[-20:])
        return changes, go
