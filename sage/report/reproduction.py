"""Second implementation of an analysis, and its additions, as shown in the report."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.core.files import read_json
from sage.report.facts import Facts
from sage.report.results import Cell, Table, title_of

if TYPE_CHECKING:
    from agents.coding.appendix import Appendix
    from validation.results.results import Compared, Reproduction

LONGEST_CODE = 100_000
AUTHORS = {
    "SAGE": "compiled by SAGE, on lifelines, statsmodels and scipy",
    "a model": "written by the model",
    "a person": "mended by a person",
}


@dataclass
class Round:
    """A round of the second implementation, with its author, outcome and feedback."""

    title: str
    ended: str
    feedback: tuple[str, ...]
    program: str
    code: str


@dataclass
class Exploratory:
    """A quarantined appendix with small tables of printed cells and base64-encoded PNG images."""

    title: str
    tables: list[Table]
    images: list[str]
    refused: tuple[str, ...]


@dataclass
class ReproductionPage:
    """The comparison with the second implementation: deviations, and the rounds that led to it."""

    sentences: tuple[str, ...]
    tables: list[Table]
    rounds: list[Round]
    appendices: list[Exploratory]


def read_reproduction(
    home: Path,
    name: str,
    coding: dict[str, Any] | None,
    facts: Facts,
) -> ReproductionPage | None:
    """Load the reproduction of a hypothesis; None if nothing was analyzed."""
    from validation.results.results import Results

    path = home / "results" / "results.json"
    if coding is None or not path.exists():
        return None
    found = Results.load(path).reproduction
    return ReproductionPage(
        sentences=tuple(_sentence(reproduction) for reproduction in found)
        or ("No second implementation ran: the analysis itself was refused, or gave no result.",),
        tables=[_table(reproduction, name, facts) for reproduction in found],
        rounds=[_round(result, home / "results") for result in coding["results"]],
        appendices=_appendices(home / "results" / "appendix"),
    )


def _find_deviation(part: str) -> str:
    return "" if part == "all" else f" ({part} patients)"


def _sentence(found: Reproduction) -> str:
    where = _find_deviation(found.part)
    if not found.ran:
        return f"The second implementation gave no numbers{where}: nothing is reproduced."
    counts = [
        (len(found.with_state("reproduced")), "agree within the tolerance"),
        (len(found.with_state("differs")), "differ"),
        (len(found.with_state("missing")), "are missing and count as not reproduced"),
        (len(found.with_state("did not converge")), "did not converge in the second one"),
        (
            len(found.with_state("no second implementation")),
            "have no second implementation available",
        ),
    ]
    said = ", ".join(f"{count} {words}" for count, words in counts if count)
    alone = [title_of(item.test) for item in found.with_state("no second implementation")]
    missed = f" ({'; '.join(dict.fromkeys(alone))})" if alone else ""
    return f"Of {len(found.compared)} prespecified numbers{where} {said}{missed}."


def _table(found: Reproduction, name: str, facts: Facts) -> Table:
    """Build a table of all compared numbers, listing differing and missing numbers first."""
    order = (
        "differs", "missing", "did not converge", "reproduced", "no second implementation",
    )  # fmt: skip
    rows = []
    for item in sorted(found.compared, key=lambda comparison: order.index(comparison.state)):
        key = f"{name}.reproduction.{found.part}.{item.test}.{item.field}"
        cells = [Cell(item.test), Cell(item.field)]
        for which, value in (("sage", item.sage), ("second", item.second), ("off", item.off)):
            if value is None:
                cells.append(Cell("–"))
                continue
            facts.add(f"{key}.{which}", value, _format_number(item, value, which))
            cells.append(Cell("", f"{key}.{which}"))
        rows.append([*cells, Cell(item.tolerance or "–"), Cell(item.state)])
    columns = ["test", "number", "SAGE", "second implementation", "off by", "tolerance", "finding"]
    title = f"Prespecified numbers computed twice{_find_deviation(found.part)}"
    return Table(title, columns, rows, AUTHORS[found.by].capitalize() + ".")


def _format_number(comparison: Compared, value: float, which: str) -> str:
    if comparison.field in ("n", "events"):
        return f"{int(value)}"
    return f"{value:.1e}" if which == "off" else f"{value:.4g}"


def _round(attempt: dict[str, Any], results: Path) -> Round:
    from agents.coding.types import Attempt

    tried = Attempt.model_validate(attempt)
    author = (
        "SAGE" if tried.compiled_by_sage else "a person" if tried.by == "a person" else "a model"
    )
    ended = tried.result.message or "it ran to its end"
    if tried.result.ok:
        agreed = "its numbers agree" if tried.accepted else "its numbers do not all agree"
        ended = agreed if tried.reproduction is not None else "it left no numbers that can be read"
    program = results / tried.code_path
    code = program.read_text(encoding="utf-8")[:LONGEST_CODE] if program.is_file() else ""
    return Round(
        title=f"Round {tried.number}{_find_deviation(tried.part)}, {AUTHORS[author]}",
        ended=ended,
        feedback=tried.feedback,
        program=f"{results.parent.name}/{results.name}/{tried.code_path}",
        code="".join(sign for sign in code if sign == "\n" or sign.isprintable()),
    )


def _appendices(folder: Path) -> list[Exploratory]:
    from agents.coding.appendix import Appendix

    paths = sorted(folder.glob("*.json"))
    return [exploratory(Appendix.model_validate(read_json(path)), folder) for path in paths]


def exploratory(appendix: Appendix, folder: Path) -> Exploratory:
    """Load an appendix with its images from `folder`."""
    tables = [
        Table(
            table.name.replace("_", " "),
            ["", *(column.replace("_", " ") for column in table.columns)],
            [[Cell(row[0].replace("_", " ")), *map(Cell, row[1:])] for row in table.rows],
        )
        for table in appendix.tables
    ]
    images = [
        base64.b64encode((folder / image).read_bytes()).decode()
        for image in appendix.images
        if "/" not in image and (folder / image).is_file()
    ]
    return Exploratory(
        _find_deviation(appendix.part).strip(" ()"), tables, images, appendix.refused
    )
