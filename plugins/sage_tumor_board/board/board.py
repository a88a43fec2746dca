"""The environment: files are listed, opened on request for one question, and closed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from agents.base import View
from sage.core.errors import InputError
from sage.core.llm.turns import Tool
from sage.core.printable import one_line
from sage_tumor_board.board.later import until
from sage_tumor_board.board.types import BoardQuestion, Case, CaseFile, Track

LONGEST_FILE = 60_000
"""Characters of a file that one request hands out; a surgery report has 20,000 at most."""
NOT_FOUND = "not found; ask only for files that are listed"
BINS = ("very low", "low", "medium", "high", "very high")


def confidence_bin(probability: float) -> str:
    """A probability as one of five bins of a fifth each; the exact one is not told (E.1)."""
    return BINS[min(4, max(0, int(probability * 5)))]


class Paper(View):
    """An abstract that a literature search returned."""

    title: str
    abstract: str
    pmid: str | None = None


@dataclass(frozen=True)
class Desk:
    """The tools at hand; None is a tool that is not offered.

    Parameters
    ----------
    he : scores texts against an H&E image: one probability per text, which sum to 1
    ihc : percent of positive cells of an immunohistochemistry image
    pubmed : the best abstracts for a query
    drug : a drug's description, or None for an unknown name
    """

    he: Callable[[Path, Sequence[str]], list[float]] | None = None
    ihc: Callable[[Path], float] | None = None
    pubmed: Callable[[str], list[Paper]] | None = None
    drug: Callable[[str], str | None] | None = None


NEEDS = {"he": "--weights FOLDER", "ihc": "images", "pubmed": "--pubmed", "drug": "--drugs CSV"}


def lacking(desk: Desk) -> dict[str, str]:
    """The tools that a desk does not have, and what would bring each."""
    return {name: need for name, need in NEEDS.items() if getattr(desk, name) is None}


class Files(View):
    """Arguments of `request_files`."""

    names: tuple[str, ...] = Field(min_length=1, max_length=64)


class OneFile(View):
    """Arguments of `ihc_percent_positive`."""

    name: str


class Options(View):
    """Arguments of `he_zero_shot`."""

    name: str
    options: tuple[str, ...] = Field(min_length=2, max_length=20)


class Query(View):
    """Arguments of `pubmed`."""

    query: str = Field(min_length=3, max_length=400)


class Drug(View):
    """Arguments of `drug_description`."""

    name: str = Field(min_length=2, max_length=100)


class Opened(View):
    """A file that was asked for: its text, or why there is none."""

    name: str
    text: str | None = None
    note: str = ""


class Stained(View):
    """Percent of positive cells, 0 to 100, and by whom it was measured."""

    percent_positive: float | None = None
    by: str


class Board:
    """One question of one patient. What is not known yet is not in it.

    Files that were opened for another question are closed; they may be requested again.
    """

    def __init__(self, case: Case, number: int, desk: Desk | None = None) -> None:
        self.case = until(case, number)
        self.desk = desk or Desk()
        self.question: BoardQuestion = self.case.questions[-1]
        self.read: list[str] = []
        self.hallucinated: list[str] = []
        self.calls = 0
        self.measured: dict[str, str] = {}
        """What tools said of images, by file."""
        self.papers: dict[str, str] = {}
        """Titles and abstracts that a search returned, by `PMID n`."""
        self._files = {file.name: file for file in self.case.files}

    @property
    def contexts(self) -> tuple[str, ...]:
        """What was told, stage by stage, up to now."""
        return tuple(stage.context for stage in self.case.stages)

    @property
    def listed(self) -> tuple[str, ...]:
        """Names of the files that may be requested."""
        return tuple(dict.fromkeys(name for stage in self.case.stages for name in stage.listed))

    def request_files(self, given: Files) -> list[Opened]:
        """Open files. A name that is not listed is told so, whether or not it exists later."""
        return [self._open(name.strip()) for name in dict.fromkeys(given.names)]

    def _find(self, name: str) -> CaseFile | None:
        file = self._files.get(name)
        if file is None:
            self.hallucinated.append(one_line(name)[:200])
        elif name not in self.read:
            self.read.append(name)
        return file

    def _open(self, name: str) -> Opened:
        file = self._find(name)
        if file is None:
            return Opened(name=one_line(name)[:200], note=NOT_FOUND)
        if file.image:
            note = "an image; the tools measure it, where one is offered"
            return Opened(name=name, note=note if file.path else file.missing or "not at hand")
        if file.text is None:
            return Opened(name=name, note=file.missing or "not at hand")
        cut = "" if len(file.text) <= LONGEST_FILE else f"only its first {LONGEST_FILE} characters"
        return Opened(name=name, text=file.text[:LONGEST_FILE], note=cut)

    def he_zero_shot(self, given: Options) -> dict[str, str]:
        """The option that an H&E image resembles most, with a bin of confidence."""
        self.calls += 1
        file = self._image(given.name)
        if self.desk.he is None:
            raise InputError("no H&E model is here: its weights are given as --weights FOLDER")
        if file.path is None:
            raise InputError(f"{given.name}: the image is not at hand")
        chances = self.desk.he(file.path, given.options)
        best = max(range(len(chances)), key=chances.__getitem__)
        said = {"resembles": given.options[best], "confidence": confidence_bin(chances[best])}
        self.measured[given.name] = f"{said['resembles']}: {said['confidence']}"
        return said

    def ihc_percent_positive(self, given: OneFile) -> Stained:
        """Percent of positive cells: measured, or as a recorded reading said."""
        self.calls += 1
        file = self._image(given.name)
        if file.path is not None and self.desk.ihc is not None:
            try:
                return self._stained(given.name, round(self.desk.ihc(file.path), 2), "measured")
            except InputError as error:
                why = one_line(str(error)).replace(f"{file.path.resolve()}: ", "")
                return Stained(by=f"nobody: {why[:300]}")
        if file.percent_positive is None:
            return Stained(by="nobody: the image is not at hand, and no reading of it either")
        return self._stained(given.name, file.percent_positive, "a recorded reading")

    def _stained(self, name: str, percent: float, by: str) -> Stained:
        self.measured[name] = f"{percent}"
        return Stained(percent_positive=percent, by=by)

    def _image(self, name: str) -> CaseFile:
        file = self._find(name)
        if file is None:
            raise InputError(f"{one_line(name)[:200]}: {NOT_FOUND}")
        if not file.image:
            raise InputError(f"{name}: not an image")
        return file

    def pubmed(self, given: Query) -> list[Paper]:
        """The best three of thirty abstracts."""
        self.calls += 1
        if self.desk.pubmed is None:
            raise InputError("PubMed is not asked here: --pubmed offers it, queries leave then")
        found = self.desk.pubmed(given.query)
        self.papers |= {f"PMID {p.pmid}": f"{p.title} {p.abstract}" for p in found if p.pmid}
        return found

    def drug_description(self, given: Drug) -> dict[str, str]:
        """What a drug is."""
        self.calls += 1
        if self.desk.drug is None:
            raise InputError("no drug descriptions are here: --drugs gives a CSV of them")
        found = self.desk.drug(given.name)
        if found is None:
            raise InputError(f"no description of {one_line(given.name)}")
        return {"drug": one_line(given.name), "description": found}

    def tools(self) -> tuple[Tool[Any], ...]:
        """The tools whose inputs exist at this question."""
        images = [file for file in self.case.files if file.image]
        he = any("HE_" in file.name and file.path for file in images)
        stained = any(
            file.percent_positive is not None or (file.path and self.desk.ihc) for file in images
        )
        offered: list[Tool[Any]] = [
            Tool("request_files", "Open files that are listed, for this question.", Files,
                 self.request_files),
        ]  # fmt: skip
        if self.desk.he is not None and he:
            offered.append(
                Tool("he_zero_shot", "Which of your options an H&E image resembles most.", Options,
                     self.he_zero_shot)
            )  # fmt: skip
        if stained:
            offered.append(
                Tool("ihc_percent_positive", "Percent of positive cells of an IHC image.", OneFile,
                     self.ihc_percent_positive)
            )  # fmt: skip
        if self.desk.pubmed is not None:
            offered.append(
                Tool("pubmed", "The best three of thirty abstracts for a query: words that must all"
                     " occur, OR between alternatives. Name no patient.", Query, self.pubmed)
            )  # fmt: skip
        if self.desk.drug is not None and self.case.track is Track.MSK:
            offered.append(
                Tool("drug_description", "What a drug is and how it works.", Drug,
                     self.drug_description)
            )  # fmt: skip
        return tuple(offered)
