"""Construction of the board's tools from SAGE's own tools."""

from __future__ import annotations

import csv
import io
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sage.core.errors import FaultError, InputError
from sage.core.printable import one_line
from sage.settings import Settings
from sage_tumor_board.board import Desk, Paper

RETRIEVED, KEPT = 30, 3
"""Number of abstracts requested from PubMed, and number kept after reranking (E.2)."""
LONGEST_ABSTRACT = 4000


def read_drugs(path: Path) -> dict[str, str]:
    """Load drug descriptions from a CSV with the columns name and description.

    Raises
    ------
    InputError
        If a column is missing or the table is empty.
    """
    try:
        reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""))
        rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"--drugs {path}: {error}") from None
    missing = {"name", "description"} - set(reader.fieldnames or ())
    if missing:
        raise InputError(
            f"--drugs {path}: column {sorted(missing)[0]} not found; expected name, description"
        )
    found = {(row["name"] or "").strip().casefold(): row["description"] or "" for row in rows}
    if not any(found):
        raise InputError(f"--drugs {path}: lists no drugs")
    return found


def make_desk(
    settings: Settings,
    *,
    drugs: Mapping[str, str],
    weights: Path | None = None,
    mpp: float | None = None,
    pubmed: bool = False,
) -> Desk:
    """Build the tools whose inputs are available.

    Parameters
    ----------
    drugs : descriptions by lower-case name
    weights : folder of a CLIP-type pathology model; without it, no H&E tool is offered
    mpp : µm per pixel of images that do not state it
    pubmed : whether to offer PubMed, in which case queries leave this machine
    """
    return Desk(
        he=_zero_shot(weights, mpp) if weights is not None else None,
        ihc=_percent_positive(mpp),
        pubmed=_pubmed(settings) if pubmed else None,
        drug=(lambda name: drugs.get(" ".join(name.split()).casefold())) if drugs else None,
    )


def _zero_shot(weights: Path, mpp: float | None) -> Callable[[Path, Sequence[str]], list[float]]:
    own = weights.resolve()
    if not own.is_dir():
        raise InputError(
            f"--weights {weights}: folder not found; give the folder of a CLIP-style model"
        )

    def score(image: Path, options: Sequence[str]) -> list[float]:
        from mcp_servers.context import ToolContext
        from mcp_servers.roots import Roots
        from sage_foundation.zeroshot import TextScoreInput, text_score

        with tempfile.TemporaryDirectory(prefix="sage-board-") as folder:
            slide = image.resolve()
            roots = Roots.resolve([slide.parent, own], folder)
            given = TextScoreInput(slide=str(slide), mpp=mpp, texts=list(options),
                                   weights=str(own))  # fmt: skip
            found = text_score(given, ToolContext(roots))
        return [item.mean_probability for item in found.texts]

    return score


def _percent_positive(mpp: float | None) -> Callable[[Path], float]:
    def percent(image: Path) -> float:
        from mcp_servers.context import ToolContext
        from mcp_servers.roots import Roots
        from sage_stains.ihc import IhcInput, ihc

        with tempfile.TemporaryDirectory(prefix="sage-board-") as folder:
            slide = image.resolve()
            given = IhcInput(slide=str(slide), mpp=mpp)
            found = ihc(given, ToolContext(Roots.resolve([slide.parent], folder)))
        if found.percent_positive is None:
            raise InputError(f"{image.name}: no nuclei found")
        return found.percent_positive

    return percent


def _pubmed(settings: Settings) -> Callable[[str], list[Paper]]:
    from kg.literature.pubmed import PubMed
    from kg.literature.rank import rank
    from kg.literature.search import Literature
    from kg.literature.types import Query
    from sage.run.wiring import make_embedder

    if not settings.contact_email:
        raise InputError("--pubmed requires contact_email in sage.toml")
    source = PubMed(settings.services, settings.contact_email)
    embed = make_embedder(settings).embed
    literature = Literature([source], settings.cache_dir.expanduser() / "literature")

    def search(query: str) -> list[Paper]:
        parts = (one_line(part) for part in re.split(r"\bOR\b", query))
        asked = [Query(text=part) for part in parts if part.strip()]
        answer = literature.search(asked, RETRIEVED)
        if answer.missing:
            raise FaultError(f"pubmed: {answer.missing[0].reason}")
        return [
            Paper(title=item.title, abstract=item.abstract[:LONGEST_ABSTRACT], pmid=item.pmid)
            for item in rank(answer.records, asked, KEPT, embed)
        ]

    return search
