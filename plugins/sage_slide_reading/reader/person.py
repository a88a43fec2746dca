"""People who intervene during a reading, at the terminal or remotely through a folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from agents.core.base import View
from sage.core.errors import InputError, explain_validation
from sage.core.files import append_line, write_text
from sage.core.models import Name
from sage.core.printable import one_line
from sage_slide_reading.reader.algorithm import Intervention, Stage
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import Described, Region, parse_box

HELP = (
    "region X,Y,W,H   also look there (level-0 pixels)\nedit ID WORDS    replace the shown "
    "description with yours\nmissing WORDS    say what to look for next\nzoom 20          look "
    "closer, at this magnification\nempty line       continue"
)
STAGES: dict[Stage, str] = {
    "selected": "before the first look",
    "described": "after the descriptions",
    "missing": "before the next look",
}
SAID = "said.jsonl"
NOW = "now.json"
MOST_SAID = 1 << 20
"""Maximum size of a reading's interventions, in bytes."""


def check(change: Intervention, scope: Scope, known: set[str]) -> None:
    """Check an intervention against the slide and the regions seen.

    Raises
    ------
    InputError
        If its region is outside the slide, it describes a region that was not seen, or the
        slide has no such magnification.
    """
    if change.magnification is not None and change.magnification > 1.05 * scope.native:
        raise InputError(f"the maximum magnification of this slide is {scope.native:.3g}x")
    if change.region is not None:
        scope.region(change.region, 1.0, "check")
    if change.edit is not None and (change.edit[0] not in known or not change.edit[1].strip()):
        names = ", ".join(sorted(known)) or "none yet"
        raise InputError(f"edit needs a region that was seen ({names}) and a description")


class TerminalPerson:
    """Person at the terminal, who is asked again if the input cannot be applied.

    `read` returns the next typed line, or raises EOFError at the end.
    """

    def __init__(
        self, scope: Scope, read: Callable[[], str], report: Callable[[str], None]
    ) -> None:
        self.scope, self.read, self.report = scope, read, report
        self.ended = False
        self.known: set[str] = set()

    def intervene(
        self, stage: Stage, round_: int, seen: Sequence[Described], selected: Sequence[Region]
    ) -> list[Intervention]:
        """See `sage_slide_reading.reader.algorithm.Person`: read typed lines until an empty one."""
        if self.ended:
            return []
        self.known |= {region.region.id for region in seen}
        self.report(f"-- round {round_}, {STAGES[stage]}; ? for help, an empty line to continue")
        if stage == "described":
            for view in seen:
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
                changes.append(self.parse_line(line))
            except InputError as error:
                self.report(f"   {error}")

    def parse_line(self, line: str) -> Intervention:
        """Parse a typed line as an intervention.

        Raises
        ------
        InputError
            If the line is not an intervention, or names something that does not exist.
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
        if change == Intervention():
            raise InputError(HELP)
        check(change, self.scope, self.known)
        return change


class Said(View):
    """A line in `said.jsonl`: a change, or a request to pause at every step or to continue."""

    at: str = Field(max_length=40)
    by: Name = Field(default="", max_length=80)
    change: Intervention | None = None
    pause: bool | None = Field(
        default=None, description="Whether to pause at every step from now on"
    )
    go: bool = Field(default=False, description="Continue if the reader is paused")


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
    heard: int = Field(default=0, description="Number of lines read from said.jsonl")


class FolderPerson:
    """A remote person who communicates through files in the reading's folder.

    Parameters
    ----------
    pause : whether to stop at every step, starting with the first
    patience_s : seconds without a message after which the reader continues
    poll_s : seconds between checks of the folder while waiting
    """

    def __init__(
        self, scope: Scope, folder: Path, *, pause: bool = False, patience_s: float = 1800.0,
        poll_s: float = 0.2,
    ) -> None:  # fmt: skip
        self.scope, self.folder = scope, folder
        self.patience_s, self.poll_s = patience_s, poll_s
        self.known: set[str] = set()
        self.now = Now(pause=pause)
        self._told = 0.0
        (folder / SAID).unlink(missing_ok=True)
        self._tell()
        scope.watch = self.watch

    def watch(self, region: Region) -> None:
        """Report which region is being read, at most ten times per second."""
        if time.monotonic() - self._told >= 0.1:
            self._tell(looking_at=region)

    def intervene(
        self, stage: Stage, round_: int, seen: Sequence[Described], selected: Sequence[Region]
    ) -> list[Intervention]:
        """See `sage_slide_reading.reader.algorithm.Person`; returns changes since the last step.

        If the reader stops at every step, it waits for permission to continue.
        """
        self.known |= {region.region.id for region in seen}
        self._tell(stage=stage, round=round_, looking_at=None)
        changes, go = self._hear()
        end = time.monotonic() + self.patience_s
        while self.now.pause and not go:
            if time.monotonic() > end:
                self._tell(pause=False)
                break
            if not self.now.waiting:
                self._tell(waiting=True)
            time.sleep(self.poll_s)
            more, go = self._hear()
            changes += more
        if self.now.waiting:
            self._tell(waiting=False)
        return changes

    def _tell(self, **changed: object) -> None:
        self._told = time.monotonic()
        self.now = self.now.model_copy(update=changed)
        write_text(self.folder / NOW, self.now.model_dump_json() + "\n")

    def _hear(self) -> tuple[list[Intervention], bool]:
        """Return valid changes and whether to continue; `now.json` lists rejected changes."""
        changes: list[Intervention] = []
        refused: list[str] = []
        go, pause = False, self.now.pause
        lines = _lines(self.folder / SAID)[self.now.heard :]
        for line in lines:
            try:
                said = Said.model_validate_json(line)
                if said.change is not None:
                    change = said.change.model_copy(update={"by": said.by})
                    check(change, self.scope, self.known)
                    changes.append(change)
            except ValidationError as error:
                refused.append(explain_validation(error)[:300])
                continue
            except InputError as error:
                refused.append(str(error)[:300])
                continue
            pause = pause if said.pause is None else said.pause
            go = go or said.go
        if lines:
            self._tell(
                heard=self.now.heard + len(lines), pause=pause,
                refused=(*self.now.refused, *refused)[-20:],
            )  # fmt: skip
        return changes, go


def _lines(path: Path) -> list[str]:
    """Read the complete lines in a file, up to the size limit; none if the file is missing."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_SAID).decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return text[: text.rfind("\n") + 1].splitlines()


def say(folder: Path, said: Said) -> None:
    """Leave a message in a folder for its reader."""
    append_line(folder / SAID, json.dumps(said.model_dump(mode="json", exclude_none=True)))
