"""What several `sage kg` commands take: papers, an ontology, lexicons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kg.lexicon.index import Lexicon
    from kg.lexicon.ontology import Ontology

Sources = Annotated[
    list[Path],
    typer.Argument(
        help="Files or folders: PDF, JATS, PubMed XML, NBIB, BibTeX, text, Markdown; a file ending "
        "in .ids lists PMIDs and DOIs to fetch from PubMed."
    ),
]
OntologyDir = Annotated[
    Path | None, typer.Option("--ontology", help="Folder with entities.tsv and relations.tsv.")
]
Lexicons = Annotated[
    list[Path] | None,
    typer.Option("--lexicon", help="Compiled lexicon (`sage kg lexicon import`); may repeat."),
]


def load_ontology(folder: Path | None) -> Ontology:
    """The ontology in `folder`, or the one that ships."""
    from kg.lexicon.ontology import Ontology
    from sage.core.data import data_root

    return Ontology.load(folder or data_root() / "ontology")


def load_lexicons(paths: Sequence[Path] | None) -> list[Lexicon]:
    """Compiled lexicons by path."""
    from kg.lexicon.index import Lexicon

    return [Lexicon.load(path) for path in paths or ()]
