"""A patient as a sequence of questions over a growing timeline."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from pydantic import Field

from agents.base import View
from sage.core.models import Strict

LETTERS = "ABCDEF"
OPTION = re.compile(r"(?:^|\?)\s*([A-F])\)\s*(.+?)\s*$", re.MULTILINE)
_LETTER = re.compile(r"\s*[(\[]?([A-Z])\b(?!['’])", re.IGNORECASE)
IMAGES = frozenset((".jpg", ".jpeg", ".png", ".tif", ".tiff", ".svs", ".ndpi", ".mrxs"))


class Track(StrEnum):
    """HANCOCK: images and laboratory. MSK-CHORD: a timeline."""

    HANCOCK = "hancock"
    MSK = "msk"


class CaseFile(Strict):
    """A file of the patient's folder. Text, or an image's path, or why neither is at hand.

    `percent_positive` is what a recorded reading of an immunohistochemistry image said.
    """

    name: str
    text: str | None = None
    path: Path | None = None
    percent_positive: float | None = None
    missing: str = ""

    @property
    def image(self) -> bool:
        """Whether its name is that of an image."""
        return Path(self.name).suffix.lower() in IMAGES


class Stage(Strict):
    """What becomes known at one time: a paragraph, and the files that are listed from then on."""

    context: str
    listed: tuple[str, ...]


class BoardQuestion(Strict):
    """One question. `age` (years) is the patient's when it is asked, where the question says so."""

    number: int = Field(ge=1)
    stage: int = Field(ge=0)
    kind: str
    text: str
    options: dict[str, str]
    age: float | None = None


class Case(Strict):
    """A patient. Holds no answer: what is right is kept apart (`Key`)."""

    id: str
    track: Track
    stages: tuple[Stage, ...]
    files: tuple[CaseFile, ...]
    questions: tuple[BoardQuestion, ...]


class Key(Strict):
    """The right letter of each question of a case, by its number. No agent is given one."""

    case: str
    letters: dict[int, str]


class Cited(Strict):
    """A sentence, and the passage of a file on which it rests; no file: `quote` names a source."""

    sentence: str = Field(default="", max_length=600)
    file: str = Field(default="", max_length=200)
    quote: str = Field(max_length=600)


class Past(Strict):
    """An earlier question of this patient, with the agent's own answer and the files it read."""

    question: str
    answer: str
    reason: str
    files: tuple[str, ...]


class BoardInput(View):
    """What the agent is told: nothing later than the question, and no file's text."""

    contexts: tuple[str, ...]
    question: str
    options: dict[str, str]
    files: tuple[str, ...]
    earlier: tuple[Past, ...] = ()


class BoardAnswer(View):
    """A letter, why, and the passages of files on which that rests."""

    answer: str = Field(max_length=400)
    reason: str = Field(default="", max_length=3000)
    evidence: tuple[Cited, ...] = Field(default=(), max_length=12)


def options_of(text: str) -> dict[str, str]:
    """The options of a question's text, by letter; empty where the text lost all or all but one."""
    found = {letter: words.strip() for letter, words in OPTION.findall(text)}
    return found if len(found) > 1 else {}


def letter_of(answer: str, options: dict[str, str]) -> str | None:
    """The letter that an answer names: a letter, a letter with its option, or an option's words.

    Where a question's options are lost, any letter from A to F will do.
    """
    known = options or dict.fromkeys(LETTERS, "")
    plain = " ".join(answer.split()).casefold()
    for letter, words in options.items():
        if plain == " ".join(words.split()).casefold():
            return letter
    found = _LETTER.match(answer)
    if found is None or found[1].upper() not in known:
        return None
    rest = answer[found.end() :].strip(" ).:]*")
    if not rest or answer[found.end() : found.end() + 1] in ")].:":
        return found[1].upper()
    return None


def kind_of(track: Track, stage: int, text: str) -> str:
    """The paper's group of a question (Table 2)."""
    first = text.split("\n", 1)[0].casefold()
    if track is Track.MSK:
        for word, kind in (("alive", "outcome"), ("progress", "progression")):
            if word in first:
                return kind
        return "recurrence" if "recurrence" in first else "other"
    if "alive in" in first or "recurrence in" in first:
        return "outcome_recurrence"
    return "digital_pathology" if stage == 0 else "hematology"


def age_of(text: str) -> float | None:
    """The age in years that a question states."""
    found = re.search(r"\bpatient is (\d+(?:\.\d+)?) years old", text)
    return float(found[1]) if found else None
