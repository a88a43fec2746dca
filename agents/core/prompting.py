"""Rendering of a prompt file and an agent's input as chat messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pydantic import BaseModel

from agents.core.base import PromptFile
from agents.core.words import ModelText
from sage.core.errors import InputError
from sage.core.printable import clean_text, quote_text

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True)
class Prompt:
    """A parsed prompt file."""

    version: int
    system: str
    user: str


@lru_cache(maxsize=64)
def parse(prompt: PromptFile) -> Prompt:
    """Parse a prompt file into its version and sections.

    Raises
    ------
    InputError
        If the file lacks its version line or a section.
    """
    found = re.fullmatch(
        r"\s*version:\s*(\d+)\s+## system\s+(.*?)\s+## user\s+(.*?)\s*", prompt.text, re.DOTALL
    )
    if not found:
        raise InputError(
            f'{prompt.path.name}: a prompt file has "version: N", "## system" and "## user"'
        )
    return Prompt(version=int(found[1]), system=found[2], user=found[3])


class _Block(str):
    """Multi-line text of a prompt that keeps its lines, each of them indented."""

    __slots__ = ()


def _block(text: str) -> _Block:
    """Indent a program, so that none of its lines can be mistaken for the prompt's own."""
    return _Block("\n".join(f"    {line}" for line in clean_text(text).split("\n")))


def _quoted(value: object) -> str:
    """Quote a text, or a model's remark, as data."""
    return quote_text(value.text if isinstance(value, ModelText) else value)


def _flat(value: object) -> object:
    """Put an interpolated value on one line, with an earlier model's remark in quotes."""
    if isinstance(value, ModelText):
        return f"(a model's remark: {_quoted(value)})"
    return value if isinstance(value, _Block) else re.sub(r"\s+", " ", clean_text(str(value)))


@lru_cache(maxsize=64)
def _template(source: str) -> Template:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=False, finalize=_flat
    )
    environment.filters |= {"quoted": _quoted, "block": _block}
    return environment.from_string(source)


def render(prompt: PromptFile, given: BaseModel) -> tuple[str, str]:
    """Render the system and user messages for `given`; the template sees only the input's fields.

    Every value is put on one line; a template quotes texts of records with `| quoted`, and shows a
    program with `| block`.
    """
    parsed = parse(prompt)
    fields = {name: getattr(given, name) for name in type(given).model_fields}
    user = _template(parsed.user).render(**fields)
    return parsed.system, re.sub(r"\n{3,}", "\n\n", user).strip()
