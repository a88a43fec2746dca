"""Natural direct and indirect effects through a mediator, with stated assumptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from validation.contracts.contract import Scale, TestPlan
from validation.inputs.study import Study
from validation.methods.shared import layers_of, matrix, outcome_of
from validation.results.results import Book, Effect, TestOutcome, p_text
from validation.statistics.mediation import mediation as estimate

if TYPE_CHECKING:
    from validation.statistics.mediation import Part

DRAWS = 1000


def mediation(study: Study, plan: TestPlan, book: Book, tables: dict[str, Any]) -> TestOutcome:
    """Estimate natural indirect, direct and total effects, with 1,000 bootstrap resamples.

    For survival, effects are hazard differences from an additive hazards model, divided by
    the average hazard. For other outcomes, they are differences in standard deviations. The
    p-value is the larger of the two paths' p-values.
    """
    keep, X, _, notes = matrix(study, plan)
    mediator, exposure, covariates = X[:, 0], X[:, 1], X[:, 2:]
    value, event = study.outcome(plan.endpoint)
    y, flags, layers = value[keep], None, None
    scale: Scale = "difference (SD)"
    if event is not None:
        y, flags = study.follow_up(plan.endpoint, keep)
        layers = layers_of(study, plan, keep, flags, notes)
        unit, scale = float(flags.sum() / y.sum()), "relative hazard difference"
        book.add(f"{plan.id}.average_hazard", 12 * 100 * unit, "events in 100 patient-years")
        notes.append(
            "additive hazards; 0.10 changes the hazard by a tenth of the average hazard, "
            f"{1200 * unit:.1f} events in 100 patient-years"
        )
    else:
        unit = float(y.std(ddof=1))
        if study.contract.endpoint(plan.endpoint).kind == "binary":
            notes.append(f"differences in risk, over their standard deviation of {unit:.2f}")
        if not unit > 0:
            raise InputError(f"{plan.endpoint} is the same for all patients")
    found = estimate(
        exposure, mediator, covariates, y, flags, layers,
        draws=DRAWS, seed=study.contract.seed,
    )  # fmt: skip

    def scale_effect(part: Part) -> Effect:
        return Effect(
            value=part.value / unit, lower=part.lower / unit, upper=part.upper / unit, scale=scale
        )

    effect = scale_effect(found.indirect)
    book.add_effect(plan.id, effect, found.p)
    rows = []
    parts = (("indirect", found.indirect), ("direct", found.direct), ("total", found.total))
    for name, part in parts:
        mine = scale_effect(part)
        book.add_effect(f"{plan.id}.{name}", mine, None)
        interval = f"(95% CI {mine.lower:.2f} to {mine.upper:.2f})"
        rows.append({"effect": name, scale: f"{mine.value:.2f} {interval}"})
    first, second = study.contract.exposures
    for name, label, size, p in (
        ("first", f"{first.label} to {second.label}", found.first, found.first_p),
        ("second", f"{second.label} to {plan.endpoint}", found.second / unit, found.second_p),
    ):
        book.add(f"{plan.id}.path.{name}", size, "coefficient", f"{size:.2f}")
        book.add(f"{plan.id}.path.{name}.p", p, "p-value")
        rows.append({"effect": f"path {label}", scale: f"{size:.2f}, p {p_text(p)}"})
    if found.total.lower > 0 or found.total.upper < 0:
        share = found.indirect.value / found.total.value
        book.add(f"{plan.id}.mediated", share, "share", f"{share:.0%}")
        rows.append({"effect": "share of the total effect that is indirect", scale: f"{share:.0%}"})
    tables[plan.id] = rows
    notes.append(f"percentile intervals of {found.draws} bootstrap resamples of patients")
    notes.append("p is that of the weaker path: without either path there is no indirect effect")
    return outcome_of(plan, keep, flags, effect=effect, p=found.p, notes=notes)
