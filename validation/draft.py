"""From a hypothesis and a data dictionary to a contract, by fixed rules.

Nothing here sees a patient's row. What the hypothesis leaves open is filled by convention and
written into the contract, where it can be reviewed.
"""

from __future__ import annotations

import math

from validation.contract import (
    Contract,
    ControlPlan,
    EndpointUse,
    KnownPositive,
    MissingRule,
    Power,
    Rules,
    Scale,
    SpecificationPlan,
    SplitRule,
    VariableUse,
)
from validation.dictionary import DataDictionary, Endpoint, Variable
from validation.errors import InputError
from validation.hypothesis import Comparison, CutRule, Direction, Exposure, Filter, Hypothesis
from validation.registered import CONTINUOUS_CUTS, SEARCHING, curve_cuts, tests_of, uses_groups

STANDARD_COVARIATES = (
    ("clinical:age",),
    ("clinical:gender", "clinical:sex"),
    ("clinical:stage", "clinical:tumor_stage", "clinical:ajcc_pathologic_stage"),
)
STAGE_LIKE = (
    "clinical:stage",
    "clinical:tumor_stage",
    "clinical:ajcc_pathologic_stage",
    "clinical:positive_nodes",
    "clinical:tumor_grade",
)


def draft(
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    *,
    seed: int = 0,
    alpha: float = 0.05,
    split: SplitRule | None = None,
    missing: MissingRule | None = None,
    rules: Rules | None = None,
    controls: ControlPlan | None = None,
) -> Contract:
    """Write the contract of a hypothesis on a cohort.

    Parameters
    ----------
    seed : drives every random step of the analysis (permutations, random features, imputation)
    alpha : two-sided level of the primary test

    Raises
    ------
    InputError
        If the cohort lacks a variable or endpoint, or the comparison does not fit the variables;
        the message names the nearest ones that exist.
    """
    rules = (rules or Rules()).model_copy(update={"alpha": alpha})
    endpoint = _endpoint(dictionary, hypothesis.endpoint)
    exposures = [_exposure(dictionary, one, hypothesis) for one in hypothesis.exposures]
    covariates = _covariates(hypothesis, dictionary, endpoint, rules)
    positive = _known_positive(hypothesis, dictionary, endpoint)
    variables = [*exposures]
    variables += [_use(dictionary, key, "covariate") for key in covariates]
    variables += [_use(dictionary, one.variable, "filter") for one in hypothesis.population.filters]
    variables += [_use(dictionary, one.variable, "filter") for one in hypothesis.subgroups]
    if positive is not None:
        variables.append(_use(dictionary, positive.variable, "known_positive"))
    secondary = [_endpoint(dictionary, key) for key in hypothesis.secondary_endpoints]
    exposed, reference = _group_names(hypothesis)
    extra: list[Endpoint] = []
    tests = tests_of(hypothesis, endpoint, secondary, covariates)
    sets = list(dict.fromkeys([(), covariates[:2], covariates]))
    if controls is None:
        negative = hypothesis.negative_endpoint
        if negative is not None and _endpoint(dictionary, negative).kind != endpoint.kind:
            raise InputError(
                f'negative_endpoint "{negative}" is not of the same kind as "{endpoint.key}"'
            )
        controls = ControlPlan(known_positive=positive, negative_endpoint=negative)
        if negative is not None:
            extra = [_endpoint(dictionary, negative)]
    return Contract(
        cohort=dictionary.cohort,
        simulated=dictionary.simulated,
        hypothesis=hypothesis,
        population=hypothesis.population.description,
        filters=hypothesis.population.filters,
        variables=tuple(variables),
        comparison=hypothesis.comparison,
        exposed=exposed,
        reference=reference,
        endpoints=tuple(
            EndpointUse(
                key=one.key, kind=one.kind, label=one.label, coding=one.coding, unit=one.unit
            )
            for one in (endpoint, *secondary, *extra)
        ),
        direction=hypothesis.direction,
        scale=scale_of(endpoint.kind),
        tests=tests,
        primary="primary",
        covariates=covariates,
        rules=rules,
        power=planned_power(hypothesis, dictionary, endpoint, rules),
        missing=missing or MissingRule(),
        split=split or SplitRule(),
        controls=controls,
        specification=SpecificationPlan(cuts=curve_cuts(hypothesis), covariate_sets=tuple(sets)),
        seed=seed,
        untested=hypothesis.untested,
        notes=_notes(dictionary, exposures, endpoint),
    )


def scale_of(kind: str) -> Scale:
    """On which scale an endpoint's effect is reported."""
    scales: dict[str, Scale] = {
        "survival": "hazard ratio",
        "competing": "hazard ratio",
        "binary": "odds ratio",
        "continuous": "difference (SD)",
    }
    return scales[kind]


def exposed_fraction(hypothesis: Hypothesis) -> tuple[float, float]:
    """Expected share of patients in the exposed and in the reference group.

    Exposures count as independent here; `freeze` replaces this by the observed sizes.
    """
    share = 1.0
    for one in hypothesis.exposures:
        share *= 1 / 3 if one.cut is CutRule.TERTILE else 0.5
    if hypothesis.comparison is Comparison.EXTREMES:
        return share, share
    return share, 1 - share


def planned_power(
    hypothesis: Hypothesis, dictionary: DataDictionary, endpoint: Endpoint, rules: Rules
) -> Power:
    """Power from the dictionary's counts: complete patients, expected events, expected groups."""
    share = 1.0
    for one in hypothesis.population.filters:
        share *= _kept_by(dictionary, one)
    known = [_n(dictionary, one.variable) for one in hypothesis.exposures]
    n = int(min([endpoint.n, *known]) * share)
    exposed, reference = exposed_fraction(hypothesis)
    grouped = uses_groups(hypothesis)
    analyzed = int(n * (exposed + reference)) if grouped else n
    events = None if endpoint.events is None else endpoint.events / max(endpoint.n, 1) * analyzed
    fraction = exposed / (exposed + reference) if grouped else None
    return power_of(
        analyzed, events, fraction, endpoint.kind, rules, hypothesis.comparison, "dictionary"
    )


def power_of(
    n: int,
    events: float | None,
    fraction: float | None,
    kind: str,
    rules: Rules,
    comparison: Comparison,
    basis: str,
) -> Power:
    """Minimum detectable effect and required events for given sizes (no outcome values)."""
    from validation.statistics.power import (
        events_needed,
        minimum_detectable_hr,
        minimum_detectable_or,
    )

    note = ""
    sd = None if fraction is not None else 1.0
    if comparison is Comparison.INTERACTION:
        fraction, sd = None, 0.5
        note = "interaction of two halves: the product term's standard deviation is about one half"
    detectable: float | None = None
    required: int | None = None
    if kind in ("survival", "competing") and events:
        count = max(1, round(events))
        detectable = minimum_detectable_hr(count, fraction, rules.alpha, 0.8, sd=sd)
        required = events_needed(rules.relevant_ratio, fraction, rules.alpha, 0.8, sd=sd)
    elif kind == "binary" and events and 0 < round(events) < n:
        share = fraction if fraction is not None else 0.5
        detectable = minimum_detectable_or(n, round(events), share, rules.alpha, 0.8)
        note = note or ("" if fraction is not None else "as for two halves")
    elif kind == "continuous" and n > 4:
        share = fraction if fraction is not None else 0.5
        detectable = 2.8016 / math.sqrt(n * share * (1 - share))
        note = "difference in standard deviations, normal approximation at 5% two-sided"
    return Power.model_validate(
        {
            "n": n,
            "events": None if events is None else round(events, 1),
            "fraction_exposed": None if fraction is None else round(fraction, 4),
            "minimum_detectable": None if detectable is None else round(detectable, 4),
            "required_events": required,
            "basis": basis,
            "note": note,
        }
    )


def _endpoint(dictionary: DataDictionary, key: str) -> Endpoint:
    found = dictionary.endpoint(key)
    if found is None:
        has = ", ".join(one.key for one in dictionary.endpoints) or "none"
        raise InputError(f'cohort "{dictionary.cohort}" has no endpoint "{key}"; it has: {has}')
    if found.n == 0:
        raise InputError(f'endpoint "{key}": no patient of cohort "{dictionary.cohort}" has it')
    return found


def find_variable(dictionary: DataDictionary, key: str) -> Variable:
    """The dictionary's entry of a variable, genes included.

    Raises
    ------
    InputError
        With the nearest keys, if there is none.
    """
    import difflib

    for one in dictionary.variables:
        if one.key == key:
            return one
    if dictionary.has(key):
        return Variable(
            key=key,
            label=f"{key.removeprefix('expression:')} expression",
            modality="expression",
            kind="continuous",
            unit=dictionary.expression_unit,
            source="expression matrix",
            n=dictionary.expression_n,
            missing=round(1 - dictionary.expression_n / max(dictionary.n_patients, 1), 4),
        )
    has = [one.key for one in dictionary.variables]
    has += [f"expression:{gene}" for gene in dictionary.expression]
    near = difflib.get_close_matches(key, has, n=5, cutoff=0.5) or has[:8]
    raise InputError(
        f'cohort "{dictionary.cohort}" has no variable "{key}"; near: {", ".join(near) or "none"}'
    )


def _n(dictionary: DataDictionary, key: str) -> int:
    return find_variable(dictionary, key).n


def _exposure(dictionary: DataDictionary, one: Exposure, hypothesis: Hypothesis) -> VariableUse:
    found = find_variable(dictionary, one.variable)
    if found.kind == "categorical":
        raise InputError(
            f'exposure "{one.variable}" is categorical; use a binary, ordinal or continuous one'
        )
    continuous = one.cut in CONTINUOUS_CUTS
    several = len(hypothesis.exposures) > 1
    if continuous and several and hypothesis.comparison is not Comparison.INTERACTION:
        raise InputError(
            f'exposure "{one.label}": cut "{one.cut}" cannot form joint groups; use median, '
            "tertile or fixed, or compare by interaction"
        )
    if one.cut in SEARCHING and hypothesis.comparison is Comparison.INTERACTION:
        raise InputError(f'exposure "{one.label}": an interaction takes "continuous" or a cut')
    if continuous and hypothesis.comparison is Comparison.EXTREMES:
        raise InputError(f'exposure "{one.label}": extremes need a cut, not "{one.cut}"')
    return VariableUse(
        key=one.variable,
        role="exposure",
        label=one.label,
        kind=found.kind,
        source=found.source,
        unit=found.unit,
        transform="z_score" if continuous else "as_is",
        cut=one.cut,
        threshold=one.threshold,
        level=one.level,
    )


def _use(dictionary: DataDictionary, key: str, role: str) -> VariableUse:
    found = find_variable(dictionary, key)
    transform = "as_is"
    if role == "covariate":
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
        }
    )


def _covariates(
    hypothesis: Hypothesis, dictionary: DataDictionary, endpoint: Endpoint, rules: Rules
) -> tuple[str, ...]:
    """The hypothesis' own, else age, sex and stage where known; never more than events allow."""
    taken = {one.variable for one in hypothesis.exposures}
    fixed = {one.variable for one in hypothesis.population.filters if one.op == "eq"}
    if hypothesis.covariates:
        for key in hypothesis.covariates:
            find_variable(dictionary, key)
        return tuple(key for key in hypothesis.covariates if key not in taken | fixed)
    found = []
    for names in STANDARD_COVARIATES:
        one = next((key for key in names if dictionary.has(key)), None)
        if one is None or one in taken | fixed:
            continue
        if find_variable(dictionary, one).missing <= 0.3:
            found.append(one)
    events = endpoint.events if endpoint.events is not None else endpoint.n
    room = max(0, int(events // rules.events_per_covariate) - 1)
    return tuple(found[:room])


def _known_positive(
    hypothesis: Hypothesis, dictionary: DataDictionary, endpoint: Endpoint
) -> KnownPositive | None:
    taken = {one.variable for one in hypothesis.exposures}
    survival = endpoint if endpoint.kind == "survival" else None
    if survival is None:
        survival = next((one for one in dictionary.endpoints if one.kind == "survival"), None)
    if survival is None:
        return None
    for key in STAGE_LIKE:
        if dictionary.has(key) and key not in taken:
            found = find_variable(dictionary, key)
            if found.kind in ("ordinal", "continuous"):
                return KnownPositive(
                    variable=key,
                    endpoint=survival.key,
                    label=f"{found.label} with {survival.label or survival.key}",
                )
    return None


def _group_names(hypothesis: Hypothesis) -> tuple[str, str]:
    exposed = " and ".join(f"{one.label} {one.level}" for one in hypothesis.exposures)
    if hypothesis.comparison is Comparison.INTERACTION:
        joint = " by ".join(f"{one.label} {one.level}" for one in hypothesis.exposures)
        return f"{joint} (interaction)", "the sum of the two effects"
    if hypothesis.comparison is Comparison.PER_SD or not uses_groups(hypothesis):
        return f"{exposed} (per standard deviation)", "one standard deviation lower"
    if hypothesis.comparison is Comparison.EXTREMES:
        other = {"high": "low", "low": "high"}
        return exposed, " and ".join(
            f"{one.label} {other[one.level]}" for one in hypothesis.exposures
        )
    return exposed, "all others"


def _kept_by(dictionary: DataDictionary, one: Filter) -> float:
    """Share of patients that a filter keeps, as far as the dictionary's levels tell."""
    found = find_variable(dictionary, one.variable)
    total = sum(found.levels.values())
    if not total:
        return 1 - found.missing
    values = one.value if isinstance(one.value, tuple) else (one.value,)
    texts = {_text(value) for value in values}
    matched = sum(count for level, count in found.levels.items() if level in texts)
    if one.op in ("eq", "in"):
        if not matched:
            raise InputError(
                f"the population keeps nobody: {one.variable} {one.op} {one.value!r}; levels are "
                f"{', '.join(f'{level} ({count})' for level, count in found.levels.items())}"
            )
        return matched / total * (1 - found.missing)
    if one.op == "ne":
        return (total - matched) / total * (1 - found.missing)
    return 1 - found.missing


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _notes(
    dictionary: DataDictionary, exposures: list[VariableUse], endpoint: Endpoint
) -> tuple[str, ...]:
    notes = []
    if dictionary.simulated:
        notes.append("SIMULATED cohort: no statement about patients follows from it")
    for one in exposures:
        found = find_variable(dictionary, one.key)
        if found.note:
            notes.append(f"{found.label}: {found.note}")
    if endpoint.note:
        notes.append(f"{endpoint.label}: {endpoint.note}")
    return tuple(notes)


__all__ = ["Direction", "draft", "find_variable", "planned_power", "power_of"]
