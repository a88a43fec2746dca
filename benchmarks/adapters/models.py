"""Model replies in SAGE: prompts from a recorded run, sent to an OpenAI-compatible address.

Each prompt is answered anew and parsed as SAGE parses it. The counts cover replies that
follow the agent's schema at first, replies that were repaired (in place, or by asking
again with the errors), replies that were refused to the end, and prompts that do not fit
the context. The content of a reply is not judged, and the agents' own checks (for
example, that a citation was given) are not applied.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from typing import Annotated, Any, Literal

import typer
from pydantic import SecretStr

from benchmarks.runner import Report, Row, percent
from sage.core.data import data_folder
from sage.core.llm.budget import Meter
from sage.core.llm.client import Client, Endpoint
from sage.core.llm.failures import ModelError, PromptTooLongError
from sage.core.llm.messages import Message, ModelChoice, Request
from sage.core.llm.trace import Trace
from sage.core.llm.turns import ModelPolicy, Spent, Task, UnansweredError, take_turns
from sage.core.models import Strict, describe_schema
from sage.core.printable import one_line
from sage.run.tracing import AGENTS

Outcome = Literal["valid at first", "repaired", "refused", "too long", "no reply"]


class Asked(Strict):
    """A prompt and its outcome; token counts are those that the server reports."""

    agent: str
    outcome: Outcome
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


def run(
    address: Annotated[str, typer.Argument(help="Base URL, up to /v1.")],
    model: Annotated[str, typer.Option(help="Name of the model there.")] = "m",
    recording: Annotated[str, typer.Option(help="Recorded run.")] = "tcga-blca-tls",
    context: Annotated[int | None, typer.Option(help="Context in tokens.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest reply.")] = None,
    repairs: Annotated[int, typer.Option(help="How often a refused reply is asked again.")] = 2,
    most: Annotated[int, typer.Option(help="Most prompts of an agent.")] = 100,
) -> Report:
    """Send the prompts (with the key in SAGE_API_KEY, if needed) and count the outcomes."""
    key = os.environ.get("SAGE_API_KEY")
    endpoint = Endpoint(base_url=address, api_key=SecretStr(key) if key else None, timeout_s=600)
    client = Client(endpoint, Meter(), None)
    choice = ModelChoice(name=model, context=context, max_tokens=max_tokens)
    agents = {agent.returns.__name__: agent for agent in AGENTS}
    seen: Counter[str] = Counter()
    rows = []
    calls = data_folder("recordings") / recording / "calls.jsonl"
    for line in calls.read_text(encoding="utf-8").splitlines():
        call = json.loads(line)
        agent = agents.get(call["schema"])
        messages = [Message(role=it["role"], text=str(it["content"])) for it in call["messages"]
                    if it["role"] in ("system", "user")]  # fmt: skip
        seen[call["schema"]] += 1
        turned = len(messages) < len(call["messages"])  # a later turn, after the results of tools
        if agent is None or turned or seen[call["schema"]] > most:
            continue
        request = Request(
            agent=agent.name, model=choice, messages=tuple(messages),
            schema=describe_schema(agent.returns), title=agent.returns.__name__,
        )  # fmt: skip
        rows.append(ask(agent.name, agent.returns, request, client, repairs))
    return summarize(rows, model, recording)


def ask(agent: str, returns: type[Any], request: Request, client: Client, repairs: int) -> Asked:
    """Ask until a reply follows the schema, with at most `repairs` retries."""
    task: Task[Any] = Task(
        agent=agent, given=Strict(), returns=returns, check=lambda output: [],
        author=request.model.name, repairs=repairs, meter=client.meter,
    )  # fmt: skip
    kinds: list[str] = []

    class Kept(Trace):
        def write(self, line: Any) -> None:
            kinds.append(line.kind)

    begun, spent, calls = time.perf_counter(), Spent(), client.meter.calls
    outcome: Outcome
    try:
        spent = take_turns(task, ModelPolicy(client, request, show=one_line), Kept(), "chat").spent
        outcome = "repaired" if {"repair", "refusal"} & set(kinds) else "valid at first"
    except UnansweredError as error:
        spent, outcome = error.spent, "refused"
    except PromptTooLongError:  # at first, or when asked again with the errors
        outcome = "refused" if client.meter.calls > calls else "too long"
    except ModelError:
        outcome = "no reply"
    return Asked(
        agent=agent, outcome=outcome, prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens, seconds=round(time.perf_counter() - begun, 2),
    )  # fmt: skip


def summarize(rows: list[Asked], model: str, recording: str) -> Report:
    """Count the outcomes; shares are relative to the prompts that fit."""
    counts = Counter(row.outcome for row in rows)
    fitting = len(rows) - counts["too long"]
    shares = [
        f"{percent(counts[name] / max(fitting, 1))} {name}"
        for name in ("valid at first", "repaired", "refused", "no reply")
        if counts[name] or name == "valid at first"
    ]
    read, written = (sum(getattr(row, f"{kind}_tokens") for row in rows)
                     for kind in ("prompt", "completion"))  # fmt: skip
    seconds = sum(row.seconds for row in rows)
    return Report(
        rows=(
            Row(
                benchmark=f"replies of {model}",
                measured=f"{fitting} of {len(rows)} prompts of the recorded run {recording}",
                sage=", ".join(shares),
                cost=f"{read:,} + {written:,} tokens, {seconds:.0f} s",
            ),
        ),
        data=[row.model_dump(mode="json") for row in rows],
    )
