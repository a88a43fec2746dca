"""Pages that plugins add to the server through entry points in the `sage.pages` group."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sage.core.errors import InputError
from sage.core.log import logger
from sage.core.plugins import find_plugins, load_plugin

if TYPE_CHECKING:
    from fastapi import APIRouter

    from sage.web.people import Rule

log = logger(__name__)


@dataclass(frozen=True)
class Page:
    """A plugin's page: address, title, JavaScript and API.

    `scripts` is a folder of modules, served below `/static/plugins/NAME/`. The default export
    of `script` is the page, and those of `panels` are panels next to each slide (Preact
    components). `router` is served below `/api`; `rules` name the role required for each
    request that makes changes.
    """

    path: str
    title: str
    scripts: Path
    script: str = "page.js"
    panels: tuple[str, ...] = ()
    router: APIRouter | None = None
    rules: tuple[Rule, ...] = ()

    def describe(self, name: str) -> dict[str, object]:
        """Return the page's address, title and scripts for the browser."""
        home = f"/static/plugins/{name}"
        panels = [f"{home}/{panel}" for panel in self.panels]
        return {"path": self.path, "title": self.title, "script": f"{home}/{self.script}",
                "panels": panels}  # fmt: skip


def load_pages() -> dict[str, Page]:
    """Load the pages of the installed plugins by name, logging any plugin that fails to load."""
    pages = {}
    for name in find_plugins("sage.pages"):
        try:
            page = load_plugin("sage.pages", name)
            if not isinstance(page, Page):
                raise InputError(f"expected a sage.web.pages.Page, got {type(page).__name__}")
        except InputError as error:
            log.warning("page not loaded", plugin=name, error=str(error))
            continue
        pages[name] = page
    return pages
