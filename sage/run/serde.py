"""Serialization of checkpoints, limited to SAGE's own types; any other is refused on reading."""

from __future__ import annotations

import enum
import importlib
from functools import lru_cache
from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

MODULES = (
    "agents.feasibility.types",
    "agents.interpreter.agent",
    "agents.question.types",
    "agents.summary.agent",
    "agents.core.types",
    "agents.core.words",
    "agents.findings.types",
    "agents.expansion.agent",
    "kg.types",
    "sage.run.state",
    "validation.core.hypothesis",
    "validation.core.dictionary",
)


@lru_cache(maxsize=1)
def allowed() -> tuple[tuple[str, str], ...]:
    """List (module, class) of every model and enum that a checkpoint may contain."""
    found = set()
    for name in MODULES:
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, type) and issubclass(value, BaseModel | enum.Enum):
                found.add((value.__module__, value.__name__))
    return tuple(sorted(found))


def serializer() -> JsonPlusSerializer:
    """Make a msgpack serializer for the allowed types, without pickle."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    return JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=allowed())
