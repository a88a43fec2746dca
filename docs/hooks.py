"""Pages of the site that lie beside their packages, and links between them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {"statistics.md": "validation/README.md", "graph.md": "kg/README.md"}
PICTURE = re.compile(r"!\[[^\]]*\]\(\.\./([\w./-]+\.(?:svg|png))\)")


def on_files(files: Any, config: Any) -> Any:
    """Take the packages' own pages in, and the pictures that they show."""
    for name, source in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        for picture in PICTURE.findall(text):
            files.append(File.generated(config, picture, abs_src_path=str(ROOT / picture)))
            text = text.replace(f"](../{picture})", f"]({picture})")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to the packages' pages lead to their copies in the site."""
    for name, source in ELSEWHERE.items():
        markdown = re.sub(rf"\]\((\.\./)*{re.escape(source)}", f"]({name}", markdown)
    return markdown.replace("](../docs/", "](")
