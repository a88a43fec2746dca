"""Reasoner without a model, which applies each agent's deterministic rule."""

from __future__ import annotations

from agents.core.base import Agent, I, O, Reply, Resources
from sage.core.errors import FaultError
from sage.core.llm.budget import Meter
from sage.core.llm.trace import Trace
from sage.core.llm.turns import Moves, RefusedError, RulePolicy, Task, take_turns


class RulesReasoner:
    """Reasoner that answers with the agents' own rules; the report states that it used no model."""

    name = "rules"

    def __init__(
        self, resources: Resources, trace: Trace | None = None, meter: Meter | None = None
    ) -> None:
        self.resources = resources
        self.trace = trace or Trace()
        self.meter = meter

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        """Apply the agent's rule, with the agent's tools if it has any, and check the output.

        Raises
        ------
        FaultError
            If the rule's output does not pass the agent's own check.
        """
        task = Task(
            agent=agent.name,
            given=given,
            returns=agent.returns,
            check=lambda output: agent.check(given, output) if agent.check else [],
            tools=agent.tools,
            bounds=agent.bounds,
            meter=self.meter,
        )
        moves: Moves[O] = _moves(agent, given, self.resources)
        policy = RulePolicy(agent.name, moves)
        try:
            result = take_turns(task, policy, self.trace, self.name)
        except RefusedError as refused:
            raise FaultError(f"{agent.name} rule: {refused.reason}") from None
        return Reply(output=result.output, reasoner=self.name, model=None, spent=result.spent)


def _moves(agent: Agent[I, O], given: I, resources: Resources) -> Moves[O]:
    """Return the agent's policy if it has tools, else its rule as a single-move policy."""
    if agent.tools and agent.policy is not None:
        return (yield from agent.policy(given, resources))
    return agent.rule(given, resources)
