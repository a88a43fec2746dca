"""The reasoner with a model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from pydantic import ValidationError

from agents.base import Agent, I, O, Reply, Role, Spent
from agents.disclosure import Withheld, require_disclosable
from agents.reasoners.prompting import parse, render
from kg.printable import one_line
from sage.core.errors import FaultError, InputError
from sage.core.llm.client import Client
from sage.core.llm.messages import Image, Message, ModelChoice, Request
from sage.core.llm.messages import Reply as RawReply
from sage.core.llm.structured import extract_json
from sage.core.models import Strict


class ChatSettings(Strict):
    """Which model serves which role, and how often a refused reply goes back."""

    models: Mapping[Role, ModelChoice]
    repairs: int = 2
    vision: bool = False


class ChatReasoner:
    """Asks a model for an agent's output schema, with bounded repair, a cache and a meter."""

    name = "chat"

    def __init__(
        self, settings: ChatSettings, client: Client, withheld: Withheld = frozenset
    ) -> None:
        self.settings = settings
        self.client = client
        self.withheld = withheld
        priced = all(model.priced for model in settings.models.values())
        if client.meter.budget_usd is not None and not priced:
            raise InputError(
                "--budget-usd needs prices: set models.ROLE.price_in and price_out (USD per"
                " million tokens) in sage.toml"
            )

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        """Ask until a reply passes the schema and the agent's check, at most `repairs` times more.

        When only its wording was refused to the end, SAGE's own sentences take the place of the
        refused ones.

        Raises
        ------
        BudgetError
            If the next call would exceed the run's budget.
        InputError
            If the endpoint refuses the key or does not know the model.
        FaultError
            If the endpoint cannot be reached, or every reply was refused; if the prompt would
            disclose a patient (`agents.disclosure`).
        """
        begun = time.perf_counter()
        model = self.settings.models[agent.role]
        system, user = render(agent.prompt, given)
        require_disclosable(agent.name, given, user, self.withheld())
        seen = agent.images(given) if agent.images and self.settings.vision else ()
        messages = (
            Message(role="system", text=system),
            Message(role="user", text=user, images=tuple(Image(data=one) for one in seen)),
        )
        request = Request(
            agent=agent.name,
            model=model,
            messages=messages,
            schema=agent.returns.model_json_schema(),
            title=agent.returns.__name__,
        )
        spent, keys, refused = Spent(), [], ""
        last: RawReply | None = None
        for attempt in range(self.settings.repairs + 1):
            answer = self.client.ask(request)
            raw = answer.reply
            keys.append(answer.key)
            spent = replace(
                spent,
                prompt_tokens=spent.prompt_tokens + raw.prompt_tokens,
                completion_tokens=spent.completion_tokens + raw.completion_tokens,
                usd=spent.usd + answer.usd,
                calls=spent.calls + 1,
                cached=spent.cached + answer.cached,
                repairs=attempt,
            )
            output, refused = _read(agent, given, raw)
            if output is not None:
                spent = replace(spent, seconds=time.perf_counter() - begun)
                return Reply(output=output, reasoner=self.name, model=raw.model, spent=spent)
            last = raw
            complaint = (
                f"That reply was refused: {one_line(refused)}\n"
                "Reply again with the whole corrected JSON object and nothing else."
            )
            again = (
                Message(role="assistant", text=raw.content),
                Message(role="user", text=complaint),
            )
            request = replace(request, messages=(*request.messages, *again))
        reworded = _reworded(agent, given, last) if last is not None else None
        if last is not None and reworded is not None:
            spent = replace(spent, seconds=time.perf_counter() - begun)
            return Reply(output=reworded, reasoner=self.name, model=last.model, spent=spent)
        for key in keys:
            self.client.forget(key)
        raise FaultError(
            f"{agent.name} ({model.name}, prompt version {parse(agent.prompt).version}): no usable"
            f" reply in {len(keys)} attempts; the last was refused because {refused}"
        )


def _read(agent: Agent[I, O], given: I, raw: RawReply) -> tuple[O | None, str]:
    """The validated output, or None and the reason for refusal."""
    if raw.finish == "length":
        return None, "it was cut off at the length limit; write less"
    try:
        output = agent.returns.model_validate(extract_json(raw.content))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[:3]
        reasons = "; ".join(
            f"{'.'.join(str(part) for part in one['loc']) or 'reply'}: {one['msg']}"
            for one in first
        )
        return None, reasons
    except ValueError as error:
        return None, str(error)
    problems = agent.check(given, output) if agent.check else []
    problems += agent.wording.problems(given, output) if agent.wording else []
    return (None, "; ".join(problems[:5])) if problems else (output, "")


def _reworded(agent: Agent[I, O], given: I, raw: RawReply) -> O | None:
    """The reply with SAGE's own sentences for refused ones; None if more than wording is wrong."""
    if agent.wording is None or raw.finish == "length":
        return None
    try:
        output = agent.returns.model_validate(extract_json(raw.content))
    except ValueError:
        return None
    output = agent.wording.replace(given, output)
    problems = agent.check(given, output) if agent.check else []
    return None if problems else output
