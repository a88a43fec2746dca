"""Rendering of a frozen contract as sentences, for the interpreter and the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage.core.printable import join_names, within_sentence
from validation.core.hypothesis import Direction
from validation.verdict.relevance import relevant_text, unit_text

if TYPE_CHECKING:
    from validation.contracts.contract import FrozenContract


def statements(frozen: FrozenContract) -> tuple[str, ...]:
    """Describe the contract with one sentence per item, in the order of a protocol."""
    contract = frozen.contract
    lines = [f"Population: {contract.population}"]
    for condition in contract.filters:
        lines.append(f"Only patients with {condition.variable} {condition.op} {condition.value}")
    for use in contract.variables:
        if use.role != "exposure":
            continue
        # The two groups of a yes/no variable need no cut; the next line names them.
        cut = f", cut at {use.cut.value}" if use.cut and use.kind != "binary" else ""
        fixed = f" {use.threshold:g}" if use.threshold is not None else ""
        unit = f" ({use.unit})" if use.unit else ""
        lines.append(f"Exposure: {use.label}{unit} from {use.source or use.key}{cut}{fixed}")
    known = dict[str, list[str]]()
    for use in contract.variables:
        known.setdefault(f"{use.known_at}", []).append(within_sentence(use.label))
    listed = (f"{when} ({join_names(dict.fromkeys(names))})" for when, names in known.items())
    lines.append(f"Declared as known at: {'; '.join(listed)}")
    lines.append(f"Groups: {contract.exposed}, compared with {contract.reference}")
    for endpoint in contract.endpoints:
        coding = f"; {endpoint.coding}" if endpoint.coding else ""
        lines.append(f"Endpoint {endpoint.key}: {endpoint.label} ({endpoint.kind}{coding})")
    primary = contract.primary_test
    outcome = contract.endpoint(primary.endpoint)
    if outcome.kind in ("survival", "competing"):
        lines.append(
            f"Time zero: {outcome.time_zero or 'not declared by the cohort'}"
            + ("; patients are at risk from their own time of entry" if outcome.entry else "")
        )
    if any(test.role == "secondary" for test in contract.tests):
        lines.append(f"All endpoints are compared in patients whose {primary.endpoint} is known")
    expected = "in either direction"
    if not contract.associates:
        expected = "of equivalence"
    elif contract.direction is not Direction.EITHER:
        expected = f"expected {contract.direction.value.replace('_', ' ')}"
    lines.append(
        f"Primary test: {primary.method} on {primary.endpoint}, two-sided level"
        f" {contract.rules.alpha:g}, {expected}"
    )
    if (given := contract.hypothesis.calibration) is not None:
        ranges = ["{:g} to {:g}".format(*ends) for ends in (given.ratio, given.slope)]
        lines.append(
            f"Calibrated if the intervals of observed/expected events and of the slope lie within "
            f"{ranges[0]} and {ranges[1]} ({given.source})"
        )
        lines.append("Decision curve: thresholds {:g} to {:g}".format(*given.thresholds))
        by = "" if given.horizon is None else f" by {given.horizon:g} months"
        by += "" if given.baseline is None else f", baseline survival {given.baseline:g}"
        lines.append(f"Score: {given.values}{by}")
    if contract.covariates:
        lines.append(f"Adjusted for: {', '.join(contract.covariates)}")
    if contract.strata:
        lines.append(f"Compared within strata of: {', '.join(contract.strata)}")
    power = contract.power
    part = " confirmation" if contract.split.policy == "discovery_confirmation" else ""
    if power.minimum_detectable is not None:
        counted = "" if power.events is None else f", {power.events:.0f} events expected"
        lines.append(
            f"Power: {power.n}{part} patients{counted}; with 80% power the"
            f" smallest detectable effect is {power.minimum_detectable:.2f}"
            f" ({contract.effect_name})"
        )
    if contract.relevant is not None:
        lines.append(
            f"Smallest effect that matters: {relevant_text(contract)}"
            f"{unit_text(contract)} ({contract.relevant.source})"
        )
    lines.append(f"Missing values: {contract.missing.policy.replace('_', ' ')}")
    if contract.split.policy != "none":
        lines.append(f"Split: {contract.split.policy.replace('_', ' ')}")
    controls = contract.controls
    named = [
        f"{controls.permutations} permutations of the outcome",
        f"{controls.random_features} random features of the same kind",
    ]
    if controls.known_positive:
        named.append(
            f"known positive {controls.known_positive.variable} on"
            f" {controls.known_positive.endpoint}"
        )
    if controls.negative_endpoint:
        named.append(f"negative-control endpoint {controls.negative_endpoint}")
    named = named if contract.associates else named[2:]
    lines.append(f"Controls: {', '.join(named) or 'none'}")
    lines.append(f"Seed {contract.seed}; {len(frozen.data_hashes)} data files hashed")
    return tuple(lines)
