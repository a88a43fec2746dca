"""Decode a cohort's variables and outcomes to one value per patient."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sage.core.errors import InputError
from validation.cohort.collapse import collapse
from validation.cohort.data import CohortData
from validation.cohort.derive import Signature, composed_scores, mean_z, ssgsea, z_scores
from validation.cohort.endpoints import decode
from validation.cohort.model import BARCODE_SITE, SOURCE_SITE, RatioSpec, VariableSpec
from validation.cohort.tables import Loaded, clean_levels, codes, numeric, text_of
from validation.cohort.timing import months_known
from validation.core.dictionary import SINCE, split_level_key
from validation.core.signature import GeneSignature, genes_of, read_signature

if TYPE_CHECKING:
    from numpy.typing import NDArray

TURNED_AT_ONCE = 64
"""Number of genes transposed from rows to columns in each batch."""


class CohortColumns(CohortData):
    """Variables and outcomes of a cohort's patients, by key."""

    def keys(self) -> list[str]:
        """List all variable keys except those of single genes."""
        source = [SOURCE_SITE] if self.spec.patient.site == BARCODE_SITE else []
        return [*self.variables, *source, *self.derived, *self.signatures]

    def parts_of(self, key: str) -> frozenset[str]:
        """Return the keys used to compute a variable: its own, and those of its parts and genes."""
        if (levels := split_level_key(key)) is not None:
            return self.parts_of(levels[0]) | {key}
        genes = (*genes_of(key), *(self.signatures[key].genes if key in self.signatures else ()))
        found = {key, *(f"expression:{gene}" for gene in genes)}
        for part in self.derived[key].of if key in self.derived else ():
            found |= self.parts_of(part)
        return frozenset(found)

    def columns_read(self, key: str) -> frozenset[tuple[Path, str]]:
        """Return the files and columns used to compute a variable, excluding genes."""
        return frozenset(
            (self.tables[spec.table].path.resolve(), spec.column)
            for part in self.parts_of(key)
            if (spec := self.variables.get(part)) is not None
        )

    def outcome_columns(self, endpoint: str) -> frozenset[tuple[Path, str]]:
        """Return the files and columns from which an endpoint is read."""
        spec = self.spec.endpoints[endpoint]
        columns = ("time", "entry", "time_censored", "event", "competing", "column")
        return frozenset(
            (self.tables[spec.table].path.resolve(), column)
            for name in columns
            if (column := getattr(spec, name, None)) is not None
        )

    def signature_genes(self, key: str) -> tuple[str, ...]:
        """Return the genes in the matrix that belong to a signature variable ("signature:NAME")."""
        composed = read_signature(key)
        if composed is not None and self.expression is not None:
            return composed.split_measured(self.expression)[0]
        if key not in self.signatures or self.expression is None:
            raise InputError(self._unknown(key))
        matrix = self.expression
        return tuple(gene for gene in self.signatures[key].genes if gene in matrix)

    def column(self, key: str) -> pd.Series:
        """Read a variable for all patients, indexed by patient identifier; missing values are NaN.

        Raises `InputError` for an unknown key; the message suggests the nearest known ones.
        """
        if key in self.variables:
            if key not in self._columns:
                self._columns[key] = self._table_column(key, self.variables[key])
            values = self._columns[key]
        elif key == SOURCE_SITE and self.site == key:
            values = pd.Series(
                [patient.split("-")[1] for patient in self.patients], index=self.patients
            )
        elif key in self.derived:
            values = self._derived_column(key, self.derived[key])
        elif key.startswith("expression:"):
            values = self._gene(key)
        elif key in self.signatures:
            values = self._signature(self.signatures[key])
        elif (signature := read_signature(key)) is not None:
            if key not in self._columns:
                self._columns[key] = self._compose_score(signature)
            values = self._columns[key]
        elif (levels := split_level_key(key)) is not None:
            base = self.column(levels[0])
            values = base.isin(levels[1]).map({True: "yes", False: "no"}).where(base.notna())
        elif key.endswith(SINCE):
            values = months_known(self, key.removesuffix(SINCE))
        else:
            raise InputError(self._unknown(key))
        return values.reindex(self.patients).rename(key)

    def outcome(self, name: str) -> pd.DataFrame:
        """Read an endpoint, indexed by patient identifier, as `decode` returns it."""
        if name not in self.spec.endpoints:
            raise InputError(
                f'cohort "{self.id}" has no endpoint "{name}". Endpoints: '
                f"{', '.join(self.spec.endpoints) or 'none'}"
            )
        if name not in self._outcomes:
            endpoint = self.spec.endpoints[name]
            decoded = decode(name, endpoint, self.tables[endpoint.table])
            known = decoded.index.intersection(self.patients)
            self._outcomes[name] = decoded.loc[sorted(known)]
        return self._outcomes[name]

    def table(self, keys: Sequence[str], endpoints: Sequence[str] = ()) -> pd.DataFrame:
        """Return variables and outcomes, one row per patient, indexed and sorted by pseudonym.

        Outcome columns are `NAME.time` (months), `NAME.event` and, with delayed entry,
        `NAME.entry` (months); or `NAME.value`.
        """
        columns: dict[str, pd.Series] = {key: self.column(key) for key in dict.fromkeys(keys)}
        for name in dict.fromkeys(endpoints):
            outcome = self.outcome(name).reindex(self.patients)
            columns |= {f"{name}.{part}": outcome[part] for part in outcome.columns}
        frame = pd.DataFrame(columns, index=self.patients)
        frame.index = pd.Index(
            [self.pseudonyms[patient] for patient in self.patients], name="patient"
        )
        return frame.sort_index()

    def block(self, genes: Sequence[str]) -> tuple[NDArray[np.float64], list[str]]:
        """Return genes as (patients, genes) for patients with expression, with their pseudonyms."""
        if self.expression is None:
            raise InputError(f'cohort "{self.id}" has no expression matrix')
        known = set(self.patients)
        at = [
            (self.pseudonyms[item], row)
            for row, item in enumerate(self.expression.patients)
            if item in known
        ]
        at.sort()
        values, rows = self.expression.block(genes), [row for _, row in at]
        found = np.empty((len(rows), len(values)))
        for start in range(0, len(values), TURNED_AT_ONCE):  # the whole matrix exceeds the cache
            part = slice(start, start + TURNED_AT_ONCE)
            found[:, part] = values[part][:, rows].T
        return found, [name for name, _ in at]

    # -- kinds of columns ------------------------------------------------------------------------

    def _table_column(self, key: str, spec: VariableSpec) -> pd.Series:
        table = self.tables[spec.table]
        where = f"variable {key} ({table.path.name})"
        raw = table.column(spec.column, f"variables.{key.split(':', 1)[1]}")
        rule = spec.collapse or table.spec.rows_per_patient
        if spec.values:
            values = _map_codes(raw, spec, table, where)
            if spec.kind not in ("continuous", "ordinal"):
                values = clean_levels(values, where)
        elif spec.kind == "continuous" or spec.kind == "ordinal":
            values = numeric(raw, table.missing, where)
        else:
            values = clean_levels(codes(raw).where(~raw.isin(table.missing)), where)
        return collapse(values, table.patient, rule, where)

    def _derived_column(self, key: str, spec: RatioSpec) -> pd.Series:
        parts = [self.column(item).astype("float64") for item in spec.of]
        if spec.formula == "mean_z":
            block = np.asarray([part.to_numpy() for part in parts], dtype=np.float64)
            scored = z_scores(block)
            score = np.where(np.isnan(scored).any(axis=0), np.nan, scored.mean(axis=0))
            return pd.Series(score, index=self.patients)
        if len(parts) != 2:
            raise InputError(f'cohort.toml: {key}: formula "{spec.formula}" requires two variables')
        if spec.formula == "log_difference":
            return parts[0] - parts[1]
        return parts[0] / parts[1].where(parts[1] != 0)

    def _gene(self, key: str) -> pd.Series:
        gene = key.removeprefix("expression:")
        if self.expression is None or gene not in self.expression:
            raise InputError(self._unknown(key))
        return self.expression.column(gene)

    def _signature(self, signature: Signature) -> pd.Series:
        matrix = self.expression
        assert matrix is not None  # signatures exist only if there is a matrix
        genes = [gene for gene in signature.genes if gene in matrix]
        if signature.method == "mean_z":
            scores = mean_z(matrix.block(genes))
        else:
            members = np.isin(np.asarray(matrix.genes), np.asarray(genes))
            scores = ssgsea(np.asarray(matrix.values, dtype=float), members)
        return pd.Series(scores, index=matrix.patients)

    def _compose_score(self, signature: GeneSignature) -> pd.Series:
        matrix = self.expression
        if matrix is None:
            raise InputError(f'cohort "{self.id}" has no expression matrix, which a score requires')
        genes, lacking = signature.split_measured(matrix)
        if len(genes) < 2:
            raise InputError(
                f'cohort "{self.id}" measures only {len(genes)} of the {len(signature.genes)} '
                f"genes in {signature.key}; not measured: {', '.join(lacking)}"
            )
        ranked = signature.method == "rank"
        values = np.asarray(matrix.values, dtype=float) if ranked else matrix.block(genes)
        place = {gene: at for at, gene in enumerate(matrix.genes if ranked else genes)}
        rows = np.asarray([place[gene] for gene in genes], dtype=np.int64)
        score = composed_scores(signature.of_measured(matrix), values, [rows])[0]
        return pd.Series(score, index=matrix.patients)

    def _unknown(self, key: str) -> str:
        import difflib

        has = self.keys()
        if self.expression is not None:
            has = [*has, *(f"expression:{gene}" for gene in self.expression.genes)]
        near = difflib.get_close_matches(key, has, n=4, cutoff=0.6) or has[:6]
        return f'cohort "{self.id}" has no variable "{key}"; similar: {", ".join(near) or "none"}'


def _map_codes(raw: pd.Series, spec: VariableSpec, table: Loaded, where: str) -> pd.Series:
    seen = codes(raw)
    absent = raw.isin(table.missing)
    unknown = sorted(set(seen[~absent]) - set(spec.values))
    if unknown and spec.other == "refuse":
        raise InputError(
            f"{where}: values {', '.join(map(repr, unknown[:5]))} are not mapped in `values`; "
            'add them, or set other = "missing"'
        )
    values = seen.where(~absent).map(spec.values)
    return (
        pd.to_numeric(values)
        if spec.kind in ("continuous", "ordinal")
        else values.map(text_of, na_action="ignore")
    )
