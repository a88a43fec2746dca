"""Rendering of a run's report, which fails if any of its content has no source."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.coding.appendix import TITLE
from agents.core.types import Citation
from agents.core.words import ModelText
from sage.core.files import write_json, write_text
from sage.report.candidates import rankings
from sage.report.collect import PUT_OFF, Page, collect_page
from sage.report.facts import Pen, check, to_html, to_markdown, verbatim
from sage.report.inert import Inert, html_text, markdown_text
from sage.report.reading import Checklist
from sage.run.folder import RunFolder
from sage.run.questions import describe_question

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True)
class Written:
    """Paths of the files that make up a written report."""

    html: Path
    markdown: Path


def write_report(folder: RunFolder, target: Path | None = None) -> Written:
    """Write the report as HTML and Markdown, using nothing but the run folder.

    Raises
    ------
    ReportError
        If a number has no key in the results, or a citation has no source record.
    """
    target = target or folder.root
    page = collect_page(folder, pages=target != folder.root)
    rendered = {
        kind: _render(page, name)
        for kind, name in (("html", "report.html.j2"), ("md", "report.md.j2"))
    }
    written = Written(target / "report.html", target / "report.md")
    write_json(target / "results.json", page.facts.values)
    write_text(written.html, to_html(rendered["html"]))
    write_text(written.markdown, to_markdown(rendered["md"]))
    return written


@lru_cache(maxsize=4)
def template(name: str) -> Template:
    """Load a template that escapes every value not already escaped by a helper below."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    escape = html_text if name.endswith(".html.j2") else markdown_text

    def finalize(value: object) -> object:
        return value if isinstance(value, Inert) else escape(value)

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        finalize=finalize,
        autoescape=False,  # noqa: S701  `finalize` escapes, for HTML and for Markdown alike
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


@lru_cache(maxsize=2)
def style_hash(name: str) -> str:
    """Hash the page's own style block, the only style its content security policy permits."""
    source = (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")
    block = source[source.index("<style>") + len("<style>") : source.index("</style>")]
    return f"sha256-{base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()}"


def _merge_checklists(page: Page) -> list[tuple[str, Checklist]]:
    """List completed checklists with the claims they apply to, merging identical checklists."""
    found: dict[Checklist, list[str]] = {}
    for hypothesis in page.hypotheses:
        for item in hypothesis.checklists:
            found.setdefault(item, []).append(hypothesis.id)
    return [(", ".join(names), item) for item, names in found.items()]


def _render(page: Page, name: str) -> str:
    as_html = name.endswith(".html.j2")
    escape = html_text if as_html else markdown_text
    pen = Pen(page.facts, page.sources, escape)

    def quote(text: object) -> Inert:
        return Inert(verbatim(escape(f"{text}").strip()))

    def sentence(text: str, prefix: str) -> Inert:
        return Inert(pen.sentence(text, prefix))

    def said(text: str | ModelText | None, prefix: str = "", indent: str = "") -> Inert:
        """Render SAGE's own text unchanged and a model's remark in a box."""
        if not isinstance(text, ModelText):
            return quote(text or "")
        by = f"Written by the model {quote(text.by)}, not checked:"
        words = pen.sentence(text.text, prefix)
        if as_html:
            return Inert(f'<aside class="model"><span>{by}</span> {words}</aside>')
        return Inert(f"\n\n{indent}> {by} {words}\n\n")

    def cite(citation: Citation) -> Inert:
        reference = pen.cite(citation)
        place = pen.cited[citation.key]
        return Inert(f'<sup><a href="#r{place}">{reference}</a></sup>' if as_html else reference)

    def cite_source(citation: Citation) -> Inert:
        """Render the reference followed by its identifier."""
        named = f"doi:{citation.doi}" if citation.doi else ""
        named = named or (f"PMID {citation.pmid}" if citation.pmid else "no identifier")
        shown = verbatim(escape(named))
        beside = f'<span class="soft">{shown}</span>' if as_html else f"({shown})"
        return Inert(f"{cite(citation)} {beside}")

    rendered = template(name).render(
        run=page.run,
        question_lines=describe_question(page.question, begun=True),
        hypotheses=page.hypotheses,
        stood_in=page.stood_in,
        rejected=page.rejected,
        put_off=PUT_OFF,
        checklists=_merge_checklists(page),
        predicts=any(item.contract and item.contract.predicts for item in page.hypotheses),
        candidates=page.candidates,
        explorations=page.explorations,
        ledger=page.ledger,
        spending=page.spending,
        n=lambda key: Inert(pen.number(key)),
        has=page.facts.contains,
        v=quote,
        sentence=sentence,
        said=said,
        sourced=cite_source,
        references=pen.references,
        style_hash=style_hash("report.html.j2"),
        appendix_title=TITLE,
    )
    check(rendered)
    return rendered


def summarize_run(folder: RunFolder) -> dict[str, Any]:
    """Summarize the outcome of a run, finished or unfinished, in a few fields."""
    manifest = folder.manifest()
    path = folder.output("state")
    hypotheses = []
    stood_in: tuple[str, ...] = ()
    if path.exists():
        page = collect_page(folder)
        stood_in = page.stood_in
        for hypothesis in page.hypotheses:
            fill = partial(page.facts.fill, prefix=hypothesis.id)
            answer = hypothesis.answer.model_copy(
                update={
                    name: fill(getattr(hypothesis.answer, name)) for name in ("sentence", "effect")
                }
            )
            hypotheses.append(
                {
                    "id": hypothesis.id,
                    "carries": hypothesis.carries,
                    "statement": hypothesis.expanded.hypothesis.statement,
                    "review": hypothesis.review,
                    "novelty": round(float(hypothesis.debate["score"]), 2)
                    if hypothesis.debate.get("judged", True)
                    else None,
                    "novelty_threshold": hypothesis.debate["threshold"],
                    "novelty_words": fill(hypothesis.novelty),
                    "feasibility": round(hypothesis.feasibility.score, 1)
                    if hypothesis.feasibility
                    else None,
                    "answer": answer.model_dump(),
                    "against": [fill(text) for text in hypothesis.front.against],
                }
            )
    report = folder.root / "report.html"
    return {
        "run": folder.id,
        "folder": str(folder.root),
        "status": manifest.status,
        "simulated": manifest.simulated,
        "hypotheses": hypotheses,
        "stood_in": stood_in,
        "candidates": [ranking.model_dump(mode="json") for ranking in rankings(folder)],
        "report": str(report) if report.exists() else None,
    }
