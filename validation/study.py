"""The analyzed patients under a contract: exposure, outcomes and covariates as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from validation.contract import Contract, VariableUse
from validation.errors import InputError
from validation.hypothesis import Filter
from validation.population import (
    Cut,
    Exposed,
    apply_filters,
    expose,
    in_population,
    losses,
    numbers_of,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


@dataclass
class Study:
    """Population rows with their exposure. `cuts` were found in the same rows, or handed over."""

    contract: Contract
    rows: pd.DataFrame
    cuts: tuple[Cut, ...]
    exposed: Exposed

    @classmethod
    def of(cls, contract: Contract, table: pd.DataFrame, cuts: tuple[Cut, ...]) -> Study:
        """Select the population of a prepared table and code its exposure.

        Raises
        ------
        InputError
            If nobody is left, or a group is empty.
        """
        rows = table[in_population(table, contract)]
        if rows.empty:
            raise InputError(f"nobody is left to analyze: {losses(table, contract)}")
        uses = contract.exposures
        values = tuple(numbers_of(rows, use) for use in uses)
        return cls(contract, rows, cuts, expose(contract.comparison, uses, values, cuts))

    def subgroup(self, one: Filter) -> Study:
        """The same cuts and coding in part of the population."""
        import numpy as np

        keep = apply_filters(self.rows, (one,)).to_numpy()
        exposed = Exposed(
            x=self.exposed.x[keep],
            parts=tuple(part[keep] for part in self.exposed.parts),
            grouped=self.exposed.grouped,
        )
        if not np.any(keep):
            raise InputError(f"subgroup {one.variable} {one.op} {one.value}: nobody is in it")
        return Study(self.contract, self.rows[keep], self.cuts, exposed)

    def outcome(self, endpoint: str) -> tuple[Floats, Floats | None]:
        """(time, event) of a survival outcome, (value, None) of another; NaN where unknown."""
        import numpy as np

        time = f"{endpoint}.time"
        if time in self.rows.columns:
            event = self.rows[f"{endpoint}.event"].to_numpy(dtype=float)
            return np.asarray(self.rows[time].to_numpy(dtype=float)), event
        return np.asarray(self.rows[f"{endpoint}.value"].to_numpy(dtype=float)), None

    def complete(self, endpoint: str, covariates: tuple[str, ...] = ()) -> Mask:
        """Patients with a group, the outcome and (complete cases) every covariate."""
        import numpy as np

        value, event = self.outcome(endpoint)
        keep = ~np.isnan(self.exposed.x) & ~np.isnan(value)
        if event is not None:
            keep &= ~np.isnan(event)
        for key in covariates:
            keep &= self.rows[key].notna().to_numpy()
        return keep

    def design(
        self, covariates: tuple[str, ...], keep: Mask, *, missing: bool = False
    ) -> tuple[Floats, tuple[str, ...]]:
        """Covariates of the kept patients: z-scores, or indicators against the largest level.

        With `missing`, unknown values stay NaN (for imputation). Constant columns are left out.
        """
        import numpy as np

        columns: list[Floats] = []
        names: list[str] = []
        for key in covariates:
            use = next(one for one in self.contract.variables if one.key == key)
            for name, column in _columns(self.rows[keep], use):
                known = column[~np.isnan(column)]
                if known.size and np.any(known != known[0]):
                    columns.append(column)
                    names.append(name)
        if not columns:
            return np.empty((int(keep.sum()), 0)), ()
        X = np.column_stack(columns)
        if not missing and np.isnan(X).any():
            raise InputError("covariates hold missing values")
        return X, tuple(names)

    def adjusters(self) -> list[tuple[str, Floats]]:
        """Main effects that an interaction model needs beside its product term."""
        if self.contract.comparison.value != "interaction":
            return []
        uses = self.contract.exposures
        return [(use.label, part) for use, part in zip(uses, self.exposed.parts, strict=True)]


def _columns(rows: pd.DataFrame, use: VariableUse) -> list[tuple[str, Floats]]:
    import numpy as np
    import pandas as pd

    column = rows[use.key]
    if use.kind in ("continuous", "ordinal") or pd.api.types.is_numeric_dtype(column):
        values = np.asarray(column.to_numpy(dtype=float))
        spread = float(np.nanstd(values, ddof=1)) if np.sum(~np.isnan(values)) > 1 else 0.0
        if spread > 0:
            values = (values - float(np.nanmean(values))) / spread
        return [(f"{use.label} (per SD)", values)]
    counts = column.value_counts()
    levels = sorted(counts.index, key=lambda level: (-int(counts[level]), str(level)))
    unknown = column.isna().to_numpy()
    found = []
    for level in levels[1:]:
        if int(counts[level]) < 5:
            continue
        flag = (column == level).to_numpy().astype(float)
        found.append((f"{use.label}: {level}", np.where(unknown, np.nan, flag)))
    return found
