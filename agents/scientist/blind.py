"""A view of a cohort before a contract is frozen: its variables, but no outcome.

For an outcome, it exposes only the counts in the data dictionary: the number of patients
with a known outcome, and the number of events. Variables that contain an outcome, or
became known after the start of follow-up, are not shown. Everything passes the disclosure
gate: counts below a minimum are suppressed, and no value describes a single patient.
"""

from __future__ import annotations

import math
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from agents.core.base import View
from agents.scientist.drafts import plain
from sage.core.errors import InputError
from validation.contracts.contract import DIFFERENCES, Contract, Power, Rules, SplitRule
from validation.contracts.registered import uses_groups
from validation.core.dictionary import DataDictionary, Endpoint
from validation.core.hypothesis import Hypothesis
from validation.disclosure import (
    MIN_COUNT,
    round_count,
    shown_quantiles,
    shown_variable,
    suppressed_cells,
)
from validation.drafting.draft import draft
from validation.drafting.power import compute_power
from validation.inputs.population import apply_filters, expose, exposure_values, find_cut
from validation.inputs.variables import find_variable
from validation.statistics.power import power_from_detectable

if TYPE_CHECKING:
    import pandas as pd

    from validation.cohort.cohort import Cohort

MOST_VARIABLES = 40
FEWEST_FOR_CORRELATION = 20


class Distribution(View):
    """Distribution of a variable over all patients, without any outcome.

    `lowest` is the share of patients at the lowest value (for a gene, not detected).
    `withheld` gives the reason if a variable is not described.
    """

    variable: str
    label: str = ""
    kind: str = ""
    unit: str | None = None
    n: int | None = None
    missing: float | None = None
    lowest: float | None = None
    quantiles: dict[str, float] = Field(default_factory=dict)
    levels: dict[str, int] = Field(default_factory=dict)
    withheld: str = ""


class Correlation(View):
    """Spearman's rank correlation of two variables."""

    first: str
    second: str
    rho: float
    n: int


class Cell(View):
    """Patient count for a combination of levels; None if the count is suppressed."""

    levels: tuple[str, ...]
    patients: int | None


class JointCounts(View):
    """Patient counts for combinations of two or three variables; continuous ones cut at `cut`."""

    variables: tuple[str, ...]
    cut: Literal["median", "tertile"]
    cells: tuple[Cell, ...]


class Description(View):
    """Result of `cohort_describe`."""

    patients: int
    variables: tuple[Distribution, ...]
    correlations: tuple[Correlation, ...] = ()
    joint: JointCounts | None = None
    minimum: int


class DesignPower(View):
    """Power of a claim, from group sizes and the number of events.

    `detectable` is the smallest effect detectable with 80% power on `scale`; `power` is the
    power to detect `relevant`, the smallest relevant effect. `refused` explains why no
    contract could be drafted.
    """

    exposed: int | None = None
    reference: int | None = None
    patients: int | None = None
    events: float | None = None
    detectable: float | None = None
    scale: str = ""
    relevant: float | None = None
    power: float | None = None
    refused: str = ""


class BlindCohort:
    """Descriptions of a cohort that do not depend on any outcome.

    Parameters
    ----------
    cohort : the cohort; its columns are read, but never its outcomes
    minimum : smallest patient count that may be shown
    split : the patient split that contracts will use; power is for the confirmation patients
    """

    def __init__(
        self, cohort: Cohort, minimum: int = MIN_COUNT, split: SplitRule | None = None
    ) -> None:
        self.split = split or SplitRule()
        self.dictionary: DataDictionary = cohort.dictionary()
        self.minimum = minimum
        self._table = cohort.table
        self._columns = cohort.columns_read
        self._parts = cohort.parts_of
        self._outcome_columns = frozenset().union(
            *(cohort.outcome_columns(endpoint) for endpoint in cohort.spec.endpoints)
        )
        self._withheld: dict[str, str] = {}

    @cached_property
    def _symbols(self) -> dict[str, str]:
        return {gene.upper(): gene for gene in self.dictionary.expression}

    @cached_property
    def _keys_by_name(self) -> dict[str, list[str]]:
        """Keys of all variables except genes, indexed by each of their names."""
        found: dict[str, list[str]] = {}
        for variable in self.dictionary.variables:
            for name in (variable.label, variable.key.split(":")[-1], *variable.synonyms):
                found.setdefault(plain(name), []).append(variable.key)
        return found

    def find_variables(self, *names: str) -> tuple[str, ...]:
        """Find the variables matching any of `names`: a gene symbol, a label or a synonym."""
        genes = [self._symbols[name.upper()] for name in names if name.upper() in self._symbols]
        others = [key for name in names for key in self._keys_by_name.get(plain(name), ())]
        return tuple(dict.fromkeys([*(f"expression:{gene}" for gene in genes), *others]))

    def withheld(self, key: str) -> str:
        """Return the reason for withholding a variable; empty if it may be described."""
        if key not in self._withheld:
            self._withheld[key] = self._why_withheld(key)
        return self._withheld[key]

    def _why_withheld(self, key: str) -> str:
        if not self.dictionary.has_variable(key):
            near = ", ".join(self._near(key))
            return f"the cohort has no variable of this key; near: {near or 'none'}"
        if find_variable(self.dictionary, key).late:
            return "it became known after the start of follow-up"
        if self._columns(key) & self._outcome_columns:
            return "it is read from the column of an outcome"
        return ""

    def _near(self, key: str) -> list[str]:
        import difflib

        has = [variable.key for variable in self.dictionary.variables]
        has += [f"expression:{gene}" for gene in self.dictionary.expression]
        return difflib.get_close_matches(key, has, n=4, cutoff=0.6)

    def _holds_outcome(self, key: str) -> bool:
        mine = self._parts(key)
        return any(mine & set(endpoint.contained_in) for endpoint in self.dictionary.endpoints)

    def describe(
        self,
        keys: tuple[str, ...],
        joint: tuple[str, ...] = (),
        cut: Literal["median", "tertile"] = "median",
    ) -> Description:
        """Describe distributions and rank correlations, and joint counts of two or three variables.

        A variable that includes an outcome (stage includes the nodes) is shown separately, never
        together with another variable.

        Raises
        ------
        InputError
            If `joint` does not name two or three variables that may be shown together.
        """
        keys = tuple(dict.fromkeys((*keys, *joint)))[:MOST_VARIABLES]
        reasons = {key: self.withheld(key) for key in keys}
        shown = [key for key in keys if not reasons[key]]
        table = self._table(shown)
        together = [key for key in shown if not self._holds_outcome(key)]
        return Description(
            patients=self.dictionary.n_patients,
            variables=tuple(
                Distribution(variable=key, withheld=reasons[key])
                if reasons[key]
                else self._distribution(key, table[key])
                for key in keys
            ),
            correlations=self._correlations(table, together),
            joint=self._joint(table, joint, together, cut) if joint else None,
            minimum=self.minimum,
        )

    def _distribution(self, key: str, column: pd.Series) -> Distribution:
        import numpy as np
        import pandas as pd

        patients = self.dictionary.n_patients
        found = shown_variable(find_variable(self.dictionary, key), patients, self.minimum)
        if not found.n:
            return Distribution(
                variable=key, withheld=f"fewer than {self.minimum} patients have it"
            )
        base = {
            "variable": key,
            "label": found.label,
            "kind": found.kind,
            "unit": found.unit,
            "n": found.n,
            "missing": found.missing,
        }
        if found.kind != "continuous":
            return Distribution.model_validate(base | {"levels": found.levels})
        # In order of size: the rows' own order follows the data, outcomes included, and with it the
        # last digits of a sum.
        values = np.sort(pd.to_numeric(column, errors="coerce").dropna().to_numpy(dtype=float))
        at_lowest = int((values == values.min()).sum())
        lowest = (round_count(at_lowest, self.minimum) or 0) / len(values)
        return Distribution.model_validate(
            base
            | {
                "lowest": round(min(lowest, 1.0), 2),
                "quantiles": shown_quantiles(values, self.minimum),
            }
        )

    def _correlations(self, table: pd.DataFrame, keys: list[str]) -> tuple[Correlation, ...]:
        import numpy as np

        numbers = {key: column for key in keys if (column := _numbers(table[key])) is not None}
        found = []
        for first, second in combinations(numbers, 2):
            both = numbers[first].notna() & numbers[second].notna()
            n = int(both.sum())
            if n < max(FEWEST_FOR_CORRELATION, self.minimum):
                continue
            ranks = np.vstack([numbers[item][both].rank().to_numpy() for item in (first, second)])
            ranks = ranks[:, np.lexsort(ranks)]
            if np.ptp(ranks, axis=1).min() == 0:
                continue
            rho = round(float(np.asarray(np.corrcoef(ranks))[0, 1]), 2)
            shown = round_count(n, self.minimum) or 0
            found.append(Correlation(first=first, second=second, rho=rho + 0.0, n=shown))
        return tuple(found)

    def _joint(
        self,
        table: pd.DataFrame,
        keys: tuple[str, ...],
        allowed: list[str],
        cut: Literal["median", "tertile"],
    ) -> JointCounts:
        import numpy as np

        if not 2 <= len(set(keys)) == len(keys) <= 3:
            raise InputError("joint counts require two or three different variables")
        closed = [key for key in keys if key not in allowed]
        if closed:
            raise InputError(f"{closed[0]} cannot be counted jointly with another variable")
        rows = table[list(keys)].dropna()
        coded = [_levels(rows[key], cut) for key in keys]
        names = [[name for name in item.cat.categories if (item == name).any()] for item in coded]
        shape = [len(name) for name in names]
        counts = np.zeros(shape, dtype=np.int64)
        for place in np.ndindex(*shape):
            inside = np.ones(len(rows), dtype=bool)
            for entry, levels, at in zip(coded, names, place, strict=True):
                inside &= (entry == levels[at]).to_numpy()
            counts[place] = int(inside.sum())
        hidden = suppressed_cells(counts, self.minimum)
        return JointCounts(
            variables=keys,
            cut=cut,
            cells=tuple(
                Cell(
                    levels=tuple(levels[at] for levels, at in zip(names, place, strict=True)),
                    patients=None
                    if hidden[place]
                    else round_count(int(counts[place]), self.minimum),
                )
                for place in np.ndindex(*shape)
            ),
        )

    def power(self, hypothesis: Hypothesis, rules: Rules | None = None) -> DesignPower:
        """Estimate a claim's power from its actual groups and the cohort's overall event rate.

        No error is raised: if a claim cannot be drafted, `refused` gives the reason.
        """
        try:
            contract = draft(hypothesis, self.dictionary, rules=rules, split=self.split)
            for key in _asked_for(hypothesis):
                if why := self.withheld(key):
                    raise InputError(f"{key}: {why}")
            power, exposed, reference = self._observe_power(contract)
        except InputError as error:
            return DesignPower(refused=str(error))
        small = [n for n in (exposed, reference) if n is not None and n < contract.rules.min_group]
        if small:
            least = contract.rules.min_group
            return DesignPower(refused=f"one group would have fewer than {least} patients")
        ratio, relevant = contract.scale not in DIFFERENCES, contract.relevant_effect
        seen = power.minimum_detectable
        chance = None
        if seen is not None:
            distance = math.log(seen) if ratio else seen
            chance = round(power_from_detectable(relevant, distance, contract.rules.alpha), 3)
        return DesignPower(
            exposed=exposed,
            reference=reference,
            patients=power.n,
            events=power.events,
            detectable=None if seen is None else _short(seen),
            scale=contract.scale,
            relevant=_short(math.exp(relevant) if ratio else relevant),
            power=chance,
        )

    def _observe_power(self, contract: Contract) -> tuple[Power, int | None, int | None]:
        """Compute power with the observed groups, or otherwise with groups from the dictionary.

        The share of patients with a known outcome and the event rate are those in the whole
        cohort.
        """
        import numpy as np

        hypothesis = contract.hypothesis
        plain_claim = all(self.dictionary.has_variable(use.key) for use in contract.exposures)
        if not plain_claim or not uses_groups(hypothesis):
            return contract.power, None, None
        keys = list(dict.fromkeys(_asked_for(hypothesis)))
        if len(keys) > 1 and any(self._holds_outcome(key) for key in keys):
            return contract.power, None, None
        table = self._table(keys)
        rows = table[apply_filters(table, contract.filters)]
        rows = rows.dropna(subset=[use.key for use in contract.exposures])
        if rows.empty:
            raise InputError("no patient in this population has values for all exposures")
        values = tuple(exposure_values(rows, use) for use in contract.exposures)
        pairs = zip(values, contract.exposures, strict=True)
        cuts = tuple(find_cut(pair, use) for pair, use in pairs)
        groups = expose(contract.comparison, contract.exposures, values, cuts).x
        endpoint = self._endpoint(contract.primary_test.endpoint)
        observed = endpoint.n / max(self.dictionary.n_patients, 1) * self.split.confirming
        exposed, reference = (
            round_count(round(float(np.nansum(groups == side) * observed)), self.minimum) or 0
            for side in (1, 0)
        )
        n = exposed + reference
        if not exposed or not reference:
            raise InputError("one group is empty; choose another cut rule or comparison")
        events = None if endpoint.events is None else endpoint.events / max(endpoint.n, 1) * n
        power = compute_power(
            n, events, exposed / n, endpoint.kind, contract.rules, "dictionary",
            relevant=contract.relevant, contrast=contract.power.contrast,
        )  # fmt: skip
        return power, exposed, reference

    def _endpoint(self, key: str) -> Endpoint:
        found = self.dictionary.endpoint(key)
        assert found is not None  # the contract was drafted on it
        return found


def _asked_for(hypothesis: Hypothesis) -> list[str]:
    """List the variables that define the hypothesis's population and groups."""
    return [
        *(exposure.variable for exposure in hypothesis.exposures),
        *(condition.variable for condition in hypothesis.population.filters),
    ]


def _short(value: float) -> float:
    """Round to three significant digits: enough for an aggregate, too few for a patient's value."""
    return float(f"{value:.3g}") + 0.0


def _numbers(column: pd.Series) -> pd.Series | None:
    """Convert a column to numbers; None if it contains category names."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce")
    return None if (numbers.isna() & column.notna()).any() else numbers


def _levels(column: pd.Series, cut: Literal["median", "tertile"]) -> pd.Series:
    """Convert a column to categories: cut numbers with many values, keep everything else."""
    import pandas as pd

    numbers = _numbers(column)
    if numbers is None or numbers.nunique() <= 6:
        return column.map(str).astype("category")
    if cut == "median":
        high = numbers > numbers.median()
        return pd.Series(high.map({True: "high", False: "low"}), index=column.index).astype(
            "category"
        )
    lower, upper = numbers.quantile(1 / 3), numbers.quantile(2 / 3)
    return pd.Series(
        [
            "high" if number > upper else "low" if number <= lower else "middle"
            for number in numbers
        ],
        index=column.index,
    ).astype("category")
