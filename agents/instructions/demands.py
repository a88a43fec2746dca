"""Covariates required by feasibility, added to the contract or refused with a reason."""

from __future__ import annotations

from agents.core.base import View
from sage.core.models import Name
from sage.core.printable import join_names, within_sentence
from validation.contracts.contract import Rules
from validation.core.dictionary import DataDictionary, Variable
from validation.core.hypothesis import Hypothesis
from validation.drafting.draft import MOST_MISSING


class Taken(View):
    """A required covariate that is in the contract."""

    variable: str
    label: Name


class NotTaken(Taken):
    """A required covariate that is not in the contract, and the reason."""

    reason: str


class Demands(View):
    """Covariates required by feasibility, either in the contract or refused with a reason."""

    taken: tuple[Taken, ...] = ()
    not_taken: tuple[NotTaken, ...] = ()

    @property
    def added(self) -> str:
        """Labels of the required covariates that are in the contract, joined for a sentence."""
        return join_names(within_sentence(item.label) for item in self.taken)


def take_up(
    hypothesis: Hypothesis,
    demanded: tuple[str, ...],
    dictionary: DataDictionary,
    rules: Rules | None = None,
) -> tuple[Hypothesis, Demands]:
    """Add required covariates as far as data and events allow, and report on each of them."""
    rules = rules or Rules()
    endpoint = dictionary.endpoint(hypothesis.endpoint)
    events = 0 if endpoint is None else endpoint.n if endpoint.events is None else endpoint.events
    variables = {variable.key: variable for variable in dictionary.variables}
    covariates = list(hypothesis.covariates)
    taken, refused = [], []
    for key in dict.fromkeys(demanded):
        label = variables[key].label if key in variables else key
        reason = _unfit(key, hypothesis, variables.get(key), dictionary)
        if key not in covariates and not reason:
            terms = len(hypothesis.exposures) + sum(
                variables[covariate].terms if covariate in variables else 1
                for covariate in (*covariates, key)
            )
            if events < rules.events_per_covariate * terms:
                reason = (
                    f"{events} events are too few for {terms} terms in the adjusted model "
                    f"({rules.events_per_covariate:g} events per term)"
                )
        if reason:
            refused.append(NotTaken(variable=key, label=label, reason=reason))
            continue
        taken.append(Taken(variable=key, label=label))
        if key not in covariates and key not in hypothesis.strata:
            covariates.append(key)
    settled = hypothesis.model_dump() | {"covariates": tuple(covariates)}
    return (
        Hypothesis.model_validate(settled),
        Demands(taken=tuple(taken), not_taken=tuple(refused)),
    )


def _unfit(
    key: str, hypothesis: Hypothesis, variable: Variable | None, dictionary: DataDictionary
) -> str:
    if key in {exposure.variable for exposure in hypothesis.exposures}:
        return "it is an exposure of the claim"
    if not dictionary.has_variable(key):
        return "it is not in the cohort"
    endpoint = dictionary.endpoint(hypothesis.endpoint)
    if endpoint is not None and key in endpoint.contained_in:
        return "it contains the outcome"
    if any(
        condition.variable == key and condition.op == "eq"
        for condition in hypothesis.population.filters
    ):
        return "every patient of the population has the same value"
    if variable is not None and variable.missing > MOST_MISSING:
        return "it is missing in too many patients"
    return ""
