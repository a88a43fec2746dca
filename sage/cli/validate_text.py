"""Text output of `sage validate`: contracts and verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from validation.contracts.contract import Contract, FrozenContract
    from validation.results.results import Results

COLORS = {"supported": "green", "not_supported": "yellow", "inconclusive": "cyan"}
MARKS = {"for": "+", "against": "-", "limits": "~", "prevents": "!"}


def print_verdict(frozen: FrozenContract, found: Results, folder: Path) -> None:
    """Print the verdict of a contract with its reasons, its limits and the main numbers."""
    from sage.cli.console import out, print_line
    from validation.analysis.analysis import APPLIED
    from validation.results.results import p_is

    contract = frozen.contract
    out.print(f"\n{contract.hypothesis.id}", markup=False, highlight=False, style="bold", end="")
    out.print(" [magenta]SIMULATED DATA[/]" if found.simulated else "")
    print_line(f"  {contract.hypothesis.statement}")
    print_line(
        f"  contract {frozen.sha256[:12]}, cohort {found.cohort}: {contract.exposed} against "
        f"{contract.reference}"
    )
    color = COLORS[found.verdict.verdict]
    print_line(f"  {found.verdict.badge}", style=color)
    for answer in found.verdict.answers:
        line = f"    {answer.question}: {answer.answer}; {answer.text}"
        print_line(line)
    for reason in found.verdict.reasons:
        print_line(f"    {MARKS[reason.outcome]} {reason.rule}: {reason.text}")
    for limit in found.verdict.limits:
        print_line(f"    limit: {limit}", style="dim")
    for problem, tests in _without_result(found).items():
        print_line(f"    {', '.join(tests)}: {problem}")
    for test in found.tests:
        key = found.key(test)
        summary = found.numbers.get(f"{key}.summary")
        number = found.numbers.get(f"{key}.p")
        if test.status != "ok":
            continue
        if summary is not None and number is not None and not test.id.startswith("control"):
            note = contract.test(test.id).note
            line = f"    {key} ({test.endpoint}): {summary.text}, {p_is(number.value)}"
            line += f" [{note}]" if note else ""
            line += _describe_shape(found, f"{key}")
            print_line(line)
        elif test.method in ("gray", "joint_groups", "ordered_groups") and number is not None:
            print_line(f"    {key} ({test.endpoint}): {p_is(number.value)}")
        elif test.method == "calibration":
            slope, harrell = (found.numbers[f"{key}.{name}"].text for name in ("slope", "harrell"))
            when = found.numbers[f"{key}.horizon"].text
            where = "corrected for optimism"
            if test.part in APPLIED:
                where = "the first model, nothing fitted here"
                low, high = (found.numbers[f"{key}.slope_{end}"].text for end in ("lower", "upper"))
                slope += f" (95% CI {low} to {high})"
            line = f"    {key} ({test.endpoint}): slope {slope} by {when} months"
            line += f", concordance {harrell}"
            counted = f"{test.n} patients, {test.events} events"
            print_line(f"{line} ({where}; {counted})")
    print_line(f"  results in {folder}")


def _without_result(found: Results) -> dict[str, list[str]]:
    """Tests without a result, by status and reason."""
    reason: dict[str, list[str]] = {}
    for test in found.tests:
        if test.status != "ok":
            reason.setdefault(f"{test.status}: {test.reason}", []).append(found.key(test))
    return reason


def _describe_shape(found: Results, test: str) -> str:
    """Notes on a test's estimate: nonlinearity, searched cut, E-value."""
    from validation.results.results import p_is

    words = ""
    bent, cut, e_value = (
        found.numbers.get(f"{test}.{name}") for name in ("nonlinearity.p", "cut", "e_value")
    )
    if bent is not None and bent.value is not None:
        words += (
            f"; the p asks about a curve of any shape, the ratio is that of a straight line; "
            f"departure from the line: {p_is(bent.value)}"
        )
    if cut is not None:
        words += f"; best cut {cut.text}, p corrected for the search, the ratio per SD"
    if e_value is not None:
        limit = found.numbers[f"{test}.e_value_limit"]
        words += f"; E-value {e_value.text} (limit {limit.text})"
    return words


def contract_lines(plan: Contract) -> list[str]:
    """Describe a contract in lines, in the order of a protocol."""
    from validation.contracts.timing import known_text

    others = {use.key: use.known_at for use in plan.variables if use.role != "exposure"}
    lines = [
        f"claim: {plan.hypothesis.statement}",
        f"population: {plan.population}"
        + "".join(
            f"; {condition.variable} {condition.op} {condition.value}" for condition in plan.filters
        ),
        f"comparison: {plan.exposed} against {plan.reference} ({plan.comparison.value})",
    ]
    lines += [
        f"exposure: {exposure.key} [{exposure.unit or exposure.kind}]"
        + f", cut {exposure.cut.value if exposure.cut else 'none'}"
        + ("" if exposure.threshold is None else f" at {exposure.threshold:g}")
        + ("" if exposure.rescale is None else f", {exposure.rescale}")
        + f", known at {known_text(exposure.known_at)}"
        for exposure in plan.exposures
    ]
    lines += [
        f"endpoints: {', '.join(endpoint.key for endpoint in plan.endpoints)}; expected: "
        f"{plan.direction.value.replace('_', ' ')}",
        f"primary test: {plan.primary_test.method} on {plan.primary_test.endpoint}, two-sided "
        f"alpha {plan.rules.alpha:g}",
        f"covariates: {', '.join(plan.covariates) or 'none'}; missing: {plan.missing.policy}",
        f"strata: {', '.join(plan.strata) or 'none'}",
        *(
            f"known at {known_text(when)}: {key}"
            for key, when in others.items()
            if when != "baseline"
        ),
        *_describe_start(plan),
        _describe_power(plan),
        f"tests: {', '.join(test.id for test in plan.tests)}",
        f"split: {plan.split.policy}"
        + (f", {plan.split.confirmation:g} held back" if plan.split.policy != "none" else "")
        + f"; seed {plan.seed}",
    ]
    if plan.version > 1:
        lines.insert(0, f"version {plan.version} of {(plan.parent or '')[:12]}: {plan.amendment}")
    return [*lines, *(f"note: {note}" for note in plan.notes)]


def _describe_start(plan: Contract) -> list[str]:
    """Landmark or time-dependent exposure, if any."""
    claim = plan.hypothesis
    if claim.landmark is not None:
        return [f"landmark: those at risk at {claim.landmark:g} months, followed from there on"]
    return ["time-dependent: exposed from the time it happened"] if claim.time_dependent else []


def _describe_power(plan: Contract) -> str:
    """Power of the primary test, as far as it is known for the kind of endpoint."""
    power = plan.power
    text = f"power: {power.n} patients"
    if power.events is not None:
        text += f", {power.events:.0f} expected events"
    if power.minimum_detectable is not None:
        text += f"; detectable at 80%: {power.minimum_detectable:.2f} ({plan.scale})"
    if power.required_events is not None:
        ratio = plan.relevant_ratio
        text += f"; events for a {plan.scale} of {ratio:.3g}: {power.required_events}"
    return text
