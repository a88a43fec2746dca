"""Front page of a claim's report: results table, objections, methods and next steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agents.findings.answer import capitalize
from agents.findings.render import CENSORING, CURVE, KNOWN, NEGATIVE, PERMUTED, name_unadjusted
from agents.findings.types import BesideOther, Finding, NotAdjustedFor
from sage.core.printable import within_sentence
from sage.report.facts import Facts
from validation.contracts.contract import Contract
from validation.core.hypothesis import Comparison, CutRule
from validation.results.results import Results
from validation.verdict.verdict import SIMULATED

MONTHS = 36
"""Time after the start of follow-up at which the front page reports survival, in months."""
FOUND = ("secondary_endpoint", "added_value", "beside_other", "replication")
"""Kinds of statements shown next to the results table."""
FAVORABLE = {
    "beside_other": ("adds",),
    "control": ("passed",),
    "sensitivity": ("stable",),
    "assumption": ("holds",),
    "replication": ("replicated",),
    "sample": ("enough", "too_few"),
    "missing_data": ("none", "some", "unclear", "unrelated"),
}
"""Outcomes of statements that do not contradict a claim, by kind.

If too few events make the result inconclusive, the verdict gives that reason itself.
"""
CONTROLS = ("control", "sensitivity")
RULES = {
    PERMUTED: "permuted outcome", KNOWN: "known positive", NEGATIVE: "negative control",
    CURVE: "specification curve",
}  # fmt: skip
"""Verdict rule for each control; all other controls belong to "random features"."""
GENERAL = ("selection", "measurement", CENSORING)
"""Subjects of statements that apply to any study of this kind."""
QUALIFIES = ("not_adjusted_for", "alternative_explanation")
"""Kinds of statements that always qualify a claim, except those about `CONFOUNDING`."""
CONFOUNDING = "confounding"
"""Subject of the statement about how strong a confounder would have to be."""


@dataclass
class Front:
    """Front page of a claim, all in SAGE's own sentences, with numbers written as `[[key]]`."""

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
    """Build a claim's front page from its results.

    Parameters
    ----------
    name : the claim's id, under which the patient-flow numbers are added to the facts
    sentences : SAGE's sentence for every statement that the results support
    chosen : the statements selected by the interpreter and summary, in their order
    """
    chosen = tuple(dict.fromkeys(item for item in chosen if item in sentences))
    # The model may choose what supports the claim, but not leave out what speaks against it.
    contrary = [item for item in dict.fromkeys((*chosen, *sentences)) if _speaks_against(item)]
    contrary.sort(key=lambda item: item.kind not in CONTROLS)
    related = {use.label for use in contract.variables if use.role == "unadjusted"}
    unadjusted = [
        item.subject
        for item in contrary
        if isinstance(item, NotAdjustedFor) and item.subject in related
    ]
    rules = {
        item: RULES.get(item.subject, "random features")
        for item in contrary
        if item.kind in CONTROLS
    }
    prevents = [item for item in results.verdict.reasons if item.outcome == "prevents"]
    badge = results.verdict.qualifiers if results.verdict.verdict == "inconclusive" else ()
    reasons = [
        item.text if place or not badge else badge[0]  # which words the first reason more briefly
        for place, item in enumerate(prevents)
        if item.rule not in rules.values()
    ]
    # The verdict's first reason comes first, also where a control's sentence states it.
    deciding = [item for item, rule in rules.items() if prevents and rule == prevents[0].rule]
    notes = (*contract.notes, SIMULATED) if results.simulated else ()  # the page's banner says it
    against = [
        *(sentences[item] for item in deciding),
        *(f"{capitalize(reason)}." for reason in reasons),
        *(sentences[item] for item in contrary if item.subject not in unadjusted),
        *([name_unadjusted(unadjusted)] if unadjusted else []),
        *(
            f"{limit if limit.startswith(results.cohort) else capitalize(limit)}."
            for limit in results.verdict.limits
            if limit not in notes
        ),
    ]
    checks = [
        sentences[item]
        for item in chosen
        if (_is_favorable(item) or item.subject == CONFOUNDING) and item.kind not in FOUND
    ]
    return Front(
        columns=("", capitalize(contract.exposed), capitalize(contract.reference)),
        rows=tuple(_rows(results, contract)),
        also=(
            *(
                sentences[item]
                for item in dict.fromkeys((*chosen, *sentences))
                if item.kind in FOUND
                and item not in contrary
                and (item in chosen or isinstance(item, BesideOther) or _is_favorable(item))
                and getattr(item, "outcome", "") != "not_run"
            ),
            *_describe_others(results, contract),
        ),
        against=tuple(dict.fromkeys(against)),
        done=(*_describe_design(results, contract, name, facts), *checks),
        general=tuple(sentences[item] for item in chosen if item.subject in GENERAL),
        settle=tuple(sentences[item] for item in chosen if item.kind == "next_step"),
    )


def _is_favorable(item: Finding) -> bool:
    return getattr(item, "outcome", "") in FAVORABLE.get(item.kind, ())


def _speaks_against(item: Finding) -> bool:
    if item.kind in QUALIFIES or item.subject in GENERAL:
        return item.subject not in (*GENERAL, CONFOUNDING)
    if item.kind == "replication" and getattr(item, "outcome", "") == "not_run":
        return False  # the verdict's limits say so
    return item.kind in FAVORABLE and not _is_favorable(item)


def _rows(results: Results, contract: Contract) -> Iterator[tuple[str, ...]]:
    """Yield a row per quantity by group: patients, events, median CIs and three-year survival."""
    groups, keys = ("exposed", "reference"), results.numbers

    def row(head: str, part: str) -> Iterator[tuple[str, ...]]:
        needed = [part.format(group) for group in groups]
        if all(key in keys for key in needed):
            yield head, *(f"[[{key}]]" for key in needed)

    yield from row("Patients", f"{contract.primary}.{{}}.n")
    yield from row("Events", f"{contract.primary}.{{}}.events")
    endpoint = contract.endpoint(contract.primary_test.endpoint)
    label = endpoint.label or endpoint.key
    ends = ("median", "median_lower", "median_upper")
    found = [[f"kaplan_meier.{group}.{end}" for end in ends] for group in groups]
    if all(key in keys for median in found for key in median):
        cells = ("[[{}]] ([[{}]] to [[{}]])".format(*median) for median in found)
        yield "Median (95% CI), months", *cells
    yield from row(f"{label}, three-year estimate", f"kaplan_meier.{{}}.at_{MONTHS}")
    yield from row(f"{label}, three-year incidence", f"cumulative_incidence.{{}}.at_{MONTHS}")


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
        f"{within_sentence(use.label)} at [[cut.{at}.upper]]{f' {use.unit}' if use.unit else ''}"
        for at, use in enumerate(contract.exposures, 1)
        if f"cut.{at}.upper" in results.numbers and use.cut is CutRule.MEDIAN
    ]
    if cuts:
        yield f"Groups were split at the median: {', '.join(cuts)}."
    yield "This plan was fixed before any outcome was compared under it."
    for found in results.reproduction[:1]:
        alone = found.with_state("no second implementation")
        facts.add(f"{name}.reproduction.all", len(found.compared))
        facts.add(f"{name}.reproduction.agreed", len(found.with_state("reproduced")))
        facts.add(f"{name}.reproduction.alone", len(alone))
        yield (
            f"A second program by {found.by} recomputed"
            + (" all but [[reproduction.alone]] of" if alone else "")
            + " [[reproduction.all]] prespecified numbers; [[reproduction.agreed]] agree."
            " It checks the computation, not the data handling or the grouping."
        )


def _describe_others(results: Results, contract: Contract) -> Iterator[str]:
    """Yield outcomes for patients in neither group who have one exposure at the claimed level."""
    parts = []
    for place, use in zip(("only_first", "only_second"), contract.exposures, strict=False):
        keys = [f"joint_groups.{place}.{part}" for part in ("n", "events", "median")]
        if set(keys) <= results.numbers.keys() and contract.comparison is Comparison.EXTREMES:
            counts = "[[{}]] patients, [[{}]] events, median [[{}]] months".format(*keys)
            parts.append(f"only {use.level} {within_sentence(use.label)} ({counts})")
    if parts:
        yield f"In neither group: {' and '.join(parts)}."
