"""Text output of `sage validate`: contracts and verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from validation.contracts.contract import FrozenContract
    from validation.results.results import Results

COLORS = {
    "supported": "green", "small_effect": "yellow", "not_supported": "yellow",
    "inconclusive": "cyan",
}  # fmt: skip
MARKS = {"for": "+", "against": "-", "limits": "~", "prevents": "!"}


def print_verdict(frozen: FrozenContract, found: Results, folder: Path) -> None:
    """Print a contract's verdict with its reasons, limitations and main numbers."""
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
    for line in _describe_proposed(frozen):
        print_line(f"  {line}")
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
        elif (sensitivity := found.numbers.get(f"{key}.sensitivity")) is not None:
            print_line(f"    {key} ({test.endpoint}): {sensitivity.text}")
        elif test.method in ("gray", "joint_groups", "ordered_groups") and number is not None:
            print_line(f"    {key} ({test.endpoint}): {p_is(number.value)}")
        elif test.method == "calibration":
            slope, harrell = (found.numbers[f"{key}.{name}"].text for name in ("slope", "harrell"))
            when = found.numbers[f"{key}.horizon"].text
            where = "corrected for optimism"
            if test.part in APPLIED:
                where = "the first model, with nothing refitted here"
                low, high = (found.numbers[f"{key}.slope_{end}"].text for end in ("lower", "upper"))
                slope += f" (95% CI {low} to {high})"
            line = f"    {key} ({test.endpoint}): slope {slope} by {when} months"
            line += f", concordance {harrell}"
            counted = f"{test.n} patients, {test.events} events"
            print_line(f"{line} ({where}; {counted})")
    print_line(f"  results in {folder}")


def _describe_proposed(frozen: FrozenContract) -> list[str]:
    """Describe the proposed covariates, if the hypothesis names none (or an empty list)."""
    plan = frozen.contract
    if plan.hypothesis.covariates or plan.hypothesis.causes or not plan.covariates:
        return []
    labels = {use.key: use.label for use in plan.variables}
    return [
        f"proposed covariates, because the hypothesis lists none: "
        f"{', '.join(labels[key] for key in plan.covariates)} (for none, state why in "
        "`unadjusted_because`)"
    ]


def _without_result(found: Results) -> dict[str, list[str]]:
    """Group tests without a result by status and reason."""
    reason: dict[str, list[str]] = {}
    for test in found.tests:
        if test.status != "ok":
            reason.setdefault(f"{test.status}: {test.reason}", []).append(found.key(test))
    return reason


def _describe_shape(found: Results, test: str) -> str:
    """Describe the nonlinearity, searched cut-point and E-value of a test's estimate."""
    from validation.results.results import p_is

    words = ""
    bent, cut, e_value = (
        found.numbers.get(f"{test}.{name}") for name in ("nonlinearity.p", "cut", "e_value")
    )
    if bent is not None and bent.value is not None:
        words += (
            f"; the p-value tests a curve of any shape, but the ratio is for a straight line; "
            f"departure from the line: {p_is(bent.value)}"
        )
    if cut is not None:
        words += f"; best cut {cut.text}, p corrected for the search, the ratio per SD"
    if e_value is not None:
        limit = found.numbers[f"{test}.e_value_limit"]
        words += f"; E-value {e_value.text} (limit {limit.text})"
    return words


def contract_lines(frozen: FrozenContract) -> list[str]:
    """Render a contract as lines in protocol order, including details that reports omit."""
    from sage.run.contracts import statements
    from validation.contracts.timing import known_text

    plan = frozen.contract
    lines = [f"Claim: {plan.hypothesis.statement}", *statements(frozen)]
    lines += [f"Note: {line}" for line in _describe_proposed(frozen)]
    if plan.version > 1:
        lines.insert(0, f"version {plan.version} of {(plan.parent or '')[:12]}: {plan.amendment}")
    lines += [
        f"Known at {known_text(use.known_at)}: {use.key}"
        for use in plan.variables
        if use.known_at != "baseline"
    ]
    if plan.hypothesis.landmark is not None:
        months = f"{plan.hypothesis.landmark:g} months"
        lines.append(f"Landmark: patients at risk at {months}, followed from then on")
    elif plan.hypothesis.time_dependent:
        lines.append("Time-dependent: exposed from the time of the change")
    if plan.power.required_events is not None:
        lines.append(f"Events required for 80% power: {plan.power.required_events}")
    return [*lines, *(f"Note: {note}" for note in plan.notes)]
