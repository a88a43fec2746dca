"""Model call failures, each reported as one line with a remedy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sage.core import clock
from sage.core.errors import FaultError, InputError
from sage.core.printable import ForeignText

if TYPE_CHECKING:
    import openai

QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")


class ModelError(FaultError):
    """A model's reply cannot be obtained or used; the message explains the remedy."""


class PromptTooLongError(ModelError):
    """The prompt does not fit the model's context."""

    @classmethod
    def make(cls, agent: str, model: str, reason: str) -> Unavailable:
        """Build the error for an agent's prompt; a fallback with a longer context may apply."""
        return Unavailable(
            cls(
                f"the prompt of agent {agent} is longer than the context of model {model} "
                f"({reason}); set a model with a longer context in sage.toml, then `sage resume`"
            )
        )


class Unavailable(Exception):  # noqa: N818 - carries the error to raise when nothing else answers
    """The model is currently unavailable; a fallback model may respond."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def one_line(text: object, limit: int = 300) -> str:
    """Put a provider's message on one line of at most `limit` characters, without control codes."""
    plain = re.sub(r"\b(sk|key|Bearer)[-_ ][\w-]{6,}", "(key)", str(text))
    return str(ForeignText(plain, limit))


def provider_reason(error: openai.APIError) -> str:
    """Extract the provider's reason from an error."""
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error")
    if isinstance(inner, dict):
        body = inner
    return one_line(body.get("message") or error.message or "no reason given")


def code_of(error: openai.APIError) -> str:
    """Extract the provider's error code, preferring the innermost."""
    body: Any = error.body if isinstance(error.body, dict) else {}
    inner = body.get("innererror") or body.get("error") or {}
    return str(error.code or (inner.get("code") if isinstance(inner, dict) else "") or "")


def retry_after(error: openai.APIStatusError) -> float | None:
    """Return the delay in seconds that the server requests, or None."""
    headers = error.response.headers
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(milliseconds) / 1000)
    except ValueError:
        return None
    return clock.parse_retry_after(headers.get("retry-after", ""))


def connection_lost(error: Exception) -> bool:
    """Check whether the client's transport failed; the exception's name differs by version."""
    return type(error).__module__.partition(".")[0].startswith("http")


def passes(error: openai.APIStatusError) -> bool:
    """Check whether the same request may succeed later, after rate limiting or a server error.

    A gateway timeout does not count, because the model was already working and is billed for
    it.
    """
    if error.status_code == 429:
        return code_of(error) not in QUOTA
    return error.status_code == 409 or (error.status_code >= 500 and error.status_code != 504)


def explain(error: openai.APIStatusError, where: str, agent: str, model: str) -> Exception:
    """Return the exception to raise for an error status.

    Returns
    -------
    `InputError` if the settings name a wrong key or model, else `ModelError`; wrapped in
    `Unavailable` if the fallback model is worth trying.
    """
    status, code, reason = error.status_code, code_of(error), provider_reason(error)
    if status in (401, 403):
        return InputError(
            f"{where} rejects the API key ({status}); set SAGE_API_KEY, or run with --reasoner "
            "rules"
        )
    if status == 404:
        return Unavailable(
            InputError(f'{where} does not have the model "{model}"; set models in sage.toml')
        )
    if status == 429 and code in QUOTA:
        return Unavailable(
            ModelError(
                f"{where}: the quota of model {model} is exhausted ({reason}); add credit with "
                "the provider or set another model in sage.toml, then `sage resume`"
            )
        )
    if status == 429:
        return Unavailable(
            ModelError(
                f"{where} returned 429, too many requests (agent {agent}): {reason}; lower "
                "requests_per_minute or concurrency in sage.toml, then `sage resume`"
            )
        )
    if "content_filter" in code or "content_policy" in code:
        return ModelError(
            f"the provider's content filter rejected the prompt of agent {agent} ({reason}); "
            "rephrase the question, or set another model in sage.toml, then `sage resume`"
        )
    if "context" in code or re.search(r"context (length|window|size)", reason):
        return PromptTooLongError.make(agent, model, reason)
    if 400 <= status < 500:
        return ModelError(
            f"{where} rejected the request of agent {agent} to model {model} ({status}: "
            f"{reason}); correct the model's options in sage.toml, then `sage resume`"
        )
    return Unavailable(
        ModelError(
            f"{where} returned {status} to agent {agent} until all retries were used ({reason}); "
            "`sage resume` continues from here"
        )
    )
