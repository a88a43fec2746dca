"""MTBBench environment (2.3), in which files are listed, opened per question, then closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from agents.core.base import View
from sage.core.errors import InputError
from sage.core.llm.turns import Tool
from sage.core.printable import one_line
from sage_tumor_board.case import Case, CaseFile

LONGEST_FILE = 60_000
"""Maximum number of characters returned per file request.

Surgery reports have at most 20,000.
"""
NOT_FOUND = "not found; request only files that are listed"
BINS = ("very low", "low", "medium", "high", "very high")


def confidence_bin(probability: float) -> str:
    """Name the fifth that contains a probability; the exact value is not reported (E.1)."""
    return BINS[min(4, max(0, int(probability * 5)))]


class Paper(View):
    """An abstract returned by a literature search."""

    title: str
    abstract: str
    pmid: str | None = None


@dataclass(frozen=True)
class Desk:
    """Available tools; None for a tool that is not offered.

    Parameters
    ----------
    he : scores texts against an H&E image as probabilities that sum to 1
    ihc : returns the percentage of positive cells in an immunohistochemistry image
    pubmed : returns the top abstracts for a query
    drug : returns a drug's description, or None for an unknown name
    """

    he: Callable[[Path, Sequence[str]], list[float]] | None = None
    ihc: Callable[[Path], float] | None = None
    pubmed: Callable[[str], list[Paper]] | None = None
    drug: Callable[[str], str | None] | None = None


NEEDS = {"he": "--weights FOLDER", "ihc": "images", "pubmed": "--pubmed", "drug": "--drugs CSV"}


def list_missing(desk: Desk) -> dict[str, str]:
    """Map each missing tool to the option that would provide it."""
    return {name: need for name, need in NEEDS.items() if getattr(desk, name) is None}


class Files(View):
    """Arguments for `request_files`."""

    names: tuple[str, ...] = Field(min_length=1, max_length=64)


class Options(View):
    """Arguments for `he_zero_shot`."""

    name: str
    options: tuple[str, ...] = Field(min_length=2, max_length=20)


class Query(View):
    """Arguments for `pubmed`."""

    query: str = Field(min_length=3, max_length=400)


class Named(View):
    """Arguments for `ihc_percent_positive` (a file) and `drug_description` (a drug)."""

    name: str = Field(min_length=2, max_length=200)


class Opened(View):
    """A requested file: its text, or the reason why it is unavailable."""

    name: str
    text: str | None = None
    note: str = ""


class Stained(View):
    """Percentage of positive cells, 0 to 100, and its source."""

    percent_positive: float | None = None
    by: str


class Board:
    """A question about a patient, without anything that becomes known later.

    Files opened for another question are closed, but may be requested again.
    """

    def __init__(self, case: Case, number: int, desk: Desk | None = None) -> None:
        self.case = case.known_at(number)
        self.desk = desk or Desk()
        self.question = self.case.questions[-1]
        self.read: list[str] = []
        self.hallucinated: list[str] = []
        self.calls = 0
        self.measured: dict[str, str] = {}
        """Results that tools reported about images, by file."""
        self.papers: dict[str, str] = {}
        """Titles and abstracts that a search returned, by `PMID n`."""
        self._files = {file.name: file for file in self.case.files}

    @property
    def contexts(self) -> tuple[str, ...]:
        """Paragraphs of context up to now, stage by stage."""
        return tuple(stage.context for stage in self.case.stages)

    @property
    def listed(self) -> tuple[str, ...]:
        """Names of the files that may be requested."""
        return tuple(dict.fromkeys(name for stage in self.case.stages for name in stage.listed))

    def request_files(self, given: Files) -> list[Opened]:
        """Open files; an unlisted name is reported as not found, even if it exists later."""
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
        if file.is_image:
            note = "an image; use the image tools, if offered"
            return Opened(name=name, note=note if file.path else file.missing or "not available")
        if file.text is None:
            return Opened(name=name, note=file.missing or "not available")
        cut = "" if len(file.text) <= LONGEST_FILE else f"first {LONGEST_FILE} characters only"
        return Opened(name=name, text=file.text[:LONGEST_FILE], note=cut)

    def he_zero_shot(self, given: Options) -> dict[str, str]:
        """Return the option that an H&E image resembles most, with a binned confidence."""
        self.calls += 1
        file = self._find_image(given.name)
        if self.desk.he is None:
            raise InputError("no H&E model is configured; set --weights FOLDER")
        if file.path is None:
            raise InputError(f"{given.name}: the image is not available")
        chances = self.desk.he(file.path, given.options)
        best = max(range(len(chances)), key=chances.__getitem__)
        found = {"resembles": given.options[best], "confidence": confidence_bin(chances[best])}
        self.measured[given.name] = f"{found['resembles']}: {found['confidence']}"
        return found

    def ihc_percent_positive(self, given: Named) -> Stained:
        """Return the percentage of positive cells, either measured or from a recorded reading."""
        self.calls += 1
        file = self._find_image(given.name)
        percent, source = file.percent_positive, "a recorded reading"
        if file.path is not None and self.desk.ihc is not None:
            try:
                percent, source = round(self.desk.ihc(file.path), 2), "measured"
            except InputError as error:
                why = one_line(str(error)).replace(f"{file.path.resolve()}: ", "")
                return Stained(by=f"not measured: {why[:300]}")
        if percent is None:
            return Stained(by="not measured: the image is not available")
        self.measured[given.name] = f"{percent}"
        return Stained(percent_positive=percent, by=source)

    def _find_image(self, name: str) -> CaseFile:
        file = self._find(name)
        if file is None:
            raise InputError(f"{one_line(name)[:200]}: {NOT_FOUND}")
        if not file.is_image:
            raise InputError(f"{name}: not an image")
        return file

    def pubmed(self, given: Query) -> list[Paper]:
        """Return the best three of thirty abstracts."""
        self.calls += 1
        if self.desk.pubmed is None:
            raise InputError(
                "PubMed is disabled; enable it with --pubmed (queries leave the machine)"
            )
        found = self.desk.pubmed(given.query)
        self.papers |= {f"PMID {p.pmid}": f"{p.title} {p.abstract}" for p in found if p.pmid}
        return found

    def drug_description(self, given: Named) -> dict[str, str]:
        """Return a drug's description; raises `InputError` if the name is unknown."""
        self.calls += 1
        if self.desk.drug is None:
            raise InputError("no drug descriptions are available; provide a CSV with --drugs")
        found = self.desk.drug(given.name)
        if found is None:
            raise InputError(f"no description found for {one_line(given.name)}")
        return {"drug": one_line(given.name), "description": found}

    def tools(self) -> tuple[Tool[Any], ...]:
        """List the tools whose inputs exist for this question."""
        images = [file for file in self.case.files if file.is_image]
        he = any("HE_" in file.name and file.path for file in images)
        stained = any(
            file.percent_positive is not None or (file.path and self.desk.ihc) for file in images
        )
        offered: tuple[tuple[bool, Tool[Any]], ...] = (
            (True, Tool("request_files", "Open listed files for this question.", Files,
                        self.request_files)),
            (he and self.desk.he is not None,
             Tool("he_zero_shot", "Find the option that an H&E image resembles most.", Options,
                  self.he_zero_shot)),
            (stained, Tool("ihc_percent_positive", "Get the percentage of positive cells in an "
                                                   "IHC image.",
                           Named, self.ihc_percent_positive)),
            (self.desk.pubmed is not None,
             Tool("pubmed", "Get the best three of thirty abstracts for a query: words that must "
                            "all occur, with OR between alternatives. Do not include patient "
                            "names.", Query, self.pubmed)),
            (self.desk.drug is not None,
             Tool("drug_description", "Describe a drug and how it works.", Named,
                  self.drug_description)),
        )  # fmt: skip
        return tuple(tool for present, tool in offered if present)
