"""Pages of the site from the packages' folders, and links between them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {"statistics.md": "validation/README.md", "graph.md": "kg/README.md"}


def on_files(files: Any, config: Any) -> Any:
    """Add the packages' own pages."""
    for name, source in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to the packages' pages at their copies in the site."""
    for name, source in ELSEWHERE.items():
        markdown = re.sub(rf"\]\((\.\./)*{re.escape(source)}", f"]({name}", markdown)
    return markdown.replace("](../docs/", "](")
