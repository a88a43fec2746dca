"""Variables from a data dictionary, as a contract uses them."""

from __future__ import annotations

from collections.abc import Iterable

from sage.core.errors import InputError
from sage.core.printable import within_sentence
from validation.contracts.contract import VariableUse
from validation.contracts.registered import CONTINUOUS_CUTS
from validation.core.dictionary import (
    DataDictionary,
    Endpoint,
    Variable,
    find_levels,
    split_level_key,
)
from validation.core.hypothesis import CutRule, Exposure, Hypothesis
from validation.core.signature import WORDS, GeneSignature, read_signature
from validation.inputs.population import two_levels


def find_variable(dictionary: DataDictionary, key: str) -> Variable:
    """Find the dictionary entry for a variable or gene.

    Raises `InputError` with the nearest keys if there is no such variable.
    """
    import difflib

    for variable in dictionary.variables:
        if variable.key == key:
            return variable
    if (levels := find_levels(dictionary.variables, key)) is not None:
        return levels
    if dictionary.has_variable(key):
        signature = read_signature(key)
        label, source = f"{key.removeprefix('expression:')} expression", "expression matrix"
        if signature is not None:
            label, source = signature.text, _describe_coverage(signature, dictionary)
        return Variable(
            key=key,
            label=label,
            modality="expression" if signature is None else "derived",
            kind="continuous",
            unit=dictionary.expression_unit if signature is None else WORDS[signature.method],
            source=source,
            note="" if signature is None else source,
            known_at=dictionary.expression_known_at,
            n=dictionary.expression_n,
            missing=round(1 - dictionary.expression_n / max(dictionary.n_patients, 1), 4),
        )
    has = [variable.key for variable in dictionary.variables]
    has += [f"expression:{gene}" for gene in dictionary.expression]
    near = difflib.get_close_matches(key, has, n=5, cutoff=0.5) or has[:8]
    raise InputError(
        f'cohort "{dictionary.cohort}" has no variable "{key}"; similar: '
        f"{', '.join(near) or 'none'}"
    )


def name_side(exposure: Exposure, variables: Iterable[Variable], *, other: bool = False) -> str:
    """Name an exposure group: its level if the exposure has two levels, else high or low."""
    high = (exposure.level == "high") != other
    label = within_sentence(exposure.label)
    labels = {variable.key: variable for variable in variables}
    if (split := split_level_key(exposure.variable)) is not None:
        base = labels.get(split[0])
        return label if high else f"another {within_sentence(base.label if base else split[0])}"
    found = labels.get(exposure.variable)
    levels = two_levels(found.levels) if found is not None and found.kind == "binary" else None
    if levels is not None:
        return f"{label} = {levels[high]}"
    side = "high" if high else "low"
    return f"{side}{'er' if exposure.cut in CONTINUOUS_CUTS else ''} {label}"


def _describe_coverage(signature: GeneSignature, dictionary: DataDictionary) -> str:
    """Describe how many genes in a score are measured, and which are missing."""
    held, lacking = signature.split_measured(set(dictionary.expression))
    found = f"{WORDS[signature.method]} of {len(held)} of {len(signature.genes)} genes"
    return f"{found}; not measured: {', '.join(lacking)}" if lacking else found


def describe_use(dictionary: DataDictionary, key: str, role: str) -> VariableUse:
    """Describe a variable in a contract role, on the scale required by that role."""
    found = find_variable(dictionary, key)
    transform = "as_is"
    if role in ("covariate", "unadjusted"):
        transform = "z_score" if found.kind in ("continuous", "ordinal") else "indicator"
    return VariableUse.model_validate(
        {
            "key": key,
            "role": role,
            "label": found.label,
            "kind": found.kind,
            "source": found.source,
            "unit": found.unit,
            "transform": transform,
            "known_at": found.known_at,
            "before": found.before,
        }
    )


def stratum(dictionary: DataDictionary, key: str, hypothesis: Hypothesis) -> VariableUse:
    """Return a variable for stratification, with any number of levels, not fixed by the population.

    Raises `InputError` with the remedy if it is continuous or does not vary.
    """
    found = find_variable(dictionary, key)
    if found.kind == "continuous":
        raise InputError(
            f'stratum "{key}" is continuous; make it a covariate, or stratify by a variable with '
            "levels"
        )
    if any(
        condition.variable == key and condition.op == "eq"
        for condition in hypothesis.population.filters
    ):
        raise InputError(f'stratum "{key}" has only one value in this population; remove it')
    return describe_use(dictionary, key, "stratum")


def refuse_unfit_strata(hypothesis: Hypothesis, endpoints: list[Endpoint]) -> None:
    """Reject strata if an endpoint or cut rule cannot be stratified.

    Raises `InputError` with an alternative.
    """
    for endpoint in endpoints:
        if endpoint.kind != "survival":
            raise InputError(
                f'strata require survival endpoints, but "{endpoint.key}" is {endpoint.kind}. '
                f"Use {', '.join(hypothesis.strata)} as covariates instead"
            )
        contained = sorted(set(hypothesis.strata) & set(endpoint.contained_in))
        if contained:
            raise InputError(f'stratum "{contained[0]}" is part of the outcome "{endpoint.key}"')
    searched = [
        exposure.label for exposure in hypothesis.exposures if exposure.cut is CutRule.OPTIMAL
    ]
    if searched:
        raise InputError(
            f'exposure "{searched[0]}": an optimal cut cannot be searched within strata; use '
            '"continuous" or a fixed rule'
        )
