"""Client for language models from OpenAI, Azure, and any server that speaks their protocol.

Replies are streamed; the wait for the first token and any later silence are limited. The
maximum cost of a call is reserved from the run's budget before the call and settled after
it. A generation that ran out of time is charged as well and never retried automatically;
an interrupted reply is charged and requested once more. A reply that continues past its
limit is cut off, so no reply costs more than twice the amount reserved for it.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, cast

from pydantic import Field, SecretStr
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    RetryError,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
)

from sage.core import egress
from sage.core.errors import FaultError
from sage.core.llm.budget import Charge, Meter, Outcome
from sage.core.llm.cache import ReplyCache, request_key
from sage.core.llm.failures import (
    ModelError,
    PromptTooLongError,
    Unavailable,
    connection_lost,
    explain,
    one_line,
    passes,
    provider_reason,
    retry_after,
)
from sage.core.llm.messages import (
    Message,
    ModelChoice,
    Reply,
    Request,
)
from sage.core.llm.received import BrokenOff, ErrorBody, Received, TooLong
from sage.core.log import logger
from sage.core.models import Strict
from sage.core.progress import heard_by, listening

if TYPE_CHECKING:
    import openai

log = logger(__name__)

Structured = Literal["json_schema", "json_object", "prompt"]

MALFORMED = (ValueError, TypeError, KeyError, AttributeError)
BACKOFF = wait_exponential(multiplier=0.5, max=8.0)
"""Seconds before each retry if the server does not specify a delay: 0.5, 1, 2, 4, 8."""
UNBOUNDED_REPLY = 8192
"""Tokens reserved for a reply without a `max_tokens` limit; with a budget, also its limit."""
PAST_LIMIT = 2
"""Multiple of the limit at which a reply is cut off, since counting tokens by bytes is inexact."""
LONGEST_REPLY = 8_000_000
"""Number of tokens at which a reply without a limit is cut off."""


class Endpoint(Strict):
    """Address of the models, with deadlines, retries and rates.

    Parameters
    ----------
    base_url : the server's address up to `/v1`; with `api_version`, Azure's resource address
    api_key : sent with every call; local servers need none
    api_version : makes it an Azure endpoint, where deployments have the models' names
    timeout_s : longest wait in seconds for the first token of a reply
    stall_s : longest silence in seconds within a reply; its total is limited by its tokens
    retries : maximum number of times a request that was not served is sent again
    concurrency : maximum number of simultaneous calls
    requests_per_minute : maximum number of calls started per minute
    structured : how a schema is requested; if unsupported, the next simpler way is used
    """

    base_url: str | None = None
    api_key: SecretStr | None = None
    api_version: str | None = None
    timeout_s: float = Field(default=180, gt=0)
    stall_s: float = Field(default=60, gt=0)
    retries: int = Field(default=4, ge=0)
    concurrency: int = Field(default=8, ge=1)
    requests_per_minute: float | None = Field(default=None, gt=0)
    structured: Structured = "json_schema"

    @property
    def address(self) -> str:
        """Address to which prompts are sent; OpenAI's if none is set."""
        return self.base_url or egress.OPENAI


@dataclass(frozen=True)
class Answer:
    """A reply, its cost, and its cache key."""

    reply: Reply
    usd: float
    key: str
    cached: bool = False


class Model(Protocol):
    """Interface for a model client, used by agents, extractors and planners."""

    def ask(self, request: Request) -> Answer:
        """Return the model's reply to `request`."""
        ...

    async def ask_async(self, request: Request) -> Answer:
        """Return the model's reply to `request`, so that several requests can be in flight."""
        ...


class Client:
    """Calls models, meters their cost, and caches their replies.

    Parameters
    ----------
    cache : stores replies by content; None disables caching
    """

    def __init__(self, endpoint: Endpoint, meter: Meter, cache: ReplyCache | None = None) -> None:
        self.endpoint = endpoint
        self.meter = meter
        self.cache = cache
        self._services: dict[str, Any] = {}
        self._wires: dict[str, _Wire] = {}
        self._slots: asyncio.Semaphore | None = None
        self._next_start = 0.0

    def ask(self, request: Request) -> Answer:
        """Return the model's reply, from the cache if available.

        Raises
        ------
        BudgetError
            If the call could exceed the budget.
        InputError
            If the endpoint rejects the key or does not know the model.
        FaultError
            If the endpoint cannot be reached or does not reply in time.
        """
        ended = threading.Event()
        heard = listening()

        async def answer() -> Answer:
            try:
                return await heard_by(heard, self._answer(request))
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(answer(), _loop())
        try:
            return future.result()
        except BaseException:
            if future.cancel():  # interrupted: what was generated is charged first
                ended.wait(timeout=2)
            raise

    async def ask_async(self, request: Request) -> Answer:
        """Return the model's reply as `ask` does; any number of calls may be in flight."""
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(heard_by(listening(), self._answer(request)), _loop())
        )

    def key(self, request: Request) -> str:
        """Return the key under which the request's reply is cached."""
        messages = [message.wire() for message in _with_schema(request, self.endpoint.structured)]
        model = request.model
        return request_key(model.name, messages, request.schema, model.temperature, request.tools)

    def forget(self, key: str) -> None:
        """Delete a cached reply that turned out to be useless."""
        if self.cache is not None:
            self.cache.forget(key)

    async def _answer(self, request: Request) -> Answer:
        key = self.key(request)
        model = request.model
        kept = self.cache.get(key) if self.cache is not None else None
        if kept is not None:
            usd = _name_model(model, kept.model).cost(kept.prompt_tokens, kept.completion_tokens)
            return Answer(kept, usd, key, cached=True)
        if self._slots is None:
            self._slots = asyncio.Semaphore(self.endpoint.concurrency)
        async with self._slots:
            broken = False
            while True:
                try:
                    reply, usd = await self._call_metered(request, model)
                    break
                except _Broken as again:
                    if broken:
                        raise again.problem from None
                    broken = True
                except Unavailable as unavailable:
                    if model.fallback is None:
                        raise unavailable.error from None
                    model = model.fallback
        if self.cache is not None:
            self.cache.save(key, reply)
        return Answer(reply, usd, key)

    async def _call_metered(self, request: Request, model: ModelChoice) -> tuple[Reply, float]:
        """Make a call within the budget, charging for generated tokens even if it fails."""
        wire = self._wires.setdefault(model.name, _Wire(self.endpoint.structured))
        limit = model.max_tokens
        if limit is None and self.meter.budget_usd is not None:
            limit = UNBOUNDED_REPLY
        prompt, most = request.tokens, limit or UNBOUNDED_REPLY
        if model.context is not None and prompt >= model.context:
            reason = f"about {prompt} tokens, of {model.context}"
            raise PromptTooLongError.make(request.agent, model.name, reason)
        service = self._service(model)
        await self._wait_for_turn()
        with self.meter.reserve(model.cost(prompt * 4 // 3, most)) as reserved:
            timer = asyncio.timeout(self.endpoint.timeout_s)

            def wait_on() -> None:
                timer.reschedule(asyncio.get_running_loop().time() + self.endpoint.stall_s)

            longest = LONGEST_REPLY if limit is None else PAST_LIMIT * limit
            received = Received(prompt, longest, wait_on)

            def charge(outcome: Outcome) -> Charge:
                reply = received.reply(model.name)
                known = outcome == "answered"
                # The usage of an unfinished generation is unknown: at most its limit.
                tokens = reply.completion_tokens if known else max(reply.completion_tokens, most)
                paid = Charge(
                    agent=request.agent,
                    model=reply.model,
                    prompt_tokens=reply.prompt_tokens,
                    completion_tokens=tokens,
                    usd=model.cost(reply.prompt_tokens, tokens),
                    outcome=outcome,
                    estimated=reply.estimated or not known,
                )
                reserved.settle(paid)
                return paid

            try:
                async with timer:
                    await self._send(_Call(service, request, model, limit, wire, received))
            except TimeoutError as late:
                if received.has_content:
                    charge("broke off")
                    raise _Broken(
                        ModelError(
                            f"model {model.name} stalled for {self.endpoint.stall_s:g} s during its"
                            f" reply to agent {request.agent}, twice; the received parts "
                            "are counted as paid. Increase stall_s in sage.toml, then "
                            "run `sage resume`"
                        )
                    ) from None
                limit_s = f"{self.endpoint.timeout_s:g} s"
                when = f" ({late} of its server)" if late.args else f" within {limit_s}"
                paid = charge("timed out") if received.under_way else None
                tokens = paid.prompt_tokens + paid.completion_tokens if paid else 0
                raise ModelError(
                    f"model {model.name} did not start its reply to agent "
                    f"{request.agent}{when}; {tokens} tokens are counted as paid. "
                    "Increase timeout_s in sage.toml, then run `sage resume`"
                ) from None
            except asyncio.CancelledError:
                if received.under_way:
                    charge("interrupted")
                raise
            except TooLong:
                charge("cut off")
                raise ModelError(
                    f"model {model.name} exceeded the limit of {limit or LONGEST_REPLY} tokens "
                    f"for agent {request.agent} and was cut off; the received part is "
                    "counted as paid. Increase the model's max_tokens in sage.toml, or "
                    "set another model, then run `sage resume`"
                ) from None
            except BrokenOff as broken:
                charge("broke off")
                raise _Broken(
                    ModelError(
                        f"{self._place()} broke off the reply to agent {request.agent} twice"
                        f" ({broken}); the received parts are counted as paid; `sage resume`"
                        " retries"
                    )
                ) from None
            if not received.completion:
                raise FaultError(
                    f"{self._place()} did not return a chat completion (agent {request.agent}); "
                    "check that base_url ends in /v1"
                )
            paid = charge("answered")
            self._refuse_unusable(received, request, model)
            return received.reply(model.name), paid.usd

    async def _send(self, call: _Call) -> None:
        """Send the request, retrying until the server serves it, and read the reply to its end."""

        def pause(state: RetryCallState) -> float:
            error = cast(_NotServed, state.outcome.exception() if state.outcome else None)
            if error.wait is None:
                return BACKOFF(state)
            if error.wait >= self.endpoint.timeout_s:
                raise Unavailable(
                    ModelError(
                        f"{self._place()} requires agent {call.request.agent} to wait "
                        f"{error.wait:.0f} s, which exceeds timeout_s "
                        f"({self.endpoint.timeout_s:g}); run `sage resume` after the wait"
                    )
                )
            return error.wait

        def log_retry(state: RetryCallState) -> None:
            seconds = round(state.upcoming_sleep, 2)
            log.info("retrying", agent=call.request.agent, model=call.model.name, wait_s=seconds)

        tries = AsyncRetrying(
            retry=retry_if_exception_type(_NotServed),
            stop=stop_after_attempt(self.endpoint.retries + 1),
            wait=pause,
            before_sleep=log_retry,
        )
        try:
            async for attempt in tries:
                with attempt:
                    await self._call_once(call)
        except RetryError as ended:
            raise cast(_NotServed, ended.last_attempt.exception()).problem from None

    async def _call_once(self, call: _Call) -> None:
        """Send the request and read the reply, in a simpler format if the server needs it."""
        import openai

        try:
            body = call.wire.body(call.request, call.model, call.limit, official=self._official)
            call.received.under_way = True
            completions = call.service.chat.completions.with_raw_response
            await call.received.read(await completions.create(**body))
        except openai.APIStatusError as error:
            if error.status_code in (408, 504):
                raise TimeoutError(f"HTTP {error.status_code}") from None
            call.received.under_way = False
            if call.wire.simplify(provider_reason(error), error.status_code):
                await self._call_once(call)
                return
            problem = explain(error, self._place(), call.request.agent, call.model.name)
            if not passes(error):
                raise problem from None
            raise _NotServed(problem, retry_after(error)) from None
        except openai.APIConnectionError:
            if call.received.completion:
                raise BrokenOff("the connection was lost") from None
            call.received.under_way = False
            problem = ModelError(
                f"{self._place()} cannot be reached (agent {call.request.agent}); check the"
                " address, then `sage resume`, or run with --reasoner rules"
            )
            raise _NotServed(Unavailable(problem)) from None
        except openai.APIError as error:  # an error inside a stream
            self._judge_body(call, ErrorBody(error.body))
        except ErrorBody as error:
            self._judge_body(call, error)
        except (BrokenOff, TooLong):
            raise
        except Exception as error:
            lost = connection_lost(error)
            if not (lost or isinstance(error, MALFORMED)):
                raise
            if lost or call.received.completion:
                raise BrokenOff(type(error).__name__) from None

    def _judge_body(self, call: _Call, error: ErrorBody) -> NoReturn:
        """Treat an error in a response with a success status like that error's own status."""
        reason = one_line(error)
        if call.received.has_content:
            raise BrokenOff(reason) from None
        call.received.under_way = call.received.completion = False
        problem = ModelError(
            f"{self._place()} sent an error to agent {call.request.agent} ({reason}); correct the"
            " model's options in sage.toml, then `sage resume`"
        )
        if error.status in (408, 409, 429) or error.status >= 500:
            raise _NotServed(Unavailable(problem)) from None
        raise problem from None

    async def _wait_for_turn(self) -> None:
        if self.endpoint.requests_per_minute is None:
            return
        now = time.monotonic()
        start = max(now, self._next_start)
        self._next_start = start + 60 / self.endpoint.requests_per_minute
        await asyncio.sleep(start - now)

    def _refuse_unusable(self, received: Received, request: Request, model: ModelChoice) -> None:
        """Refuse a paid reply that the protocol itself marks as containing no answer."""
        way_on = "rephrase the question, or set another model in sage.toml, then `sage resume`"
        if received.finish == "content_filter":
            raise ModelError(
                f"the provider's content filter withheld the reply of model {model.name} to agent"
                f" {request.agent}; {way_on}"
            )
        if received.refusal:
            raise ModelError(
                f"model {model.name} refused to answer agent {request.agent}"
                f" ({one_line(received.refusal)}); {way_on}"
            )
        if not received.choices:
            raise ModelError(
                f"model {model.name} sent a completion without choices to agent {request.agent}; "
                "`sage resume` retries, or set another model in sage.toml"
            )

    def _service(self, model: ModelChoice) -> openai.AsyncOpenAI:
        if model.name not in self._services:
            import openai
            from langchain_openai import AzureChatOpenAI, ChatOpenAI

            endpoint = self.endpoint
            egress.permit(endpoint.address)
            options: dict[str, Any] = {
                "api_key": endpoint.api_key or SecretStr("none"),
                "timeout": openai.Timeout(None, connect=min(30.0, endpoint.timeout_s)),
                "max_retries": 0,
                "openai_proxy": "",
                "http_async_client": openai.DefaultAsyncHttpxClient(
                    trust_env=egress.trust_environment()
                ),
            }
            service: ChatOpenAI | AzureChatOpenAI
            if endpoint.api_version:
                service = AzureChatOpenAI(
                    azure_endpoint=endpoint.address,
                    api_version=endpoint.api_version,
                    azure_deployment=model.name,
                    **options,
                )
            else:
                service = ChatOpenAI(model=model.name, base_url=endpoint.address, **options)
            self._services[model.name] = service.root_async_client
        found: openai.AsyncOpenAI = self._services[model.name]
        return found

    @property
    def _official(self) -> bool:
        """True if the provider uses `max_completion_tokens`; local servers use `max_tokens`."""
        return bool(self.endpoint.api_version) or "api.openai.com" in self.endpoint.address

    def _place(self) -> str:
        return f"the model endpoint {self.endpoint.address}"


@dataclass(frozen=True)
class _Call:
    """A request to a model server, and its outcome."""

    service: openai.AsyncOpenAI
    request: Request
    model: ModelChoice
    limit: int | None
    wire: _Wire
    received: Received


class _NotServed(Exception):  # noqa: N818 - asked again, or `problem` is raised
    """A request was not served but may be if sent again, after `wait` seconds if that is known."""

    def __init__(self, problem: Exception, wait: float | None = None) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.wait = wait


class _Broken(Exception):  # noqa: N818 - asked once more, or `problem` is raised
    """A reply was interrupted before its end."""

    def __init__(self, problem: Exception) -> None:
        super().__init__(str(problem))
        self.problem = problem


class _Wire:
    """Request format for a model server, learned from the requests that it rejects."""

    def __init__(self, structured: Structured) -> None:
        self.structured = structured
        self.usage = True
        self.tools = True
        self.other_limit = False

    def body(
        self, request: Request, model: ModelChoice, limit: int | None, *, official: bool
    ) -> dict[str, Any]:
        """Build the request body in the chat-completions format."""
        messages = _with_schema(request, self.structured, tools_as_text=not self.tools)
        body: dict[str, Any] = {
            "model": model.name,
            "messages": [message.wire() for message in messages],
            "stream": True,
        }
        if self.usage:
            body["stream_options"] = {"include_usage": True}
        if request.schema is not None and self.structured == "json_schema":
            wrapped = {"name": request.title, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": wrapped}
        elif request.schema is not None and self.structured == "json_object":
            body["response_format"] = {"type": "json_object"}
        if request.tools and self.tools:
            body["tools"] = [dict(tool) for tool in request.tools]
        if model.temperature is not None:
            body["temperature"] = model.temperature
        if model.reasoning_effort is not None:
            body["reasoning_effort"] = model.reasoning_effort
        if limit is not None:
            newer = official != self.other_limit
            body["max_completion_tokens" if newer else "max_tokens"] = limit
        return body

    def simplify(self, reason: str, status: int) -> bool:
        """Drop or replace the feature that the server's error names; False if none is left.

        Servers report unsupported features with 400, 404, 415, 422 or 501; a 422 that names
        nothing refers to the schema.
        """
        if status not in (400, 404, 415, 422, 501):
            return False
        message = reason.lower()
        if self.usage and "stream_options" in message:
            self.usage = False
        elif not self.other_limit and re.search(r"max_(completion_)?tokens", message):
            self.other_limit = True
        elif self.tools and re.search(r"\btools?\b|tool_choice|function call", message):
            self.tools = False
        elif self.structured != "prompt" and (
            status == 422
            or re.search(r"response_format|json_schema|json_object|structured output", message)
        ):
            self.structured = "json_object" if self.structured == "json_schema" else "prompt"
        else:
            return False
        return True


def _with_schema(
    request: Request, structured: Structured, *, tools_as_text: bool = False
) -> tuple[Message, ...]:
    """Return the messages, with schema and tools as text if the server does not support them."""
    more = ""
    if tools_as_text and request.tools:
        more += (
            '\n\nTools: to call one, reply with {"tool": NAME, "arguments": {...}} alone.\n'
            + json.dumps([tool["function"] for tool in request.tools], ensure_ascii=False)
        )
    if structured != "json_schema" and request.schema is not None:
        schema = json.dumps(request.schema, ensure_ascii=False)
        more += f"\n\nJSON schema of the reply:\n{schema}"
    if not more:
        return request.messages
    first, *rest = request.messages
    return (first.model_copy(update={"text": first.text + more}), *rest)


def _name_model(model: ModelChoice, served: str) -> ModelChoice:
    """Find the model in the fallback chain with which the served name starts, or the first."""
    chain = [model]
    while chain[-1].fallback is not None:
        chain.append(chain[-1].fallback)
    fitting = [link for link in chain if served.startswith(link.name)]
    return max(fitting, key=lambda link: len(link.name), default=model)


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    """Return the process-wide event loop for all calls, which runs in its own thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="sage-llm", daemon=True).start()
    return loop
