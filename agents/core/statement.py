"""Generated statement of a hypothesis, and phrases for its parts.

The fields define the test. Labels come from the data dictionary and the description of
the population from its filters, so that no sentence can name a variable that is not
compared.
"""

from __future__ import annotations

import re

from agents.core.types import DictionaryView
from sage.core.printable import ForeignText, join_names, within_sentence
from validation.contracts.registered import uses_groups
from validation.core.dictionary import DataDictionary, Variable, find_levels
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Direction,
    Exposure,
    Filter,
    Hypothesis,
    Population,
    describe_outcome,
)
from validation.inputs.variables import name_side

Known = DataDictionary | DictionaryView
OPERATORS = {
    "eq": "is",
    "ne": "is not",
    "in": "is one of",
    "lt": "is below",
    "le": "is at most",
    "gt": "is above",
    "ge": "is at least",
    "present": "is known",
}


def label_of(key: str, known: Known) -> str:
    """Return a variable's label from the data dictionary, for use in a sentence."""
    kind, _, name = key.partition(":")
    if kind == "expression":
        return ForeignText(f"{name} expression")
    found = _variable(key, known)
    return within_sentence(found.label) if found is not None and found.label else ForeignText(key)


def settle_fields(hypothesis: Hypothesis, known: Known) -> Hypothesis:
    """Return the hypothesis with labels, population and statement generated from its fields."""
    exposures = tuple(
        exposure
        if exposure.signature is not None
        else exposure.model_copy(update={"label": label_of(exposure.variable, known)})
        for exposure in hypothesis.exposures
    )
    filters = hypothesis.population.filters
    described = f"all patients of {known.cohort}"
    if filters:
        described = f"patients of {known.cohort} whose {_conditions(filters, known)}"
    settled = hypothesis.model_copy(
        update={
            "exposures": exposures,
            "population": Population(description=described, filters=filters),
        }
    )
    return settled.model_copy(update={"statement": write_statement(settled, known)})


def add_statement(hypothesis: Hypothesis, known: Known) -> Hypothesis:
    """Fill in the statement of a hypothesis from its fields if it has none."""
    if hypothesis.statement:
        return hypothesis
    return hypothesis.model_copy(update={"statement": write_statement(hypothesis, known)})


def write_statement(hypothesis: Hypothesis, known: Known) -> str:
    """Write the claim: the patients, the comparison and the outcome.

    The endpoints of a hierarchy are listed in order.
    """
    claim = _write_claim(hypothesis, known)
    if not hypothesis.hierarchy:
        return claim
    later = [
        _outcome(hypothesis.model_copy(update={"endpoint": key}), known)
        for key in hypothesis.secondary_endpoints
    ]
    more = f"if that is supported, the same is claimed, in this order, of {join_names(later)}"
    return f"{claim.rstrip('.')}; {more}."


def _write_claim(hypothesis: Hypothesis, known: Known) -> str:
    place = f"In {known.cohort}"
    if hypothesis.population.filters:
        place += f", among patients whose {_conditions(hypothesis.population.filters, known)}"
    names = [_name_exposure(exposure, known) for exposure in hypothesis.exposures]
    outcome, first = _outcome(hypothesis, known), hypothesis.exposures[0]
    sides = [_write_side(exposure, known, formula=True) for exposure in hypothesis.exposures]
    words = " combined with ".join(sides)
    more = "higher" if first.level == "high" else "lower"
    match hypothesis.comparison:
        case Comparison.INTERACTION:
            return f"{place}, {words} goes with {outcome} beyond the sum of the two effects."
        case Comparison.PREDICTIVE | Comparison.MODIFICATION:
            return f"{place}, {_write_modification(hypothesis, known, names)}."
        case Comparison.MEDIATION:
            side, through = sides
            return f"{place}, {side} goes with {outcome} in part through {through}."
        case Comparison.CALIBRATED:
            return f"{place}, {names[0]} {_write_calibration(hypothesis, known)}."
        case Comparison.ADDED:
            base, added = names
            adds = f"{added} {'add' if _plural(added) else 'adds'} to {base}"
            return f"{place}, {adds}: at the same {base}, {sides[1]} goes with {outcome}."
        case Comparison.COMBINED:
            beyond = [label_of(key, known) for key in hypothesis.covariates]
            more = f" beyond {join_names(beyond)}" if beyond else ""
            if hypothesis.penalty is not None:
                score = f"cross-validated {hypothesis.penalty} score of {join_names(names)}"
                return f"{place}, a higher {score} goes with {outcome}{more}."
            return f"{place}, {join_names(sides)} jointly go with {outcome}{more}."
        case Comparison.TREND:
            ends = "lowest to the highest" if more == "higher" else "highest to the lowest"
            groups = ORDERED[first.cut]
            return f"{place}, each step from the {ends} {groups} of {names[0]} goes with {outcome}."
        case Comparison.PER_DOUBLING:
            amount = "doubling" if more == "higher" else "halving"
            name = f"{names[0]}{' plus one' if first.transform == 'log2_plus_1' else ''}"
            return f"{place}, each {amount} of {name} goes with {outcome}."
    if not uses_groups(hypothesis):
        scale = {"rank": "the percentile of ", "log2": "the logarithm of ", "none": ""}
        scale["log2_plus_1"] = scale["log2"]
        name = f"{more} {names[0]}"
        if first.transform != "none":
            name = f"increase in {scale[first.transform]}{names[0]}"
            name = name if more == "higher" else name.replace("increase", "decrease", 1)
            return f"{place}, each standard deviation of {name} goes with {outcome}."
        return f"{place}, each standard deviation of {name} goes with {outcome}."
    other = " and ".join(
        _write_side(exposure, known, other=True) for exposure in hypothesis.exposures
    )
    one_cut = len(names) == 1 and first.cut is not CutRule.TERTILE
    if hypothesis.comparison is not Comparison.EXTREMES and not one_cut:
        other = "all others"
    identify = "identify" if len(names) == 1 and _plural(names[0]) else "identifies"
    return f"{place}, {words} {identify} patients with {outcome}, compared with {other}."


def _write_calibration(hypothesis: Hypothesis, known: Known) -> str:
    """Describe what a score predicts, by when, and the margins of its calibration."""
    given = hypothesis.calibration
    assert given is not None
    by = "" if given.horizon is None else f" by {given.horizon:g} months"
    margins = ["{:g} to {:g}".format(*ends) for ends in (given.ratio, given.slope)]
    return (
        f"is calibrated for {_endpoint_label(hypothesis, known)}{by}: observed/expected events "
        f"within {margins[0]}, calibration slope within {margins[1]}"
    )


def _plural(name: str) -> bool:
    """Check whether a name is plural ("lymph nodes of the axilla", but not "nodal status")."""
    head = re.split(r" (?:of|on|in|by|at|from|per|to|with)\b| [(=]|,", name, maxsplit=1)[0]
    return re.search(r"(?<![sui])s$", head) is not None


def _write_side(
    exposure: Exposure, known: Known, *, other: bool = False, formula: bool = False
) -> str:
    """Describe an exposure group: by its level if the variable has two, else as high or low."""
    if exposure.signature is None:
        exposure = exposure.model_copy(update={"label": label_of(exposure.variable, known)})
    side = name_side(exposure, known.variables, other=other)
    return f"{side} ({exposure.signature.text})" if formula and exposure.signature else side


ORDERED = {
    CutRule.TERTILE: "third",
    CutRule.QUARTILE: "quarter",
    CutRule.LEVELS: "level",
}


def _name_exposure(exposure: Exposure, known: Known) -> str:
    """Return an exposure's name for use in a sentence, with the formula if it is a signature."""
    if exposure.signature is None:
        return label_of(exposure.variable, known)
    return f"{within_sentence(exposure.label)} ({exposure.signature.text})"


def _write_modification(hypothesis: Hypothesis, known: Known, names: list[str]) -> str:
    """Describe how the modifier changes the effect, from the sign of the product term."""
    predictive = hypothesis.comparison is Comparison.PREDICTIVE
    at = 0 if predictive else 1
    modifier, effect = hypothesis.exposures[at], hypothesis.exposures[1 - at]
    label = _endpoint_label(hypothesis, known)
    endpoint = next((item for item in known.endpoints if item.key == hypothesis.endpoint), None)
    kind = endpoint.kind if endpoint else "survival"
    signs = {Direction.HIGHER_RISK: "higher", Direction.LOWER_RISK: "lower"}
    more = signs.get(hypothesis.direction, "higher or lower")
    measure = {"binary": "odds ratio", "continuous": "difference"}.get(kind, "hazard ratio")
    if modifier.cut is CutRule.CONTINUOUS:
        sides = f"the {modifier.level}er the {names[at]}"
    else:
        sides = f"with {_write_side(modifier, known)} than with "
        sides += _write_side(modifier, known, other=True)
    if predictive:
        return (
            f"{names[at]} predicts the effect of {names[1 - at]} on {label}: its {measure} is "
            f"{more} {sides}"
        )
    return (
        f"{names[at]} modifies the association of {_write_side(effect, known)} with {label}: its "
        f"{measure} is {more} {sides}"
    )


def _conditions(filters: tuple[Filter, ...], known: Known) -> str:
    return " and ".join(
        " ".join(
            [f"{label_of(condition.variable, known)}", OPERATORS[condition.op], _value(condition)]
        ).strip()
        for condition in filters
    )


def _value(condition: Filter) -> str:
    if condition.value is None:
        return ""
    values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    return ", ".join(
        f"{value:g}" if isinstance(value, float) else f"{ForeignText(value)}" for value in values
    )


def _endpoint_label(hypothesis: Hypothesis, known: Known) -> str:
    found = next((item for item in known.endpoints if item.key == hypothesis.endpoint), None)
    return within_sentence(found.label or found.key) if found else hypothesis.endpoint


def _outcome(hypothesis: Hypothesis, known: Known) -> str:
    endpoint = next(
        (endpoint for endpoint in known.endpoints if endpoint.key == hypothesis.endpoint), None
    )
    label = (endpoint.label or endpoint.key) if endpoint else hypothesis.endpoint
    kind = endpoint.kind if endpoint else "survival"
    return describe_outcome(hypothesis.direction, kind, label)


def _variable(key: str, known: Known) -> Variable | None:
    same = (variable for variable in known.variables if variable.key == key)
    return next(same, None) or find_levels(known.variables, key)


DIRECTED = (
    Comparison.PREDICTIVE, Comparison.MODIFICATION, Comparison.MEDIATION, Comparison.ADDED,
)  # fmt: skip
"""Comparisons in which the order of the exposures matters."""
UNCUT = (Comparison.PER_SD, Comparison.INTERACTION)
"""Comparisons by slope or product, in which each "low" exposure reverses the direction."""
TURNED = {
    Direction.HIGHER_RISK: Direction.LOWER_RISK,
    Direction.LOWER_RISK: Direction.HIGHER_RISK,
    Direction.EITHER: Direction.EITHER,
}
_BESIDE = {
    "id", "statement", "exposures", "direction", "rationale", "feasibility", "untested",
    "covariates", "secondary_endpoints", "subgroups", "causes", "unadjusted_because",
    "negative_endpoint", "relevant",
}  # fmt: skip
"""Fields that affect a claim's wording, adjustment or control, but not its content."""


def same_claim(hypothesis: Hypothesis) -> tuple[object, ...]:
    """Compute a key that is equal for hypotheses with the same test, regardless of wording.

    "High X at higher risk" and "low X at lower risk" are the same claim for a single
    exposure, for comparisons of extremes, and for slopes and products, where every "low"
    exposure reverses the direction.
    """
    exposures, direction = list(hypothesis.exposures), hypothesis.direction
    comparison = hypothesis.comparison
    levels = [str(exposure.level) for exposure in exposures]
    if comparison in UNCUT:
        if levels.count("low") % 2:
            direction = TURNED[direction]
        levels = ["high"] * len(levels)
    elif (len(exposures) == 1 or comparison is Comparison.EXTREMES) and not any(
        exposure.cut is CutRule.TERTILE
        for exposure in exposures  # the middle group is on neither side
    ):
        first = min(range(len(exposures)), key=lambda at: exposures[at].variable)
        if levels[first] == "low":
            levels = ["low" if level == "high" else "high" for level in levels]
            direction = TURNED[direction]
    sides = [
        (exposure.variable, level, exposure.cut, str(exposure.threshold), str(exposure.transform),
         exposure.randomized)
        for exposure, level in zip(exposures, levels, strict=True)
    ]  # fmt: skip
    plain = hypothesis.model_dump(mode="json", exclude=_BESIDE)
    plain["population"] = sorted(str(condition) for condition in plain["population"]["filters"])
    ordered = sides if comparison in DIRECTED else sorted(sides)
    return tuple(ordered), direction, str(sorted(plain.items()))


def describe_design(hypothesis: Hypothesis, known: Known) -> str:
    """Describe the groups to be compared."""
    exposed = " and ".join(name_side(item, known.variables) for item in hypothesis.exposures)
    other = " and ".join(
        name_side(item, known.variables, other=True) for item in hypothesis.exposures
    )
    match hypothesis.comparison:
        case Comparison.EXPOSED_VS_REST:
            return f"patients with {exposed} against all others"
        case Comparison.EXTREMES:
            return f"patients with {exposed} against patients with {other}"
        case Comparison.INTERACTION:
            return f"the interaction of {exposed}"
        case Comparison.PER_SD:
            return f"each standard deviation of {hypothesis.exposures[0].label}"
        case Comparison.PER_DOUBLING:
            return f"each doubling of {hypothesis.exposures[0].label}"
        case Comparison.TREND:
            return f"ordered groups of {hypothesis.exposures[0].label}, step by step"
        case Comparison.MEDIATION:
            exposure, mediator = hypothesis.exposures
            return f"the effect of {exposure.label} through {mediator.label}"
        case Comparison.CALIBRATED:
            return f"risks predicted by {hypothesis.exposures[0].label} against observed risks"
        case Comparison.ADDED:
            base, added = hypothesis.exposures
            return f"what {added.label} adds to {base.label} in all patients"
        case Comparison.COMBINED:
            return f"{exposed} jointly"
        case Comparison.PREDICTIVE:
            marker, treatment = hypothesis.exposures
            return f"the effect of {treatment.label} by {marker.label}"
        case Comparison.MODIFICATION:
            exposure, modifier = hypothesis.exposures
            return f"the association of {exposure.label} by {modifier.label}"


def describe_direction(hypothesis: Hypothesis, kind: str) -> str:
    """Describe the expected direction for an endpoint of `kind`."""
    if hypothesis.direction is Direction.EITHER:
        return "either (two-sided)"
    worse = hypothesis.direction is Direction.HIGHER_RISK
    if kind == "competing":
        return "sooner (higher hazard)" if worse else "later (lower hazard)"
    if kind == "survival":
        return "shorter survival (higher hazard)" if worse else "longer survival (lower hazard)"
    if kind == "binary":
        return "more frequent" if worse else "less frequent"
    return "higher values" if worse else "lower values"
