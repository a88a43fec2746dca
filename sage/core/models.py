"""The base of every typed value."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Immutable value that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
