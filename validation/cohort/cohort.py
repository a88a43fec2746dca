"""A cohort: tables joined by patient, with pseudonyms in place of identifiers."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from sage.core.errors import InputError
from validation.cohort.columns import CohortColumns
from validation.cohort.describe import endpoint_of, joins_of, variable_of
from validation.cohort.features import feature_table
from validation.cohort.timing import known_at
from validation.core.dictionary import DataDictionary, JoinReport, Modality

UNITS = {"log2cpm": "log2(CPM+1)", "log2": "log2(x+1)"}


class Cohort(CohortColumns):
    """Patients with variables and outcomes, as described by a `cohort.toml`.

    Rows leave this class only under pseudonyms (`P0001` ...). Their order follows a hash of
    the identifiers and the data, so that they cannot be reversed without the files.
    """

    def with_features(
        self, path: Path, *, key: str = "patient", modality: Modality = "imaging", source: str = ""
    ) -> Cohort:
        """Return this cohort with added variables, such as a tool's slide measurements.

        Parameters
        ----------
        path : table with a row per slide or patient; columns `patient`, optionally `slide` and
            `status` (rows whose status is not "ok" are left out), and numeric columns. Several
            slides from a patient are averaged. Each column becomes `MODALITY:FILE_COLUMN`.

        Raises
        ------
        InputError
            If the table lacks the key or any numeric column, or has hardly any patients in common
            with the cohort.
        """
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
            raise InputError(f'{path}: contains no patients in cohort "{self.id}"')
        return found

    def dictionary(self) -> DataDictionary:
        """Return the dictionary, without rows and without levels under `min_level` patients."""
        return self._dictionary

    @cached_property
    def _dictionary(self) -> DataDictionary:
        variables = [variable_of(self, key) for key in self.keys()]
        matrix = self.expression
        spec = self.spec.expression
        known = set(self.patients)
        unit = (spec.unit or UNITS.get(spec.transform) or spec.scale) if spec else None
        return DataDictionary(
            cohort=self.id,
            title=self.spec.title,
            simulated=self.simulated,
            n_patients=len(self.patients),
            variables=tuple(variables),
            expression=tuple(matrix.genes) if matrix else (),
            expression_unit=unit,
            expression_n=sum(patient in known for patient in matrix.patients) if matrix else 0,
            expression_known_at=known_at(self, "expression:") if spec else "unknown",
            endpoints=tuple(endpoint_of(self, name) for name in self.spec.endpoints),
            joins=self.joins(),
            cluster=self.spec.patient.cluster,
            site=self.site,
            risk_factors=self.spec.risk_factors,
            slides=self._slides(),
            license=self.spec.license,
            notes=(*self.spec.notes, *(matrix.notes if matrix else ())),
        )

    def joins(self) -> tuple[JoinReport, ...]:
        """List the steps from the files to the patients, with losses and their reasons."""
        return joins_of(self)

    @property
    def maps(self) -> Path | None:
        """Return the folder with the slides' maps; None if the cohort's root has none."""
        if self.spec.maps is None:
            return None
        folder = (self.root / self.spec.maps).resolve()
        return folder if folder.is_relative_to(self.root.resolve()) and folder.is_dir() else None

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
