"""The patients analyzed under a contract: exposure, outcomes and covariates as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import expit

from sage.core.errors import InputError
from validation.contracts.contract import Contract, VariableUse
from validation.contracts.timing import records
from validation.core.hypothesis import Filter
from validation.inputs.population import (
    Cut,
    Exposed,
    apply_filters,
    describe_losses,
    expose,
    exposure_values,
    population_mask,
)
from validation.statistics.base import ranks

if TYPE_CHECKING:
    from validation.core.hypothesis import Penalty
    from validation.inputs.prediction import PredictionModel
    from validation.statistics.base import BoolArray, FloatArray, IntArray

FEWEST_OF_A_LEVEL = 5
NO_TERM = f"fewer than two levels with {FEWEST_OF_A_LEVEL} patients"
FEWEST_PARTED = 10
"""Minimum number of patients, with and without the event each, for meaningful separation.

With fewer patients, perfect separation may be due to chance.
"""
MOST_LEVELS = 10
"""Maximum number of distinct values for an exposure to be checked as a code for the outcome."""
SAME_ORDER = 0.98
"""Rank correlation with follow-up time that no genuine marker exceeds."""


@dataclass(frozen=True)
class Column:
    """A column of a design matrix: a z-score (`mean`, `sd`), or an indicator for `level`."""

    name: str
    key: str
    values: FloatArray
    mean: float = 0.0
    sd: float = 1.0
    level: str | None = None


@dataclass
class Study:
    """Rows of the analyzed population with their exposure.

    There is a row per patient, or per record of a patient if the exposure is time-dependent.
    `cuts` were found in the same rows, or in others.

    `model` is the prediction model for the calibration test: passed in if it was developed in
    other patients, otherwise developed by that test. `curves` are the decision curves, by
    test. `unknown` holds the exposure of patients left out because their primary outcome is
    unknown.
    """

    contract: Contract
    rows: pd.DataFrame
    cuts: tuple[Cut, ...]
    exposed: Exposed
    model: PredictionModel | None = None
    curves: dict[str, Any] = field(default_factory=dict, repr=False)
    unknown: FloatArray = field(default_factory=lambda: np.empty(0), repr=False)

    @classmethod
    def build(
        cls,
        contract: Contract,
        table: pd.DataFrame,
        cuts: tuple[Cut, ...],
        model: PredictionModel | None = None,
    ) -> Study:
        """Select the population from a prepared table and code its exposure.

        Parameters
        ----------
        table : one row per patient, as written by `prepare`
        cuts : one cut per exposure; for the confirmation part, those from the discovery part

        Raises
        ------
        InputError
            If no patient is left, a group is empty, or an exposure determines the outcome.
        """
        rows = table[population_mask(table, contract)]
        if rows.empty:
            raise InputError(f"no patients left to analyze: {describe_losses(table, contract)}")
        uses, followed = contract.exposures, contract.hypothesis.time_dependent
        if followed:
            rows = records(rows, contract)
        values = tuple(exposure_values(rows, use) for use in uses)
        found = cls(contract, rows, cuts, expose(contract.comparison, uses, values, cuts), model)
        for use, array in zip(uses, values, strict=True) if not followed else ():
            _refuse_the_outcome_itself(found, use, array)
        if contract.hypothesis.penalty is not None:
            found.exposed = replace(found.exposed, x=_score(found, contract.hypothesis.penalty))
        if not contract.associates:
            found.risks(contract.primary_test.endpoint)  # refuses values that are not risks
        others = table[population_mask(table, contract, outcome=False)]
        if not followed and not any(use.rescale == "rank" for use in uses):
            values = tuple(exposure_values(others, use) for use in uses)
            known = others.index.isin(rows.index)
            found.unknown = expose(contract.comparison, uses, values, cuts).x[~known]
        return found

    def patients(self, keep: BoolArray | None = None) -> int:
        """Count the patients in all rows, or in those kept; a patient may have several rows."""
        index = self.rows.index if keep is None else self.rows.index[keep]
        return int(index.nunique())

    def months_followed(self, endpoint: str) -> FloatArray:
        """Return the months (rows,) of follow-up for each row's patient."""
        found = self.rows[f"{endpoint}.time"].groupby(level=0).transform("max")
        if (entry := self.rows.get(f"{endpoint}.entry")) is not None:
            found = found - entry.groupby(level=0).transform("min")
        return np.asarray(found.to_numpy(dtype=float))

    def entry(self, endpoint: str, keep: BoolArray) -> FloatArray | None:
        """Return the kept rows' entry in months; None if every row is at risk from time 0."""
        column = self.rows.get(f"{endpoint}.entry")
        return None if column is None else column.to_numpy(dtype=float)[keep]

    def subgroup(self, condition: Filter) -> Study:
        """Restrict the study to part of the population, with the same cuts and coding."""
        keep = apply_filters(self.rows, (condition,)).to_numpy()
        if not np.any(keep):
            raise InputError(
                f"subgroup {condition.variable} {condition.op} {condition.value}: contains no "
                "patients"
            )
        return self.select(keep)

    def select(self, keep: BoolArray) -> Study:
        """Restrict the study to rows, with the same cuts and coding."""
        return Study(self.contract, self.rows[keep], self.cuts, self.exposed.select(keep))

    def outcome(self, endpoint: str) -> tuple[FloatArray, FloatArray | None]:
        """Return (time, event) for a survival outcome, else (value, None); NaN if unknown."""
        time = f"{endpoint}.time"
        if time in self.rows.columns:
            event = self.rows[f"{endpoint}.event"].to_numpy(dtype=float)
            return np.asarray(self.rows[time].to_numpy(dtype=float)), event
        return np.asarray(self.rows[f"{endpoint}.value"].to_numpy(dtype=float)), None

    def status(
        self, endpoint: str, keep: BoolArray
    ) -> tuple[FloatArray, IntArray, FloatArray | None]:
        """Return the kept patients' times, codes (0 censored, 1 event, 2 competing), and `entry`.

        Raises `InputError` if the endpoint has no time.
        """
        time, event = self.outcome(endpoint)
        if event is None:
            raise InputError(f'endpoint "{endpoint}" has no follow-up time')
        return time[keep], event[keep].astype(int), self.entry(endpoint, keep)

    def at_risk(
        self, endpoint: str, keep: BoolArray
    ) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Return the kept patients' times, event indicators (1 or 0), and `entry`.

        Patients with a competing event are censored at it. Raises as `status` does.
        """
        time, codes, entry = self.status(endpoint, keep)
        return time, (codes == 1).astype(float), entry

    def follow_up(self, endpoint: str, keep: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return times and events, for methods that need all patients at risk from time 0.

        Raises `InputError` if the endpoint has delayed entry.
        """
        time, event, entry = self.at_risk(endpoint, keep)
        refuse_entry(entry, endpoint)
        return time, event

    def risks(self, endpoint: str) -> tuple[BoolArray, FloatArray]:
        """Return a mask of patients with known score and outcome, and the risks predicted for them.

        Raises `InputError` if a value is not a risk.
        """
        given, use = self.contract.hypothesis.calibration, self.contract.exposures[0]
        assert given is not None
        keep = self.complete(endpoint)
        x = self.exposed.x[keep]
        if given.values == "risk":
            if wrong := int(((x <= 0.0) | (x >= 1.0)).sum()):
                raise InputError(
                    f"{use.label} ({use.key}): {wrong} of {len(x)} values are not risks between 0 "
                    'and 1 (both excluded); convert percentages, or declare `values` "linear"'
                )
            return keep, x if use.level == "high" else 1.0 - x
        x = x if use.level == "high" else -x
        risk = expit(x) if given.baseline is None else 1.0 - given.baseline ** np.exp(x)
        return keep, np.clip(risk, 1e-9, 1.0 - 1e-9)

    def complete(self, endpoint: str, covariates: tuple[str, ...] = ()) -> BoolArray:
        """Return a mask of patients with known values for exposure, outcome and every covariate."""
        value, event = self.outcome(endpoint)
        keep = ~np.isnan(self.exposed.x) & ~np.isnan(value)
        if event is not None:
            keep &= ~np.isnan(event)
        for key in covariates:
            keep &= self.rows[key].notna().to_numpy()
        return keep

    def design(
        self, covariates: tuple[str, ...], keep: BoolArray, *, missing: bool = False
    ) -> tuple[FloatArray, tuple[str, ...]]:
        """Build the kept patients' design matrix for covariates, and name its columns.

        Columns are z-scores, or indicators for levels other than the most frequent one.

        With `missing`, unknown values stay NaN (for imputation). Constant columns are left out.
        """
        found = self.columns(covariates, keep)
        if not found:
            return np.empty((int(keep.sum()), 0)), ()
        X = np.column_stack([column.values for column in found])
        if not missing and np.isnan(X).any():
            raise InputError("covariates contain missing values")
        return X, tuple(column.name for column in found)

    def columns(self, covariates: tuple[str, ...], keep: BoolArray) -> list[Column]:
        """Return the columns of `design`, each with its coding."""
        found = []
        for key in covariates:
            use = next(variable for variable in self.contract.variables if variable.key == key)
            for column in _columns(self.rows[keep], use):
                known = column.values[~np.isnan(column.values)]
                if known.size and np.any(known != known[0]):
                    found.append(column)
        return found

    def layers(self, strata: Sequence[str], keep: BoolArray) -> IntArray | None:
        """Return (kept,) stratum codes, one for each combination of levels; None without strata."""
        if not strata:
            return None
        levels = [pd.factorize(self.rows.loc[keep, key], sort=True)[0] for key in strata]
        _, codes = np.unique(np.column_stack(levels), axis=0, return_inverse=True)
        return np.asarray(codes.reshape(-1), dtype=np.int64)

    def clusters(self, keep: BoolArray) -> IntArray | None:
        """Return (kept,) codes for the person in each row; None if each row is a different patient.

        Raises `InputError` if a row's person is unknown.
        """
        key = self.contract.cluster
        if key is None:
            return None
        column = self.rows.loc[keep, key]
        if column.isna().any():
            raise InputError(
                f"{key}: {int(column.isna().sum())} rows have no value, so their patient is unknown"
            )
        return self.layers((key,), keep)

    def markers(self, keep: BoolArray) -> FloatArray:
        """Return the kept patients' (kept, exposures) standardized exposures."""
        X = np.column_stack(self.exposed.parts)[keep]
        return np.asarray((X - X.mean(axis=0)) / X.std(axis=0))

    def adjusters(self) -> list[tuple[str, FloatArray]]:
        """Return labels and values of the terms that a model needs in addition to its first term.

        For an interaction, these are both main effects; if the second exposure is the first term,
        the first exposure.
        """
        uses = self.contract.exposures
        return [
            (use.label, part) for use, part in zip(uses, self.exposed.model_parts, strict=False)
        ]

    @property
    def first_term(self) -> str:
        """Name of the first term in every model."""
        if self.exposed.second:
            return self.contract.exposures[1].label
        return "interaction" if self.exposed.product else self.contract.exposed


def refuse_entry(entry: FloatArray | None, endpoint: str) -> None:
    """Raise `InputError` if patients enter late and the method cannot handle delayed entry."""
    if entry is not None:
        raise InputError(f"not computed: {endpoint} has delayed entry, which is not supported")


def _score(study: Study, penalty: Penalty) -> FloatArray:
    """Return the (rows,) out-of-fold score of all exposures, standardized; NaN if unknown.

    Its models are stored in the study's `curves`. Raises `InputError` if events are too few.
    """
    from validation.statistics.penalized import INNER, OUTER, out_of_fold

    endpoint = study.contract.primary_test.endpoint
    keep = study.complete(endpoint)
    t, e = study.follow_up(endpoint, keep)
    if e.sum() < 2 * OUTER * INNER:
        raise InputError(
            f"{int(e.sum())} events for {endpoint}; nested cross-validation requires at least "
            f"{2 * OUTER * INNER}"
        )
    found = out_of_fold(t, e == 1, study.markers(keep)[None], penalty, study.contract.seed)
    study.curves["penalized"] = found
    score = found.scores[0]
    x = np.full(len(keep), np.nan)
    x[keep] = (score - score.mean()) / (score.std() or 1.0)
    return x


def _columns(rows: pd.DataFrame, use: VariableUse) -> list[Column]:
    column = rows[use.key]
    if use.kind in ("continuous", "ordinal") or pd.api.types.is_numeric_dtype(column):
        values = np.asarray(column.to_numpy(dtype=float))
        spread = float(np.nanstd(values, ddof=1)) if np.sum(~np.isnan(values)) > 1 else 0.0
        mean, sd = 0.0, 1.0
        if spread > 0:
            mean, sd = float(np.nanmean(values)), spread
        return [Column(f"{use.label} (per SD)", use.key, (values - mean) / sd, mean, sd)]
    counts = column.value_counts()
    levels = sorted(counts.index, key=lambda level: (-int(counts[level]), str(level)))
    unknown = column.isna().to_numpy()
    found = []
    for level in levels[1:]:
        if int(counts[level]) < FEWEST_OF_A_LEVEL:
            continue
        flag = np.where(unknown, np.nan, (column == level).to_numpy().astype(float))
        found.append(Column(f"{use.label}: {level}", use.key, flag, level=str(level)))
    return found


def _refuse_the_outcome_itself(study: Study, use: VariableUse, values: FloatArray) -> None:
    """Raise `InputError` if an exposure determines every patient's event or the time to it."""
    endpoint = study.contract.primary_test.endpoint
    if study.contract.endpoint(endpoint).kind == "continuous":
        return
    outcome, event = study.outcome(endpoint)
    flag = outcome if event is None else event
    known = ~np.isnan(values) & ~np.isnan(outcome) & ~np.isnan(flag)
    had, had_not = values[known & (flag == 1)], values[known & (flag != 1)]
    if min(len(had), len(had_not)) < FEWEST_PARTED:
        return
    levels = np.unique(values[known])
    apart = had.min() > had_not.max() or had.max() < had_not.min()
    if len(levels) <= MOST_LEVELS:
        apart = apart or not np.intersect1d(had, had_not).size
    if apart:
        raise InputError(
            f"exposure {use.label} ({use.key}) completely separates the {len(had)} patients with "
            f"{endpoint} from the {len(had_not)} without, so it either contains the "
            "outcome or was recorded after it. Use information known before the outcome"
        )
    timed = event is not None and np.ptp(outcome[known]) > 0
    if timed and len(levels) > MOST_LEVELS:
        same = abs(float(np.corrcoef(ranks(values[known]), ranks(outcome[known]))[0, 1]))
        if same > SAME_ORDER:
            raise InputError(
                f"exposure {use.label} ({use.key}) ranks the patients in the same order as the "
                f"time of {endpoint} (rank correlation {same:.3f}), so it contains the "
                "outcome. Use information known before the outcome"
            )
