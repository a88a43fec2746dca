"""The reasoner without a model: each agent's deterministic rule."""

from __future__ import annotations

import time

from agents.base import Agent, I, O, Reply, Resources, Spent
from sage.core.errors import FaultError


class RulesReasoner:
    """Answers with the agents' own rules. It is no language model, and the report says so."""

    name = "rules"

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        """Apply the agent's rule and its check.

        Raises
        ------
        FaultError
            If the rule's output does not pass the agent's own check.
        """
        begun = time.perf_counter()
        output = agent.rule(given, self.resources)
        problems = agent.check(given, output) if agent.check else []
        if problems:
            raise FaultError(f"rule of {agent.name}: {problems[0]}")
        spent = Spent(seconds=time.perf_counter() - begun, calls=1)
        return Reply(output=output, reasoner=self.name, model=None, spent=spent)
