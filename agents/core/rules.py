"""The reasoner without a model: each agent's deterministic rule."""

from __future__ import annotations

from agents.core.base import Agent, I, O, Reply, Resources
from sage.core.errors import FaultError
from sage.core.llm.budget import Meter
from sage.core.llm.trace import Trace
from sage.core.llm.turns import Moves, RefusedError, RulePolicy, Task, take_turns


class RulesReasoner:
    """Answers with the agents' own rules. It is no language model, and the report states so."""

    name = "rules"

    def __init__(
        self, resources: Resources, trace: Trace | None = None, meter: Meter | None = None
    ) -> None:
        self.resources = resources
        self.trace = trace or Trace()
        self.meter = meter

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        """Let the agent's rule work, with the agent's tools if it has any, and check its output.

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
            raise FaultError(f"rule of {agent.name}: {refused.reason}") from None
        return Reply(output=result.output, reasoner=self.name, model=None, spent=result.spent)


def _moves(agent: Agent[I, O], given: I, resources: Resources) -> Moves[O]:
    """Return the agent's policy where it has tools, else its rule as a policy of a single move."""
    if agent.tools and agent.policy is not None:
        return (yield from agent.policy(given, resources))
    return agent.rule(given, resources)
