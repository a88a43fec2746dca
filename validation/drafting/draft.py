"""Drafting of a contract from a hypothesis and a data dictionary, by fixed rules.

No patient rows are read here; the only row-derived input is the relation between
variables and the exposure (`validation.drafting.balance`), never an outcome. Choices that
the hypothesis leaves open are made by convention and written into the contract, where
they can be reviewed.
"""

from __future__ import annotations

from collections.abc import Mapping

from sage.core.errors import InputError
from sage.core.printable import ForeignText, within_sentence
from validation.contracts.contract import (
    DIFFERENCES,
    Contract,
    ControlPlan,
    EndpointUse,
    KnownPositive,
    MissingRule,
    Rescale,
    Rules,
    Scale,
    SpecificationPlan,
    SplitRule,
    VariableUse,
    default_relevant,
    scale_of,
)
from validation.contracts.registered import (
    CONTINUOUS_CUTS,
    SEARCHING,
    WHOLE,
    curve_cuts,
    for_rows,
    tests_of,
    uses_groups,
)
from validation.contracts.timing import require_known
from validation.core.dictionary import DataDictionary, Endpoint, Variable
from validation.core.hypothesis import (
    Calibration,
    Comparison,
    CutRule,
    Exposure,
    Hypothesis,
    SmallestRelevant,
)
from validation.core.signature import genes_of
from validation.drafting.adjustment import Adjustment, adjust, read_arrows
from validation.drafting.balance import RELATED
from validation.drafting.power import planned_power
from validation.inputs.variables import (
    describe_use,
    find_variable,
    name_side,
    refuse_unfit_strata,
    stratum,
)

MOST_LEVELS = 12
"""Maximum number of sites used as strata by default."""
MOST_MISSING = 0.3
"""Maximum share of patients with missing values, for each proposed covariate and all together."""
FEWEST_PROPOSED = 3
"""Covariates proposed although unrelated to the exposure, since each may affect the outcome."""


def draft(
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    *,
    relation: Mapping[str, float] | None = None,
    seed: int = 0,
    alpha: float = 0.05,
    split: SplitRule | None = None,
    missing: MissingRule | None = None,
    rules: Rules | None = None,
    controls: ControlPlan | None = None,
) -> Contract:
    """Draft a hypothesis's contract for a cohort.

    Parameters
    ----------
    relation : p-value for no relation to the exposures for each baseline variable (`relate`);
        None if no rows were read
    seed : seed for every random step of the analysis (permutations, random features,
        imputation)
    alpha : two-sided level of the primary test

    Raises
    ------
    InputError
        If the cohort lacks a variable or endpoint (the message names the nearest existing
        ones), or the comparison does not fit the variables.
    """
    rules, split = (rules or Rules()).model_copy(update={"alpha": alpha}), split or SplitRule()
    endpoint = _endpoint(dictionary, hypothesis.endpoint)
    exposures = [_exposure(dictionary, exposure, hypothesis) for exposure in hypothesis.exposures]
    events = (endpoint.n if endpoint.events is None else endpoint.events) * split.confirming
    strata = _strata(hypothesis, dictionary, relation or {})
    room = int(events // rules.events_per_covariate) - 1
    covariates = _covariates(hypothesis, dictionary, endpoint, relation, set(strata), room)
    reasoned = reasoned_adjustment(hypothesis, dictionary, endpoint)
    positive = _known_positive(hypothesis, dictionary, endpoint)
    variables = [*exposures]
    variables += [describe_use(dictionary, key, "covariate") for key in covariates]
    variables += [stratum(dictionary, key, hypothesis) for key in strata]
    variables += [
        describe_use(dictionary, condition.variable, "filter")
        for condition in hypothesis.population.filters
    ]
    variables += [
        describe_use(dictionary, subgroup.variable, "filter") for subgroup in hypothesis.subgroups
    ]
    if positive is not None:
        variables.append(describe_use(dictionary, positive.variable, "known_positive"))
    for role in ("cluster", "site"):
        if (key := getattr(dictionary, role)) is not None:
            variables.append(describe_use(dictionary, key, role))
    secondary = [_endpoint(dictionary, key) for key in hypothesis.secondary_endpoints]
    _refuse_unfit_exposures(hypothesis, endpoint, secondary)
    if hypothesis.strata:
        refuse_unfit_strata(hypothesis, [endpoint, *secondary])
    require_known(hypothesis, variables, [endpoint, *secondary])
    exposed, reference = _group_names(hypothesis, dictionary, split)
    extra: list[Endpoint] = []
    if hypothesis.calibration is not None:
        _refuse_unfit_score(hypothesis.calibration, endpoint, split)
        controls = controls or ControlPlan(
            permutations=0, random_features=0, known_positive=positive
        )
    tests = tests_of(hypothesis, endpoint, secondary, covariates, strata)
    tests, lost = for_rows(tests, dictionary)
    # As in the adjusted test, variables that contain the outcome are not covariates.
    free = tuple(key for key in covariates if key not in endpoint.contained_in)
    sets = list(dict.fromkeys([(), free[:2], free]))
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
                key=item.key,
                kind=item.kind,
                label=item.label,
                coding=item.coding,
                unit=item.unit,
                entry=item.entry,
                time_zero=item.time_zero,
            )
            for item in (endpoint, *secondary, *extra)
        ),
        direction=hypothesis.direction,
        scale=_scale(hypothesis, endpoint),
        tests=tests,
        primary="primary",
        covariates=covariates,
        strata=strata,
        cluster=dictionary.cluster,
        site=dictionary.site,
        rules=rules,
        relevant=None if hypothesis.calibration else find_relevant(hypothesis, endpoint, rules),
        power=planned_power(hypothesis, dictionary, endpoint, rules, split),
        missing=missing or MissingRule(),
        split=split,
        controls=controls,
        specification=SpecificationPlan(
            cuts=curve_cuts(
                hypothesis, binary=all(exposure.kind == "binary" for exposure in exposures)
            ),
            covariate_sets=tuple(sets),
            strata_sets=(strata, ()) if strata else ((),),
            **({"follow_up_months": (None,)} if endpoint.entry else {}),
        ),
        seed=seed,
        untested=hypothesis.untested,
        notes=(
            *_notes(hypothesis, dictionary, exposures, endpoint),
            *(reasoned.lines() if reasoned is not None else ()),
            *lost,
        ),
    )


def find_relevant(hypothesis: Hypothesis, endpoint: Endpoint, rules: Rules) -> SmallestRelevant:
    """Return the smallest relevant effect named by a claim, or else the endpoint's default.

    Raises `InputError` if a ratio is not above 1.
    """
    scale = _scale(hypothesis, endpoint)
    found = hypothesis.relevant or default_relevant(hypothesis.comparison, scale, rules)
    if scale not in DIFFERENCES and not found.size > 1:
        raise InputError(f"relevant.size: a {scale} must be above 1, got {found.size:g}")
    return found


def _refuse_unfit_score(given: Calibration, endpoint: Endpoint, split: SplitRule) -> None:
    """Reject endpoints whose risk is not comparable with a score's, and misplaced horizons."""
    if endpoint.kind not in ("survival", "binary"):
        raise InputError(
            f'a calibrated score requires a survival or binary endpoint; "{endpoint.key}" is '
            f"{endpoint.kind}. With competing events, Kaplan-Meier estimates are too high"
        )
    followed = endpoint.kind == "survival"
    linear = followed and given.values == "linear"
    for name, needed in (("horizon", followed), ("baseline", linear)):
        if (getattr(given, name) is not None) != needed:
            word = "required" if needed else "not used"
            raise InputError(f"calibration.{name} is {word} for this endpoint and these `values`")
    if split.policy != "none":
        raise InputError("a published score is not fitted to these patients; omit the split")


def _scale(hypothesis: Hypothesis, endpoint: Endpoint) -> Scale:
    if hypothesis.calibration is not None:
        return "observed/expected ratio"
    if hypothesis.comparison is not Comparison.MEDIATION:
        return scale_of(endpoint.kind)
    if endpoint.kind == "competing":
        raise InputError(
            f'mediation does not support competing endpoints, and "{endpoint.key}" is competing. '
            "Use a survival, binary or continuous endpoint"
        )
    return "relative hazard difference" if endpoint.kind == "survival" else "difference (SD)"


def _endpoint(dictionary: DataDictionary, key: str) -> Endpoint:
    found = dictionary.endpoint(key)
    if found is None:
        has = ", ".join(endpoint.key for endpoint in dictionary.endpoints) or "none"
        raise InputError(
            f'cohort "{dictionary.cohort}" has no endpoint "{key}"; available endpoints: {has}'
        )
    if found.n == 0:
        raise InputError(
            f'endpoint "{key}": no patient in cohort "{dictionary.cohort}" has a value'
        )
    return found


def _exposure(
    dictionary: DataDictionary, exposure: Exposure, hypothesis: Hypothesis
) -> VariableUse:
    if exposure.signature is not None:
        measured = set(dictionary.expression)
        exposure.signature.require_measured(measured, exposure.label, dictionary.cohort)
    found = find_variable(dictionary, exposure.variable)
    if found.kind == "categorical":
        raise InputError(
            f'exposure "{exposure.variable}" is categorical; use a binary, ordinal or continuous '
            "exposure"
        )
    continuous = exposure.cut in CONTINUOUS_CUTS
    several = len(hypothesis.exposures) > 1
    apart = hypothesis.comparison.is_product or hypothesis.comparison in WHOLE
    mediator = hypothesis.comparison is Comparison.MEDIATION and exposure is hypothesis.exposures[1]
    if mediator and found.kind == "binary":
        raise InputError(
            f"mediator {exposure.label} ({exposure.variable}) is binary, but a mediator must be "
            "continuous or ordinal. List the exposure first, then the mediator"
        )
    if continuous and several and not apart:
        raise InputError(
            f'exposure {exposure.label}: cut "{exposure.cut}" cannot form joint groups; use '
            "median, tertile or fixed, or compare by interaction"
        )
    if exposure.cut in SEARCHING and apart:
        raise InputError(
            f"exposure {exposure.label}: comparison `{hypothesis.comparison}` does not support the "
            f'searched cut "{exposure.cut}"; use "continuous", median, tertile or fixed'
        )
    treatment = (
        hypothesis.comparison is Comparison.PREDICTIVE and exposure is hypothesis.exposures[1]
    )
    if treatment and found.kind != "binary":
        raise InputError(
            f"exposure {exposure.label} ({exposure.variable}) is {found.kind}; a predictive "
            "claim lists the biomarker first, then the treatment, which must be yes or no"
        )
    if continuous and hypothesis.comparison is Comparison.EXTREMES:
        raise InputError(
            f'exposure {exposure.label}: comparing extremes requires a cut, not "{exposure.cut}"'
        )
    return VariableUse(
        key=exposure.variable,
        role="exposure",
        label=exposure.label,
        kind=found.kind,
        source=found.source,
        unit=found.unit,
        transform="z_score" if continuous else "as_is",
        rescale=_rescale(exposure, found, hypothesis.comparison),
        cut=exposure.cut,
        threshold=exposure.threshold,
        level=exposure.level,
        known_at=found.known_at,
        before=found.before,
    )


def _rescale(exposure: Exposure, found: Variable, comparison: Comparison) -> Rescale | None:
    """Choose the transform for an exposure: the hypothesis's own, or log2 for a doubling."""
    doubling = comparison is Comparison.PER_DOUBLING
    if exposure.transform == "none" and not doubling:
        return None
    if found.kind in ("binary", "categorical"):
        raise InputError(
            f"exposure {exposure.label} ({exposure.variable}) is {found.kind}, so there is nothing "
            "to transform"
        )
    if exposure.transform == "rank":
        return "rank"
    logged = (found.unit or "").startswith("log2")
    if logged and doubling and exposure.transform == "none":
        return None
    if logged:
        raise InputError(
            f"exposure {exposure.label} ({exposure.variable}) is already on a logarithmic scale "
            f"({found.unit}); omit `transform`"
        )
    return "log2" if exposure.transform == "none" else exposure.transform


def _refuse_unfit_exposures(
    hypothesis: Hypothesis, endpoint: Endpoint, secondary: list[Endpoint]
) -> None:
    """Reject exposures that contain an outcome, and cut rules unfit for the primary endpoint."""
    for exposure in hypothesis.exposures:
        mine = {exposure.variable, *(f"expression:{gene}" for gene in genes_of(exposure.variable))}
        holds = [also.key for also in (endpoint, *secondary) if mine & set(also.contained_in)]
        if holds:
            raise InputError(
                f"exposure {exposure.label} ({exposure.variable}) contains the outcome "
                f'"{holds[0]}" (`contained_in`), and the outcome cannot predict itself. '
                "Choose another endpoint"
            )
        if exposure.cut in SEARCHING and endpoint.kind != "survival":
            raise InputError(
                f'exposure {exposure.label}: cut "{exposure.cut}" supports only survival '
                f'endpoints, but "{endpoint.key}" is {endpoint.kind}. Use "continuous", '
                "or another cut"
            )


def _covariates(
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    endpoint: Endpoint,
    relation: Mapping[str, float] | None,
    strata: set[str],
    room: int,
) -> tuple[str, ...]:
    """Choose the covariates.

    These are the hypothesis's own, else those implied by its causal diagram, else baseline
    variables related to the exposure and declared risk factors, with at most `room` terms.
    Empty if the hypothesis declares that there is nothing to adjust for.
    """
    if hypothesis.unadjusted_because or hypothesis.calibration is not None:
        return ()
    taken = {exposure.variable for exposure in hypothesis.exposures} | set(hypothesis.strata)
    reasoned = reasoned_adjustment(hypothesis, dictionary, endpoint)
    if reasoned is not None and not hypothesis.covariates:
        return tuple(key for key in reasoned.covariates or () if key not in taken)
    fixed = _fixed_variables(hypothesis)
    if hypothesis.covariates:
        for key in hypothesis.covariates:
            find_variable(dictionary, key)
        return tuple(key for key in hypothesis.covariates if key not in taken | fixed)
    taken |= fixed | strata | set(endpoint.contained_in)
    found: list[str] = []
    complete = 1.0
    for variable in _candidates(dictionary, relation):
        if variable.key in taken:
            continue
        p = 0.0 if relation is None else relation[variable.key]
        known = variable.key in dictionary.risk_factors
        if p >= RELATED and not known and len(found) >= FEWEST_PROPOSED:
            break
        if variable.terms <= room and complete * (1 - variable.missing) >= 1 - MOST_MISSING:
            found.append(variable.key)
            room, complete = room - variable.terms, complete * (1 - variable.missing)
    return tuple(found)


def _candidates(dictionary: DataDictionary, relation: Mapping[str, float] | None) -> list[Variable]:
    """Return clinical variables known at baseline, by relation to the exposure or to the outcome.

    Variables related to the exposure come first, then declared risk factors, then the others.
    """
    found = [
        variable
        for variable in dictionary.variables
        if variable.modality == "clinical"
        and variable.known_at == "baseline"
        and variable.key not in (dictionary.cluster, dictionary.site)
        and (relation is None or variable.key in relation)
    ]
    known = {key: place for place, key in enumerate(dictionary.risk_factors)}
    order = {variable.key: (relation or {}).get(variable.key, 1.0) for variable in found}
    return sorted(
        found,
        key=lambda item: (
            order[item.key] >= RELATED,
            known.get(item.key, len(known)),
            order[item.key],
        ),
    )


def _fixed_variables(hypothesis: Hypothesis) -> set[str]:
    """Return the variables that the population's filters restrict to a single value."""
    filters = hypothesis.population.filters
    return {condition.variable for condition in filters if condition.op == "eq"}


def reasoned_adjustment(
    hypothesis: Hypothesis, dictionary: DataDictionary, endpoint: Endpoint
) -> Adjustment | None:
    """Return the adjustment implied by the hypothesis's causal diagram; None without a diagram."""
    if not hypothesis.causes:
        return None
    return adjust(
        hypothesis.causes,
        [exposure.variable for exposure in hypothesis.exposures],
        endpoint.key,
        measured=[
            name
            for edge in read_arrows(hypothesis.causes)
            for name in edge
            if dictionary.has_variable(name)
        ],
        chosen=hypothesis.covariates,
    )


def _strata(
    hypothesis: Hypothesis, dictionary: DataDictionary, relation: Mapping[str, float]
) -> tuple[str, ...]:
    """Choose the strata: the hypothesis's own, else the unordered groups most related to exposure.

    Sites of treatment or measurement differ in survival and in measurement; comparing
    patients within them avoids both biases.
    """
    rules = {exposure.cut for exposure in hypothesis.exposures}
    kinds = [_endpoint(dictionary, key) for key in
             (hypothesis.endpoint, *hypothesis.secondary_endpoints)]  # fmt: skip
    fits = all(endpoint.kind == "survival" for endpoint in kinds) and CutRule.OPTIMAL not in rules
    declared = dictionary.site is not None  # the site then has a test of its own
    reasoned = hypothesis.unadjusted_because or hypothesis.causes
    if hypothesis.strata or reasoned or declared or not fits or hypothesis.calibration:
        return hypothesis.strata
    taken = {exposure.variable for exposure in hypothesis.exposures} | set(hypothesis.covariates)
    taken |= _fixed_variables(hypothesis) | {key for item in kinds for key in item.contained_in}
    for variable in _candidates(dictionary, relation):
        few = 2 <= len(variable.levels) <= MOST_LEVELS and variable.missing <= MOST_MISSING
        apart = variable.kind == "categorical" and variable.key not in taken
        if few and apart and relation[variable.key] < RELATED:
            return (variable.key,)
    return ()


def _known_positive(
    hypothesis: Hypothesis, dictionary: DataDictionary, endpoint: Endpoint
) -> KnownPositive | None:
    taken = {exposure.variable for exposure in hypothesis.exposures}
    taken |= _fixed_variables(hypothesis)
    survival = endpoint if endpoint.kind == "survival" else None
    if survival is None:
        survival = next(
            (endpoint for endpoint in dictionary.endpoints if endpoint.kind == "survival"), None
        )
    if survival is None:
        return None
    for key in dictionary.risk_factors:
        found = find_variable(dictionary, key)
        if key not in taken and not found.late:
            return KnownPositive(
                variable=key,
                endpoint=survival.key,
                label=f"{found.label} with {survival.label or survival.key}",
            )
    return None


def _group_names(
    hypothesis: Hypothesis, dictionary: DataDictionary, split: SplitRule
) -> tuple[str, str]:
    known = dictionary.variables
    exposed = " and ".join(name_side(exposure, known) for exposure in hypothesis.exposures)
    if hypothesis.comparison in (Comparison.PREDICTIVE, Comparison.MODIFICATION):
        first, second = hypothesis.exposures
        predictive = hypothesis.comparison is Comparison.PREDICTIVE
        effect, modifier = (second, first) if predictive else (first, second)
        of = effect.label if effect.level == "high" or predictive else f"low {effect.label}"
        if modifier.cut is CutRule.CONTINUOUS:
            more = f"per standard deviation of {modifier.level}er {modifier.label}"
            return f"effect of {of}, {more}", f"effect of {of} at the mean"
        sides = (name_side(modifier, known), name_side(modifier, known, other=True))
        return f"effect of {of} with {sides[0]}", f"effect of {of} with {sides[1]}"
    if hypothesis.comparison is Comparison.INTERACTION:
        joint = " by ".join(name_side(exposure, known) for exposure in hypothesis.exposures)
        return f"{joint} (interaction)", "the sum of the two effects"
    if hypothesis.comparison is Comparison.MEDIATION:
        named = [f"{each.level} {within_sentence(each.label)}" for each in hypothesis.exposures]
        return " through ".join(named), "the exposure's direct effect alone"
    if hypothesis.calibration is not None:
        label = within_sentence(hypothesis.exposures[0].label)
        return f"risks predicted by {label}", "observed risks"
    if hypothesis.comparison is Comparison.ADDED:
        first, second = hypothesis.exposures
        added = f"{name_side(second, known)} beside {first.label}"
        if second.cut is not CutRule.CONTINUOUS:
            return added, name_side(second, known, other=True)
        other_side = "higher" if second.level == "low" else "lower"
        return f"{added} (per standard deviation)", f"one standard deviation {other_side}"
    if hypothesis.comparison is Comparison.COMBINED:
        if hypothesis.penalty is not None:
            score = f"{hypothesis.penalty} score of {len(hypothesis.exposures)} markers"
            return f"{score} (per standard deviation)", "one standard deviation lower"
        return f"{exposed}, jointly (per standard deviation of their mean)", "one lower"
    if hypothesis.comparison in (Comparison.TREND, Comparison.PER_DOUBLING):
        low = hypothesis.exposures[0].level == "low"
        if hypothesis.comparison is Comparison.PER_DOUBLING:
            per, other_side = ("halving", "twice as much") if low else ("doubling", "half as much")
        else:
            per, other_side = "step", "one group higher" if low else "one group lower"
        return f"{exposed} (per {per})", other_side
    if hypothesis.comparison is Comparison.PER_SD or not uses_groups(hypothesis):
        low = all(exposure.level == "low" for exposure in hypothesis.exposures)
        other_side = "higher" if low else "lower"
        whose = "" if split.policy == "none" else " of the exploring patients"
        return f"{exposed} (per standard deviation{whose})", f"one standard deviation {other_side}"
    if hypothesis.comparison is Comparison.EXTREMES:
        return exposed, " and ".join(
            name_side(exposure, known, other=True) for exposure in hypothesis.exposures
        )
    first = hypothesis.exposures[0]
    if len(hypothesis.exposures) == 1 and first.cut is not CutRule.TERTILE:
        return exposed, name_side(first, known, other=True)
    return exposed, "all others"


def _notes(
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    exposures: list[VariableUse],
    endpoint: Endpoint,
) -> tuple[str, ...]:
    notes = []
    doubled = hypothesis.comparison is Comparison.PER_DOUBLING
    if dictionary.simulated:
        notes.append("SIMULATED cohort: no statement about patients follows from it")
    for exposure in exposures:
        found = find_variable(dictionary, exposure.key)
        if found.note:
            notes.append(f"{found.label}: {found.note}")
        if exposure.rescale is None and doubled:
            notes.append(f"{exposure.label}: a doubling is one unit of {found.unit}")
    if endpoint.note:
        notes.append(f"{endpoint.label}: {endpoint.note}")
    notes += [f"{dictionary.cohort}: {ForeignText(note.rstrip('.'))}" for note in dictionary.notes]
    return tuple(notes)
