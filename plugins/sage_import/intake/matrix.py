"""Expression matrices, mutation calls, and count files among the input files."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from sage.core.errors import InputError
from sage.core.hashes import hash_file
from sage_import.intake.guesses import Guess, Loss, make_guess
from sage_import.intake.names import words
from sage_import.intake.text import NUMBER, RawTable, decode
from validation.cohort.ids import patient_of

GENE = re.compile(r"^(ENSG\d{11}(\.\d+)?|[A-Z][A-Z0-9]{1,9}([-.][A-Z0-9]{1,6})?|C\d+orf\d+)$")
SYMBOLS = (
    "hugo_symbol",
    "symbol",
    "gene_symbol",
    "gene_name",
    "genename",
    "gene",
    "genes",
    "gene_id",
    "hybridization_ref",
    "name",
    "ensembl_id",
    "id",
)
FEWEST = 20
"""Minimum number of gene columns for a samples-by-genes table to count as a matrix."""
FEWEST_SAMPLES = 3
LEAST_GENES = 0.7
RAW = ("raw_count", "normalized_count", "raw_counts", "unstranded")
"""Kinds of values, in order of preference, to use if a matrix has several per sample."""
ENTREZ = re.compile(r"^([^|]+)\|\d+$")
"""Pattern of a symbol with its Entrez number, as written by TCGA's Firehose."""
DATES = re.compile(r"^(\d{1,2}-(Mar|Sep|Dec|Oct|Feb)|(Mar|Sep|Dec|Oct|Feb)-\d{2})$")
"""Gene names that a spreadsheet turned into dates."""
TRAIT = re.compile(r"\b(age|sex|gender|stage|grade|status|survival|os|time)\b")
SILENT = {"Silent", "Intron", "3'UTR", "5'UTR", "3'Flank", "5'Flank", "IGR", "RNA"}
MOST_GENES = 30
FEWEST_CARRIERS = 5
NO_SAMPLES = ("Entrez_Gene_Id", "entrez_gene_id", "gene_length", "Length")
MOST_STAR_FILES = 2000


@dataclass
class RawMatrix:
    """An expression matrix as text, genes by samples or the reverse; only its head was examined."""

    origin: str
    text: str
    delimiter: str
    label: str
    samples: list[str]
    orientation: str
    places: tuple[int, ...]
    scale: str
    guesses: list[Guess] = field(default_factory=list)
    sha256: str = ""
    kinds: bool = False
    """True if the second line names the kinds of values."""
    losses: list[Loss] = field(default_factory=list)


def parse_matrix(path: Path, text: str, delimiter: str, *, certain: bool = True) -> Any:
    """Parse the matrix in a file; None if it is not a matrix and need not be.

    Raises `InputError` if it should be a matrix but has no numbers.
    """
    lines = list(islice(_rows(text, delimiter, path.name), 60))
    if len(lines) < 3:
        return None
    header, body = lines[0], [row for row in lines[1:] if len(row) == len(lines[0])]
    kinds = body.pop(0) if _names_values(header, body) else []
    numeric = [
        place
        for place in range(1, len(header))
        if any(NUMBER.match(row[place].strip()) for row in body)
        and all(
            NUMBER.match(row[place].strip())
            or not row[place].strip()
            or row[place].strip().upper() in ("NA", "NAN")
            for row in body
        )
    ]
    raw = [place for place in numeric if kinds and kinds[place] in RAW]
    numeric = [place for place in raw if kinds[place] == kinds[raw[0]]] or numeric
    fewest = 1 if certain else FEWEST_SAMPLES
    if len(numeric) < fewest or (not raw and len(numeric) < 0.5 * (len(header) - 1)):
        if certain:
            raise InputError(
                f"{path.name}: not a numeric matrix; check that the download is complete"
            )
        return None
    first = [row[0] for row in body]
    by_column = sum(bool(GENE.match(header[place])) for place in numeric) / len(numeric)
    symbols = _symbol_column(header)
    by_row = sum(bool(GENE.match(gene_name(row[symbols]))) for row in body) / max(len(body), 1)
    by_column *= len(numeric) >= FEWEST and not _are_numbered([header[at] for at in numeric])
    by_row *= certain or not _are_numbered([row[symbols] for row in body])
    clinical = by_row > by_column and any(TRAIT.search(words(name)) for name in header[1:])
    named = all(header[place].strip() for place in numeric)
    if (max(by_column, by_row) < LEAST_GENES or clinical or not named) and not certain:
        return None
    found = RawMatrix(path.name, text, delimiter, "", [], "", (), "", sha256=hash_file(path))
    kept, found.kinds = set(numeric), bool(kinds)
    if by_row >= by_column or certain:
        found.orientation, found.label = "genes_by_samples", header[symbols]
        kept -= {symbols, *(at for at, name in enumerate(header) if name in NO_SAMPLES)}
        found.samples = [header[place] for place in sorted(kept)]
        genes = by_row
    else:
        label = next(
            (
                place
                for place, name in enumerate(header)
                if place not in kept
                and "sample" in name.casefold()
                and "type" not in name.casefold()
            ),
            0,
        )
        found.orientation, found.label = "samples_by_genes", header[label]
        found.samples = [row[label] for row in body]
        genes = by_column
    found.places = tuple(sorted(kept))
    values = [row[place].strip() for row in body for place in numeric]
    found.scale, evidence = _scale([value for value in values if NUMBER.match(value)])
    found.guesses = [
        make_guess(
            "expression",
            "expression matrix",
            path.name,
            (
                f"{len(numeric)} numeric columns, {genes:.0%} of the sampled names are genes; "
                f"{found.orientation.replace('_', ' ')} by “{found.label}”"
            ),
        ),
        make_guess("expression", "scale of expression", found.scale, evidence),
    ]
    if not any(first):
        return None
    return found


def _rows(text: str, delimiter: str, origin: str) -> Iterator[list[str]]:
    """Yield a matrix's lines, skipping its comments and the size lines of a GCT file."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for row in reader:
            sizes = reader.line_num < 4 and all(cell.strip().isdigit() for cell in row if cell)
            if row and not row[0].startswith("#") and not sizes:
                yield row
    except csv.Error as error:
        raise InputError(f"{origin}, line {reader.line_num}: {error}") from None


def _names_values(header: list[str], body: list[list[str]]) -> bool:
    """Return True for a second header line that names the values, as Firehose writes."""
    kinds = set(body[0][1:]) if body else set()
    return 0 < len(kinds) <= 4 < len(header) and not any(map(NUMBER.match, kinds))


def _are_numbered(names: list[str]) -> bool:
    """Return True for names such as P01 and P02, which are patients rather than genes."""
    starts = Counter(re.sub(r"\d.*", "", name) for name in names)
    starts.pop("ENSG", None)
    return max(starts.values(), default=0) > 0.5 * len(names)


def gene_name(cell: str) -> str:
    """Return the symbol from `SYMBOL|ENTREZ`, empty if unknown; other names are unchanged."""
    text = cell.strip()
    match = ENTREZ.match(text)
    return text if match is None else "" if match[1] == "?" else match[1]


def _symbol_column(header: list[str]) -> int:
    plain = [re.sub(r"[^a-z_]", "_", name.casefold()) for name in header[:8]]
    return next((plain.index(name) for name in SYMBOLS if name in plain), 0)


def _scale(values: list[str]) -> tuple[str, str]:
    numbers = [float(value.replace(",", ".")) for value in values] or [0.0]
    low, high = min(numbers), max(numbers)
    whole = all(number.is_integer() for number in numbers)
    shown = f"{'whole numbers' if whole else 'numbers'} from {low:g} to {high:g} in its first rows"
    if whole and high > 50:
        return "counts", shown
    if low < 0 or high <= 30:
        return "log2", shown
    return "intensity", f"{shown}: not on a log scale"


def parse_mutations(path: Path, text: str, cases: Path) -> RawTable:
    """Count non-silent mutations per sample, and find the frequently mutated genes.

    Raises `InputError` if the file lacks the columns of a MAF.
    """
    import pandas as pd

    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    reader = csv.DictReader(io.StringIO(body, newline=""), delimiter="\t")
    names = reader.fieldnames or []
    if not {"Hugo_Symbol", "Tumor_Sample_Barcode", "Variant_Classification"} <= set(names):
        raise InputError(
            f"{path.name}: not a MAF file; Hugo_Symbol, Tumor_Sample_Barcode or "
            "Variant_Classification is missing"
        )
    carriers: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    try:
        for row in reader:
            if row["Variant_Classification"] not in SILENT:
                counts[row["Tumor_Sample_Barcode"]] += 1
                carriers.setdefault(row["Hugo_Symbol"], set()).add(row["Tumor_Sample_Barcode"])
    except csv.Error as error:
        raise InputError(f"{path.name}, line {reader.line_num}: {error}") from None
    samples, known = sorted(counts), "the samples with a mutation in the file"
    if cases.is_file() and cases.resolve().is_relative_to(path.parent.resolve()):
        listed = decode(cases.read_bytes(), cases.name, None)[0].partition("case_list_ids:")[2]
        if ids := listed.split("\n")[0].split():
            samples, known = sorted(set(ids)), "the study's list of sequenced samples"
    if not samples:
        raise InputError(f"{path.name}: contains no mutations")
    often = [
        gene
        for gene, who in sorted(carriers.items(), key=lambda item: (-len(item[1]), item[0]))
        if len(who) >= max(FEWEST_CARRIERS, 0.05 * len(samples))
    ][:MOST_GENES]
    rows = {"SAMPLE_ID": samples, "mutation_count": [str(counts[name]) for name in samples]}
    for gene in often:
        rows[f"{gene}_mutated"] = ["yes" if name in carriers[gene] else "no" for name in samples]
    guess = make_guess(
        "mutations",
        "mutations",
        f"{len(often)} genes and their number",
        f"non-silent in {FEWEST_CARRIERS} samples and 5% of {len(samples)}: {known}",
    )
    return RawTable(
        name="mutations",
        origin=path.name,
        rows=pd.DataFrame(rows, dtype=object),
        lines=list(range(2, len(samples) + 2)),
        guesses=[guess],
        sha256=hash_file(path),
    )


def join_star_counts(sheet: Path, home: Path) -> RawMatrix | None:
    """Join GDC's STAR or HTSeq count files into a matrix, using their sample sheet.

    Raises `InputError` if count files exist but their genes differ.
    """
    text = decode(sheet.read_bytes(), sheet.name, None)[0]
    separator = "\t" if "\t" in text.split("\n", 1)[0] else ","
    rows = list(csv.DictReader(io.StringIO(text, newline=""), delimiter=separator))
    samples: dict[str, list[str]] = {}
    genes: list[str] | None = None
    for row in rows[:MOST_STAR_FILES]:
        name, folder = row.get("File Name") or "", row.get("File ID") or ""
        sample = (row.get("Sample ID") or "").split(",")[0].strip()
        paths = [home / name, home / folder / name]
        path = next(
            (
                item
                for item in paths
                if name and item.is_file() and item.resolve().is_relative_to(home.resolve())
            ),
            None,
        )
        if path is None or not sample or "counts" not in name:
            continue
        symbols, counts = _counts(path)
        if genes is not None and symbols != genes:
            raise InputError(
                f"{path.name}: the genes differ from those in earlier files; download all files "
                "from the same workflow"
            )
        genes = symbols
        samples.setdefault(sample, counts)
    if genes is None:
        return None
    names = sorted(samples)
    lines = ["\t".join(["symbol", *names])]
    lines += [
        "\t".join([gene, *(samples[name][place] for name in names)])
        for place, gene in enumerate(genes)
    ]
    guess = make_guess(
        "expression",
        "expression matrix",
        f"{len(names)} count files",
        f"joined by {sheet.name}; {len(genes)} protein-coding genes",
        "sure",
    )
    return RawMatrix(
        "counts.tsv",
        "\n".join(lines) + "\n",
        "\t",
        "symbol",
        names,
        "genes_by_samples",
        (),
        "counts",
        [guess],
        hash_file(sheet),
    )


def _counts(path: Path) -> tuple[list[str], list[str]]:
    """Read the symbols and counts from a STAR counts file."""
    text = decode(path.read_bytes()[: 64 << 20], path.name, None)[0]
    lines = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    if not lines or lines[0][:2] != ["gene_id", "gene_name"] or "unstranded" not in lines[0]:
        raise InputError(f"{path.name}: not STAR counts (gene_id, gene_name, …, unstranded)")
    at, kind = lines[0].index("unstranded"), lines[0].index("gene_type")
    kept = [line for line in lines[1:] if len(line) > at and line[kind] == "protein_coding"]
    for line in kept:
        if not line[at].isdigit():
            raise InputError(
                f"{path.name}: the count for {line[1][:30]} is {line[at][:20]!r}, not a whole "
                "number"
            )
    return [line[1] for line in kept], [line[at] for line in kept]


def rewrite_matrix(matrix: RawMatrix, decimal: str, rename: dict[str, str | None], ids: str) -> str:
    """Rewrite a matrix as UTF-8 CSV with decimal points and the names of the kept samples.

    Parameters
    ----------
    rename : maps each sample to its patient, or to None to omit it; other samples are
        unchanged

    Raises
    ------
    InputError
        If a line has a different number of fields; the message names the line.
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    header: list[str] | None = None
    places: list[int] = []
    label, unnamed, mangled = 0, 0, 0
    for number, row in enumerate(_rows(matrix.text, matrix.delimiter, matrix.origin), start=1):
        if number == 2 and matrix.kinds:
            continue
        if header is None:
            header = [name.strip() for name in row]
            label = header.index(matrix.label)
            places = [
                place
                for place in matrix.places or range(len(header))
                if place != label
                and (
                    matrix.orientation != "genes_by_samples"
                    or rename.get(header[place], header[place]) is not None
                )
            ]
            names = [header[place] for place in places]
            if matrix.orientation == "genes_by_samples":
                names = [rename.get(name) or name for name in names]
            writer.writerow([header[label] or "name", *names])
            continue
        if len(row) != len(header):
            raise InputError(
                f"{matrix.origin}, row {number}: {len(row)} fields, but {len(header)} column names"
            )
        name: str | None = row[label].strip()
        if matrix.orientation == "genes_by_samples":
            name = gene_name(row[label])
            unnamed += not name
            mangled += bool(DATES.match(name))
            if not name:
                continue
        if matrix.orientation == "samples_by_genes":
            name = rename.get(str(name), name)
            if name is None or patient_of(name, ids) is None:
                continue
        values = [row[place].strip() for place in places]
        if decimal == ",":
            values = [value.replace(".", "").replace(",", ".") for value in values]
        writer.writerow([name, *values])
    for count, reason, remedy in (
        (unnamed, "rows without a symbol", "none: their genes are unknown"),
        (mangled, "genes that a spreadsheet turned into dates; they stay under these names",
         "correct their symbols in the file"),
    ):  # fmt: skip
        if count:
            matrix.losses.append(
                Loss(what=matrix.origin, count=count, reason=reason, remedy=remedy)
            )
    return out.getvalue()
