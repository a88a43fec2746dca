"""The base of every typed value, and values read from files."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sage.core.errors import InputError
from sage.core.files import read_json


class Strict(BaseModel):
    """Immutable value that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


M = TypeVar("M", bound=BaseModel)


def read_model(path: Path, model: type[M]) -> M:
    """What a JSON file holds, as a model.

    Raises
    ------
    FileNotFoundError
        If there is none.
    InputError
        If it holds something else; the first field that is wrong is named.
    """
    try:
        return model.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InputError(
            f"{path} is damaged: {where}: {first['msg']}. Restore it from a backup"
        ) from None
