"""Content-addressed cache for model replies, so that no call is paid for twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sage.core.files import write_text
from sage.core.llm.messages import Reply
from sage.core.log import logger

log = logger(__name__)


def request_key(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    schema: object,
    temperature: float | None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Compute the SHA-256 of everything that determines a reply.

    Parameters
    ----------
    schema : JSON schema that the reply must follow; None for plain text
    temperature : None if it is left to the server

    Returns
    -------
    The digest in hexadecimal; an empty `tools` does not contribute to it.
    """
    determining: dict[str, Any] = {
        "model": model,
        "messages": list(messages),
        "schema": schema,
        "temperature": temperature,
    }
    if tools:
        determining["tools"] = list(tools)
    canonical = json.dumps(determining, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


class ReplyCache:
    """A folder with one JSON file per reply, each written atomically."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Reply | None:
        """Return the cached reply, or None if it is missing or unreadable."""
        path = self.folder / f"{key}.json"
        try:
            return Reply.load(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, AttributeError) as error:
            log.failed("kept reply dropped", error, path=path)
            path.unlink(missing_ok=True)
            return None

    def save(self, key: str, reply: Reply) -> None:
        """Store a reply."""
        write_text(self.folder / f"{key}.json", reply.dump())

    def forget(self, key: str) -> None:
        """Delete a reply that turned out to be useless."""
        (self.folder / f"{key}.json").unlink(missing_ok=True)
