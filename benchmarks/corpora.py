"""Annotated corpora: PubTator (BioRED, BC5CDR) and brat (BioNLP), as plain documents."""

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
    """A text with annotated entities and related pairs of concepts (unordered) with their type."""

    id: str
    text: str
    entities: list[Annotation] = field(default_factory=list)
    relations: dict[frozenset[str], set[str]] = field(default_factory=lambda: defaultdict(set))


def load_corpus(path: Path) -> list[AnnotatedDocument]:
    """Read a PubTator file, or a folder of brat files.

    Raises
    ------
    InputError
        If nothing annotated is found; the message says what was expected.
    """
    if path.is_dir():
        documents = list(_brat(path))
    elif path.is_file():
        documents = list(_pubtator(path))
    else:
        raise InputError(f"{path}: no such corpus; give a PubTator file or a folder of brat files")
    if not any(document.entities for document in documents):
        raise InputError(f"{path}: no annotation found; expected PubTator lines or .txt with .a1")
    return documents


def _pubtator(path: Path) -> Iterator[AnnotatedDocument]:
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
                raise InputError(f"{path}, document {document.id}, line {number}: not PubTator")
        if document is not None:
            yield document


def _brat(folder: Path) -> Iterator[AnnotatedDocument]:
    for path in sorted(folder.glob("*.txt")):
        if path.name.upper().startswith(("LICENSE", "README")):
            continue
        document = AnnotatedDocument(path.stem, path.read_text(encoding="utf-8"))
        triggers: set[str] = set()
        events: dict[str, list[tuple[str, str]]] = {}
        kinds: dict[str, str] = {}
        known: set[str] = set()
        lines: list[str] = []
        for suffix in (".ann", ".a1", ".a2"):
            part = path.with_suffix(suffix)
            if part.is_file():
                lines += part.read_text(encoding="utf-8").splitlines()
        for line in lines:
            cells = line.split("\t")
            if line.startswith("T") and len(cells) >= 3:
                name, *span = cells[1].split(" ")
                kind = TYPES.get(name.lower())
                if kind is None:
                    triggers.add(cells[0])
                    continue
                start, end = int(span[0]), int(span[-1])
                known.add(cells[0])
                document.entities.append(Annotation(start, end, cells[2], kind, (cells[0],)))
            elif line.startswith("E") and len(cells) >= 2:
                head, *arguments = cells[1].split()
                kinds[cells[0]] = head.split(":")[0]
                events[cells[0]] = [
                    (role, target) for role, _, target in (a.partition(":") for a in arguments)
                ]
            elif line.startswith("R") and len(cells) >= 2:
                kind_name, item, two = cells[1].split()[:3]
                pair = frozenset({item.split(":")[1], two.split(":")[1]})
                document.relations[pair].add(kind_name)
        for event, roles in events.items():
            reached = [_reach(target, events, known, 0) for _role, target in roles]
            for position, first in enumerate(reached):
                for second in reached[position + 1 :]:
                    for a in first:
                        for b in second:
                            if a != b:
                                document.relations[frozenset({a, b})].add(kinds[event])
        yield document


def _reach(
    target: str, events: dict[str, list[tuple[str, str]]], known: set[str], depth: int
) -> set[str]:
    """Entities that an argument denotes, through nested events."""
    if target in known:
        return {target}
    if depth > 4 or target not in events:
        return set()
    found: set[str] = set()
    for _role, inner in events[target]:
        found |= _reach(inner, events, known, depth + 1)
    return found
