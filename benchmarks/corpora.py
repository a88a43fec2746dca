"""Annotated corpora in PubTator format (BioRED, BC5CDR), as plain documents."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kg.types import EntityType
from sage.core.errors import InputError

TYPES = {
    "geneorgeneproduct": EntityType.GENE, "gene": EntityType.GENE,
    "gene_or_gene_product": EntityType.GENE, "protein": EntityType.GENE,
    "diseaseorphenotypicfeature": EntityType.DISEASE, "disease": EntityType.DISEASE,
    "cancer": EntityType.DISEASE, "chemicalentity": EntityType.CHEMICAL,
    "chemical": EntityType.CHEMICAL, "simple_chemical": EntityType.CHEMICAL,
    "sequencevariant": EntityType.MUTATION, "organismtaxon": EntityType.ORGANISM,
    "species": EntityType.ORGANISM, "organism": EntityType.ORGANISM,
    "cellline": EntityType.CELL_LINE, "cell": EntityType.CELL_TYPE,
    "organ": EntityType.TISSUE_REGION, "tissue": EntityType.TISSUE_REGION,
    "multi-tissue_structure": EntityType.TISSUE_REGION,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotated entity; `ids` are its concepts (several for `BRCA1/2`)."""

    start: int
    end: int
    text: str
    type: EntityType
    ids: tuple[str, ...]


@dataclass(slots=True)
class AnnotatedDocument:
    """A text with annotated entities, and its related (unordered) concept pairs by type."""

    id: str
    text: str
    entities: list[Annotation] = field(default_factory=list)
    relations: dict[frozenset[str], set[str]] = field(default_factory=lambda: defaultdict(set))


def load_corpus(path: Path) -> list[AnnotatedDocument]:
    """Load a PubTator file.

    Raises
    ------
    InputError
        If the file has no annotations.
    """
    if not path.is_file():
        raise InputError(f"{path}: file not found; give a PubTator file")
    documents = list(_parse_documents(path))
    if not any(document.entities for document in documents):
        raise InputError(f"{path}: no annotations found; expected PubTator lines")
    return documents


def _parse_documents(path: Path) -> Iterator[AnnotatedDocument]:
    for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8", errors="replace")):
        title = abstract = ""
        document: AnnotatedDocument | None = None
        for number, line in enumerate(block.splitlines(), 1):
            head = re.match(r"^(\d+)\|([ta])\|(.*)$", line)
            if head:
                if head.group(2) == "t":
                    title = head.group(3)
                    document = AnnotatedDocument(head.group(1), title)
                else:
                    abstract = head.group(3)
                    if document is not None:
                        document.text = f"{title} {abstract}"
                continue
            cells = line.split("\t")
            if document is None or len(cells) < 4:
                continue
            if cells[1].isdigit() and cells[2].isdigit():
                kind = TYPES.get(cells[4].lower()) if len(cells) > 4 else None
                if kind is None:
                    continue
                ids = re.split(r"[,;|]", cells[5]) if len(cells) > 5 else [cells[3].lower()]
                document.entities.append(
                    Annotation(
                        int(cells[1]), int(cells[2]), cells[3], kind,
                        tuple(i.strip() for i in ids if i.strip() not in {"", "-1", "-"}),
                    )
                )  # fmt: skip
            elif len(cells) >= 4 and not cells[1].isdigit():
                document.relations[frozenset(cells[2:4])].add(cells[1])
            else:
                raise InputError(
                    f"{path}, document {document.id}, line {number}: not a PubTator line"
                )
        if document is not None:
            yield document
