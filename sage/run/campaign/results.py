"""Conversion of a finished round into findings for the notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agents.campaign.moves import Move, came_to
from agents.core.statement import same_claim
from agents.core.types import Draft, EffectView, ExpandedHypothesis
from agents.feasibility.agent import list_conditions, read_evidence
from agents.feasibility.types import FeasibilityVerdict
from sage.core import clock
from sage.core.errors import InputError
from sage.core.files import read_json
from sage.core.models import read_model
from sage.report.spending import list_paid
from sage.run.campaign.notebook import Finding, Source, held_back
from sage.run.steps import describe_stand_ins
from validation.contracts.contract import Contract, FrozenContract
from validation.results.results import Results, TestOutcome, effect_text, p_is
from validation.verdict.verdict import adjusted_plan

if TYPE_CHECKING:
    from sage.run.folder import RunFolder
    from sage.run.services import Services

EXPLORING = ("discovery", "all")
SOURCES = 4


def findings_of(
    campaign: str, number: int, services: Services, moves: Sequence[Move]
) -> tuple[Finding, ...]:
    """Collect one finding per hypothesis drafted in the round, or a dead end if there are none.

    Parameters
    ----------
    moves : the moves that opened the round; a hypothesis that carries out a move is recorded
        with the move's kind and the earlier finding that it follows

    Returns
    -------
    The findings, ordered by hypothesis name. Each carries the cost (USD) and time (seconds)
    booked to its hypothesis, plus an equal share of the amounts not booked to any hypothesis.
    """
    folder = services.folder
    manifest = folder.manifest()
    costs = list_paid(folder)
    common: dict[str, Any] = {
        "campaign": campaign,
        "round": number,
        "run": str(folder.root),
        "cohort": services.dictionary.cohort,
        "held_back": held_back(manifest.spec.split, manifest.spec.seed),
        "at": clock.stamp(),
        "stood_in": describe_stand_ins(folder),
    }
    drafts = folder.root.glob("outputs/draft-*.json")
    names = sorted(path.stem.removeprefix("draft-") for path in drafts)
    if not names:
        return (
            Finding(
                **common,
                id="none",
                statement="no hypothesis",
                came="dead end",
                reason=manifest.problem or "the round drafted no hypothesis",
                usd=sum(row.usd for row in costs),
                seconds=sum(row.seconds for row in costs),
            ),
        )
    shared = [row for row in costs if row.hypothesis not in names]
    found = []
    for name in names:
        mine = [row for row in costs if row.hypothesis == name]
        found.append(
            _finding(
                folder,
                name,
                moves,
                common
                | {
                    "usd": sum(row.usd for row in mine) + sum(r.usd for r in shared) / len(names),
                    "seconds": round(
                        sum(row.seconds for row in mine)
                        + sum(row.seconds for row in shared) / len(names),
                        2,
                    ),
                },
            )
        )
    return tuple(found)


def _finding(
    folder: RunFolder, name: str, moves: Sequence[Move], common: dict[str, Any]
) -> Finding:
    draft = read_model(folder.output(f"draft-{name}"), Draft)
    home = folder.hypothesis(name)
    state = _state(folder)
    try:
        frozen = FrozenContract.load(home / "contract.json")
        results = Results.load(home / "results" / "results.json")
    except (InputError, FileNotFoundError):
        return Finding(
            **common,
            **_find_move(draft.hypothesis, moves),
            id=name,
            statement=draft.hypothesis.statement,
            hypothesis=draft.hypothesis,
            came="dead end",
            reason=_why_not_tested(folder, name, state),
            sources=_sources(draft.citations, draft.contradicting),
        )
    contract = frozen.contract
    explored = _primary(results, contract.primary, EXPLORING)
    confirmed = _primary(results, contract.primary, ("confirmation", "replication"))
    came = came_to(contract, explored) if explored is not None else "dead end"
    evaluation = state.get(name, {})
    first = next((reason.text for reason in results.verdict.reasons), "")
    expanded = _load_expanded(folder, name) or draft
    return Finding(
        **common,
        **_find_move(draft.hypothesis, moves),
        id=name,
        statement=contract.hypothesis.statement,
        hypothesis=contract.hypothesis,
        came=came,
        explored=_estimate(explored),
        effect=effect_view(explored),
        confirmed=_with_adjusted(contract, results, confirmed)
        if came == "held" and confirmed is not None
        else None,
        place=contract.online.place if contract.online and came == "held" else None,
        level=contract.online.level if contract.online and came == "held" else None,
        verdict=results.verdict.verdict,
        because=results.verdict.because,
        badge=results.verdict.badge,
        reason=first,
        novelty=evaluation.get("novelty"),
        sources=_sources(expanded.citations, draft.contradicting),
    )


def _find_move(hypothesis: Any, moves: Sequence[Move]) -> dict[str, Any]:
    """Find the move that requested this hypothesis, if any."""
    move = next(
        (move for move in moves if same_claim(move.hypothesis) == same_claim(hypothesis)), None
    )
    if move is None:
        return {}
    return {"kind": move.kind, "of": move.of, "why": move.why, "depth": move.depth}


def _load_expanded(folder: RunFolder, name: str) -> ExpandedHypothesis | None:
    found = sorted(folder.root.glob(f"outputs/expanded-{name}*.json"))
    return read_model(found[-1], ExpandedHypothesis) if found else None


def _state(folder: RunFolder) -> dict[str, dict[str, Any]]:
    path = folder.output("state")
    if not path.exists():
        return {}
    found = read_json(path)
    known = {evaluation["hypothesis_id"]: dict(evaluation) for evaluation in found["evaluations"]}
    for decision in found["decisions"]:
        known.setdefault(decision["hypothesis_id"], {})["decision"] = decision
    return known


def _why_not_tested(folder: RunFolder, name: str, state: dict[str, dict[str, Any]]) -> str:
    evaluation = state.get(name, {})
    decision = evaluation.get("decision", {})
    if decision.get("action") in ("reject", "another"):
        return f"not continued after review: {decision.get('comment') or decision['action']}"
    if evaluation.get("ended") == "infeasible":
        answer = read_json(folder.output(f"feasibility-{name}"))
        found = FeasibilityVerdict.model_validate(answer["output"])
        needed = list_conditions(found, read_evidence(folder.output(f"evidence-{name}")))
        return f"infeasible; needed: {' '.join(needed)}"
    if evaluation.get("ended") == "abandoned":
        return "its analysis was given up"
    return folder.manifest().problem or "it was not tested"


def _primary(results: Results, primary: str, parts: Sequence[str]) -> TestOutcome | None:
    found = [test for test in results.tests if test.id == primary and test.part in parts]
    return found[0] if found else None


def _with_adjusted(contract: Contract, results: Results, confirmed: TestOutcome) -> str:
    """Describe the estimate in the confirmation patients and the effect after adjustment."""
    plan = adjusted_plan(contract)
    adjusted = plan and _primary(results, plan.id, (confirmed.part,))
    if not adjusted or adjusted.effect is None:
        return _estimate(confirmed)
    return f"{_estimate(confirmed)}; adjusted {_estimate(adjusted)}"


def _estimate(found: TestOutcome | None) -> str:
    if found is None or found.effect is None:
        return found.reason if found is not None else ""
    counted = f"{found.n} patients" if found.n is not None else ""
    if found.events is not None:
        counted += f", {found.events} events"
    return f"{effect_text(found.effect)}, {p_is(found.p)}" + (f"; {counted}" if counted else "")


def effect_view(found: TestOutcome | None) -> EffectView | None:
    """Return a test's effect in the form shown to later proposals; None if there is no effect."""
    if found is None or found.effect is None:
        return None
    effect = found.effect
    return EffectView(
        estimate=_round(effect.value),
        lower=_round(effect.lower),
        upper=_round(effect.upper),
        scale=effect.scale,
    )


def _round(value: float) -> float:
    """Round to four digits, enough for a reader and identical on every machine."""
    return float(f"{value:.4g}")


def _sources(citations: Sequence[Any], against: Sequence[Any]) -> tuple[Source, ...]:
    cited = [(citation, False) for citation in citations[:SOURCES]]
    cited += [(citation, True) for citation in against[:SOURCES]]
    return tuple(
        Source(title=citation.title, year=citation.year, key=citation.key, against=opposed)
        for citation, opposed in cited
    )
