"""Expression matrices: read once, kept as a float32 array with its symbols and patients.

With a cache folder the array is stored there under the hash of its file and rules, and later reads
take only the rows that are asked for.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from sage.core.files import write_text, writing
from validation.cohort.ids import SAMPLE_NAMES, patient_of, sample_type_of
from validation.cohort.model import ExpressionSpec
from validation.cohort.tables import inside, read_text_table
from validation.dictionary import JoinReport
from validation.types import canonical_json, sha256_file, sha256_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

VERSIONED = re.compile(r"^ENSG\d{11}\.\d+$")


@dataclass
class Expression:
    """Values (genes, patients), already on the analysis scale."""

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
        """One gene, indexed by patient."""
        import numpy as np
        import pandas as pd

        row = np.asarray(self.values[self._row[gene]], dtype=float)
        return pd.Series(row, index=self.patients, name=f"expression:{gene}")

    def block(self, genes: Sequence[str]) -> NDArray[np.float64]:
        """Several genes as (genes, patients)."""
        import numpy as np

        return np.asarray(self.values[[self._row[gene] for gene in genes]], dtype=float)


def load_expression(spec: ExpressionSpec, root: Path, ids: str, cache: Path | None) -> Expression:
    """Read (or take from the cache) the matrix that `spec` describes.

    Parameters
    ----------
    spec : file, layout, scale and identifiers of the matrix
    root : the cohort's folder; the file must lie in it
    ids : rule by which samples name their patient
    cache : folder that keeps the matrix as arrays; None reads the file each time

    Raises
    ------
    InputError
        If the file is missing, outside the folder or no such matrix.
    """
    import numpy as np

    path = inside(root, spec.file, "cohort.toml: expression")
    if cache is None:
        return _build(spec, path, root, ids)
    text = canonical_json(spec.model_dump(mode="json")) + sha256_file(path) + ids + "v1"
    folder = cache / f"expression-{sha256_text(text)[:24]}"
    if (folder / "index.json").is_file():
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        values = np.load(folder / "values.npy", mmap_mode="r", allow_pickle=False)
        return Expression(
            genes=index["genes"],
            patients=index["patients"],
            values=values,
            reports=tuple(JoinReport.model_validate(report) for report in index["reports"]),
            notes=tuple(index["notes"]),
        )
    built = _build(spec, path, root, ids)
    with writing(folder / "values.npy") as stream:
        np.save(stream, built.values, allow_pickle=False)
    index = {
        "genes": built.genes,
        "patients": built.patients,
        "reports": [report.model_dump() for report in built.reports],
        "notes": list(built.notes),
    }
    write_text(folder / "index.json", json.dumps(index))
    return built


def _build(spec: ExpressionSpec, path: Path, root: Path, ids: str) -> Expression:
    symbols, samples, values = _matrix(spec, path)
    notes: list[str] = []
    reports: list[JoinReport] = []
    sizes = _library_sizes(spec, root, samples, values)
    values = _transform(spec, values, sizes)
    symbols, values = _genes(spec, symbols, values, reports, notes)
    patients, values = _samples(spec, samples, values, sizes, ids, reports, notes)
    order = sorted(range(len(patients)), key=patients.__getitem__)
    return Expression(
        genes=symbols,
        patients=[patients[number] for number in order],
        values=values[:, order].astype("float32"),
        reports=tuple(reports),
        notes=tuple(notes),
    )


def _matrix(spec: ExpressionSpec, path: Path) -> tuple[list[str], list[str], Any]:
    """Symbols, sample identifiers and a float array (genes, samples), as the file has them."""
    import numpy as np
    import pandas as pd

    separator = spec.separator or ("\t" if {".tsv", ".txt"} & set(path.suffixes) else ",")
    if {".parquet", ".feather"} & set(path.suffixes):
        table = read_text_table(path)
    else:
        try:
            table = pd.read_csv(
                path,
                sep=separator,
                comment=spec.comment,
                low_memory=False,
                keep_default_na=True,
                na_filter=True,
                encoding="utf-8-sig",
            )
        except (ValueError, OSError) as error:
            raise InputError(f"{path}: not readable as an expression matrix: {error}") from None
    label = spec.symbol if spec.orientation == "genes_by_samples" else spec.sample
    label = label or str(table.columns[0])
    if label not in table.columns:
        shown = ", ".join(map(str, table.columns[:8]))
        raise InputError(f'cohort.toml: expression names column "{label}"; {path.name} has {shown}')
    names = table[label].fillna("").astype(str).str.strip().tolist()
    body = table.drop(columns=[label, *(name for name in spec.drop if name in table.columns)])
    try:
        values = body.to_numpy(dtype=np.float64)
    except ValueError:
        text = [str(column) for column in body.columns if body[column].dtype == object][:4]
        raise InputError(
            f"{path}: columns {', '.join(text)} are not numbers; name them in expression.drop"
        ) from None
    columns = [str(column) for column in body.columns]
    if spec.orientation == "genes_by_samples":
        return names, columns, values
    return columns, names, values.T


def _library_sizes(
    spec: ExpressionSpec, root: Path, samples: list[str], values: Any
) -> NDArray[np.float64] | None:
    import numpy as np

    if spec.scale != "counts":
        return None
    if spec.library_sizes is None:
        return np.asarray(np.nansum(values, axis=0), dtype=float)
    path = inside(root, spec.library_sizes, "cohort.toml: expression.library_sizes")
    table = read_text_table(path)
    key = spec.library_key if spec.library_key in table.columns else table.columns[0]
    if spec.library_column not in table.columns:
        raise InputError(f'{path}: no column "{spec.library_column}" with library sizes')
    sizes = dict(zip(table[key], table[spec.library_column], strict=True))
    absent = [sample for sample in samples if sample not in sizes]
    if absent:
        raise InputError(f"{path}: {len(absent)} samples of the matrix have no library size")
    return np.asarray([float(sizes[sample]) for sample in samples])


def _transform(spec: ExpressionSpec, values: Any, sizes: Any) -> Any:
    import numpy as np

    from validation.inputs.derive import log2_cpm

    if spec.scale in ("counts", "cpm", "tpm", "rsem") and np.nanmin(values, initial=0.0) < 0:
        raise InputError(
            f'expression: negative values do not fit scale = "{spec.scale}"; is the file on a log '
            "scale already?"
        )
    if spec.transform == "log2cpm":
        return log2_cpm(values, sizes)
    if spec.transform == "log2":
        return np.log2(values + 1.0)
    return values


def _genes(
    spec: ExpressionSpec,
    symbols: list[str],
    values: Any,
    reports: list[JoinReport],
    notes: list[str],
) -> tuple[list[str], Any]:
    """One row per symbol, by the stated rule; rows without a symbol are dropped and counted."""
    import numpy as np

    versioned = sum(1 for symbol in symbols if VERSIONED.match(symbol))
    if versioned:
        notes.append(f"{versioned} versioned Ensembl identifiers: the version was cut off")
        symbols = [
            symbol.split(".")[0] if VERSIONED.match(symbol) else symbol for symbol in symbols
        ]
    named = [row for row, text in enumerate(symbols) if text and text.lower() != "nan"]
    rows: dict[str, list[int]] = {}
    for row in named:
        rows.setdefault(symbols[row], []).append(row)
    repeated = {gene: at for gene, at in rows.items() if len(at) > 1}
    if repeated and spec.duplicate_genes == "error":
        raise InputError(f"expression: {len(repeated)} symbols stand in several rows")
    level = np.nanmean(values, axis=1)
    genes = sorted(rows)
    picked = np.empty((len(genes), values.shape[1]), dtype=float)
    for position, gene in enumerate(genes):
        at = rows[gene]
        if len(at) == 1:
            picked[position] = values[at[0]]
        elif spec.duplicate_genes == "highest_mean":
            picked[position] = values[max(at, key=lambda row: float(level[row]))]
        elif spec.duplicate_genes == "sum":
            picked[position] = values[at].sum(axis=0)
        else:
            picked[position] = values[at].mean(axis=0)
    if len(genes) != len(symbols):
        reports.append(
            JoinReport(
                step="expression: genes",
                before=len(symbols),
                after=len(genes),
                reason=f"{len(symbols) - len(named)} rows without a symbol; "
                f"{len(repeated)} symbols in several rows made one ({spec.duplicate_genes})",
            )
        )
    return genes, picked


def _samples(
    spec: ExpressionSpec,
    samples: list[str],
    values: Any,
    sizes: Any,
    ids: str,
    reports: list[JoinReport],
    notes: list[str],
) -> tuple[list[str], Any]:
    """One column per patient: sample types kept, then repeated samples by the stated rule."""
    import numpy as np

    names = [
        sample.split(spec.sample_split)[0] if spec.sample_split else sample for sample in samples
    ]
    owners = [patient_of(name, ids) for name in names]
    if not any(owners):
        raise InputError(
            f'expression: no sample identifier can be read by rule "{ids}" (first: {names[0]!r})'
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
                    reason=f"left out {shown}; kept types {', '.join(spec.sample_types)}",
                )
            )
        keep = kept
    columns: dict[str, list[int]] = {}
    for column in keep:
        columns.setdefault(str(owners[column]), []).append(column)
    repeated = {patient: at for patient, at in columns.items() if len(at) > 1}
    if repeated and spec.duplicate_samples == "error":
        raise InputError(f"expression: {len(repeated)} patients have several samples")
    patients = list(columns)
    picked = np.empty((values.shape[0], len(patients)), dtype=float)
    for position, patient in enumerate(patients):
        at = columns[patient]
        if len(at) == 1 or spec.duplicate_samples == "first":
            picked[:, position] = values[:, at[0]]
        elif spec.duplicate_samples == "deepest" and sizes is not None:
            picked[:, position] = values[:, max(at, key=lambda column: float(sizes[column]))]
        else:
            picked[:, position] = values[:, at].mean(axis=1)
    if repeated:
        reports.append(
            JoinReport(
                step="expression: aliquots",
                before=len(keep),
                after=len(patients),
                reason=f"{len(repeated)} patients with several samples made one "
                f"({spec.duplicate_samples})",
            )
        )
    return patients, picked
