"""A patient's case as questions along a timeline, with the information known at each."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field

from sage.core.errors import InputError
from sage.core.models import Strict

LETTERS = "ABCDEF"
IMAGES = frozenset((".jpg", ".jpeg", ".png", ".tif", ".tiff", ".svs", ".ndpi", ".mrxs"))
_LETTER = re.compile(r"\s*[(\[]?([A-Z])\b(?!['’])", re.IGNORECASE)
_ROW_AGE = re.compile(r"\s*AGE\s*:\s*(\d+(?:\.\d+)?)", re.IGNORECASE)
_END_AGE = re.compile(r'((?:STOP|START)_AGE"?:\s*)(\d+(?:\.\d+)?)')


class CaseFile(Strict):
    """A patient's file: its text or an image path, or the reason why neither is available.

    `percent_positive` is a recorded reading of an immunohistochemistry image.
    """

    name: str
    text: str | None = None
    path: Path | None = None
    percent_positive: float | None = None
    missing: str = ""

    @property
    def is_image(self) -> bool:
        """True if the file's name is that of an image."""
        return Path(self.name).suffix.lower() in IMAGES


class Stage(Strict):
    """A time point: a paragraph of context, and the files that are listed from then on."""

    context: str
    listed: tuple[str, ...]


class BoardQuestion(Strict):
    """A question; `age` is the patient's age in years when it is asked, if stated."""

    number: int = Field(ge=1)
    stage: int = Field(ge=0)
    kind: str = ""
    text: str
    options: dict[str, str] = Field(default_factory=dict)
    age: float | None = None


class Case(Strict):
    """A patient's case, without an answer key."""

    id: str
    stages: tuple[Stage, ...]
    files: tuple[CaseFile, ...]
    questions: tuple[BoardQuestion, ...]

    def known_at(self, number: int) -> Case:
        """Return the case as it is known when question `number` is asked.

        Later stages, files, timeline rows, questions and treatment ends are removed.

        Raises
        ------
        InputError
            If the case has no such question.
        """
        asked = next((item for item in self.questions if item.number == number), None)
        if asked is None:
            raise InputError(
                f"{self.id} has no question {number}; it has {len(self.questions)} questions"
            )
        stages = self.stages[: asked.stage + 1]
        listed = {name for stage in stages for name in stage.listed}
        files = tuple(
            file if file.text is None or asked.age is None
            else file.model_copy(update={"text": cut_at_age(file.text, asked.age)})
            for file in self.files if file.name in listed
        )  # fmt: skip
        questions = tuple(item for item in self.questions if item.number <= number)
        return self.model_copy(update={"stages": stages, "files": files, "questions": questions})


def cut_at_age(text: str, age: float) -> str:
    """Remove timeline rows after `age` (years), and mask the ends of treatments after it.

    An age has a tolerance of half its last digit: 61.2 in a question means up to 61.25. A
    treatment that ends after the question would reveal that the patient lived that long.
    """
    last = age + 0.5 * 10.0 ** -len(f"{age}".partition(".")[2])

    def mask(found: re.Match[str]) -> str:
        return found[0] if float(found[2]) <= last else f"{found[1]}not yet"

    rows = [
        _END_AGE.sub(mask, line)
        for line in text.split("\n")
        if not ((row := _ROW_AGE.match(line)) and float(row[1]) > last)
    ]
    return "\n".join(rows)


def parse_letter(answer: str, options: dict[str, str]) -> str | None:
    """Parse the chosen letter, given as a letter, a letter with its option, or an option's text.

    If a question's options are lost, any letter from A to F is accepted.
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


def parse_age(text: str) -> float | None:
    """Parse the age in years from a question."""
    found = re.search(r"\bpatient is (\d+(?:\.\d+)?) years old", text)
    return float(found[1]) if found else None
