"""Account of a question's parts: kept by a hypothesis, or dropped for a reason.

These are pure functions, shared by the rule-based scientist, the model-based scientist and the
report.
"""

from __future__ import annotations

from agents.core.base import View
from agents.question.types import Part, PartRole, Question
from sage.core.printable import ForeignText, join_names
from validation.core.hypothesis import Comparison, Filter, Hypothesis


class Carried(View):
    """A part of the question, kept in the hypothesis or dropped; `how` gives the details."""

    words: str
    role: PartRole
    kept: bool
    how: str


def account(question: Question, hypothesis: Hypothesis) -> tuple[Carried, ...]:
    """List each named part of the question, in order, as kept or dropped.

    Two parts never share an exposure: given "TLS and B cells", a claim about either drops the
    other.
    """
    taken: set[str] = set()
    rows: dict[int, Carried] = {}
    # Parts with few variables choose first, so that "genes" does not use up FABP5.
    breadth = [len(it.variables) or 1_000_000 * bool(it.open_to) for it in question.parts]
    for at in sorted(range(len(breadth)), key=breadth.__getitem__):
        part = question.parts[at]
        how = _kept_by(part, hypothesis, taken)
        rows[at] = Carried(
            words=part.words, role=part.role, kept=bool(how), how=how or _why_dropped(part)
        )
    return tuple(rows[at] for at in range(len(question.parts)))


def unanswered(question: Question, hypothesis: Hypothesis) -> list[str]:
    """List the parts that the cohort could represent but the hypothesis drops."""
    return [
        f"the question names {part.quoted} ({part.role.value}), which the hypothesis leaves out;"
        f" {_how_to_carry(part)}"
        for part, row in zip(question.parts, account(question, hypothesis), strict=True)
        if part.testable and not row.kept
    ]


def account_line(question: Question, hypothesis: Hypothesis) -> str:
    """Summarize the question parts that the claim answers in one line, for terminal and report."""
    rows = account(question, hypothesis)
    if not rows:
        return "The question left the claim open."
    kept = ", ".join(
        f"{ForeignText(row.words)}{_by_stand_in(part, row, hypothesis)}"
        for part, row in zip(question.parts, rows, strict=True)
        if row.kept
    )
    dropped = "; ".join(f"{ForeignText(row.words)}: {row.how}" for row in rows if not row.kept)
    line = f"Parts of the question covered: {kept or 'none'}."
    added = beyond(question, hypothesis)
    if added:
        line += f" Added: {join_names(added)}."
    return f"{line} Not covered: {dropped}." if dropped else line


def _by_stand_in(part: Part, row: Carried, hypothesis: Hypothesis) -> str:
    said = f" (measured by {row.how} instead)" if part.stands_in else ""
    if part.role in (PartRole.MODIFIER, PartRole.TREATMENT) and row.how in {
        subgroup.variable for subgroup in hypothesis.subgroups
    }:
        said += " (in subgroups, without a test of their difference)"
    return said


def beyond(question: Question, hypothesis: Hypothesis) -> list[str]:
    """Return exposures in the hypothesis that do not correspond to any part of the question.

    If the question has no exposures, any exposure is allowed.
    """
    asked = [part for part in question.parts if part.role not in FIXED and not part.negated]
    if not asked or any(part.open_to == "any" for part in asked):
        return []
    return [
        exposure.label
        for exposure in hypothesis.exposures
        if not any(
            exposure.variable in (*part.variables, *_open_keys(part, [exposure.variable]))
            for part in asked
        )
    ]


UNMEASURED = "the cohort does not measure it"
FIXED = (PartRole.POPULATION, PartRole.ENDPOINT, PartRole.COVARIATE, PartRole.QUALIFIER)
"""Roles that cannot be filled by an exposure."""


def excluded_keys(question: Question) -> frozenset[str]:
    """Return variables that the question rules out as exposures ("genes other than FGFR3")."""
    return frozenset(
        key
        for part in question.parts
        if part.negated and part.role is PartRole.EXPOSURE
        for key in part.variables
    )


def filters_of(question: Question) -> tuple[Filter, ...]:
    """Return the patient conditions named in the question."""
    return tuple(
        condition
        for part in question.parts
        if part.role in (PartRole.POPULATION, PartRole.COMPARATOR) and not part.left_out
        for condition in part.filters
    )


def without_subgroups(question: Question, why: str) -> Question:
    """Remove from the question the subgroups that a feasible claim cannot keep."""
    return question.model_copy(
        update={
            "parts": tuple(
                part.model_copy(update={"left_out": why})
                if part.role is PartRole.POPULATION and part.filters
                else part
                for part in question.parts
            )
        }
    )


def _kept_by(part: Part, hypothesis: Hypothesis, taken: set[str]) -> str:
    """Describe the element of the hypothesis that represents the part; empty if there is none."""
    exposed = [exposure.variable for exposure in hypothesis.exposures]
    if part.setting:
        return "the whole cohort" if part.testable else ""
    if part.filters:
        held = all(condition in hypothesis.population.filters for condition in part.filters)
        if held:
            return "the population"
    if part.role is PartRole.POPULATION:
        return ""
    if part.endpoint:
        return f"endpoint {part.endpoint}" if hypothesis.endpoint == part.endpoint else ""
    if part.negated:
        return "" if set(part.variables) & set(exposed) else "not among the exposures"
    if part.role in (PartRole.COVARIATE, PartRole.MEDIATOR):
        through = hypothesis.comparison is Comparison.MEDIATION and exposed[-1] in part.variables
        if part.role is PartRole.MEDIATOR and through:
            return exposed[-1]
        adjusted = (*hypothesis.covariates, *hypothesis.strata)
        return next((key for key in part.variables if key in adjusted), "")
    if part.role is PartRole.COMPARATOR and part.variables:
        return next(iter(part.about & {key.partition("=")[0] for key in exposed}), "")
    subgroups = {condition.variable for condition in hypothesis.subgroups}
    for key in (*part.variables, *_open_keys(part, exposed)):
        if key in exposed and key not in taken:
            taken.add(key)
            return key
    if part.role in (PartRole.MODIFIER, PartRole.TREATMENT):
        return next((key for key in part.variables if key in subgroups), "")
    return ""


def _open_keys(part: Part, exposed: list[str]) -> list[str]:
    if not part.open_to or part.variables:
        return []
    kinds = (f"{part.open_to}:", *(("signature:",) if part.open_to == "expression" else ()))
    return [key for key in exposed if part.open_to == "any" or key.startswith(kinds)]


def _why_dropped(part: Part) -> str:
    unused = "this hypothesis does not use it"
    return part.left_out or part.supply or (unused if part.testable else UNMEASURED)


def _how_to_carry(part: Part) -> str:
    if part.endpoint:
        return f'its endpoint is "{part.endpoint}"'
    if part.filters:
        shown = ", ".join(f"{item.variable} {item.op} {item.value}" for item in part.filters)
        return f"filter the population by {shown}"
    if part.negated:
        return f"use none of {', '.join(part.variables[:6])}"
    if part.role is PartRole.COVARIATE:
        return f"adjust for one of {', '.join(part.variables[:6])}"
    if part.variables:
        return f"use one of {', '.join(part.variables[:6])}"
    return f"use a variable of {part.open_to} data"
