"""Read and join a cohort's files: tables, expression, signatures, hashes, pseudonyms."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sage.core.errors import InputError
from sage.core.hashes import hash_file, hash_text
from validation.cohort.derive import Signature
from validation.cohort.derive import signatures as shipped_signatures
from validation.cohort.expression import Expression, load_expression
from validation.cohort.ids import require_one_row_each
from validation.cohort.model import BARCODE_SITE, SOURCE_SITE, CohortSpec, key_of
from validation.cohort.tables import Loaded, load_table
from validation.core.types import canonical_json

if TYPE_CHECKING:
    import pandas as pd


class CohortData:
    """A cohort's files as described by its `cohort.toml`, before any value is decoded."""

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
                f'cohort "{spec.id}": table "{spec.patient.table}" ({base.path.name}) has no '
                "patients after its filters"
            )
        self.variables = {
            key_of(name, variable): variable for name, variable in spec.variables.items()
        }
        require_one_row_each(self.patients, spec.patient.cluster)
        self.derived = {f"derived:{name}": ratio for name, ratio in spec.derived.items()}
        for key, item in self.variables.items():
            self.tables[item.table].column(item.column, f"variables.{key.split(':', 1)[1]}")
        for name, endpoint in spec.endpoints.items():
            table = self.tables[endpoint.table]
            for field in ("time", "event", "column"):
                if hasattr(endpoint, field):
                    table.column(getattr(endpoint, field), f"endpoints.{name}.{field}")
        for field, named in (("cluster", spec.patient.cluster), ("site", self.site)):
            if named is not None and named not in (*self.variables, SOURCE_SITE):
                raise InputError(
                    f'cohort.toml: patient.{field} refers to "{named}", which is not a variable. '
                    f"Variables: {', '.join(self.variables)}"
                )
        self._outcomes: dict[str, pd.DataFrame] = {}
        self._columns: dict[str, pd.Series] = {}
        self._digests: dict[Path, str] = {}

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
        """Key of the variable that contains the site, if declared."""
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
        """Signatures with enough of their genes in the matrix, by variable key."""
        if self.expression is None:
            return {}
        wanted = self.spec.signatures
        found = shipped_signatures()
        unknown = set(wanted) - set(found)
        if unknown:
            raise InputError(
                f"cohort.toml: unknown signatures {', '.join(sorted(unknown))}. "
                f"Signatures: {', '.join(sorted(found))}"
            )
        matrix = self.expression
        return {
            f"signature:{name}": signature
            for name, signature in found.items()
            if (not wanted or name in wanted)
            and sum(gene in matrix for gene in signature.genes)
            >= signature.min_coverage * len(signature.genes)
        }

    def files(self) -> list[Path]:
        """List the files that supply the cohort's values."""
        paths = {table.path for table in self.tables.values()}
        if self.spec.expression is not None:
            paths.add((self.root / self.spec.expression.file).resolve())
            if self.spec.expression.library_sizes:
                paths.add((self.root / self.spec.expression.library_sizes).resolve())
        return sorted(paths)

    def _hash_of(self, path: Path) -> str:
        """Compute the SHA-256 of a data file, only once per file."""
        if path not in self._digests:
            self._digests[path] = hash_file(path)
        return self._digests[path]

    def _name_of(self, path: Path) -> str:
        """Return a file's name in `hashes`: its path below the root, or `features/NAME`."""
        if path.is_relative_to(self.root):
            return path.relative_to(self.root).as_posix()
        return f"features/{path.name}"

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of every data file and of the cohort's description, by name."""
        found = {self._name_of(path): self._hash_of(path) for path in self.files()}
        found["cohort.toml"] = hash_text(
            canonical_json(self.spec.model_dump(mode="json", exclude={"root", "notes", "maps"}))
        )
        return dict(sorted(found.items()))

    @cached_property
    def pseudonyms(self) -> dict[str, str]:
        """Pseudonyms by patient identifier, for internal use in the package only.

        A split selects confirmation patients by pseudonym. Pseudonyms therefore depend only on
        the patient file: other labels, variables or tables do not change the selection.
        """
        salt = self._hash_of(self.tables[self.spec.patient.table].path)
        order = sorted(
            self.patients,
            key=lambda patient: hashlib.sha256(f"{salt}:{patient}".encode()).hexdigest(),
        )
        width = max(4, len(str(len(order))))
        return {patient: f"P{place + 1:0{width}d}" for place, patient in enumerate(order)}
