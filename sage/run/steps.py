"""Names of a run's steps in the words of the terminal and the pages."""

from __future__ import annotations

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


def describe_step(node: str, hypothesis: str = "") -> str:
    """Describe a step of a run, and the hypothesis it is about."""
    words = STEPS.get(node, node.replace("_", " "))
    return f"{words} ({hypothesis})" if hypothesis else words
