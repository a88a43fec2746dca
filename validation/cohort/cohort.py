"""A cohort: its tables joined by patient, under pseudonyms."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sage.core.errors import InputError
from validation.cohort.collapse import collapse
from validation.cohort.describe import endpoint_of, joins_of, variable_of
from validation.cohort.endpoints import decode
from validation.cohort.expression import Expression, load_expression
from validation.cohort.ids import require_one_row_each
from validation.cohort.model import (
    BARCODE_SITE,
    SOURCE_SITE,
    CohortSpec,
    ExpressionSpec,
    RatioSpec,
    VariableSpec,
    key_of,
)
from validation.cohort.tables import Loaded, codes, load_table, numeric, text_of
from validation.cohort.timing import known_at, months_known
from validation.contracts.contract import SINCE
from validation.dictionary import DataDictionary, JoinReport, Modality
from validation.inputs.derive import Signature, mean_z, ssgsea, z_scores
from validation.inputs.derive import signatures as shipped_signatures
from validation.types import Finding, canonical_json, sha256_file, sha256_text

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

UNITS = {"log2cpm": "log2(CPM+1)", "log2": "log2(x+1)"}


class Cohort:
    """Patients with variables and outcomes, as a `cohort.toml` describes them.

    Rows leave this class only under pseudonyms (`P0001` ...), whose order follows a hash of the
    identifiers and the data, so that they cannot be turned back without the files.
    """

    def __init__(
        self,
        spec: CohortSpec,
        root: Path,
        *,
        cache: Path | None = None,
        elsewhere: dict[str, Path] | None = None,
    ) -> None:
        self.spec = spec
        self.root = root.resolve()
        self.cache = cache
        self._elsewhere = elsewhere or {}
        self.tables: dict[str, Loaded] = {
            name: load_table(name, table, self._elsewhere.get(name, self.root), spec.patient.ids)
            for name, table in spec.tables.items()
        }
        base = self.tables[spec.patient.table]
        self.patients: list[str] = sorted(base.patient.unique())
        if not self.patients:
            raise InputError(
                f'cohort "{spec.id}": table "{spec.patient.table}" ({base.path.name}) names no '
                "patient after its filters"
            )
        self.variables = {key_of(name, one): one for name, one in spec.variables.items()}
        require_one_row_each(self.patients, spec.patient.cluster)
        self.derived = {f"derived:{name}": one for name, one in spec.derived.items()}
        for key, one in self.variables.items():
            self.tables[one.table].column(one.column, f"variables.{key.split(':', 1)[1]}")
        for name, endpoint in spec.endpoints.items():
            table = self.tables[endpoint.table]
            for field in ("time", "event", "column"):
                if hasattr(endpoint, field):
                    table.column(getattr(endpoint, field), f"endpoints.{name}.{field}")
        for field, named in (("cluster", spec.patient.cluster), ("site", self.site)):
            if named is not None and named not in (*self.variables, SOURCE_SITE):
                raise InputError(
                    f'cohort.toml: patient.{field} names "{named}", which is no variable; there '
                    f"are: {', '.join(self.variables)}"
                )
        self._outcomes: dict[str, pd.DataFrame] = {}
        self._columns: dict[str, pd.Series] = {}

    def with_features(
        self,
        path: Path,
        *,
        key: str = "patient",
        modality: Modality = "imaging",
        source: str = "",
    ) -> Cohort:
        """This cohort with the numbers of another table, such as a tool computed on its slides.

        Parameters
        ----------
        path : one row per slide or patient; columns `patient`, perhaps `slide` and `status` (rows
            whose status is not "ok" are left out), and numbers. Several slides of a patient are
            averaged. Each column becomes `MODALITY:FILE_COLUMN`.

        Raises
        ------
        InputError
            If the table has no such key, no numbers, or hardly any of the cohort's patients.
        """
        from validation.cohort.features import feature_table

        name, table, variables = feature_table(path, key, modality, source, self.spec)
        spec = self.spec.model_copy(
            update={
                "tables": {**self.spec.tables, name: table},
                "variables": {**self.spec.variables, **variables},
            }
        )
        elsewhere = {**self._elsewhere, name: path.resolve().parent}
        found = Cohort(spec, self.root, cache=self.cache, elsewhere=elsewhere)
        if not set(found.tables[name].patient) & set(self.patients):
            raise InputError(f'{path}: none of its patients is in cohort "{self.id}"')
        return found

    @property
    def id(self) -> str:
        """The cohort's short name."""
        return self.spec.id

    @property
    def simulated(self) -> bool:
        """True for planted-truth and null worlds; carried into every result."""
        return self.spec.simulated

    @property
    def site(self) -> str | None:
        """The key of the variable that holds the site, where the cohort declares one."""
        rule = self.spec.patient.site
        return SOURCE_SITE if rule == BARCODE_SITE else rule

    @cached_property
    def expression(self) -> Expression | None:
        """The expression matrix, read on first use."""
        if self.spec.expression is None:
            return None
        return load_expression(self.spec.expression, self.root, self.spec.patient.ids, self.cache)

    @cached_property
    def signatures(self) -> dict[str, Signature]:
        """Signatures whose genes the matrix holds, by variable key."""
        if self.expression is None:
            return {}
        wanted = self.spec.signatures
        found = shipped_signatures()
        unknown = set(wanted) - set(found)
        if unknown:
            raise InputError(
                f"cohort.toml: signatures names {', '.join(sorted(unknown))}; there are: "
                f"{', '.join(sorted(found))}"
            )
        matrix = self.expression
        return {
            f"signature:{name}": one
            for name, one in found.items()
            if (not wanted or name in wanted)
            and sum(gene in matrix for gene in one.genes) >= one.min_coverage * len(one.genes)
        }

    def files(self) -> list[Path]:
        """Every file that the cohort's values come from."""
        paths = {table.path for table in self.tables.values()}
        if self.spec.expression is not None:
            paths.add((self.root / self.spec.expression.file).resolve())
            if self.spec.expression.library_sizes:
                paths.add((self.root / self.spec.expression.library_sizes).resolve())
        return sorted(paths)

    @cached_property
    def _hashes(self) -> dict[str, str]:
        found = {self._name_of(path): sha256_file(path) for path in self.files()}
        found["cohort.toml"] = sha256_text(
            canonical_json(self.spec.model_dump(mode="json", exclude={"root", "notes"}))
        )
        return dict(sorted(found.items()))

    def _name_of(self, path: Path) -> str:
        """A file's name in the hashes: relative to the root, or as a feature table."""
        if path.is_relative_to(self.root):
            return path.relative_to(self.root).as_posix()
        return f"features/{path.name}"

    def hashes(self) -> dict[str, str]:
        """SHA-256 of every data file and of the cohort's description."""
        return dict(self._hashes)

    @cached_property
    def pseudonyms(self) -> dict[str, str]:
        """Patient identifier to pseudonym. Stays inside the package."""
        salt = sha256_text(canonical_json(self._hashes))
        order = sorted(
            self.patients, key=lambda one: hashlib.sha256(f"{salt}:{one}".encode()).hexdigest()
        )
        width = max(4, len(str(len(order))))
        return {patient: f"P{place + 1:0{width}d}" for place, patient in enumerate(order)}

    def keys(self) -> list[str]:
        """Every variable key except single genes."""
        source = [SOURCE_SITE] if self.spec.patient.site == BARCODE_SITE else []
        return [*self.variables, *source, *self.derived, *self.signatures]

    def signature_genes(self, key: str) -> tuple[str, ...]:
        """The genes of a signature variable ("signature:NAME") that the matrix holds."""
        if key not in self.signatures or self.expression is None:
            raise InputError(self._unknown(key))
        matrix = self.expression
        return tuple(gene for gene in self.signatures[key].genes if gene in matrix)

    def column(self, key: str) -> pd.Series:
        """One variable for all patients, indexed by patient identifier; missing values are NaN.

        Raises
        ------
        InputError
            For a key that the cohort does not have, with the nearest ones it has.
        """
        import pandas as pd

        if key in self.variables:
            if key not in self._columns:
                self._columns[key] = self._table_column(key, self.variables[key])
            values = self._columns[key]
        elif key == SOURCE_SITE and self.site == key:
            values = pd.Series([one.split("-")[1] for one in self.patients], index=self.patients)
        elif key in self.derived:
            values = self._derived_column(key, self.derived[key])
        elif key.startswith("expression:"):
            values = self._gene(key)
        elif key in self.signatures:
            values = self._signature(self.signatures[key])
        elif key.endswith(SINCE):
            values = months_known(self, key.removesuffix(SINCE))
        else:
            raise InputError(self._unknown(key))
        return values.reindex(self.patients).rename(key)

    def outcome(self, name: str) -> pd.DataFrame:
        """One endpoint indexed by patient identifier: `time`, `event`, or `value`."""
        if name not in self.spec.endpoints:
            raise InputError(
                f'cohort "{self.id}" has no endpoint "{name}"; it has: '
                f"{', '.join(self.spec.endpoints) or 'none'}"
            )
        if name not in self._outcomes:
            endpoint = self.spec.endpoints[name]
            decoded = decode(name, endpoint, self.tables[endpoint.table])
            known = decoded.index.intersection(self.patients)
            self._outcomes[name] = decoded.loc[sorted(known)]
        return self._outcomes[name]

    def table(self, keys: Sequence[str], endpoints: Sequence[str] = ()) -> pd.DataFrame:
        """Variables and outcomes, one row per patient under pseudonyms, sorted by pseudonym.

        Outcome columns are `NAME.time` (months) and `NAME.event`, or `NAME.value`.
        """
        import pandas as pd

        columns: dict[str, pd.Series] = {key: self.column(key) for key in dict.fromkeys(keys)}
        for name in dict.fromkeys(endpoints):
            outcome = self.outcome(name).reindex(self.patients)
            columns |= {f"{name}.{part}": outcome[part] for part in outcome.columns}
        frame = pd.DataFrame(columns, index=self.patients)
        frame.index = pd.Index([self.pseudonyms[one] for one in self.patients], name="patient")
        return frame.sort_index()

    def block(self, genes: Sequence[str]) -> tuple[NDArray[np.float64], list[str]]:
        """Genes as (patients, genes) in the order of the pseudonyms, patients with expression."""
        import numpy as np

        if self.expression is None:
            raise InputError(f'cohort "{self.id}" has no expression matrix')
        known = set(self.patients)
        at = [
            (self.pseudonyms[one], row)
            for row, one in enumerate(self.expression.patients)
            if one in known
        ]
        at.sort()
        values = self.expression.block(genes)[:, [row for _, row in at]]
        return np.ascontiguousarray(values.T), [name for name, _ in at]

    def dictionary(self) -> DataDictionary:
        """What may be known before results exist: no rows, and no level under `min_level`."""
        return self._dictionary

    @cached_property
    def _dictionary(self) -> DataDictionary:
        variables = [variable_of(self, key) for key in self.keys()]
        matrix = self.expression
        spec = self.spec.expression
        known = set(self.patients)
        return DataDictionary(
            cohort=self.id,
            title=self.spec.title,
            simulated=self.simulated,
            n_patients=len(self.patients),
            variables=tuple(variables),
            expression=tuple(matrix.genes) if matrix else (),
            expression_unit=_unit(spec) if spec else None,
            expression_n=sum(one in known for one in matrix.patients) if matrix else 0,
            expression_known_at=known_at(self, "expression:") if spec else "unknown",
            endpoints=tuple(endpoint_of(self, name) for name in self.spec.endpoints),
            joins=self.joins(),
            cluster=self.spec.patient.cluster,
            site=self.site,
            slides=self._slides(),
            license=self.spec.license,
            notes=(*self.spec.notes, *(matrix.notes if matrix else ())),
        )

    def joins(self) -> tuple[JoinReport, ...]:
        """Every step between the files and the patients, with what it lost and why."""
        return joins_of(self)

    def check(self) -> list[Finding]:
        """Everything about the cohort that would mislead an analysis."""
        from validation.cohort.findings import check_cohort

        return check_cohort(self)

    # -- how each kind of column is made ---------------------------------------------------------

    def _table_column(self, key: str, spec: VariableSpec) -> pd.Series:
        table = self.tables[spec.table]
        where = f"variable {key} ({table.path.name})"
        raw = table.column(spec.column, f"variables.{key.split(':', 1)[1]}")
        rule = spec.collapse or table.spec.rows_per_patient
        if spec.values:
            values = _mapped(raw, spec, table, where)
        elif spec.kind == "continuous" or spec.kind == "ordinal":
            values = numeric(raw, table.missing, where)
        else:
            values = codes(raw).where(~raw.isin(table.missing))
        return collapse(values, table.patient, rule, where)

    def _derived_column(self, key: str, spec: RatioSpec) -> pd.Series:
        import numpy as np
        import pandas as pd

        if key in spec.of:
            raise InputError(f"cohort.toml: {key} is derived from itself")
        parts = [self.column(one).astype("float64") for one in spec.of]
        if spec.formula == "mean_z":
            block = np.asarray([one.to_numpy() for one in parts], dtype=np.float64)
            scored = z_scores(block)
            score = np.where(np.isnan(scored).any(axis=0), np.nan, scored.mean(axis=0))
            return pd.Series(score, index=self.patients)
        if len(parts) != 2:
            raise InputError(f'cohort.toml: {key}: formula "{spec.formula}" takes two variables')
        if spec.formula == "log_difference":
            return parts[0] - parts[1]
        return parts[0] / parts[1].where(parts[1] != 0)

    def _gene(self, key: str) -> pd.Series:
        gene = key.removeprefix("expression:")
        if self.expression is None or gene not in self.expression:
            raise InputError(self._unknown(key))
        return self.expression.column(gene)

    def _signature(self, one: Signature) -> pd.Series:
        import numpy as np
        import pandas as pd

        matrix = self.expression
        assert matrix is not None  # signatures exist only where there is a matrix
        genes = [gene for gene in one.genes if gene in matrix]
        if one.method == "mean_z":
            scores = mean_z(matrix.block(genes))
        else:
            members = np.isin(np.asarray(matrix.genes), np.asarray(genes))
            scores = ssgsea(np.asarray(matrix.values, dtype=float), members)
        return pd.Series(scores, index=matrix.patients)

    def _unknown(self, key: str) -> str:
        import difflib

        has = self.keys()
        if self.expression is not None:
            has = [*has, *(f"expression:{gene}" for gene in self.expression.genes)]
        near = difflib.get_close_matches(key, has, n=4, cutoff=0.6) or has[:6]
        return f'cohort "{self.id}" has no variable "{key}"; near: {", ".join(near) or "none"}'

    def _slides(self) -> int:
        spec = self.spec.slides
        if spec is None:
            return 0
        if spec.table is not None:
            return len(self.tables[spec.table].rows)
        folder = (self.root / spec.folder).resolve()
        if not folder.is_relative_to(self.root) or not folder.is_dir():
            return 0
        return sum(1 for _ in folder.glob(spec.pattern))


def _unit(spec: ExpressionSpec) -> str:
    return spec.unit or UNITS.get(spec.transform) or spec.scale


def _mapped(raw: pd.Series, spec: VariableSpec, table: Loaded, where: str) -> pd.Series:
    import pandas as pd

    seen = codes(raw)
    absent = raw.isin(table.missing)
    unknown = sorted(set(seen[~absent]) - set(spec.values))
    if unknown and spec.other == "refuse":
        raise InputError(
            f"{where}: values {', '.join(map(repr, unknown[:5]))} have no meaning in `values`; "
            'add them, or set other = "missing"'
        )
    values = seen.where(~absent).map(spec.values)
    return (
        pd.to_numeric(values)
        if spec.kind in ("continuous", "ordinal")
        else values.map(text_of, na_action="ignore")
    )
