"""A run's agents by name, and replay of a run's trace without calling any of them."""

from __future__ import annotations

from typing import Any

from agents.coding.validation import VALIDATION_AGENT
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
from agents.scientist.tournament import TOURNAMENT
from agents.summary.agent import SUMMARY
from sage.core.errors import InputError
from sage.core.files import read_json
from sage.core.llm.trace import episodes, read_trace
from sage.core.llm.turns import replay
from sage.core.models import Strict
from sage.run.folder import RunFolder

AGENTS: tuple[Agent[Any, Any], ...] = (
    QUESTION,
    PATH_GENERATION,
    ONTOLOGIST,
    SCIENTIST,
    TOURNAMENT,
    EXPANSION,
    PROVER,
    VERIFIER,
    JUDGE,
    FEASIBILITY,
    CODING_INSTRUCTIONS,
    VALIDATION_AGENT,
    INTERPRETER,
    SUMMARY,
)
"""All agents, in the order in which a run calls them."""


class ReplayedTrace(Strict):
    """Counts for a trace: answered questions, turns, people's decisions, open questions.

    `untraced` lists agent outputs that none of the answers produced.
    """

    answered: int
    turns: int
    human: int
    unanswered: int
    untraced: tuple[str, ...]


def replay_trace(folder: RunFolder) -> ReplayedTrace | None:
    """Replay every recorded turn without model, tools or network; None if there is no trace.

    Raises
    ------
    InputError
        If the recorded turns do not reproduce the recorded output.
    """
    if not folder.trace_path.exists():
        return None
    lines = read_trace(folder.trace_path)
    known = {agent.name: agent for agent in AGENTS}
    given: dict[str, list[Any]] = {}
    human = answered = unanswered = 0
    for episode in episodes(lines):
        agent = known.get(episode[0].agent)
        if episode[0].kind == "human":
            human += 1
        elif agent is None:
            raise InputError(f"{folder.trace_path} contains an unknown agent: {episode[0].agent}")
        elif (output := replay(episode, agent.returns)) is None:
            unanswered += 1
        else:
            answered += 1
            given.setdefault(agent.name, []).append(output.model_dump(mode="json"))
    untraced = []
    for path in sorted((folder.root / "outputs").glob("*.json")):
        kept = read_json(path)
        name = kept.get("agent") if isinstance(kept, dict) else None
        if name in known and "reasoner" in kept and kept["output"] not in given.get(name, []):
            untraced.append(path.name)
    return ReplayedTrace(
        answered=answered,
        turns=sum(line.kind not in ("ask", "end") for line in lines),
        human=human,
        unanswered=unanswered,
        untraced=tuple(untraced),
    )
