"""Search in the user's copies of the Trident, LazySlide, and HoVer-Net documentation."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Given
from mcp_servers.spec import InputPath, Resources
from sage.core.errors import InputError
from sage_nova.tools import declare as nova

SUFFIXES = frozenset([".md", ".rst", ".txt", ".py", ".ipynb", ".yaml", ".html"])
PASSAGE, MOST_FILES, MOST_BYTES = 1200, 3000, 2_000_000
SOURCES = {
    "trident": ("Trident", "https://github.com/mahmoodlab/TRIDENT"),
    "lazyslide": ("LazySlide", "https://github.com/rendeirolab/LazySlide"),
    "hovernet": ("HoVer-Net", "https://github.com/vqdang/hover_net"),
}


class DocsInput(Given):
    """A question and the documentation to search."""

    query: str = Field(min_length=2, max_length=1000)
    docs: InputPath | None = Field(
        default=None, description="Folder with the documentation, e.g. a clone of the repository"
    )
    k: int = Field(default=5, ge=1, le=50, description="Number of passages")


class Passage(BaseModel):
    """A passage from a file."""

    file: str
    start: int = Field(description="Position of its first character in the file")
    score: float = Field(description="BM25, 1 for the best passage")
    text: str


def split_names(text: str) -> str:
    """Split identifiers at underscores and capitals, so that their words are found."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text).replace("_", " ")


def _read_passages(folder: Path) -> tuple[list[tuple[Path, int, str]], int]:
    """Read the passages in a folder's text files with their positions, and count the files."""
    found, files = [], 0
    for path in sorted(folder.rglob("*"))[: 20 * MOST_FILES]:
        plain = path.suffix.lower() in SUFFIXES and path.is_file() and not path.is_symlink()
        if plain and path.stat().st_size <= MOST_BYTES and files < MOST_FILES:
            files += 1
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [(path, at, text[at : at + PASSAGE]) for at in range(0, len(text), PASSAGE)]
    return found, files


def _make_retriever(package: str) -> Callable[..., nova.Result]:
    title, address = SOURCES[package]

    def retrieve(given: DocsInput, context: ToolContext) -> nova.Result:
        from kg.literature.local import LocalIndex
        from kg.literature.types import Query, Record

        if given.docs is None:
            raise InputError(
                f"{package}_docs_retriever requires the documentation; run git clone {address} (or "
                "download its pages) into a readable folder, and set docs=FOLDER"
            )
        folder = context.input(given.docs, "folder")
        found, files = _read_passages(folder)
        if not found:
            raise InputError(f"{given.docs}: no text files ({nova.list_choices(sorted(SUFFIXES))})")
        index = LocalIndex(
            Record(title=path.stem, abstract=split_names(text)) for path, _, text in found
        )
        passages = []
        for i, score in index.score(Query(text=split_names(given.query)))[: given.k]:
            path, start, text = found[i]
            file = path.relative_to(folder).as_posix()
            passages.append(Passage(file=file, start=start, score=round(score, 4), text=text))
        return {"passages": passages, "files": files, "searched": len(found)}

    retrieve.__doc__ = f"Search and retrieve information from {title} documentation."
    return nova.tool(
        f"{package}_docs_retriever", Resources(memory_mb=256, seconds_per_item=2.0),
        passages=list[Passage], files=int,
        searched=Annotated[int, Field(description="Number of passages that were compared")],
    )(retrieve)  # fmt: skip


trident_docs, lazyslide_docs, hovernet_docs = map(_make_retriever, SOURCES)
