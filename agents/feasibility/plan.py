"""Numbers from the draft contract for the feasibility report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.core.base import View
from sage.core.errors import InputError
from sage.core.models import Name
from validation.contracts.contract import Contract, SplitRule
from validation.core.dictionary import DataDictionary
from validation.core.hypothesis import Comparison, Hypothesis
from validation.drafting.draft import draft
from validation.drafting.freezing import complete, draft_on

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort


class ContractNumbers(View):
    """Group sizes and power of the primary test in a draft contract.

    `patients` and `events` count the compared patients, after filtering and with complete
    exposures; `exposed` is the share of the exposed group among them. `terms` counts the
    terms in the adjusted model; `unadjusted` has the labels of related variables that are not
    in it, or None if no row was read. `refused` explains why no contract can be drafted; in
    that case the numbers are empty.
    """

    patients: int = 0
    events: float | None = None
    exposed: float | None = None
    detectable: float | None = None
    scale: str = ""
    kind: str = ""
    alpha: float = 0.05
    terms: int = 1
    unadjusted: dict[str, Name] | None = None
    filters: str = ""
    refused: str = ""

    @property
    def event_count(self) -> int | None:
        """Events as a whole number."""
        return None if self.events is None else round(self.events)


def contract_numbers(
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    cohort: Cohort | None = None,
    split: SplitRule | None = None,
) -> ContractNumbers:
    """Compute the numbers in the contract that would be frozen for `hypothesis`.

    With a cohort, they are the numbers that freezing would write into the contract: actual
    group sizes, events at the cohort's overall rate, and variables associated with the
    exposure, but no outcome by exposure. Without a cohort, they come from the dictionary.
    """
    try:
        if cohort is None:
            contract = draft(hypothesis, dictionary, split=split)
        else:
            contract = complete(draft_on(hypothesis, cohort, split=split), cohort)
    except InputError as error:
        return ContractNumbers(refused=str(error))
    power = contract.power
    left = {use.key: use.label for use in contract.variables if use.role == "unadjusted"}
    return ContractNumbers(
        patients=power.n,
        events=power.events,
        exposed=power.fraction_exposed,
        detectable=power.minimum_detectable,
        scale=contract.effect_name,
        kind=contract.endpoint(contract.primary_test.endpoint).kind,
        alpha=contract.rules.alpha,
        terms=_terms(contract, dictionary),
        unadjusted=None if cohort is None else left,
        filters=contract.population if contract.filters else "",
    )


def _terms(contract: Contract, dictionary: DataDictionary) -> int:
    """Count the terms in the adjusted model; exposures that jointly form groups count once."""
    exposures = len(contract.exposures)
    if contract.comparison.is_product:
        exposures += 1
    elif contract.comparison in (Comparison.EXPOSED_VS_REST, Comparison.EXTREMES):
        exposures = 1
    terms = {variable.key: variable.terms for variable in dictionary.variables}
    return exposures + sum(terms.get(key, 1) for key in contract.covariates)
