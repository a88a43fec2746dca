"""Search in the documentation of Trident, LazySlide and HoVer-Net, from the user's own copies.

Their documentation is not shipped: its licenses differ. A clone of the repository will do.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Given
from mcp_servers.spec import InputPath, Resources
from sage.core.errors import InputError
from sage_nova.tools.common import NovaResult, nova_tool

SUFFIXES = frozenset([".md", ".rst", ".txt", ".py", ".ipynb", ".yaml", ".html"])
PASSAGE, MOST_FILES, MOST_BYTES = 1200, 3000, 2_000_000
REPOSITORIES = {
    "trident": "https://github.com/mahmoodlab/TRIDENT",
    "lazyslide": "https://github.com/rendeirolab/LazySlide",
    "hovernet": "https://github.com/vqdang/hover_net",
}
_WORD = re.compile(r"[a-z][a-z0-9]+|\d+")


class DocsInput(Given):
    """A question and where the documentation lies."""

    query: str = Field(min_length=2, max_length=1000)
    docs: InputPath | None = Field(
        default=None, description="Folder of the documentation, e.g. a clone of the repository"
    )
    k: int = Field(default=5, ge=1, le=50, description="Passages to give")


class Passage(BaseModel):
    """A part of a file."""

    file: str
    start: int = Field(description="Its first character in the file")
    score: float
    text: str


class DocsResult(NovaResult):
    """Passages, the nearest first."""

    passages: list[Passage]
    files: int
    searched: int = Field(description="Passages that were compared")


def words_of(text: str) -> list[str]:
    """Words in lower case; names of code are parted at underscores and capitals."""
    return _WORD.findall(re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text).replace("_", " ").lower())


def ranked(query: str, passages: list[str]) -> list[tuple[int, float]]:
    """Passages by BM25 (k1 = 1.5, b = 0.75; Robertson and Zaragoza 2009), best first, without
    those that share no word."""
    counts = [Counter(words_of(text)) for text in passages]
    lengths = [sum(count.values()) for count in counts]
    mean = sum(lengths) / max(1, len(lengths)) or 1.0
    scores = [0.0] * len(passages)
    for word in set(words_of(query)):
        holding = [i for i, count in enumerate(counts) if word in count]
        rarity = math.log(1 + (len(passages) - len(holding) + 0.5) / (len(holding) + 0.5))
        for i in holding:
            often = counts[i][word]
            weight = often * 2.5 / (often + 1.5 * (0.25 + 0.75 * lengths[i] / mean))
            scores[i] += rarity * weight
    return sorted(((i, s) for i, s in enumerate(scores) if s > 0), key=lambda pair: -pair[1])


def search(of: str, given: DocsInput, context: ToolContext) -> DocsResult:
    """Passages of a package's documentation; raises `InputError` without its folder."""
    if given.docs is None:
        raise InputError(
            f"{of}_docs_retriever needs the documentation: git clone {REPOSITORIES[of]} (or its "
            "pages) into a folder that may be read, and give docs=FOLDER"
        )
    folder = context.input(given.docs, "folder")
    found: list[tuple[Path, int, str]] = []
    files = 0
    for path in sorted(folder.rglob("*"))[: 20 * MOST_FILES]:
        plain = path.suffix.lower() in SUFFIXES and path.is_file() and not path.is_symlink()
        if not plain or path.stat().st_size > MOST_BYTES or files >= MOST_FILES:
            continue
        files += 1
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [(path, at, text[at : at + PASSAGE]) for at in range(0, len(text), PASSAGE)]
    if not found:
        raise InputError(f"{given.docs}: holds no text ({', '.join(sorted(SUFFIXES))})")
    best = ranked(given.query, [text for _, _, text in found])[: given.k]
    return DocsResult(
        passages=[
            Passage(
                file=found[i][0].relative_to(folder).as_posix(),
                start=found[i][1],
                score=round(score, 4),
                text=found[i][2],
            )
            for i, score in best
        ],
        files=files,
        searched=len(found),
    )


SMALL = Resources(memory_mb=256, seconds_per_item=2.0)


@nova_tool(
    "trident_docs_retriever",
    version="1.0.0",
    summary="Search and retrieve information from Trident documentation for WSI processing.",
    resources=SMALL,
)
def trident_docs(given: DocsInput, context: ToolContext) -> DocsResult:
    """Passages of Trident's documentation."""
    return search("trident", given, context)


@nova_tool(
    "lazyslide_docs_retriever",
    version="1.0.0",
    summary="Search and retrieve information from LazySlide documentation for WSI analysis.",
    resources=SMALL,
)
def lazyslide_docs(given: DocsInput, context: ToolContext) -> DocsResult:
    """Passages of LazySlide's documentation."""
    return search("lazyslide", given, context)


@nova_tool(
    "hovernet_docs_retriever",
    version="1.0.0",
    summary="Search and retrieve information from HoverNet documentation for nuclei segmentation "
    "and classification.",
    resources=SMALL,
)
def hovernet_docs(given: DocsInput, context: ToolContext) -> DocsResult:
    """Passages of HoVer-Net's documentation."""
    return search("hovernet", given, context)
