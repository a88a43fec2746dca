"""External text, escaped so that it is inert in the report's format."""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path

from sage.core.printable import clean_text

IMAGES = {".svg": "image/svg+xml", ".png": "image/png"}
# Text that CommonMark and GitHub parse as markup, anywhere in a line and at its start.
_INLINE = re.compile(
    r"[\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|<(?=[A-Za-z/!?]|$)|&(?=#?\w+;)"
)
_BLOCK = re.compile(r" ?(?:\d+(?=[.)](?: |$))|(?=[-+](?:[ -]|$)|[=>]|#{1,6}(?: |$)))")


class Inert(str):
    """Text already escaped for its format; templates escape all other values."""

    __slots__ = ()


def html_text(text: object) -> Inert:
    """Escape text for HTML, for use in an element or a quoted attribute."""
    return Inert(html.escape(clean_text(str(text))))


def markdown_text(text: object) -> Inert:
    """Escape text for a line of Markdown (CommonMark and GitHub's tables, math and bare links)."""
    line = re.sub(r"\s+", " ", clean_text(str(text)))
    line = _INLINE.sub(lambda found: f"\\{found[0]}", line)
    line = line.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")
    block = _BLOCK.match(line)
    return Inert(f"{line[: block.end()]}\\{line[block.end() :]}" if block else line)


def data_uri(path: Path) -> str:
    """Encode an SVG or PNG file as a `data:` URI for `<img>`, in which scripts do not run.

    Raises
    ------
    KeyError
        If the file is of any other type.
    """
    return f"data:{IMAGES[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
