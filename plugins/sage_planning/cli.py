"""`sage plan`: plan a study's events and patients before its cohort exists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sage.cli.options import AsJson
from sage.core.errors import InputError

if TYPE_CHECKING:
    from sage_planning.planning import Plan

Ratio = Annotated[float, typer.Option("--hazard-ratio", min=0.01, help="Hazard ratio to detect.")]


def plan(
    hazard_ratio: Ratio,
    design: Annotated[
        str, typer.Option(help="Comparison: groups, per_sd or interaction.")
    ] = "groups",
    exposed: Annotated[float, typer.Option(help="Share of patients who are exposed.")] = 0.5,
    power: Annotated[float, typer.Option(help="Desired power.")] = 0.8,
    alpha: Annotated[
        float, typer.Option(min=0.0001, max=0.2, help="Two-sided significance level.")
    ] = 0.05,
    events: Annotated[
        float | None, typer.Option("--event-share", help="Share of patients with the event.")
    ] = None,
    median_survival: Annotated[
        float | None,
        typer.Option(
            help="Median survival in months in the reference group; alternative to --event-share."
        ),
    ] = None,
    recruitment: Annotated[float, typer.Option(help="Months of recruitment.")] = 0,
    follow_up: Annotated[
        float, typer.Option(help="Months of follow-up for the last patient.")
    ] = 60,
    lost: Annotated[float, typer.Option(help="Share lost to follow-up per year.")] = 0,
    r_squared: Annotated[
        float, typer.Option(help="Share of the exposure's variance explained by the covariates.")
    ] = 0,
    claims: Annotated[
        int, typer.Option(help="Number of primary claims that share the error rate.")
    ] = 1,
    split: Annotated[
        float | None,
        typer.Option(min=0.2, max=0.8, help="Share of patients held back to confirm a discovery."),
    ] = None,
    missing: Annotated[float, typer.Option(help="Share of patients that cannot be analyzed.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Plan the number of events and patients for a study before its cohort exists.

    Example: sage plan --hazard-ratio 1.5 --exposed 0.3 --median-survival 24
    --recruitment 24 --follow-up 36 --lost 0.05 --claims 4
    """
    from pydantic import ValidationError

    from sage.cli.console import print_json, print_line
    from sage_planning.planning import Question
    from sage_planning.planning import plan as plan_study
    from validation.cohort.model import describe

    accrual = None
    if median_survival is not None:
        accrual = {
            "median_survival": median_survival,
            "recruitment": recruitment,
            "follow_up": follow_up,
            "lost": lost,
        }
    asked = {
        "hazard_ratio": hazard_ratio,
        "design": design,
        "exposed": exposed,
        "power": power,
        "alpha": alpha,
        "event_share": events,
        "accrual": accrual,
        "r_squared": r_squared,
        "claims": claims,
        "confirmation": split or 0.0,
        "missing": missing,
    }
    try:
        question = Question.model_validate(asked)
    except ValidationError as error:
        either = (events is None) == (median_survival is None)
        hint = ". Give --event-share, or --median-survival with --follow-up" if either else ""
        raise InputError(f"plan: {describe(error)}{hint}") from None
    found = plan_study(question)
    if as_json:
        print_json(found)
        return
    for line in plan_lines(found):
        print_line(line)


def plan_lines(found: Plan) -> list[str]:
    """Format the required study size for several effects as lines of text."""
    asked = found.question
    lines = [
        f"{found.events} events, {found.patients} patients: power {100 * asked.power:.0f}% for a "
        f"hazard ratio of {asked.hazard_ratio:g} ({asked.design.replace('_', ' ')})",
        "",
        f"{'hazard ratio':>12} {'events':>8} {'patients':>9}   power with {found.events} events",
    ]
    lines += [
        f"{row.hazard_ratio:>12.2f} {row.events:>8} {row.patients:>9}   {100 * row.power:.0f}%"
        for row in found.rows
    ]
    return [*lines, "", *(f"assumes: {assumption}" for assumption in found.assumptions)]
