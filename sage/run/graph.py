"""The state machine: its nodes, the part of the state each node sees, and the edges."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sage.run import evaluation_nodes as evaluate
from sage.run import hypothesis_nodes as hypothesize
from sage.run.report_node import rank_and_report
from sage.run.state import (
    CloseIn,
    CodingIn,
    EscalationIn,
    ExpandedIn,
    ExpansionIn,
    HypothesisState,
    InstructionsIn,
    InterpretationState,
    InterpreterIn,
    JudgeIn,
    OntologistIn,
    PathGenerationIn,
    RankIn,
    RedesignIn,
    ReviewIn,
    RunState,
    ScientistIn,
    SummaryIn,
)

if TYPE_CHECKING:
    from sage.run.services import Services


def after_review(state: RunState) -> Any:
    """Go to the scientist if another hypothesis is wanted; otherwise evaluate the approved ones."""
    from langgraph.types import Send

    if state.get("wishes"):
        return "scientist"
    if _undecided(state):
        return "review"
    evaluated = {evaluation.hypothesis_id for evaluation in state.get("evaluations", [])}
    waiting = [
        reviewed
        for reviewed in state.get("reviewed", [])
        if reviewed.hypothesis.id not in evaluated
    ]
    if waiting:
        return [Send("evaluate", {"reviewed_one": reviewed, "round": 0}) for reviewed in waiting]
    return "judge" if evaluated else "report"


def _undecided(state: RunState) -> bool:
    settled = {decision.hypothesis_id for decision in state.get("decided", [])}
    return any(draft.hypothesis.id not in settled for draft in state["drafts"])


def after_scientist(state: RunState) -> Any:
    """Go to the review; if a redesign or a wish led to no draft, continue without it."""
    return "review" if _undecided(state) else after_review({**state, "wishes": []})


def after_redesign(state: RunState) -> str:
    """Go back to the scientist if an infeasible claim is to be redesigned; else to the judge."""
    return "scientist" if state.get("wishes") else "judge"


def build_evaluation(services: Services) -> Any:
    """Build the graph that evaluates one hypothesis, from expansion to coding."""
    from langgraph.graph import END, START, StateGraph

    graph: Any = StateGraph(HypothesisState)
    for name, node, window in (
        ("expansion", evaluate.expansion, ExpansionIn),
        ("novelty", evaluate.novelty, ExpandedIn),
        ("feasibility", evaluate.feasibility, ExpandedIn),
        ("coding_instructions", evaluate.coding_instructions, InstructionsIn),
        ("coding", evaluate.coding, CodingIn),
    ):
        graph.add_node(name, partial(node, services), input_schema=window)
    graph.add_node("escalation", evaluate.escalation, input_schema=EscalationIn)
    graph.add_node("close", evaluate.close, input_schema=CloseIn)
    graph.add_edge(START, "expansion")
    graph.add_edge("expansion", "novelty")
    graph.add_conditional_edges("novelty", evaluate.after_novelty, ["expansion", "feasibility"])
    graph.add_conditional_edges(
        "feasibility", evaluate.after_feasibility, ["coding_instructions", "close"]
    )
    graph.add_edge("coding_instructions", "coding")
    graph.add_conditional_edges("coding", evaluate.after_coding, ["close", "escalation"])
    graph.add_conditional_edges("escalation", evaluate.after_escalation, ["coding", "close"])
    graph.add_edge("close", END)
    return graph


def build_interpretation(services: Services) -> Any:
    """Build the graph that interprets one tested hypothesis."""
    from langgraph.graph import END, START, StateGraph

    graph: Any = StateGraph(InterpretationState)
    graph.add_node(
        "interpreter", partial(evaluate.interpreter, services), input_schema=InterpreterIn
    )
    graph.add_node("summary", partial(evaluate.summary, services), input_schema=SummaryIn)
    graph.add_edge(START, "interpreter")
    graph.add_edge("interpreter", "summary")
    graph.add_edge("summary", END)
    return graph


def after_judging(state: RunState) -> Any:
    """Interpret each tested hypothesis; if there is none, go straight to the report."""
    from langgraph.types import Send

    tested = state.get("tested", [])
    if not tested:
        return "report"
    return [
        Send(
            "interpret",
            {
                "expanded": item.expanded,
                "contract_hash": item.contract_hash,
                "novelty": item.novelty,
                "feasibility": item.feasibility,
            },
        )
        for item in tested
    ]


def build(services: Services) -> Any:
    """Build the graph of the whole run."""
    from langgraph.graph import END, START, StateGraph

    graph: Any = StateGraph(RunState)
    for name, node, window in (
        ("path_generation", hypothesize.path_generation, PathGenerationIn),
        ("ontologist", hypothesize.ontologist, OntologistIn),
        ("scientist", hypothesize.scientist, ScientistIn),
        ("redesign", hypothesize.redesign, RedesignIn),
        ("judge", evaluate.judge, JudgeIn),
        ("report", rank_and_report, RankIn),
    ):
        graph.add_node(name, partial(node, services), input_schema=window)
    graph.add_node("review", hypothesize.review, input_schema=ReviewIn)
    graph.add_node("evaluate", build_evaluation(services).compile())
    graph.add_node("interpret", build_interpretation(services).compile())
    graph.add_edge(START, "path_generation")
    graph.add_edge("path_generation", "ontologist")
    graph.add_edge("ontologist", "scientist")
    onward = ["scientist", "review", "evaluate", "judge", "report"]
    graph.add_conditional_edges("scientist", after_scientist, onward)
    graph.add_conditional_edges("review", after_review, onward)
    graph.add_edge("evaluate", "redesign")
    graph.add_conditional_edges("redesign", after_redesign, ["scientist", "judge"])
    graph.add_conditional_edges("judge", after_judging, ["interpret", "report"])
    graph.add_edge("interpret", "report")
    graph.add_edge("report", END)
    return graph
