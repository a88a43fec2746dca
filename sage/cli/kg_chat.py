"""The model call that `sage kg build --extractor chat` injects into the graph package."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kg.extract.chat import Completion
    from sage.settings import Settings


def make_completion(settings: Settings) -> Completion:
    """An async completion on the configured endpoint, with the settings' `mini` model.

    Raises
    ------
    InputError
        If no endpoint or key is configured.
    """
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    from kg.extract.chat import Reply
    from sage.core.errors import InputError

    if settings.effective_reasoner != "chat":
        raise InputError(
            "the chat extractor needs a model: set base_url or api_key (`sage config` shows "
            "where), or use --extractor rules"
        )
    model = settings.models.mini
    options: dict[str, Any] = {
        "model": model.name,
        "base_url": settings.base_url,
        "api_key": settings.api_key or SecretStr("none"),
        "timeout": settings.timeout_s,
        "max_retries": settings.retries,
        "use_responses_api": False,
    }
    if model.temperature is not None:
        options["temperature"] = model.temperature
    client = ChatOpenAI(**options)

    async def complete(*, system: str, user: str, schema: dict[str, Any]) -> Reply:
        extra: dict[str, Any] = {}
        if settings.structured == "json_schema":
            wrapped = {"name": "triples", "schema": schema}
            extra["response_format"] = {"type": "json_schema", "json_schema": wrapped}
        else:
            system = f"{system}\n\nReply with one JSON object of this schema:\n{json.dumps(schema)}"
            if settings.structured == "json_object":
                extra["response_format"] = {"type": "json_object"}
        answer = await client.ainvoke(
            [{"role": "system", "content": system}, {"role": "user", "content": user}], **extra
        )
        usage: dict[str, Any] = dict(answer.usage_metadata or {})
        content = answer.content if isinstance(answer.content, str) else str(answer.content)
        return Reply(
            content=content,
            prompt_tokens=int(usage.get("input_tokens", 0)),
            completion_tokens=int(usage.get("output_tokens", 0)),
        )

    return complete
