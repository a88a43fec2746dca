"""Renders a run's report, refuses it if anything in it has no source, and writes it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.types import Citation
from sage.files import write_json, write_text
from sage.report.collect import Page, collect
from sage.report.facts import Pen, check, to_html, to_markdown, verbatim
from sage.runfolder import RunFolder

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Written:
    """Where the report lies."""

    html: Path
    markdown: Path


def write_report(folder: RunFolder, target: Path | None = None) -> Written:
    """Build HTML and Markdown from the run folder alone.

    Raises
    ------
    ReportError
        If a number has no key in the results, or a citation no source record.
    """
    target = target or folder.root
    page = collect(folder)
    rendered = {
        name: _render(page, template)
        for name, template in (("html", "report.html.j2"), ("md", "report.md.j2"))
    }
    written = Written(target / "report.html", target / "report.md")
    write_json(target / "results.json", page.facts.values)
    write_text(written.html, to_html(rendered["html"]))
    write_text(written.markdown, to_markdown(rendered["md"]))
    return written


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  every value passes through `escape` below
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _render(page: Page, template: str) -> str:
    import html as escaping

    pen = Pen(page.facts, page.sources)
    as_html = template.endswith(".html.j2")

    def escape(text: object) -> str:
        return escaping.escape(str(text)) if as_html else str(text)

    def prose(
        text: str, prefix: str = "", statement: str = "", source: tuple[str, ...] = ()
    ) -> str:
        # A sentence that repeats the hypothesis or a line of the results file is a quotation.
        if text in source or (statement and text == statement):
            return verbatim(escape(text))
        for one in source:
            if one and one in text:
                text = text.replace(one, f"“{one}”")
        return pen.prose(escape(text), prefix)

    def cite(citation: Citation) -> str:
        reference = pen.cite(citation)
        return f'<sup><a href="#references">{reference}</a></sup>' if as_html else reference

    rendered = (
        _environment()
        .get_template(template)
        .render(
            run=page.run,
            hypotheses=page.hypotheses,
            rejected=page.rejected,
            ledger=page.ledger,
            spending=page.spending,
            n=pen.number,
            has=page.facts.has,
            v=lambda text: verbatim(escape(text)),
            prose=prose,
            cite=cite,
            references=pen.references,
        )
    )
    check(rendered)
    return rendered


def brief_result(folder: RunFolder) -> dict[str, Any]:
    """A run's outcome in a few fields, finished or not."""
    manifest = folder.manifest()
    path = folder.output("state")
    hypotheses = []
    if path.exists():
        for one in collect(folder).hypotheses:
            hypotheses.append(
                {
                    "id": one.id,
                    "statement": one.expanded.hypothesis.statement,
                    "novelty": round(float(one.debate["score"]), 2),
                    "feasibility": round(one.feasibility.score, 1) if one.feasibility else None,
                    "verdict": one.verdict_words,
                    "answers": list(one.answers),
                }
            )
    report = folder.root / "report.html"
    return {
        "run": folder.id,
        "folder": str(folder.root),
        "status": manifest.status,
        "simulated": manifest.simulated,
        "hypotheses": hypotheses,
        "report": str(report) if report.exists() else None,
    }
