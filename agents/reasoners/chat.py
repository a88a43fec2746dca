"""The reasoner with a model: any OpenAI-compatible endpoint, through langchain-openai."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError

from agents.base import Agent, I, O, Reply, Role, Spent
from agents.disclosure import Withheld, require_disclosable
from agents.reasoners.cache import Meter, RawReply, ReplyCache, request_key
from agents.reasoners.prompting import extract_json, parse, render, schema_of
from kg.printable import one_line
from sage.core.errors import FaultError, InputError
from sage.core.models import Strict

Message = dict[str, object]


class ModelChoice(Strict):
    """A model by name, with its price in USD per million tokens where the user gave one."""

    name: str
    price_in: float | None = Field(default=None, ge=0)
    price_out: float | None = Field(default=None, ge=0)
    temperature: float | None = None

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """USD for one call; zero where no price is known."""
        return (
            prompt_tokens * (self.price_in or 0.0) + completion_tokens * (self.price_out or 0.0)
        ) / 1e6


class ChatSettings(Strict):
    """Where the models are and how patiently to ask them."""

    base_url: str | None = None
    api_key: SecretStr | None = None
    models: Mapping[Role, ModelChoice]
    timeout_s: float = 180
    retries: int = 4
    repairs: int = 2
    max_tokens: int | None = None
    structured: Literal["json_schema", "json_object", "prompt"] = "json_schema"
    vision: bool = False


class ChatReasoner:
    """Asks a model for an agent's output schema, with bounded repair, a cache and a meter."""

    name = "chat"

    def __init__(
        self,
        settings: ChatSettings,
        cache: ReplyCache,
        meter: Meter,
        withheld: Withheld = frozenset,
    ) -> None:
        self.settings = settings
        self.withheld = withheld
        self.cache = cache
        self.meter = meter
        self._clients: dict[str, Any] = {}
        priced = all(
            model.price_in is not None and model.price_out is not None
            for model in settings.models.values()
        )
        if meter.budget_usd is not None and not priced:
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
        schema = schema_of(agent.returns)
        if self.settings.structured != "json_schema":
            import json

            system += f"\n\nJSON schema of the reply:\n{json.dumps(schema, ensure_ascii=False)}"
        seen = agent.images(given) if agent.images and self.settings.vision else ()
        messages: list[Message] = [
            {"role": "system", "content": system},
            {"role": "user", "content": _with_pictures(user, seen) if seen else user},
        ]
        spent, keys, refused = Spent(), [], ""
        last: RawReply | None = None
        for attempt in range(self.settings.repairs + 1):
            key = request_key(model.name, messages, schema, model.temperature)
            keys.append(key)
            raw = self.cache.get(key)
            cached = raw is not None
            if raw is None:
                raw = self._call(agent.name, model, messages, schema, agent.returns.__name__)
                usd = model.cost(raw.prompt_tokens, raw.completion_tokens)
                self.meter.record(agent.name, raw, usd)
                self.cache.put(key, raw)
            spent = replace(
                spent,
                prompt_tokens=spent.prompt_tokens + raw.prompt_tokens,
                completion_tokens=spent.completion_tokens + raw.completion_tokens,
                usd=spent.usd + model.cost(raw.prompt_tokens, raw.completion_tokens),
                calls=spent.calls + 1,
                cached=spent.cached + cached,
                repairs=attempt,
            )
            output, refused = _read(agent, given, raw)
            if output is not None:
                spent = replace(spent, seconds=time.perf_counter() - begun)
                return Reply(output=output, reasoner=self.name, model=raw.model, spent=spent)
            last = raw
            messages = [
                *messages,
                {"role": "assistant", "content": raw.content},
                {
                    "role": "user",
                    "content": f"That reply was refused: {one_line(refused)}\n"
                    "Reply again with the whole corrected JSON object and nothing else.",
                },
            ]
        reworded = _reworded(agent, given, last) if last is not None else None
        if last is not None and reworded is not None:
            spent = replace(spent, seconds=time.perf_counter() - begun)
            return Reply(output=reworded, reasoner=self.name, model=last.model, spent=spent)
        for key in keys:
            self.cache.forget(key)
        raise FaultError(
            f"{agent.name} ({model.name}, prompt version {parse(agent.prompt).version}): no usable"
            f" reply in {len(keys)} attempts; the last was refused because {refused}"
        )

    def _call(
        self, agent: str, model: ModelChoice, messages: list[Message], schema: object, title: str
    ) -> RawReply:
        import openai

        expected = sum(_length(one["content"]) for one in messages) // 4
        self.meter.allow(model.cost(expected, expected // 4))
        try:
            answer = self._client(model).invoke(messages, **self._format(schema, title))
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise InputError(
                f"{self._where()} refuses the API key ({error.status_code}); set SAGE_API_KEY, or"
                " run with --reasoner rules"
            ) from None
        except openai.NotFoundError:
            raise InputError(
                f'{self._where()} does not know the model "{model.name}"; set models in sage.toml'
            ) from None
        except openai.APIConnectionError:
            raise FaultError(
                f"{self._where()} cannot be reached (agent {agent}); check the address, then"
                " `sage resume`, or run with --reasoner rules"
            ) from None
        except openai.APIStatusError as error:
            raise FaultError(
                f"{self._where()} answered {error.status_code} after"
                f" {self.settings.retries} retries (agent {agent}); `sage resume` goes on from here"
            ) from None
        except openai.LengthFinishReasonError as error:
            return _cut_off(error, model.name)
        except (ValueError, TypeError, KeyError) as error:
            raise FaultError(
                f"{self._where()} sent no chat completion (agent {agent}): {type(error).__name__};"
                " check that base_url ends in /v1"
            ) from None
        usage = answer.usage_metadata or {}
        content = answer.content if isinstance(answer.content, str) else str(answer.content)
        return RawReply(
            content=content,
            finish=str(answer.response_metadata.get("finish_reason", "")),
            prompt_tokens=int(usage.get("input_tokens", 0)),
            completion_tokens=int(usage.get("output_tokens", 0)),
            model=str(answer.response_metadata.get("model_name", model.name)),
        )

    def _format(self, schema: object, title: str) -> dict[str, object]:
        match self.settings.structured:
            case "json_schema":
                wrapped = {"name": title, "schema": schema}
                return {"response_format": {"type": "json_schema", "json_schema": wrapped}}
            case "json_object":
                return {"response_format": {"type": "json_object"}}
            case "prompt":
                return {}

    def _client(self, model: ModelChoice) -> Any:
        if model.name not in self._clients:
            from langchain_openai import ChatOpenAI

            options: dict[str, Any] = {
                "model": model.name,
                "base_url": self.settings.base_url,
                "api_key": self.settings.api_key or SecretStr("none"),
                "timeout": self.settings.timeout_s,
                "max_retries": self.settings.retries,
                "use_responses_api": False,
            }
            if model.temperature is not None:
                options["temperature"] = model.temperature
            if self.settings.max_tokens:
                options["max_tokens"] = self.settings.max_tokens
            self._clients[model.name] = ChatOpenAI(**options)
        return self._clients[model.name]

    def _where(self) -> str:
        return f"the model endpoint {self.settings.base_url or '(OpenAI)'}"


# About what an image costs with common vision models; only the budget's estimate uses it.
IMAGE_TOKENS = 1000


def _with_pictures(text: str, pictures: tuple[str, ...]) -> list[dict[str, object]]:
    """A user message of text and PNGs, as chat completions take them."""
    parts: list[dict[str, object]] = [{"type": "text", "text": text}]
    for one in pictures:
        url = f"data:image/png;base64,{one}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return parts


def _length(content: object) -> int:
    """Characters of a message, an image counted by its tokens."""
    if isinstance(content, str):
        return len(content)
    parts: list[dict[str, object]] = content if isinstance(content, list) else []
    return sum(
        len(str(part["text"])) if part["type"] == "text" else 4 * IMAGE_TOKENS for part in parts
    )


def _cut_off(error: Any, model: str) -> RawReply:
    """A reply that ended at the length limit; its tokens are paid all the same."""
    usage = error.completion.usage
    return RawReply(
        content=error.completion.choices[0].message.content or "",
        finish="length",
        prompt_tokens=usage.prompt_tokens if usage else 0,
        completion_tokens=usage.completion_tokens if usage else 0,
        model=model,
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
