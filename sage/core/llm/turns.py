"""The loop in which an agent works: decide, call a tool or answer, read the result, repeat.

A *policy* makes the decisions: a model, a deterministic rule, or a recorded trace. The
loop runs the tools, enforces the bounds, has the answer checked, and writes every turn to
the trace. A question without tools uses the same loop with an empty set of tools.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from sage.core.errors import FaultError, InputError
from sage.core.hashes import hash_text
from sage.core.llm.budget import Charge, Meter
from sage.core.llm.client import Model
from sage.core.llm.messages import Message, Reply, Request, ToolCall
from sage.core.llm.repair import (
    describe_problems,
    fit,
    join_problems,
    read_last_object,
    read_object,
)
from sage.core.llm.trace import Episode, Trace, TraceLine, traced_message
from sage.core.models import Strict, describe_schema

O = TypeVar("O", bound=BaseModel)  # noqa: E741
A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True)
class Tool(Generic[A]):
    """A function that an agent may call, with typed input, a JSON-serializable result and a price.

    Parameters
    ----------
    call : the function; an `InputError` is reported to the agent, any other error ends the run
    """

    name: str
    description: str
    takes: type[A]
    call: Callable[[A], object]
    usd: float = 0.0

    def wire(self) -> dict[str, Any]:
        """Describe the tool in the chat-completions format."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": describe_schema(self.takes),
        }
        return {"type": "function", "function": function}


class Bounds(Strict):
    """Limits on the resources an agent may spend on an answer; None means no limit.

    Tokens, USD and seconds are checked before every turn; a turn in progress is always
    completed.
    """

    turns: int = Field(default=20, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    usd: float | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, gt=0)


DEFAULT_BOUNDS = Bounds()


@dataclass(frozen=True)
class Spent:
    """Resources spent on an answer; tokens and USD are zero for rules."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    calls: int = 0
    cached: int = 0
    repairs: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(**{name: value + getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True)
class Step:
    """A policy's decision: tools to call, a final value, or neither for the reason `refused`.

    `traced` contains the fields of the step's line in the trace; `repaired` lists the repairs
    made to the reply.
    """

    calls: tuple[ToolCall, ...] = ()
    final: object = None
    refused: str = ""
    repaired: tuple[str, ...] = ()
    spent: Spent = field(default_factory=Spent)
    model: str | None = None
    traced: dict[str, Any] = field(default_factory=dict)


class Policy:
    """Base class of policies, which decide each turn; feedback between turns is ignored."""

    kind: Literal["model", "rule"] = "model"

    def decide(self) -> Step:
        """Decide on the next step."""
        raise NotImplementedError

    def observe(self, call: ToolCall, result: object, error: str | None) -> None:
        """Receive a tool's result, or the reason why it returned none."""

    def reconsider(self, reason: str) -> None:
        """Receive the reason why the final value is not acceptable."""

    def finish(self) -> None:
        """Prepare for the last turn, in which no more tools can be called."""


@dataclass(frozen=True)
class Task(Generic[O]):
    """A question to an agent.

    Parameters
    ----------
    check : returns the reasons why an output that matches the schema is not acceptable
    salvage : returns the output to use once the repairs are used up, or None
    author : the model that writes the answer, as context for its validation; None for a rule
    left_out : description of the input that did not fit the model's context
    """

    agent: str
    given: BaseModel
    returns: type[O]
    check: Callable[[O], list[str]]
    salvage: Callable[[O], O | None] | None = None
    author: str | None = None
    tools: tuple[Tool[Any], ...] = ()
    bounds: Bounds = DEFAULT_BOUNDS
    repairs: int = 0
    meter: Meter | None = None
    left_out: tuple[str, ...] = ()

    def read(self, value: object, notes: list[str]) -> tuple[O | None, str]:
        """Fit a value to the output schema; return it, or None and a description of the problem.

        Parameters
        ----------
        notes : list to which a note about each repair is added
        """
        if isinstance(value, self.returns):
            return value, ""
        try:
            return fit(value, self.returns, {"author": self.author}, notes), ""
        except ValidationError as error:
            return None, describe_problems(error)


@dataclass(frozen=True)
class Result(Generic[O]):
    """An agent's output, the model that produced it, and its cost."""

    output: O
    model: str | None
    spent: Spent


class UnansweredError(FaultError):
    """Error raised when an agent gives no answer; `spent` is the cost of the attempt."""

    spent = Spent()


class RefusedError(UnansweredError):
    """Error raised when every answer was rejected; `reason` explains the last rejection."""

    def __init__(self, agent: str, attempts: int, reason: str) -> None:
        super().__init__(
            f"{agent}: no usable reply in {attempts} attempts; the last was rejected because "
            f"{reason}"
        )
        self.attempts = attempts
        self.reason = reason


class UnusableError(UnansweredError):
    """Error raised when a reachable model gave no usable reply in any attempt."""


class BoundError(UnansweredError):
    """Error raised when an agent reaches one of its bounds without giving an answer."""


def take_turns(task: Task[O], policy: Policy, trace: Trace, reasoner: str) -> Result[O]:
    """Let `policy` work on `task` until it gives an answer.

    Raises
    ------
    RefusedError
        If every answer was refused and nothing can be salvaged.
    BoundError
        If a bound is reached before an answer is given.
    """
    episode = trace.episode(task.agent)
    given = _dump(task.given)
    episode.add(
        "ask",
        reasoner=reasoner,
        model=task.author,
        input_sha256=hash_text(given),
        returns=task.returns.__name__,
        tools=tuple(tool.name for tool in task.tools) or None,
        bounds=task.bounds.model_dump(exclude_none=True) if task.tools else None,
        left_out=task.left_out or None,
    )
    run = _Run(task, policy, episode)
    try:
        output, model, outcome = run.to_the_answer()
    except Exception as error:
        episode.add("end", outcome="failed", error=str(error)[:1000], **run.totals())
        if isinstance(error, UnansweredError):
            error.spent = replace(run.spent, seconds=time.perf_counter() - episode.begun)
        raise
    episode.add("end", outcome=outcome, output=output.model_dump(mode="json"), **run.totals())
    seconds = time.perf_counter() - episode.begun
    return Result(output, model, replace(run.spent, seconds=seconds))


def _dump(value: BaseModel) -> str:
    """Serialize a value to JSON, escaping characters that UTF-8 cannot encode."""
    plain = value.model_dump(mode="json", fallback=str, warnings=False)
    text = json.dumps(plain, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class _Run(Generic[O]):
    """One execution of the loop."""

    def __init__(self, task: Task[O], policy: Policy, episode: Episode) -> None:
        self.task = task
        self.policy = policy
        self.episode = episode
        self.spent = Spent()

    def totals(self) -> dict[str, Any]:
        return {
            "seconds": round(time.perf_counter() - self.episode.begun, 4),
            "prompt_tokens": self.spent.prompt_tokens,
            "completion_tokens": self.spent.completion_tokens,
            "usd": self.spent.usd,
        }

    def to_the_answer(self) -> tuple[O, str | None, str]:
        turns = refusals = 0
        while True:
            self._hold_bounds(turns)
            begun = time.perf_counter()
            step = self.policy.decide()
            turns += 1
            self.spent += step.spent
            seconds = round(time.perf_counter() - begun, 4)
            self.episode.add(
                self.policy.kind, calls=step.calls or None, seconds=seconds, **step.traced
            )
            if step.calls:
                for call in step.calls:
                    self._call(call)
                continue
            notes = list(step.repaired)
            output, reason = None, step.refused
            if not reason:
                output, reason = self.task.read(step.final, notes)
            if notes:
                self.episode.add("repair", text="; ".join(notes))
            problems = self.task.check(output) if output is not None else [reason]
            if output is not None and not problems:
                return output, step.model, "answered"
            reason = join_problems(problems)
            self.episode.add("refusal", text=reason)
            refusals += 1
            if refusals > self.task.repairs:
                salvage = self.task.salvage
                salvaged = salvage(output) if salvage and output is not None else None
                if salvaged is None:
                    raise RefusedError(self.task.agent, refusals, reason)
                return salvaged, step.model, "reworded"
            self.spent += Spent(repairs=1)
            self.policy.reconsider(reason)

    def _hold_bounds(self, turns: int) -> None:
        bounds, spent = self.task.bounds, self.spent
        tokens = spent.prompt_tokens + spent.completion_tokens
        seconds = time.perf_counter() - self.episode.begun
        for used, most, unit in (
            (turns, bounds.turns if self.task.tools else None, "turns"),
            (tokens, bounds.tokens, "tokens"),
            (spent.usd, bounds.usd, "USD"),
            (seconds, bounds.seconds, "seconds"),
        ):
            if most is not None and used >= most:
                raise BoundError(
                    f"{self.task.agent} reached its limit of {most:g} {unit} without an answer; "
                    "increase the limit, or simplify the question"
                )
        if self.task.tools and 0 < turns == bounds.turns - 1:
            self.policy.finish()

    def _call(self, call: ToolCall) -> None:
        begun = time.perf_counter()
        result: object = None
        error: str | None = None
        arguments: object = call.arguments
        tools = {tool.name: tool for tool in self.task.tools}
        # Some models write the name as that of a module's function, as in "functions.look".
        tool = tools.get(call.name) or tools.get(re.split(r"[.:/]", call.name)[-1])
        if tool is None:
            known = ", ".join(tool.name for tool in self.task.tools) or "none"
            error = f"no tool is called {call.name!r}; tools: {known}"
        else:
            try:
                arguments = read_object(call.arguments.strip() or "{}")
                typed = fit(arguments, tool.takes, drop_unknown=False)
            except ValidationError as invalid:
                error = describe_problems(invalid)
            except ValueError as invalid:
                error = f"the arguments are not valid JSON: {invalid}"
            else:
                result, error = self._run_tool(tool, typed)
        self.episode.add(
            "tool",
            tool=call.name,
            call_id=call.id,
            arguments=arguments,
            result=result,
            error=error,
            usd=tool.usd if tool and tool.usd else None,
            seconds=round(time.perf_counter() - begun, 4),
        )
        self.policy.observe(call, result, error)

    def _run_tool(self, tool: Tool[Any], typed: BaseModel) -> tuple[object, str | None]:
        reserved = self.task.meter.reserve(tool.usd) if tool.usd and self.task.meter else None
        try:
            result = tool.call(typed)
        except InputError as error:
            return None, str(error)
        finally:
            self.spent += Spent(usd=tool.usd)
            if reserved is not None:
                reserved.settle(Charge(self.task.agent, f"tool {tool.name}", 0, 0, tool.usd))
        return _plain(result), None


def _plain(result: object) -> object:
    """Convert a tool's result to JSON-compatible data."""
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json")
    if isinstance(result, list | tuple):
        return [_plain(item) for item in result]
    if isinstance(result, dict):
        return {str(name): _plain(value) for name, value in result.items()}
    return result


LEFT_OUT = "left out for want of space: "


def _outline(text: str) -> str:
    """Summarize a tool's result by the names and lengths of its fields."""
    try:
        fields = json.loads(text).items()
    except (ValueError, AttributeError):
        return f"{LEFT_OUT}{len(text)} characters"
    held = [f"{name} ({len(value)})" if isinstance(value, list) else name for name, value in fields]
    return LEFT_OUT + ", ".join(held)


class ModelPolicy(Policy):
    """A policy in which a language model decides, receiving tool results and refusals as messages.

    Parameters
    ----------
    show : makes external text safe to use in a line of a prompt
    admit : raises an error if a tool's result must not reach a model
    """

    def __init__(
        self,
        client: Model,
        request: Request,
        *,
        show: Callable[[str], str],
        admit: Callable[[str], None] | None = None,
    ) -> None:
        self.client = client
        self.request = request
        self.show = show
        self.admit = admit
        self.keys: list[str] = []
        self._sent = 0
        self._reply: Reply | None = None
        self._as_text = False

    def decide(self) -> Step:
        """Ask the model for its next step."""
        left_out = self._shorten_history()
        answer = self.client.ask(self.request)
        reply, moved = self._place_answer(answer.reply)
        self._reply = reply
        self.keys.append(answer.key)
        traced = {
            "messages": tuple(
                traced_message(message) for message in self.request.messages[self._sent :]
            ),
            "key": answer.key,
            "model": reply.model,
            "content": reply.content,
            "reasoning": reply.reasoning or None,
            "finish": reply.finish,
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            "usd": answer.usd,
            "estimated": reply.estimated or None,
            "cached": answer.cached or None,
            "left_out": left_out or None,
        }
        self._sent = len(self.request.messages)
        spent = Spent(
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            usd=answer.usd,
            calls=1,
            cached=int(answer.cached),
        )
        step = self._parse_reply(reply, moved)
        return replace(step, spent=spent, model=reply.model, traced=traced)

    def _shorten_history(self) -> tuple[str, ...]:
        """Replace the oldest tool results by outlines until the prompt fits."""
        room, shortened = self.request.model.room, []
        for at, message in enumerate(self.request.messages[:-1]):
            if room is None or self.request.tokens <= room:
                break
            if message.role == "tool" and not message.text.startswith(LEFT_OUT):
                short = message.model_copy(update={"text": _outline(message.text)})
                before, after = self.request.messages[:at], self.request.messages[at + 1 :]
                self.request = replace(self.request, messages=(*before, short, *after))
                shortened.append(f"result {message.call_id}")
        return tuple(shortened)

    def _place_answer(self, reply: Reply) -> tuple[Reply, list[str]]:
        """Move an answer that the model put into a tool call or its reasoning to the content."""
        called = reply.calls[0].name if len(reply.calls) == 1 else ""
        if called and (not self.request.tools or called == self.request.title):
            placed = replace(reply, content=reply.calls[0].arguments, calls=())
            return placed, ["an answer sent as a call"]
        if not reply.content.strip() and not reply.calls:
            value = read_last_object(reply.reasoning)
            if value is not None:
                placed = replace(reply, content=json.dumps(value, ensure_ascii=False))
                return placed, ["an answer at the end of the reasoning"]
        return reply, []

    def _parse_reply(self, reply: Reply, notes: list[str]) -> Step:
        self._as_text = False
        if reply.finish == "length":
            return Step(refused="it was cut off at the length limit; write less")
        if reply.calls and self.request.tools:
            return Step(calls=reply.calls)
        try:
            value = read_object(reply.content, notes)
        except ValueError as error:
            return Step(refused=str(error))
        if self.request.tools and (call := _read_call(value)) is not None:
            self._as_text = True
            return Step(calls=(call,))
        return Step(final=value, repaired=tuple(notes))

    def observe(self, call: ToolCall, result: object, error: str | None) -> None:
        """Send the model a tool's result."""
        text = self.show(json.dumps({"error": error} if error else result, ensure_ascii=False))
        if self.admit is not None:
            self.admit(text)
        if self._as_text:
            self._say(Message(role="user", text=f"Result of {call.name}: {text}"))
        else:
            self._say(Message(role="tool", text=text, call_id=call.id))

    def reconsider(self, reason: str) -> None:
        """Tell the model why its reply was refused, on one line."""
        self._say(
            Message(
                role="user",
                text=f"That reply was refused: {self.show(reason)}\n"
                "Reply again with the whole corrected JSON object and nothing else.",
            )
        )

    def finish(self) -> None:
        """Ask the model to answer with the information it has, without further tools."""
        self._say(
            Message(
                role="user",
                text="No more tools can be called. Reply now with the final JSON object alone.",
            )
        )
        self.request = replace(self.request, tools=())

    def _say(self, message: Message) -> None:
        """Add a message to the conversation, after the reply that it answers."""
        said: tuple[Message, ...] = ()
        if self._reply is not None:
            calls = self._reply.calls if self.request.tools and not self._as_text else ()
            said = (Message(role="assistant", text=self._reply.content, calls=calls),)
            self._reply = None
        self.request = replace(self.request, messages=(*self.request.messages, *said, message))


def _read_call(value: object) -> ToolCall | None:
    """Parse a tool call written as text; return None if the value is not a tool call."""
    if not isinstance(value, dict):
        return None
    for name, arguments in (("tool", "arguments"), ("name", "arguments"), ("name", "parameters")):
        if set(value) == {name, arguments} and isinstance(value[name], str):
            given = json.dumps(value[arguments], ensure_ascii=False)
            return ToolCall(id="text", name=value[name], arguments=given)
    return None


@dataclass(frozen=True)
class Use:
    """A tool call made by a rule."""

    tool: str
    arguments: BaseModel


Moves = Generator[Use, Any, O]
"""A rule that uses tools: it yields a `Use`, receives its result, and returns the output."""


class RulePolicy(Policy):
    """A policy in which a deterministic rule decides, using the same tools as a model would.

    A tool error ends the rule, which has no alternative to try.
    """

    kind = "rule"

    def __init__(self, agent: str, moves: Generator[Use, Any, BaseModel]) -> None:
        self.agent = agent
        self._moves = moves
        self._results: list[object] = []
        self._begun = False
        self._turn = 0

    def decide(self) -> Step:
        """Let the rule make its next move."""
        try:
            if self._begun:
                use = self._moves.send(self._results.pop())
            else:
                self._begun = True
                use = next(self._moves)
        except StopIteration as ended:
            output: BaseModel = ended.value
            traced = {"content": _dump(output)}
            return Step(final=output, spent=Spent(calls=1), traced=traced)
        self._turn += 1
        call = ToolCall(
            id=f"call_{self._turn}", name=use.tool, arguments=use.arguments.model_dump_json()
        )
        return Step(calls=(call,))

    def observe(self, call: ToolCall, result: object, error: str | None) -> None:
        """Store the result for the rule's next move."""
        if error is not None:
            raise FaultError(f"{error} (while {self.agent} used {call.name})")
        self._results.append(result)


class ReplayPolicy(Policy):
    """A policy that repeats the decisions of a recorded episode.

    Steps that were refused are refused again for the recorded reason. An answer in which SAGE
    replaced refused sentences with its own is used as recorded.
    """

    def __init__(self, lines: Sequence[TraceLine]) -> None:
        self._lines = [line for line in lines if line.kind not in ("ask", "tool", "repair")]

    def decide(self) -> Step:
        """Return the next recorded step."""
        line = self._take("model", "rule")
        if line is None:
            raise InputError("the trace ends before the answer; lines are missing")
        if line.calls:
            return Step(calls=line.calls, model=line.model)
        refusal = self._take("refusal")
        if refusal is not None:
            end = self._take("end")
            if end is not None and end.outcome == "reworded":
                return Step(final=end.output, model=line.model)
            return Step(refused=refusal.text or "refused")
        try:
            return Step(final=read_object(line.content or ""), model=line.model)
        except ValueError as error:
            return Step(refused=str(error))

    def _take(self, *kinds: str) -> TraceLine | None:
        """Consume and return the next line if its kind is among those given."""
        if self._lines and self._lines[0].kind in kinds:
            return self._lines.pop(0)
        return None


class _Recorded(BaseModel, extra="allow"):
    """Tool arguments as recorded in the trace."""


def replay(lines: Sequence[TraceLine], returns: type[O]) -> O | None:
    """Run a recorded episode through the loop again, without a model, tools or network.

    The tools return their recorded results. Returns the output, or None if the episode did
    not end with an answer.

    Raises
    ------
    InputError
        If the turns do not reproduce the recorded output.
    """
    end = next((line for line in lines if line.kind == "end"), None)
    if end is None or end.outcome == "failed":
        return None
    results = [line for line in lines if line.kind == "tool"]
    asked = next((line for line in lines if line.kind == "ask"), end)

    def replay_result(_: BaseModel) -> object:
        line = results.pop(0)
        if line.error is not None:
            raise InputError(line.error)
        return line.result

    names = dict.fromkeys(line.tool for line in results if line.tool)
    task = Task(
        agent=end.agent,
        given=_Recorded(),
        returns=returns,
        check=lambda _: [],
        author=None if end.outcome == "reworded" else asked.model,
        tools=tuple(Tool(name, "recorded", _Recorded, replay_result) for name in names),
        bounds=Bounds(turns=len(lines) + 1),
        repairs=len(lines),
    )
    try:
        output = take_turns(task, ReplayPolicy(lines), Trace(), "replay").output
    except InputError as error:
        raise InputError(f"episode {end.episode} of {end.agent}: {error}") from None
    if output.model_dump(mode="json") != end.output:
        raise InputError(
            f"episode {end.episode} of {end.agent}: its turns do not reproduce its recorded output"
        )
    return output
