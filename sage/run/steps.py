"""Names of a run's steps as shown in the terminal and on the pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sage.core.llm.trace import list_stand_ins, read_trace

if TYPE_CHECKING:
    from sage.run.folder import RunFolder

STEPS = {
    "question": "Reading the question",
    "path_generation": "Searching the literature graph",
    "ontologist": "Defining the concepts",
    "scientist": "Proposing hypotheses",
    "redesign": "Redesigning the hypothesis",
    "review": "Review by a person",
    "expansion": "Explaining the mechanism",
    "novelty": "Judging how new it is",
    "feasibility": "Judging whether it can be tested",
    "coding_instructions": "Fixing the analysis plan",
    "coding": "Running the analysis",
    "escalation": "Correction by a person",
    "judge": "Reaching the verdict",
    "interpreter": "Interpreting the results",
    "summary": "Summarizing the findings",
    "report": "Writing the report",
}


def describe_step(event: Mapping[str, Any]) -> str:
    """Describe a run's step from an event: its hypothesis, and whether it is repeated."""
    node = str(event.get("node", ""))
    words = STEPS.get(node, node.replace("_", " "))
    about = [str(event["hypothesis"])] if event.get("hypothesis") else []
    about += [f"round {event['round']}"] if event.get("round") else []
    return f"{words} ({', '.join(about)})" if about else words


def describe_stand_ins(folder: RunFolder) -> tuple[str, ...]:
    """Describe the steps of a run in which rules replaced the model."""
    if folder.manifest().reasoner == "rules" or not folder.trace_path.exists():
        return ()
    found = list_stand_ins(read_trace(folder.trace_path))
    return tuple(describe_step({"node": node, "hypothesis": about}) for node, about in found)
