"""Reasoner that uses a language model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from agents.core.base import Agent, I, O, Reasoner, Reply, Role
from agents.core.disclosure import Withheld, require_disclosable
from agents.core.fitting import fit_input
from agents.core.prompting import parse, render
from agents.core.words import drop_refused, refuse_words
from sage.core.errors import InputError
from sage.core.llm.client import Client
from sage.core.llm.failures import PromptTooLongError
from sage.core.llm.messages import Image, Message, ModelChoice, Request
from sage.core.llm.trace import Trace
from sage.core.llm.turns import (
    ModelPolicy,
    RefusedError,
    Spent,
    Task,
    UnansweredError,
    UnusableError,
    take_turns,
)
from sage.core.models import Strict, describe_schema
from sage.core.printable import one_line


class ChatSettings(Strict):
    """Model for each role, and the maximum number of repairs for a rejected reply."""

    models: Mapping[Role, ModelChoice]
    repairs: int = 2
    vision: bool = False


class ChatReasoner:
    """Reasoner that asks a model for an agent's output, with bounded repair, cache and meter.

    Parameters
    ----------
    stand_in : answers where the model gives no usable reply, or the prompt does not fit its context
    on_stand_in : receives the reason each time
    """

    name = "chat"

    def __init__(
        self,
        settings: ChatSettings,
        client: Client,
        withheld: Withheld = frozenset,
        trace: Trace | None = None,
        stand_in: Reasoner | None = None,
        on_stand_in: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.stand_in = stand_in
        self.on_stand_in = on_stand_in
        self.settings = settings
        self.client = client
        self.withheld = withheld
        self.trace = trace or Trace()
        unpriced = [
            f"models.{role.value}" for role, it in settings.models.items() if not it.has_prices
        ]
        if client.meter.budget_usd is not None and unpriced:
            raise InputError(
                "--budget-usd requires prices; set price_in and price_out (USD per million "
                f"tokens) for {', '.join(unpriced)} in sage.toml"
            )

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        """Ask the model, and fall back to the stand-in, if any, when the reply is unusable.

        Raises
        ------
        BudgetError
            If the next call would exceed the run's budget.
        InputError
            If the endpoint rejects the key or does not know the model.
        FaultError
            If the endpoint cannot be reached; without a stand-in, if every reply was rejected; if
            the prompt would disclose a patient (`agents.core.disclosure`).
        """
        try:
            return self._ask_model(agent, given)
        except (UnansweredError, PromptTooLongError) as failure:
            if self.stand_in is None:
                raise
            self.on_stand_in(str(failure))
            reply = self.stand_in.ask(agent, given)
            spent = failure.spent if isinstance(failure, UnansweredError) else Spent()
            return replace(reply, spent=spent + reply.spent)

    def _request(self, agent: Agent[I, O], given: I) -> Request:
        system, user = render(agent.prompt, given)
        seen = agent.images(given) if agent.images and self.settings.vision else ()
        return Request(
            agent=agent.name,
            model=self.settings.models[agent.role],
            messages=(
                Message(role="system", text=system),
                Message(role="user", text=user, images=tuple(Image(data=png) for png in seen)),
            ),
            schema=describe_schema(agent.returns),
            title=agent.returns.__name__,
            tools=tuple(tool.wire() for tool in agent.tools),
        )

    def _ask_model(self, agent: Agent[I, O], given: I) -> Reply[O]:
        """Ask until a reply passes the schema and the agent's check, up to `repairs` more times.

        An agent with tools works in turns within its bounds.

        Remarks that are still refused at the end are dropped.
        """
        model = self.settings.models[agent.role]
        room = model.room
        left_out: tuple[str, ...] = ()
        if room is not None:
            given, left_out = fit_input(
                given, agent.spare, lambda fewer: self._request(agent, fewer).tokens <= room
            )
        request = self._request(agent, given)

        def admit(text: str) -> None:
            require_disclosable(agent.name, given, text, self.withheld())

        admit(request.messages[1].text)
        policy = ModelPolicy(self.client, request, show=one_line, admit=admit)

        def find_problems(output: O) -> list[str]:
            return (agent.check(given, output) if agent.check else []) + refuse_words(given, output)

        def leave_out(output: O) -> O | None:
            """Return the output without refused parts and remarks; None if the rest is invalid."""
            output = drop_refused(given, agent.mend(given, output) if agent.mend else output)
            return None if find_problems(output) else output

        task = Task(
            agent=agent.name,
            given=given,
            returns=agent.returns,
            check=find_problems,
            salvage=leave_out,
            author=model.name,
            tools=agent.tools,
            bounds=agent.bounds,
            repairs=self.settings.repairs,
            meter=self.client.meter,
            left_out=left_out,
        )
        try:
            result = take_turns(task, policy, self.trace, self.name)
        except RefusedError as refused:
            for key in policy.keys:
                self.client.forget(key)
            unusable = UnusableError(
                f"{agent.name} ({model.name}, prompt version {parse(agent.prompt).version}): no"
                f" usable reply in {refused.attempts} attempts; the last was refused because"
                f" {refused.reason}"
            )
            unusable.spent = refused.spent
            raise unusable from None
        return Reply(
            output=result.output, reasoner=self.name, model=result.model, spent=result.spent
        )
