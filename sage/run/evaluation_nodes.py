"""Nodes that evaluate reviewed hypotheses, from expansion to the report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

from agents.core.statement import settle_fields
from agents.core.types import ExpandedHypothesis, dictionary_view
from agents.expansion.agent import EXPANSION, ExpansionInput, compose_expanded
from agents.feasibility.agent import describe_verdict
from agents.instructions.agent import (
    CODING_INSTRUCTIONS,
    CodingInstructionsInput,
    ToolCard,
    apply_instructions,
)
from agents.instructions.demands import take_up
from agents.interpreter.agent import INTERPRETER, InterpreterInput
from agents.scientist.rank import RankParts
from agents.summary.agent import SUMMARY, FeasibilityView, NoveltyView, SummaryInput, verdict_view
from sage.core.files import write_json
from sage.run.services import Services
from sage.run.state import Evaluation, HypothesisState, InterpretationState, RunState, Tested
from sage.run.validating import (
    analyze,
    contract_view,
    drafted_contract,
    finalize_verdicts,
    freeze_contract,
    load_frozen,
    pictures,
    results_view,
)

if TYPE_CHECKING:
    from agents.novelty.types import DebateOutcome


def suffix(hypothesis_id: str, round_number: int) -> str:
    """Return the suffix of an output's name, composed of hypothesis and revision."""
    return hypothesis_id if round_number == 0 else f"{hypothesis_id}-r{round_number}"


def expansion(services: Services, state: HypothesisState) -> dict[str, Any]:
    """Expand the reviewed hypothesis; in a revision, sharpen it to address the critics' reasons.

    A revision starts from the previous version, so that earlier narrowing is kept.
    """
    reviewed = state["reviewed_one"]
    name, number = reviewed.hypothesis.id, state.get("round", 0)
    if number:
        before = state["expanded"].hypothesis
        reviewed = reviewed.model_copy(update={"hypothesis": before})
    with services.node("expansion", name):
        given = ExpansionInput(
            reviewed=reviewed, reasons=tuple(state.get("reasons", [])), round=number
        )
        answer = services.ask(EXPANSION, given, f"expansion-{suffix(name, number)}").output
        expanded = compose_expanded(given, answer)
        expanded = expanded.model_copy(
            update={"hypothesis": settle_fields(expanded.hypothesis, services.dictionary)}
        )
        write_json(services.folder.output(f"expanded-{suffix(name, number)}"), expanded)
        return {"expanded": expanded, "round": number}


def novelty(services: Services, state: HypothesisState) -> dict[str, Any]:
    """Debate novelty; request a revision while it is below the threshold and rounds remain."""
    from agents.novelty.debate import hold_debate, retriever
    from agents.novelty.types import DebateSettings

    expanded, number = state["expanded"], state.get("round", 0)
    name = expanded.hypothesis.id
    with services.node("novelty", name):
        settings = DebateSettings(threshold=services.settings.novelty_threshold)
        year = services.spec.as_of
        as_of = date(year, 12, 31) if year else None
        outcome = hold_debate(
            expanded,
            services.reasoner,
            retriever(services.literature, settings, as_of),
            settings,
            as_of=as_of,
            ontology=services.ontology,
        )
        services.save_answer(
            f"novelty-{suffix(name, number)}", "novelty", outcome.reasoner, outcome, outcome.spent
        )
        # Without reasons from the critics there is nothing to revise.
        again = (
            outcome.below_threshold
            and number < services.settings.revisions
            and bool(outcome.reasons)
        )
        return {
            "novelty": NoveltyView(
                score=outcome.score if outcome.judged else None,
                threshold=outcome.threshold,
                specious=bool(outcome.specious),
                summary=_describe_novelty(outcome),
            ),
            "reasons": list(outcome.reasons) if again else [],
            "round": number + 1 if again else number,
        }


def _describe_novelty(outcome: DebateOutcome) -> str:
    """Describe the novelty findings in a sentence: the rules' words or a count of records."""
    from agents.novelty.coverage import explain_irrelevance

    if not outcome.judged:
        return f"Novelty is not judged: {explain_irrelevance(outcome.coverage)}."
    judged = [turn.position.summary for turn in outcome.transcript if turn.critic == "judge"]
    if judged and isinstance(judged[-1], str):
        return judged[-1]
    return (
        f"{len(outcome.coverage.relevant)} of {len(outcome.records)} retrieved records mention "
        "an exposure of the claim together with another part of it."
    )


def after_novelty(state: dict[str, Any]) -> Literal["expansion", "feasibility"]:
    """Return to expansion if the critics requested a revision, or continue to feasibility."""
    return "expansion" if state.get("reasons") else "feasibility"


def _terms(expanded: ExpandedHypothesis) -> list[str]:
    hypothesis = expanded.hypothesis
    keys = [exposure.variable for exposure in hypothesis.exposures] + list(hypothesis.covariates)
    keys += [condition.variable for condition in hypothesis.population.filters]
    return [*(key.split(":")[-1] for key in keys), *expanded.parts]


def feasibility(services: Services, state: HypothesisState) -> dict[str, Any]:
    """Assess feasibility from the gathered evidence, before anything is computed."""
    from agents.coding.controller import LIMITS
    from agents.feasibility.agent import FEASIBILITY
    from agents.feasibility.collect import gather
    from agents.feasibility.plan import contract_numbers
    from agents.feasibility.types import FeasibilityInput, Machine

    expanded = state["expanded"]
    name = expanded.hypothesis.id
    with services.node("feasibility", name):
        # The analysis gets the sandbox's share of the machine, not all of it.
        machine = Machine(cores=int(LIMITS.cpus), memory_mb=LIMITS.memory_mb)
        evidence = gather(
            expanded,
            services.dictionary,
            lambda: services.tool_cards,
            services.registries,
            machine=machine,
            numbers=contract_numbers(
                expanded.hypothesis,
                services.dictionary,
                services.cohort,
                services.spec.split_rule,
            ),
        )
        given = FeasibilityInput(
            expanded=expanded,
            dictionary=dictionary_view(
                services.dictionary, _terms(expanded), services.settings.min_count
            ),
            evidence=tuple(evidence),
        )
        write_json(
            services.folder.output(f"evidence-{name}"),
            [entry.model_dump(mode="json") for entry in evidence],
        )
        verdict = services.ask(FEASIBILITY, given, f"feasibility-{name}").output
        return {"feasibility": verdict}


def after_feasibility(state: dict[str, Any]) -> Literal["coding_instructions", "close"]:
    """Stop an infeasible hypothesis before any computation."""
    return "coding_instructions" if state["feasibility"].may_run else "close"


def coding_instructions(services: Services, state: HypothesisState) -> dict[str, Any]:
    """Settle the plan, then draft the contract and freeze it before any outcome is compared."""
    expanded = state["expanded"]
    name = expanded.hypothesis.id
    with services.node("coding_instructions", name):
        given = CodingInstructionsInput(
            expanded=expanded,
            dictionary=dictionary_view(
                services.dictionary, _terms(expanded), services.settings.min_count
            ),
            tools=tuple(
                ToolCard(name=card.name, summary=card.summary, suite=card.suite)
                # A tool can only make a variable if there are slides to run it on.
                for card in (services.tool_cards if services.dictionary.slides else ())
                if card.suite == "pathology"
            ),
        )
        answer = services.ask(CODING_INSTRUCTIONS, given, f"coding_instructions-{name}").output
        hypothesis = apply_instructions(expanded.hypothesis, answer)
        demanded = state["feasibility"].adjust_for
        if demanded and not hypothesis.covariates:
            proposed = drafted_contract(services, hypothesis).covariates
            hypothesis = hypothesis.model_copy(update={"covariates": proposed})
        hypothesis, demands = take_up(hypothesis, demanded, services.dictionary)
        write_json(services.folder.output(f"demands-{name}"), demands)
        return {"contract_hash": freeze_contract(services, hypothesis)}


def coding(services: Services, state: HypothesisState) -> dict[str, Any]:
    """Execute the contract in the sandbox; after an escalation, use the corrected program."""
    name = state["expanded"].hypothesis.id
    with services.node("coding", name):
        status = analyze(
            services,
            name,
            state["contract_hash"],
            mended=state.get("coding_status") == "retry",
        )
        return {"coding_status": status}


def after_coding(state: dict[str, Any]) -> Literal["close", "escalation"]:
    """Escalate an analysis to a person if it never succeeded."""
    return "close" if state["coding_status"] == "done" else "escalation"


def escalation(_: Services, state: HypothesisState) -> dict[str, Any]:
    """Interrupt at the second human checkpoint: fix the code and retry, or abandon the analysis."""
    from langgraph.types import interrupt

    name = state["expanded"].hypothesis.id
    answer = interrupt({"escalated": name})
    action = answer.get("action") if isinstance(answer, dict) else None
    return {"coding_status": "retry" if action == "retry" else "abandoned"}


def after_escalation(state: dict[str, Any]) -> Literal["coding", "close"]:
    """Go back to coding after a manual fix."""
    return "coding" if state["coding_status"] == "retry" else "close"


def judge(services: Services, state: RunState) -> dict[str, Any]:
    """Reach the final verdicts once the ledger contains every claim in the run."""
    with services.node("judge"):
        finalize_verdicts(
            services,
            {item.expanded.hypothesis.id: item.contract_hash for item in state.get("tested", [])},
        )
        return {}


def interpreter(services: Services, state: InterpretationState) -> dict[str, Any]:
    """Interpret the results, citing numbers by key and staying within the verdict."""
    expanded = state["expanded"]
    name = expanded.hypothesis.id
    with services.node("interpreter", name):
        frozen = load_frozen(services, name, state["contract_hash"])
        given = InterpreterInput(
            expanded=expanded,
            contract=contract_view(frozen),
            results=results_view(services.folder.hypothesis(name), services.settings.min_count),
            pictures=pictures(services.folder.hypothesis(name)) if services.settings.vision else (),
        )
        return {"interpretation": services.ask(INTERPRETER, given, f"interpreter-{name}").output}


def summary(services: Services, state: InterpretationState) -> dict[str, Any]:
    """Summarize the interpretation, the hypothesis, and the verdicts with their reasons."""
    expanded = state["expanded"]
    name = expanded.hypothesis.id
    with services.node("summary", name):
        home = services.folder.hypothesis(name)
        given = SummaryInput(
            interpretation=state["interpretation"],
            verdict=verdict_view(results_view(home, services.settings.min_count)),
            expanded=expanded,
            novelty=state["novelty"],
            feasibility=state["feasibility"],
        )
        services.ask(SUMMARY, given, f"summary-{name}")
        return {"interpreted": [name]}


def close(_: Services, state: HypothesisState) -> dict[str, Any]:
    """Record how the evaluation ended."""
    status, verdict = state.get("coding_status"), state["feasibility"]
    ended: Literal["tested", "infeasible", "abandoned"] = (
        "infeasible" if not verdict.may_run else "abandoned" if status == "abandoned" else "tested"
    )
    evaluation = Evaluation(
        hypothesis_id=state["expanded"].hypothesis.id,
        ended=ended,
        revisions=state.get("round", 0),
        novelty=state["novelty"].score,
        feasibility=verdict.score,
    )
    if ended != "tested":
        return {"evaluations": [evaluation]}
    tested = Tested(
        expanded=state["expanded"],
        contract_hash=state["contract_hash"],
        round=state.get("round", 0),
        novelty=state["novelty"],
        feasibility=FeasibilityView(
            score=verdict.score, verdict=verdict.verdict, summary=describe_verdict(verdict)
        ),
    )
    return {"evaluations": [evaluation], "tested": [tested]}


def rank(evaluations: list[Evaluation], parts: Mapping[str, RankParts]) -> list[str]:
    """Rank hypotheses that answer the question as asked first, then by expected information.

    All criteria were fixed before any outcome was read. If novelty was assessed in the
    debate, its score (out of 10) replaces the count of records. Infeasible hypotheses come
    last. The verdict is not used: ranking by outcome would reward chance.
    """

    def information(evaluation: Evaluation) -> float:
        known = parts.get(evaluation.hypothesis_id)
        if known is None:
            return 0.0
        fresh = known.understudied if evaluation.novelty is None else evaluation.novelty / 10
        return known.power * known.plausibility * known.relevance * fresh

    def key(evaluation: Evaluation) -> tuple[bool, int, int, float, str]:
        name = evaluation.hypothesis_id
        known = parts.get(name)
        left_out, added = (known.left_out, known.added) if known else (0, 0)
        return evaluation.ended == "infeasible", left_out, added, -information(evaluation), name

    return [evaluation.hypothesis_id for evaluation in sorted(evaluations, key=key)]


def report(services: Services, state: RunState) -> dict[str, Any]:
    """Rank the hypotheses, save the state needed for the report, and build the report."""
    from sage.report.build import write_report
    from sage.report.candidates import rankings
    from sage.report.crate import write_crate

    with services.node("report"):
        evaluations = list(state.get("evaluations", []))
        parts = {
            item.hypothesis_id: item.parts
            for found in rankings(services.folder)
            for item in found.ranked
            if item.hypothesis_id
        }
        ranking = rank(evaluations, parts)
        write_json(
            services.folder.output("state"),
            {
                "decisions": [entry.model_dump(mode="json") for entry in state.get("decided", [])],
                "evaluations": [evaluation.model_dump(mode="json") for evaluation in evaluations],
                "ranking": ranking,
            },
        )
        for evaluation in evaluations:
            if evaluation.ended == "tested":
                _draw_measured(services, evaluation.hypothesis_id)
        services.folder.record.seal()
        write_report(services.folder)
        write_crate(services.folder.root, services.folder.manifest())
        return {"ranking": ranking}


def _draw_measured(services: Services, name: str) -> None:
    """Draw the slide measurements if the cohort declares where its maps are."""
    from sage.report.fields import FOLDER, draw_measured
    from validation.contracts.contract import FrozenContract, read_claim

    home = services.folder.hypothesis(name)
    if services.cohort.maps is None or not (home / "contract.json").is_file():
        return
    frozen = read_claim(home / "contract.json")
    if isinstance(frozen, FrozenContract):
        keys = [exposure.key for exposure in frozen.contract.exposures]
        draw_measured(services.cohort, keys, home / FOLDER)
