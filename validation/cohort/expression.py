"""Expression matrices, stored as float32 arrays with their gene symbols and patients.

With a cache folder, the array is stored there under a hash of its file and rules, and
later reads load only the requested rows.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from sage.core.clock import seconds
from sage.core.errors import InputError
from sage.core.files import write_text, writing
from sage.core.hashes import hash_file, hash_text
from validation.cohort.derive import log2_cpm
from validation.cohort.ids import SAMPLE_NAMES, patient_of, sample_type_of
from validation.cohort.matrix import Matrix, read_matrix
from validation.cohort.model import ExpressionSpec
from validation.cohort.tables import inside, read_text_table
from validation.core.dictionary import JoinReport
from validation.core.types import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

GENES_AT_ONCE = 512
"""Number of genes converted to the analysis scale in each batch, as float64."""
VERSIONED = re.compile(r"^ENSG\d{11}\.\d+$")


@dataclass
class Expression:
    """Expression values (genes, patients) on the analysis scale."""

    genes: list[str]
    patients: list[str]
    values: NDArray[np.float32]
    reports: tuple[JoinReport, ...]
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        self._row = {gene: row for row, gene in enumerate(self.genes)}

    def __contains__(self, gene: object) -> bool:
        return gene in self._row

    def column(self, gene: str) -> pd.Series:
        """Return a gene's values, indexed by patient."""
        row = np.asarray(self.values[self._row[gene]], dtype=float)
        return pd.Series(row, index=self.patients, name=f"expression:{gene}")

    def block(self, genes: Sequence[str]) -> NDArray[np.float64]:
        """Return several genes as (genes, patients)."""
        return np.asarray(self.values[[self._row[gene] for gene in genes]], dtype=float)


def load_expression(spec: ExpressionSpec, root: Path, ids: str, cache: Path | None) -> Expression:
    """Load the matrix described by `spec`, from the cache if possible.

    Parameters
    ----------
    cache : folder that stores matrices as arrays; None to read the file each time

    Raises
    ------
    InputError
        If the file is missing, outside the folder, or not such a matrix.
    """
    path = inside(root, spec.file, "cohort.toml: expression")
    if cache is None:
        patients, genes, blocks, reports, notes = _plan_samples(spec, path, root, ids)
        none = np.empty((0, len(patients)), dtype=np.float32)
        values = np.concatenate([none, *blocks])
        return Expression(genes, patients, values, tuple(reports), tuple(notes))
    text = canonical_json(spec.model_dump(mode="json")) + _digest(path, cache) + ids + "v1"
    folder = cache / f"expression-{hash_text(text)[:24]}"
    if (folder / "index.json").is_file():
        return _load_cached(folder)
    patients, genes, blocks, reports, notes = _plan_samples(spec, path, root, ids)
    with writing(folder / "values.npy") as stream:
        shape = {"descr": "<f4", "fortran_order": False, "shape": (len(genes), len(patients))}
        np.lib.format.write_array_header_1_0(stream, shape)
        for block in blocks:
            stream.write(block.tobytes())
    index = {
        "genes": genes,
        "patients": patients,
        "reports": [report.model_dump() for report in reports],
        "notes": notes,
    }
    write_text(folder / "index.json", json.dumps(index))
    return _load_cached(folder)


SETTLED_S = 5.0
"""Minimum file age in seconds for keeping its hash.

A more recently changed file may change again without a difference in its timestamps.
"""


def _digest(path: Path, cache: Path) -> str:
    """Compute the SHA-256 of a file, reused while its inode, size and times are unchanged.

    The times include the last inode change, which programs cannot set back. A file that was
    rewritten is therefore read again, regardless of its modification time.
    """

    def state() -> str:
        at = path.stat()
        return f"{at.st_dev} {at.st_ino} {at.st_size} {at.st_mtime_ns} {at.st_ctime_ns}"

    before, changed = state(), path.stat().st_ctime
    kept = cache / f"digest-{hash_text(f'{path.resolve()} {before}')[:24]}"
    if kept.is_file():
        return kept.read_text(encoding="utf-8")
    digest = hash_file(path)
    if seconds() - changed > SETTLED_S and state() == before:
        write_text(kept, digest)
    return digest


def _load_cached(folder: Path) -> Expression:
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    return Expression(
        genes=index["genes"],
        patients=index["patients"],
        values=np.load(folder / "values.npy", mmap_mode="r", allow_pickle=False),
        reports=tuple(JoinReport.model_validate(report) for report in index["reports"]),
        notes=tuple(index["notes"]),
    )


class _Planned(NamedTuple):
    """Contents of a matrix, with its rows in float32 chunks."""

    patients: list[str]
    genes: list[str]
    blocks: Iterator[NDArray[np.float32]]
    reports: list[JoinReport]
    notes: list[str]


def _plan_samples(spec: ExpressionSpec, path: Path, root: Path, ids: str) -> _Planned:
    raw = read_matrix(spec, path)
    notes: list[str] = []
    reports: list[JoinReport] = []
    sizes = _library_sizes(spec, root, raw)
    rows = _genes(spec, raw.symbols, reports, notes)
    columns = _samples(spec, raw.samples, ids, reports)
    genes, patients = sorted(rows), sorted(columns)

    def blocks() -> Iterator[NDArray[np.float32]]:
        for first in range(0, len(genes), GENES_AT_ONCE):
            some = [rows[gene] for gene in genes[first : first + GENES_AT_ONCE]]
            values = _of_genes(spec, raw, some, sizes)
            yield _of_patients(spec, values, [columns[name] for name in patients], sizes)

    return _Planned(patients, genes, blocks(), reports, notes)


def _of_genes(
    spec: ExpressionSpec, raw: Matrix, rows: list[list[int]], sizes: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Convert to (genes, samples) on the analysis scale, merging rows with the same symbol."""
    flat = [row for at in rows for row in at]
    values = _transform(spec, np.ascontiguousarray(raw.values[flat], dtype=float), sizes)
    if len(flat) == len(rows):
        return values
    ends = np.cumsum([len(at) for at in rows])
    picked = np.empty((len(rows), values.shape[1]))
    for position, end in enumerate(ends):
        of_gene = values[end - len(rows[position]) : end]
        if len(of_gene) == 1:
            picked[position] = of_gene[0]
        elif spec.duplicate_genes == "highest_mean":
            level = np.nanmean(of_gene, axis=1).tolist()
            picked[position] = of_gene[max(range(len(level)), key=level.__getitem__)]
        elif spec.duplicate_genes == "sum":
            picked[position] = of_gene.sum(axis=0)
        else:
            picked[position] = of_gene.mean(axis=0)
    return picked


def _of_patients(
    spec: ExpressionSpec,
    values: NDArray[np.float64],
    columns: list[list[int]],
    sizes: NDArray[np.float64] | None,
) -> NDArray[np.float32]:
    """Merge each patient's samples by the declared rule, to (genes, patients)."""
    first = [at[0] for at in columns]
    if spec.duplicate_samples == "deepest" and sizes is not None:
        first = [max(at, key=lambda column: float(sizes[column])) for at in columns]
        return values[:, first].astype("float32")
    picked = values[:, first]
    if spec.duplicate_samples != "first":
        for position, at in enumerate(columns):
            if len(at) > 1:
                picked[:, position] = values[:, at].mean(axis=1)
    return picked.astype("float32")


def _library_sizes(spec: ExpressionSpec, root: Path, raw: Matrix) -> NDArray[np.float64] | None:
    if spec.scale != "counts":
        return None
    if spec.library_sizes is None:
        sums = np.zeros(len(raw.samples))
        for first in range(0, len(raw.symbols), GENES_AT_ONCE):
            sums += np.nansum(raw.values[first : first + GENES_AT_ONCE], axis=0, dtype=float)
        return sums
    path = inside(root, spec.library_sizes, "cohort.toml: expression.library_sizes")
    table = read_text_table(path)
    key = spec.library_key if spec.library_key in table.columns else table.columns[0]
    if spec.library_column not in table.columns:
        raise InputError(f'{path}: column "{spec.library_column}" with library sizes not found')
    sizes = dict(zip(table[key], table[spec.library_column], strict=True))
    absent = [sample for sample in raw.samples if sample not in sizes]
    if absent:
        raise InputError(f"{path}: {len(absent)} samples in the matrix have no library size")
    return np.asarray([float(sizes[sample]) for sample in raw.samples])


def _transform(
    spec: ExpressionSpec, values: NDArray[np.float64], sizes: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    if spec.scale in ("counts", "cpm", "tpm", "rsem") and np.nanmin(values, initial=0.0) < 0:
        raise InputError(
            f'expression: negative values contradict scale = "{spec.scale}"; check whether the '
            "file is already on a log scale"
        )
    if spec.transform == "log2cpm":
        if sizes is None:
            raise InputError("expression: log2cpm requires counts with known library sizes")
        return log2_cpm(values, sizes)
    if spec.transform == "log2":
        return np.log2(values + 1.0)
    return values


def _genes(
    spec: ExpressionSpec, symbols: list[str], reports: list[JoinReport], notes: list[str]
) -> dict[str, list[int]]:
    """Map each symbol to its rows; rows without a symbol are dropped and counted."""
    versioned = sum(1 for symbol in symbols if VERSIONED.match(symbol))
    if versioned:
        notes.append(f"{versioned} versioned Ensembl identifiers: the version was removed")
        symbols = [
            symbol.split(".")[0] if VERSIONED.match(symbol) else symbol for symbol in symbols
        ]
    named = [row for row, text in enumerate(symbols) if text and text.lower() != "nan"]
    rows: dict[str, list[int]] = {}
    for row in named:
        rows.setdefault(symbols[row], []).append(row)
    repeated = {gene: at for gene, at in rows.items() if len(at) > 1}
    if repeated and spec.duplicate_genes == "error":
        raise InputError(f"expression: {len(repeated)} symbols occur in several rows")
    if len(rows) != len(symbols):
        reports.append(
            JoinReport(
                step="expression: genes",
                before=len(symbols),
                after=len(rows),
                reason=f"{len(symbols) - len(named)} rows without a symbol; "
                f"{len(repeated)} symbols in several rows merged ({spec.duplicate_genes})",
            )
        )
    return rows


def _samples(
    spec: ExpressionSpec, samples: list[str], ids: str, reports: list[JoinReport]
) -> dict[str, list[int]]:
    """Map each patient to their columns, limited to the sample types that are kept."""
    names = [
        sample.split(spec.sample_split)[0] if spec.sample_split else sample for sample in samples
    ]
    owners = [patient_of(name, ids) for name in names]
    if not any(owners):
        raise InputError(
            f'expression: no sample identifier matches rule "{ids}" (first: {names[0]!r})'
        )
    keep = [column for column, owner in enumerate(owners) if owner]
    if ids == "tcga":
        types = [sample_type_of(name) for name in names]
        lost: dict[str, int] = {}
        kept = []
        for column in keep:
            kind = types[column]
            if kind is None or kind in spec.sample_types:
                kept.append(column)
            else:
                label = SAMPLE_NAMES.get(kind, f"sample type {kind}")
                lost[label] = lost.get(label, 0) + 1
        if lost:
            shown = ", ".join(f"{count} {label}" for label, count in sorted(lost.items()))
            reports.append(
                JoinReport(
                    step="expression: sample types",
                    before=len(names),
                    after=len(kept),
                    reason=f"removed {shown}; kept types {', '.join(spec.sample_types)}",
                )
            )
        keep = kept
    columns: dict[str, list[int]] = {}
    for column in keep:
        columns.setdefault(str(owners[column]), []).append(column)
    repeated = {patient: at for patient, at in columns.items() if len(at) > 1}
    if repeated and spec.duplicate_samples == "error":
        raise InputError(f"expression: {len(repeated)} patients have several samples")
    if repeated:
        reports.append(
            JoinReport(
                step="expression: aliquots",
                before=len(keep),
                after=len(columns),
                reason=f"{len(repeated)} patients with several samples merged "
                f"({spec.duplicate_samples})",
            )
        )
    return columns
