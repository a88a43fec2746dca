"""The base class of SAGE's typed values, and a reader for values stored in files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from sage.core.errors import InputError, explain_validation
from sage.core.files import read_json
from sage.core.printable import LONGEST_NAME, ForeignText


class Strict(BaseModel):
    """Immutable value that rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Passage = Annotated[str, AfterValidator(ForeignText)]
"""A note, abstract, quotation or question from outside, as `ForeignText`."""
Name = Annotated[str, AfterValidator(partial(ForeignText, longest=LONGEST_NAME))]
"""A label, title, level, unit or file name from outside, as `ForeignText`."""
M = TypeVar("M", bound=BaseModel)


def read_model(path: Path, model: type[M]) -> M:
    """Read a JSON file into a model.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    InputError
        If the content does not match the model; the message gives the first invalid field.
    """
    try:
        return model.model_validate(read_json(path))
    except ValidationError as error:
        raise InputError(
            f"{path} is damaged: {explain_validation(error)}. Restore it from a backup"
        ) from None
