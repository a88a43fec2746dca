"""Contexts: no node and no agent sees more than its row of the design's table."""

from __future__ import annotations

from typing import Any, cast, get_type_hints

import pytest
from pydantic import BaseModel

from agents.core.base import Agent
from agents.expansion.agent import EXPANSION
from agents.feasibility.agent import FEASIBILITY
from agents.instructions.agent import CODING_INSTRUCTIONS
from agents.interpreter.agent import INTERPRETER
from agents.novelty.judge import JUDGE
from agents.novelty.prover import PROVER
from agents.novelty.verifier import VERIFIER
from agents.ontologist.agent import ONTOLOGIST
from agents.path_generation.agent import PATH_GENERATION
from agents.question.agent import QUESTION
from agents.scientist.agent import SCIENTIST
from agents.summary.agent import SUMMARY
from sage.run.graph import build, build_evaluation, build_interpretation
from sage.run.services import Services

WINDOWS = {
    "path_generation": {"prompt", "question"},
    "ontologist": {"question", "paths"},
    "scientist": {"question", "brief", "drafts", "wishes"},
    "review": {"drafts", "decided", "reviewed"},
    "redesign": {"evaluations", "redesigned", "drafts"},
    "judge": {"tested"},
    "report": {"evaluations", "decided"},
}
EVALUATION = {
    "expansion": {"reviewed_one", "expanded", "reasons", "round"},
    "novelty": {"expanded", "round"},
    "feasibility": {"expanded", "round"},
    "coding_instructions": {"expanded", "feasibility"},
    "coding": {"expanded", "contract_hash", "coding_status"},
    "escalation": {"expanded"},
}
INTERPRETATION = {
    "interpreter": {"expanded", "contract_hash"},
    "summary": {"expanded", "interpretation", "novelty", "feasibility"},
}

# What an agent's input may be built of, and words that must not occur anywhere in its schema.
READS: list[tuple[Agent[Any, Any], set[str], set[str]]] = [
    (QUESTION, {"prompt", "cohort", "graph"}, {"ScoredPath", "Hypothesis", "OntologyBrief"}),
    (PATH_GENERATION, {"prompt", "question", "already"}, {"ScoredPath", "Hypothesis"}),
    (ONTOLOGIST, {"question", "paths"}, {"Hypothesis"}),
    (SCIENTIST, {"question", "brief", "dictionary", "wanted", "already", "wishes", "history"},
     {"ScoredPath", "PathScores"}),
    (EXPANSION, {"reviewed", "reasons", "round"}, {"OntologyBrief", "ScoredPath"}),
    (PROVER, {"expanded", "records", "missing_sources", "coverage", "as_of", "debate", "round"},
     {"OntologyBrief", "ScoredPath", "DictionaryView"}),
    (VERIFIER, {"expanded", "records", "missing_sources", "coverage", "as_of", "debate", "round"},
     {"OntologyBrief", "ScoredPath", "DictionaryView"}),
    (JUDGE, {"expanded", "records", "missing_sources", "coverage", "as_of", "debate", "round"},
     {"OntologyBrief", "ScoredPath", "DictionaryView"}),
    (FEASIBILITY, {"expanded", "dictionary", "evidence"}, {"OntologyBrief", "ScoredPath"}),
    (CODING_INSTRUCTIONS, {"expanded", "dictionary", "tools"}, {"OntologyBrief", "ScoredPath"}),
    (INTERPRETER, {"expanded", "contract", "results", "pictures"}, {"OntologyBrief", "ScoredPath"}),
    (SUMMARY, {"interpretation", "expanded", "verdict", "novelty", "feasibility"},
     {"ContractView", "ScoredPath", "OntologyBrief"}),
]  # fmt: skip


def _windows(graph: Any, names: dict[str, set[str]]) -> dict[str, set[str]]:
    return {name: set(get_type_hints(graph.nodes[name].input_schema)) for name in names}


def test_each_node_reads_its_window_and_nothing_else() -> None:
    services = cast(Services, None)
    assert _windows(build(services), WINDOWS) == WINDOWS
    assert _windows(build_evaluation(services), EVALUATION) == EVALUATION
    assert _windows(build_interpretation(services), INTERPRETATION) == INTERPRETATION


@pytest.mark.parametrize(
    ("agent", "fields", "never"), READS, ids=[agent.name for agent, _, _ in READS]
)
def test_each_agent_reads_its_row_and_nothing_else(
    agent: Agent[Any, Any], fields: set[str], never: set[str]
) -> None:
    reads: type[BaseModel] = agent.reads
    assert set(reads.model_fields) == fields
    assert reads.model_config.get("extra") == "forbid"
    nested = set(reads.model_json_schema().get("$defs", {}))
    assert not nested & never
    assert agent.name in ("question", "path_generation") or "prompt" not in reads.model_fields
