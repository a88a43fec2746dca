"""The base class of SAGE's typed values, and a reader for values stored in files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from sage.core.errors import InputError, explain_validation
from sage.core.files import read_json
from sage.core.printable import LONGEST_NAME, ForeignText


class Strict(BaseModel):
    """An immutable model that rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Passage = Annotated[str, AfterValidator(ForeignText)]
"""A note, abstract, quotation or question from an external source, as `ForeignText`."""
Name = Annotated[str, AfterValidator(partial(ForeignText, longest=LONGEST_NAME))]
"""A label, title, level, unit or file name from an external source, as `ForeignText`."""
M = TypeVar("M", bound=BaseModel)


def describe_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON schema without titles, which only repeat field names."""
    parts: dict[str, Any] = _drop_titles(model.model_json_schema())
    return {"title": model.__name__, **parts}


def _drop_titles(part: Any, named: bool = False) -> Any:
    """Drop titles from part of a schema; the keys of a `named` part are field names."""
    if isinstance(part, list):
        return [_drop_titles(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        key: _drop_titles(value, not named and key in ("properties", "$defs"))
        for key, value in part.items()
        if named or key != "title"
    }


def read_model(path: Path, model: type[M]) -> M:
    """Read a JSON file into a model.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    InputError
        If the content does not match the model; the message names the first invalid field.
    """
    try:
        return model.model_validate(read_json(path))
    except ValidationError as error:
        raise InputError(
            f"{path} is damaged: {explain_validation(error)}. Restore it from a backup"
        ) from None
