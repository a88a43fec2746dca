"""The state machine: its nodes, the part of the state each node sees, and the edges.

A node's window lists the channels that it may read; LangGraph passes it nothing else. The
windows implement the design's table of contexts, so widening a window is a design change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, get_type_hints

from sage.run import evaluation_nodes as evaluate
from sage.run import hypothesis_nodes as hypothesize
from sage.run.state import HypothesisState, InterpretationState, RunState

if TYPE_CHECKING:
    from sage.run.services import Services

Windows = Mapping[Callable[..., dict[str, Any]], str]
RUN: Windows = {
    hypothesize.path_generation: "prompt question",
    hypothesize.ontologist: "question paths",
    hypothesize.scientist: "question brief drafts wishes",
    hypothesize.review: "drafts decided reviewed",
    hypothesize.redesign: "evaluations redesigned drafts",
    evaluate.judge: "tested",
    evaluate.report: "evaluations decided",
}
EVALUATION: Windows = {
    evaluate.expansion: "reviewed_one expanded reasons round",
    evaluate.novelty: "expanded round",
    evaluate.feasibility: "expanded round",
    evaluate.coding_instructions: "expanded feasibility",
    evaluate.coding: "expanded contract_hash coding_status",
    evaluate.escalation: "expanded",
    evaluate.close: "expanded novelty feasibility contract_hash coding_status round",
}
INTERPRETATION: Windows = {
    evaluate.interpreter: "expanded contract_hash",
    evaluate.summary: "expanded interpretation novelty feasibility",
}


def _with_nodes(services: Services, state: Any, windows: Windows) -> Any:
    """Build a graph over `state` whose nodes see only the channels in their windows."""
    from langgraph.graph import StateGraph

    graph: Any = StateGraph(state)
    channels = get_type_hints(state, include_extras=True)
    for node, names in windows.items():
        seen = {name: channels[name] for name in names.split()}
        window = TypedDict(f"{node.__name__}_window", seen)  # type: ignore[misc]
        graph.add_node(node.__name__, partial(node, services), input_schema=window)
    return graph


def after_review(state: RunState) -> Any:
    """Go to the scientist if another hypothesis is requested; else evaluate the approved ones."""
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
    """Continue to the review, or skip it if a redesign or a wish produced no draft."""
    return "review" if _undecided(state) else after_review({**state, "wishes": []})


def after_redesign(state: RunState) -> str:
    """Return to the scientist to redesign an infeasible claim, or continue to the judge."""
    return "scientist" if state.get("wishes") else "judge"


def build_evaluation(services: Services) -> Any:
    """Build the graph that evaluates a single hypothesis, from expansion to coding."""
    from langgraph.graph import END, START

    graph = _with_nodes(services, HypothesisState, EVALUATION)
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
    """Build the graph that interprets a single tested hypothesis."""
    from langgraph.graph import END, START

    graph = _with_nodes(services, InterpretationState, INTERPRETATION)
    graph.add_edge(START, "interpreter")
    graph.add_edge("interpreter", "summary")
    graph.add_edge("summary", END)
    return graph


def after_judging(state: RunState) -> Any:
    """Interpret each tested hypothesis, or go straight to the report if there is none."""
    from langgraph.types import Send

    tested = state.get("tested", [])
    return [
        Send("interpret", {name: value for name, value in item if name != "round"})
        for item in tested
    ] or "report"


def build(services: Services) -> Any:
    """Build the graph for a whole run."""
    from langgraph.graph import END, START

    graph = _with_nodes(services, RunState, RUN)
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
