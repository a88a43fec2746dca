"""The front of a claim's report: one table, what speaks against it, what was done, what is next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agents.findings.answer import capitalize
from agents.findings.render import CENSORING
from agents.findings.types import Finding
from sage.core.printable import is_name, within_sentence
from sage.report.facts import Facts
from validation.contracts.contract import Contract
from validation.core.hypothesis import CutRule
from validation.results.results import Results
from validation.verdict.verdict import SIMULATED

MONTHS = 36
"""Time after the start of follow-up at which the front's table gives survival, in months."""
FAVORABLE = {
    "control": ("passed",),
    "sensitivity": ("stable",),
    "assumption": ("holds",),
    "replication": ("replicated",),
    "sample": ("enough", "too_few"),
    "missing_data": ("none", "some", "unrelated"),
}
"""Outcomes of statements that do not speak against a claim, by kind.

The verdict has a reason of its own where too few events decide nothing.
"""
GENERAL = ("selection", "measurement", CENSORING)
"""Subjects of statements that apply to any such study."""
QUALIFIES = ("not_adjusted_for", "alternative_explanation")
"""Kinds of statements that always speak against a claim, but for those on `CONFOUNDING`."""
CONFOUNDING = "confounding"
"""Subject whose statement says how strong a confounder would have to be."""


@dataclass
class Front:
    """The front of a claim. All texts are SAGE's sentences, with numbers written as `[[key]]`."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    also: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    general: tuple[str, ...] = ()
    settle: tuple[str, ...] = ()


def build_front(
    results: Results,
    contract: Contract,
    name: str,
    facts: Facts,
    sentences: dict[Finding, str],
    chosen: Sequence[Finding],
) -> Front:
    """Build the front of a claim from its results.

    Parameters
    ----------
    name : the claim's id, under which the patient flow's numbers are added to the facts
    sentences : SAGE's sentence for every statement that the results support
    chosen : the statements that the interpreter and summary selected, in their order
    """
    chosen = tuple(dict.fromkeys(item for item in chosen if item in sentences))
    first = next((item.text for item in results.verdict.reasons if item.outcome == "prevents"), "")
    against = [
        capitalize(reason.text) + "."
        for reason in results.verdict.reasons
        if reason.outcome == "prevents" and reason.text != first
    ]
    against += [sentences[item] for item in chosen if _speaks_against(item)]
    notes = (*contract.notes, SIMULATED) if results.simulated else ()  # the page's banner says it
    against += [
        f"{limit if limit.startswith(results.cohort) else capitalize(limit)}."
        for limit in results.verdict.limits
        if limit not in notes
    ]
    checks = [
        sentences[item] for item in chosen if _is_favorable(item) or item.subject == CONFOUNDING
    ]
    general = [sentences[item] for item in chosen if item.subject in GENERAL]
    return Front(
        columns=("", capitalize(contract.exposed), capitalize(contract.reference)),
        rows=tuple(_rows(results, contract)),
        also=tuple(
            sentences[item] for item in chosen if item.kind in ("secondary_endpoint", "added_value")
        ),
        against=tuple(dict.fromkeys(against)),
        done=(*_describe_design(results, contract, name, facts), *checks),
        general=tuple(general),
        settle=tuple(sentences[item] for item in chosen if item.kind == "next_step"),
    )


def _is_favorable(item: Finding) -> bool:
    return getattr(item, "outcome", "") in FAVORABLE.get(item.kind, ())


def _speaks_against(item: Finding) -> bool:
    if item.kind in QUALIFIES or item.subject in GENERAL:
        return item.subject not in (*GENERAL, CONFOUNDING)
    # The verdict lists a failed control, and its limits say that there is no second cohort.
    if item.kind in ("control", "sensitivity", "replication"):
        return False
    return item.kind in FAVORABLE and not _is_favorable(item)


def _rows(results: Results, contract: Contract) -> Iterator[tuple[str, ...]]:
    """Yield rows by group: patients, events, medians' intervals, and survival at three years."""
    groups, keys = ("exposed", "reference"), results.numbers

    def row(head: str, part: str) -> Iterator[tuple[str, ...]]:
        needed = [part.format(group) for group in groups]
        if all(key in keys for key in needed):
            yield head, *(f"[[{key}]]" for key in needed)

    yield from row("Patients", f"{contract.primary}.{{}}.n")
    yield from row("Events", f"{contract.primary}.{{}}.events")
    for endpoint in contract.endpoints:
        primary = endpoint.key == contract.primary_test.endpoint
        start = "kaplan_meier" if primary else f"{endpoint.key}.kaplan_meier"
        label = endpoint.label or endpoint.key
        if primary:
            ends = ("median", "median_lower", "median_upper")
            found = [[f"{start}.{group}.{end}" for end in ends] for group in groups]
            if all(key in keys for median in found for key in median):
                cells = ("[[{}]] ([[{}]] to [[{}]])".format(*median) for median in found)
                yield "Median (95% CI), months", *cells
        yield from row(f"{label}, three-year estimate", f"{start}.{{}}.at_{MONTHS}")
        incidence = start.replace("kaplan_meier", "cumulative_incidence")
        yield from row(f"{label}, three-year incidence", f"{incidence}.{{}}.at_{MONTHS}")


def _describe_design(
    results: Results, contract: Contract, name: str, facts: Facts
) -> Iterator[str]:
    """Yield sentences on patients, groups, plan and power."""
    flow = [join for join in results.joins if join.step in ("population", "exposure", "outcome")]
    if flow and "population.n" in results.numbers:
        facts.add(f"{name}.flow.cohort", flow[0].before)
        yield (
            "Of [[flow.cohort]] patients, [[population.n]] had the compared variables and the"
            " outcome."
        )
    cuts = [
        f"{within_sentence(use.label)} at [[cut.{at}.upper]]"
        f"{f' {use.unit}' if use.unit and is_name(use.unit) else ''}"
        for at, use in enumerate(contract.exposures, 1)
        if f"cut.{at}.upper" in results.numbers and use.cut is CutRule.MEDIAN
    ]
    if cuts:
        yield f"Groups were split at the median: {', '.join(cuts)}."
    yield "The analysis was fixed before any outcome was compared."
    if contract.power.minimum_detectable is not None and "power.minimum_detectable" in (
        results.numbers
    ):
        yield (
            "With 80% power, the smallest detectable effect is a"
            f" {contract.effect_name} of [[power.minimum_detectable]]."
        )
    compared = [item for found in results.reproduction for item in found.compared]
    if compared:
        alone = sum(item.state == "no second implementation" for item in compared)
        agreed = sum(item.state == "reproduced" for item in compared)
        facts.add(f"{name}.reproduction.all", len(compared) - alone)
        facts.add(f"{name}.reproduction.agreed", agreed)
        facts.add(f"{name}.reproduction.alone", alone)
        yield (
            "A second program, generated by SAGE, reproduced [[reproduction.agreed]] of the"
            " [[reproduction.all]] registered numbers that it computes"
            + (" ([[reproduction.alone]] it does not)." if alone else ".")
        )
