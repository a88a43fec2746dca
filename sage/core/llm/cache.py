"""Replies kept by content, so that no call is paid for twice."""

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
    """SHA-256 over everything that determines a reply.

    Parameters
    ----------
    model : name by which the server knows it
    messages : the whole conversation, in the server's form
    schema : JSON schema that the reply must have; None for text
    temperature : None where it is left to the server
    tools : schemas of the tools that the model may call

    Returns
    -------
    The digest in hexadecimal; without tools it is as if there were no such argument.
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
    """A JSON file per reply in a folder, written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Reply | None:
        """Return the kept reply, or None. An unreadable file counts as absent."""
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
        """Keep a reply."""
        write_text(self.folder / f"{key}.json", reply.dump())

    def forget(self, key: str) -> None:
        """Drop a reply that turned out useless."""
        (self.folder / f"{key}.json").unlink(missing_ok=True)
