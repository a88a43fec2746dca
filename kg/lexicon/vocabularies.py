"""Compilation of large public vocabularies (NCBI gene_info, HGNC, OBO, MeSH) into a lexicon.

The format is recognized by content, not by name. Omitted are aliases that are also another gene's
symbol (FABP5 is an old alias of the pseudogene FABP5P1), pseudogenes, names of fewer than three
characters, and names that annotated texts use for something else (`Evidence`). Short aliases and
abbreviations with several meanings count only in a text that supports one of the meanings
(`kg.lexicon.ambiguous`).
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kg.lexicon.ambiguous import LONG, content_words, share_named
from kg.lexicon.index import Lexicon, LexiconEntry, Sense, Term
from kg.lexicon.terms import squeeze
from kg.types import EntityType
from sage.core.errors import InputError

Row = tuple[str, str, EntityType, list[str]]  # id, name, type, synonyms


@dataclass(slots=True)
class ImportReport:
    """Counts of imported and omitted names."""

    files: dict[str, int] = field(default_factory=dict)
    entries: int = 0
    names: int = 0
    terms: int = 0
    ambiguous: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Uses of names in texts that took no part in any evaluation.

    `common` are frequent words of general English. `misused` contains pairs of a spelling and an
    entry id that annotators rarely meant by it. `defined` maps a short form to the long forms that
    authors define it as, with the number of papers.
    """

    common: frozenset[str] = frozenset()
    misused: frozenset[tuple[str, str]] = frozenset()
    defined: dict[str, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Evidence:
        """Read a table with the columns kind (a field of this class), name, meaning and count."""
        rows = list(_table(_text(path)))
        defined: dict[str, dict[str, int]] = {}
        for row in rows:
            if row["kind"] == "defined":
                defined.setdefault(row["name"], {})[row["meaning"]] = int(row["count"])
        return cls(
            frozenset(row["name"] for row in rows if row["kind"] == "common"),
            frozenset((r["name"], r["meaning"]) for r in rows if r["kind"] == "misused"),
            defined,
        )


def import_lexicons(
    paths: Sequence[Path], out: Path, evidence: Evidence | None = None
) -> ImportReport:
    """Compile the vocabularies in `paths` into the lexicon file `out`.

    If two entries claim a name, genes outrank other kinds and earlier files outrank later ones.

    Raises
    ------
    InputError
        If a file is missing or has an unknown format; the message lists the known formats.
    """
    report = ImportReport()
    evidence = evidence or Evidence()
    rows: list[Row] = []
    texts = {path: _text(path) for path in paths}
    trees = _mesh_trees(texts)
    for path, text in texts.items():
        before = len(rows)
        rows += _rows(path, text, trees, report)
        report.files[str(path)] = len(rows) - before
        if len(rows) == before and not _TREE_LINE.match(text):
            raise InputError(f"{path}: no usable entries; omit it or provide the complete table")
    official = {row[1] for row in rows if row[2] == EntityType.GENE}
    claims: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        for synonym in {row[1], *row[3]} if row[2] == EntityType.GENE else ():
            claims.setdefault(synonym, []).append(index)
    families = _families(rows)
    entries = [LexiconEntry(identity, name, kind) for identity, name, kind, _ in rows]
    tiers: list[list[Term]] = [[], [], [], []]  # gene names, gene aliases, names, synonyms
    unsure: dict[str, list[int]] = {}
    for index, (identity, name, kind, others) in enumerate(rows):
        gene = kind == EntityType.GENE
        names, synonyms = tiers[:2] if gene else tiers[2:]
        for spelling in (name, *others):
            alias = gene and spelling != name
            symbol = gene and " " not in spelling
            if alias and spelling in official:
                report.left_out["alias is another symbol"] += 1
            elif alias and len(claims[spelling]) > 1 and not symbol:
                report.left_out["alias of several genes"] += 1
            elif alias and _plain(spelling) in families:
                report.left_out["name of a family"] += 1
            elif not _usable(spelling, kind):
                report.left_out["short name"] += 1
            elif not symbol and spelling.casefold() in evidence.common:
                report.left_out["common English word"] += 1
            elif not symbol and (spelling.casefold(), identity) in evidence.misused:
                report.left_out["word with another meaning"] += 1
            else:
                (synonyms if alias or spelling != name else names).append(
                    Term(spelling, index, symbol)
                )
                if symbol and (
                    (alias and (len(claims[spelling]) > 1 or _SHORT.fullmatch(spelling)))
                    or (alias and spelling.casefold() in evidence.common)
                    or (spelling.casefold(), identity) in evidence.misused
                ):
                    unsure[spelling] = claims[spelling]
    if not entries:
        raise InputError("nothing to import: the files contain no usable entries")
    common = _common_words(rows)
    _add_abbreviations(rows, evidence, common, unsure)
    lexicon = Lexicon.compile(
        entries,
        [term for tier in tiers for term in tier],
        [
            Sense(spelling, index, _distinct(rows[index], spelling, common))
            for spelling, claimed in sorted(unsure.items())
            for index in claimed
        ],
        sorted(common),
    )
    lexicon.save(out)
    report.entries, report.terms = len(entries), lexicon.terms
    report.names = len({term.text for tier in tiers for term in tier})
    report.ambiguous = len(unsure)
    return report


def _distinct(row: Row, spelling: str, common: set[str]) -> tuple[str, ...]:
    """List an entry's long names without the spelling itself, one per set of identifying words."""
    by_words: dict[frozenset[str], str] = {}
    for name in (row[1], *row[3]):
        if LONG.search(name) and spelling.casefold() not in name.casefold():
            by_words.setdefault(frozenset(content_words(name)) - common, name)
    return tuple(by_words.values())


_SHORT = re.compile(r"[A-Za-z-]{1,4}|\w{1,3}")
"""An alias that is as likely another abbreviation: of four letters, or three letters and digits."""
_COMMON_FROM = 150


def _common_words(rows: Sequence[Row]) -> set[str]:
    """Find the words that occur in the names of many entries and so do not identify any."""
    counts: Counter[str] = Counter()
    for _, name, _, others in rows:
        counts.update({word for text in (name, *others) for word in content_words(text)})
    return {word for word, count in counts.items() if count >= _COMMON_FROM}


def _add_abbreviations(
    rows: Sequence[Row], evidence: Evidence, common: set[str], unsure: dict[str, list[int]]
) -> None:
    """Add the short names that authors define otherwise, with the entries of both meanings."""
    bearers: dict[str, list[int]] = {}
    for index, (_, name, _, others) in enumerate(rows):
        for spelling in {name, *others}:
            bearers.setdefault(squeeze(spelling).casefold(), []).append(index)
    for short, longs in evidence.defined.items():
        own = bearers.get(squeeze(short).casefold(), [])
        foreign = sum(
            papers
            for long, papers in longs.items()
            if not any(share_named((rows[i][1], *rows[i][3]), long, common) for i in own)
        )
        if short in unsure or (own and foreign >= _DEFINED_FROM):
            found = list(unsure.get(short, own))
            for long in longs:
                key = squeeze(long).casefold()
                found += bearers.get(key, bearers.get(key.rstrip("s"), []))
            unsure[short] = list(dict.fromkeys(found))


_DEFINED_FROM = 2
_NUMBERED = re.compile(r"(.{4,}?) (?:\d+[a-z]?|[a-z]\d*)")
_FAMILY_FROM = 5


def _plain(name: str) -> str:
    return name.lower().replace("-", " ")


def _families(rows: Sequence[Row]) -> set[str]:
    """Find family names, which at least five genes use with a number.

    `G protein-coupled receptor` is not a gene, although one member has it as an alias.
    """
    bearers: dict[str, set[str]] = {}
    for identity, _name, kind, others in rows:
        for other in others if kind == EntityType.GENE else ():
            if numbered := _NUMBERED.fullmatch(_plain(other)):
                bearers.setdefault(numbered.group(1), set()).add(identity)
    return {name for name, genes in bearers.items() if len(genes) >= _FAMILY_FROM}


def _usable(name: str, kind: EntityType) -> bool:
    if len(name) < 3 or not re.search(r"[A-Za-z]", name):
        return False
    if kind == EntityType.CELL_LINE:
        # `EJ`, `Paris` and `A1` are lines of Cellosaurus; what the text calls a cell line is
        # found anyway.
        return bool(re.search(r"[A-Za-z].*\d|\d.*[A-Za-z]|[a-z][A-Z]", name)) and len(name) > 3
    if kind == EntityType.GENE and " " not in name:
        # Names of two letters without a digit, and bare locus names, match text by accident.
        return not re.fullmatch(r"[A-Z]{1,2}|[A-Z]{1,2}\d{5,}(?:\.\d+)?|LOC\d+|\d.*", name)
    return len(name) <= 120


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: the vocabulary cannot be read ({error.strerror})") from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise InputError(f"{path}: damaged gzip file ({error})") from None
    return data.decode("utf-8-sig", errors="replace")


def _rows(path: Path, text: str, trees: dict[str, str], report: ImportReport) -> list[Row]:
    first = text[:4000]
    header = first.splitlines()[0] if first.strip() else ""
    readers: list[tuple[bool, Callable[[], Iterator[Row]]]] = [
        (header == "id\tname\tkind", lambda: _hetionet(text)),
        ("*NEWRECORD" in first, lambda: _asciimesh(text)),
        ("GeneID" in header and "Symbol" in header, lambda: _gene_info(text, report)),
        ("hgnc_id" in header.lower() and "symbol" in header.lower(), lambda: _hgnc(text)),
        ("format-version:" in first or "[Term]" in first, lambda: _obo(text)),
        ("mesh_id" in header and "mesh_name" in header, lambda: _mesh(text, trees, path)),
        ("uberon_id" in header, lambda: _uberon(text)),
        (bool(_TREE_LINE.match(header)), lambda: iter(())),
    ]
    for recognized, read in readers:
        if recognized:
            return list(read())
    raise InputError(
        f"{path}: unknown vocabulary format; supported formats are NCBI gene_info, the HGNC "
        "table, OBO, Hetionet's nodes and MeSH (ASCII, or mesh_id and mesh_name with the "
        "tree-number list in the same folder)"
    )


def _table(text: str) -> Iterator[dict[str, str]]:
    csv.field_size_limit(1 << 24)
    reader = csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
    for row in reader:
        yield {(key or "").lstrip("#"): value or "" for key, value in row.items()}


def _gene_info(text: str, report: ImportReport) -> Iterator[Row]:
    for row in _table(text):
        kind = row.get("type_of_gene", "")
        symbol = row["Symbol"]
        if kind in {"pseudo", "biological-region", "unknown"} or symbol.startswith("LOC"):
            report.left_out["pseudogene or unnamed locus"] += 1
            continue
        if row.get("tax_id") not in {"", "9606", None}:
            report.left_out["other species"] += 1
            continue
        names = [part for part in row.get("Synonyms", "").split("|") if part != "-"]
        for column in ("Full_name_from_nomenclature_authority", "description"):
            if row.get(column, "-") not in {"-", ""}:
                names.append(row[column])
        for part in row.get("Other_designations", "").split("|"):
            if part != "-" and " " in part and len(part) < 80:
                names.append(part)
        yield f"NCBIGene:{row['GeneID']}", symbol, EntityType.GENE, _tidy(symbol, names)


def _hgnc(text: str) -> Iterator[Row]:
    for raw in _table(text):
        row = {key.lower(): value for key, value in raw.items()}
        if "pseudogene" in row.get("locus_type", "").lower():
            continue
        names = [row.get("name", "")]
        for column in ("alias_symbol", "prev_symbol", "alias_name", "prev_name"):
            names += row.get(column, "").strip('"').split("|")
        yield row["hgnc_id"], row["symbol"], EntityType.GENE, _tidy(row["symbol"], names)


_PREFIX_TYPES = {
    "DOID": EntityType.DISEASE, "MONDO": EntityType.DISEASE, "HP": EntityType.DISEASE,
    "CL": EntityType.CELL_TYPE, "CVCL": EntityType.CELL_LINE, "UBERON": EntityType.TISSUE_REGION,
    "GO": EntityType.BIOLOGICAL_PROCESS, "CHEBI": EntityType.CHEMICAL,
}  # fmt: skip


def _obo(text: str) -> Iterator[Row]:
    for stanza in re.split(r"\n(?=\[)", text):
        if not stanza.startswith("[Term]"):
            continue
        identity = re.search(r"^id: (\S+)", stanza, re.MULTILINE)
        name = re.search(r"^name: (.+)$", stanza, re.MULTILINE)
        if not identity or not name or "\nis_obsolete: true" in stanza or "_" in name.group(1):
            continue
        kind = _PREFIX_TYPES.get(re.split("[:_]", identity.group(1))[0])
        namespace = re.search(r"^namespace: (\S+)", stanza, re.MULTILINE)
        if kind is None or (namespace and namespace.group(1) in {"cellular_component", "external"}):
            continue
        # Cellosaurus calls every other spelling of a line related.
        scope = "RELATED" if kind is EntityType.CELL_LINE else "EXACT"
        names = re.findall(rf'^synonym: "([^"]+)" {scope}', stanza, re.MULTILINE)
        yield identity.group(1), name.group(1).strip(), kind, _tidy(name.group(1), names)


_TREE_LINE = re.compile(r"^[A-Z]\d\d(?:\.\d+)*\t")
# Not G: its processes mix with physics and statistics (`Noise`, `Entropy`); GO has them.
_TREE_TYPES = (
    ("A11.251.210.", EntityType.CELL_LINE), ("A11.284", None), ("A11", EntityType.CELL_TYPE),
    ("A", EntityType.TISSUE_REGION), ("B", EntityType.ORGANISM), ("C", EntityType.DISEASE),
    ("F03", EntityType.DISEASE), ("D12.776", EntityType.PROTEIN),
    ("D12.644", EntityType.PROTEIN), ("D08.811", EntityType.PROTEIN),
    ("D", EntityType.CHEMICAL),
)  # fmt: skip


def _mesh_trees(texts: dict[Path, str]) -> dict[str, str]:
    """Map descriptor names to their first tree number, using a tree list among the files."""
    trees: dict[str, str] = {}
    for text in texts.values():
        if _TREE_LINE.match(text):
            for line in text.splitlines():
                number, _, name = line.partition("\t")
                # Disease branches outrank others: `Seizures` is C10 and C23.
                name = name.strip()
                if name not in trees or _branch(number) < _branch(trees[name]):
                    trees[name] = number
    return trees


def _branch(number: str) -> int:
    """Rank a tree number: diseases before proteins before others.

    For example, `Seizures` is C10 and C23, and insulin D06 and D12.
    """
    if number.startswith(("C", "F03")):
        return 0
    return 1 if number.startswith(("D12.776", "D12.644", "D08.811")) else 2


def _mesh(text: str, trees: dict[str, str], path: Path) -> Iterator[Row]:
    symptoms = "in_hsdn" in text[:200]
    for row in _table(text):
        name = row["mesh_name"].strip()
        tree = trees.get(name, "C23" if symptoms else "")
        kind = _tree_type(tree)
        if kind is not None:
            yield f"MESH:{row['mesh_id']}", name, kind, _tidy(name, _inverted(name))
    if not trees and not symptoms:
        raise InputError(
            f"{path}: MeSH names require tree numbers to determine their type; also provide the "
            "tree list (tree number, tab, name)"
        )


def _tree_type(tree: str) -> EntityType | None:
    return next((kind for prefix, kind in _TREE_TYPES if tree.startswith(prefix)), None)


def _inverted(name: str) -> list[str]:
    """Put an inverted heading in the order of speech: `Carcinoma, Squamous Cell`."""
    pieces = name.split(", ")
    plain = len(pieces) > 1 and not re.search(r"\d|Type|Group", pieces[-1])
    return [" ".join(reversed(pieces))] if plain else []


def _asciimesh(text: str) -> Iterator[Row]:
    """Read MeSH in ASCII: descriptors with entry terms, and supplementary chemicals."""
    for record in text.split("*NEWRECORD")[1:]:
        found: dict[str, list[str]] = {}
        for line in record.splitlines():
            key, _, value = line.partition(" = ")
            found.setdefault(key, []).append(value.split("|")[0].strip())
        name = (found.get("MH") or found.get("NM") or [""])[0]
        kind = _tree_type(min(found.get("MN", [""]), key=_branch))
        if kind is None and found.get("RECTYPE") == ["C"]:
            kind = EntityType.CHEMICAL
        if name and kind is not None and found.get("UI"):
            others = [*_inverted(name), *found.get("ENTRY", []), *found.get("PRINT ENTRY", [])]
            others += found.get("SY", [])
            yield f"MESH:{found['UI'][0]}", name, kind, _tidy(name, others)


_HETIONET_TYPES = {
    "Biological Process": EntityType.BIOLOGICAL_PROCESS, "Disease": EntityType.DISEASE,
    "Compound": EntityType.CHEMICAL, "Anatomy": EntityType.TISSUE_REGION,
}  # fmt: skip


def _hetionet(text: str) -> Iterator[Row]:
    for row in _table(text):
        kind = _HETIONET_TYPES.get(row["kind"])
        if kind is not None:
            identity = row["id"].partition("::")[2]
            prefix = "DrugBank:" if kind is EntityType.CHEMICAL else ""
            yield f"{prefix}{identity}", row["name"], kind, []


def _uberon(text: str) -> Iterator[Row]:
    for row in _table(text):
        name = row["uberon_name"]
        if name and len(name) < 60:
            yield row["uberon_id"], name, EntityType.TISSUE_REGION, []


def _tidy(name: str, names: Sequence[str]) -> list[str]:
    seen = {name: None}
    for other in names:
        other = other.strip().strip('"')
        if other and other != "-":
            seen.setdefault(other)
    return [other for other in seen if other != name]
