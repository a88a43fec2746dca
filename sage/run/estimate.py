"""Estimates of a run's model calls, tokens and cost per agent, made before any call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from agents.core.base import Agent, Role
from agents.core.prompting import parse
from agents.novelty.types import DebateSettings
from agents.scientist.agent import BOUNDS
from agents.scientist.tools import LOOKS
from agents.scientist.tournament import TOURNAMENT, comparisons
from sage.core.data import data_folder
from sage.core.llm.messages import ModelChoice, estimate_tokens
from sage.core.llm.turns import Tool
from sage.core.models import Strict, describe_schema
from sage.run.hypothesis_nodes import QUERIES
from sage.run.tracing import AGENTS
from sage.settings import Settings

RECORDED = "tcga-blca-tls"
ONCE = {
    "question": 1,
    "path_generation": QUERIES,
    "ontologist": 1,
    "scientist": BOUNDS.turns,
}
"""Agents called once for all hypotheses, with their maximum number of turns."""
LOOK = 1500
"""Tokens that a tool's result is assumed to add to the next prompt."""
GUESSED_REPLY = 1500
"""Tokens assumed for a reply missing from the recorded run."""
Fits = Literal["whole", "shortened", "no"]
CRITICS = ("prover", "verifier", "judge")


class AgentEstimate(Strict):
    """An agent's typical share of a run, and the maximum with every round and revision.

    Tokens are summed over all calls. USD is None if the model has no prices. `room` is the
    space left for a prompt in the model's declared context; a prompt that does not fit is
    "shortened" by dropping items, or never sent ("no") if its fixed part is already too long.
    """

    agent: str
    model: str
    calls: int
    calls_most: int
    prompt_tokens: int
    prompt_tokens_most: int
    completion_tokens: int
    completion_tokens_most: int
    usd: float | None
    usd_most: float | None
    room: int | None = None
    fits: Fits = "whole"


class RunEstimate(Strict):
    """Estimates for a run's agents with their totals; USD is None if a model has no prices."""

    reasoner: Literal["rules", "chat"]
    agents: tuple[AgentEstimate, ...] = ()
    usd: float | None = 0.0
    usd_most: float | None = 0.0


def estimate(settings: Settings, hypotheses: int) -> RunEstimate:
    """Estimate each agent's calls, tokens and cost; empty for a run without a model.

    The maximum number of calls follows from the rounds and revisions in the settings; all
    other numbers are taken from the recorded run.

    Rejected replies that are sent back (at most `repairs` times) are not counted. A reasoning
    model's thoughts are not counted either, except within `max_tokens`, which limits the
    maximum reply.
    """
    if settings.effective_reasoner == "rules":
        return RunEstimate(reasoner="rules")
    sizes = _recorded_sizes()
    rows = [
        _estimate_agent(
            agent,
            getattr(settings.models, agent.role.value),
            _most_calls(agent.name, settings, hypotheses),
            hypotheses,
            sizes.get(agent.returns.__name__) or [_guess_size(agent)],
        )
        for agent in AGENTS
        if _most_calls(agent.name, settings, hypotheses)
    ]
    priced = all(row.usd is not None for row in rows)
    return RunEstimate(
        reasoner="chat",
        agents=tuple(rows),
        usd=sum(row.usd or 0.0 for row in rows) if priced else None,
        usd_most=sum(row.usd_most or 0.0 for row in rows) if priced else None,
    )


def _guess_size(agent: Agent[Any, Any]) -> tuple[int, int]:
    """Estimate the prompt tokens (with schemas) and reply tokens for an unrecorded call."""
    return estimate_tokens(agent.prompt.text) + _fixed_tokens(agent), GUESSED_REPLY


def _least_size(agent: Agent[Any, Any]) -> int:
    """Estimate the tokens that every prompt of an agent has, whatever it is about."""
    return estimate_tokens(parse(agent.prompt).system) + _fixed_tokens(agent)


def _fixed_tokens(agent: Agent[Any, Any]) -> int:
    """Estimate the tokens in an agent's schema and tools, which are resent with each call."""
    tools = [tool.wire() for tool in agent.tools]
    if agent.name == "scientist":
        tools = [Tool(name, summary, takes, repr).wire() for name, summary, takes, _ in LOOKS]
    parts = [describe_schema(agent.returns), *tools]
    return sum(estimate_tokens(json.dumps(part)) for part in parts)


def _most_calls(name: str, settings: Settings, hypotheses: int) -> int:
    """Compute an agent's maximum number of calls."""
    revised = hypotheses * (settings.revisions + 1)
    if name == TOURNAMENT.name:
        return comparisons(settings.drafts) if settings.tournament else 0
    if name in ONCE:
        return ONCE[name]
    if name == "expansion":
        return revised
    if name in CRITICS:
        return revised * (1 + DebateSettings().max_rounds)
    if name == "validation_agent":
        return hypotheses * settings.coding_rounds
    return hypotheses


def _estimate_agent(
    agent: Agent[Any, Any],
    model: ModelChoice,
    most: int,
    hypotheses: int,
    sizes: list[tuple[int, int]],
) -> AgentEstimate:
    prompts, replies = [size[0] for size in sizes], [size[1] for size in sizes]
    room, fixed = model.room, _least_size(agent)
    whole = room is None or room >= max(prompts)
    fits: Fits = "whole" if whole else "shortened" if fixed < (room or 0) else "no"
    usual = min(most, len(sizes) * (1 if agent.name in ONCE else hypotheses))
    usual = most if agent is TOURNAMENT else usual
    if fits == "no":  # rules stand in before any call
        usual = most = 0
    prompt, prompt_most = sum(prompts) // len(sizes) * usual, max(prompts) * most
    if agent.bounds is BOUNDS:  # each result appears in all later prompts
        prompt_most += LOOK * most * (most - 1) // 2
    if room is not None:
        prompt, prompt_most = min(prompt, room * usual), min(prompt_most, room * most)
    longest = model.max_tokens or max(replies)
    reply, reply_most = min(sum(replies) // len(sizes), longest) * usual, longest * most
    priced = model.price_in is not None and model.price_out is not None
    return AgentEstimate(
        agent=agent.name,
        model=model.name,
        calls=usual,
        calls_most=most,
        prompt_tokens=prompt,
        prompt_tokens_most=prompt_most,
        completion_tokens=reply,
        completion_tokens_most=reply_most,
        room=room,
        fits=fits,
        usd=model.cost(prompt, reply) if priced else None,
        usd_most=model.cost(prompt_most, reply_most) if priced else None,
    )


@lru_cache(maxsize=1)
def _recorded_sizes() -> dict[str, list[tuple[int, int]]]:
    """Return token counts for each recorded prompt, schema, tools and reply, by schema."""
    folder = data_folder("recordings") / RECORDED
    fixed = {agent.returns.__name__: _fixed_tokens(agent) for agent in AGENTS}
    sizes: dict[str, list[tuple[int, int]]] = {}
    for line in (folder / "calls.jsonl").read_text(encoding="utf-8").splitlines():
        call = json.loads(line)
        prompt = sum(estimate_tokens(str(message["content"])) for message in call["messages"])
        reply = (folder / f"{call['key']}.reply.txt").read_text(encoding="utf-8")
        size = (prompt + fixed.get(call["schema"], 0), estimate_tokens(reply))
        sizes.setdefault(call["schema"], []).append(size)
    return sizes


def describe_misfits(settings: Settings, contexts: Mapping[str, int] | None = None) -> list[str]:
    """Name the agents whose prompts do not fit their models, before any call.

    Parameters
    ----------
    contexts : context lengths reported by a server, by model, for models that declare none; a
        server of a single model serves it under every name
    """
    found = []
    contexts = contexts or {}
    only = next(iter(contexts.values())) if len(contexts) == 1 else None
    for role in Role:
        model: ModelChoice = getattr(settings.models, role.value)
        if model.context is None and (known := contexts.get(model.name, only)):
            model = model.model_copy(update={"context": known})
        if model.room is None:
            continue
        needed = {agent.name: _least_size(agent) for agent in AGENTS if agent.role is role}
        if names := [name for name, tokens in needed.items() if tokens > model.room]:
            found.append(
                f"models.{role.value} ({model.name}, context {model.context:,}): its prompts leave "
                f"no room for {', '.join(names)}, of up to {max(needed.values()):,} tokens before "
                "any data; their rules will stand in. Set a model with a longer context"
            )
    return found
