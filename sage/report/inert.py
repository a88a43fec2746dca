"""Text that did not come from SAGE's code, made inert for the format in which a report shows it."""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path

from sage.core.printable import clean_text

IMAGES = {".svg": "image/svg+xml", ".png": "image/png"}
# What CommonMark and GitHub read as markup, anywhere in a line and at its beginning.
_INLINE = re.compile(
    r"[\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|<(?=[A-Za-z/!?])|&(?=#?\w+;)"
)
_BLOCK = re.compile(r" ?(?:\d+(?=[.)](?: |$))|(?=[-+](?:[ -]|$)|[=>]|#{1,6}(?: |$)))")


class Inert(str):
    """Text that is already escaped for its format; a template escapes every other value."""

    __slots__ = ()


def html_text(text: object) -> Inert:
    """Escaped for HTML, in an element or in a quoted attribute."""
    return Inert(html.escape(clean_text(str(text))))


def markdown_text(text: object) -> Inert:
    """Escaped for Markdown (CommonMark and GitHub's tables, math and bare links), on a line."""
    line = re.sub(r"\s+", " ", clean_text(str(text)))
    line = _INLINE.sub(lambda found: f"\\{found[0]}", line)
    line = line.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")
    block = _BLOCK.match(line)
    return Inert(f"{line[: block.end()]}\\{line[block.end() :]}" if block else line)


def data_uri(path: Path) -> str:
    """Return an SVG or PNG file as a `data:` address for `<img>`, where no script in it acts.

    Raises
    ------
    KeyError
        If the file is of another kind.
    """
    return f"data:{IMAGES[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
