"""The notebook as human-readable Markdown and HTML pages, next to the JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents.findings.answer import VERDICT_WORDS
from sage.core.files import write_text
from sage.report.build import style_hash, template
from sage.report.inert import Inert, html_text, markdown_text
from sage.run.campaign.notebook import CAME, Asked, Finding, Notebook, Pages, counts
from validation.contracts.contract import SplitRule


def write_pages(notebook: Notebook) -> Path:
    """Write `NOTEBOOK.md` and `NOTEBOOK.html` next to the notebook; return the HTML page's path."""
    pages = notebook.load()
    html = notebook.path.with_suffix(".html")
    groups = [_group(pages, campaign, notebook.path.parent) for campaign in pages.campaigns]
    for path, name, escape in (
        (notebook.path.with_suffix(".md"), "notebook.md.j2", markdown_text),
        (html, "notebook.html.j2", html_text),
    ):
        rendered = template(name).render(
            groups=groups,
            unlock=SplitRule().unlock_alpha,
            simulated=any(campaign.simulated for campaign in pages.campaigns),
            v=escape,
            n=lambda value, form: Inert(format(value, form)),
            style_hash=style_hash(name) if name.endswith(".html.j2") else "",
        )
        write_text(path, rendered)
    return html


def _group(pages: Pages, campaign: Asked, base: Path) -> dict[str, Any]:
    findings = [finding for finding in pages.findings if finding.campaign == campaign.id]
    return {
        "campaign": campaign,
        "findings": [_describe_source(finding, base) for finding in findings],
        "counts": counts(findings),
        "usd": sum(finding.usd for finding in findings),
    }


def _describe_source(finding: Finding, base: Path) -> dict[str, Any]:
    report = Path(finding.run) / "report.html"
    link = report.relative_to(base).as_posix() if report.is_relative_to(base) else ""
    same, _, of = finding.of.rpartition("/")
    return {
        "name": f"r{finding.round}-{finding.id}",
        "of": of if same == finding.campaign else finding.of,
        "finding": finding,
        "came": CAME[finding.came],
        "verdict": VERDICT_WORDS.get(finding.verdict, "Not tested").lower(),
        "report": link if report.exists() else "",
        "dead": finding.came == "dead end",
    }
