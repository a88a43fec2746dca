"""Parsing of model replies: unambiguous slips are repaired and noted, all others rejected.

Servers and models deviate from the requested JSON in known ways. `read_object` finds the
JSON object in a text; `fit` fits it to a schema, guided only by the schema's own
validation errors.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)

LONGEST_LENIENT = 400_000
"""Maximum length in characters of malformed JSON that is parsed leniently, which is slow."""
MOST_ROUNDS = 12
"""Maximum number of repair rounds; a repair can uncover problems nested below it."""
LONGEST_PROBLEMS = 4_000
"""Maximum length in characters of the list of problems sent back to the model."""

_THOUGHTS = re.compile(r"\s*<(think|thinking|reasoning)>(.*?)</\1>", re.DOTALL)
_CLOSED_ONLY = re.compile(r"(?!\s*(?:\{|```))(.*?)</(?:think|thinking|reasoning)>", re.DOTALL)
_UNFINISHED = re.compile(r"\s*<(?:think|thinking|reasoning)>(.*)", re.DOTALL)
_FENCED = re.compile(r"```[a-zA-Z0-9]*\s*([\[{].*[\]}])\s*```", re.DOTALL)
_CALL = re.compile(r"<tool_call>\s*(\{.*\})\s*(?:</tool_call>)?\s*\Z", re.DOTALL)


def split_thoughts(text: str) -> tuple[str, str]:
    """Split a reply into the answer and the reasoning that precedes it.

    Reasoning models write `<think>…</think>` before their answer; some servers omit the opening
    tag. Only tags before the answer count: a tag inside a JSON string is left alone.
    """
    thoughts = []
    while found := _THOUGHTS.match(text):
        thoughts.append(found[2].strip())
        text = text[found.end() :]
    if not thoughts and (found := _CLOSED_ONLY.match(text)):
        thoughts.append(found[1].strip())
        text = text[found.end() :]
    elif found := _UNFINISHED.fullmatch(text):
        thoughts.append(found[1].strip())
        text = ""
    return (text.strip() if thoughts else text), "\n\n".join(thoughts)


def read_object(text: str, notes: list[str] | None = None) -> object:
    """Parse the JSON object in a reply, with or without surrounding text or a code fence.

    Comments, trailing commas, single quotes and unquoted keys are accepted as in JSON5. A
    list that contains a single object is read as that object.

    Parameters
    ----------
    notes : list to which a note about each repair is added

    Raises
    ------
    ValueError
        If the reply contains no complete JSON object, more than one, or a number that JSON
        lacks.
    """
    notes = [] if notes is None else notes
    bare = split_thoughts(text)[0].strip().removeprefix("\ufeff")
    if call := _CALL.search(bare):
        notes.append("a tool call written as text")
        bare = call[1]
    elif fenced := _FENCED.search(bare):
        bare = fenced[1]
    start = min((at for at in (bare.find("{"), bare.find("[{")) if at >= 0), default=-1)
    if start < 0:
        raise ValueError("the reply contains no JSON object")
    value, rest = _parse(bare[start:], notes)
    if rest.strip().startswith("{"):
        raise ValueError("the reply contains more than one JSON object")
    if isinstance(value, list):
        if len(value) != 1 or not isinstance(value[0], dict):
            raise ValueError("the reply is a list; reply with a single JSON object")
        notes.append("an object inside a list")
        value = value[0]
    return value


def read_last_object(text: str) -> object | None:
    """Parse the JSON object at the very end of a text, such as a reply inside its own reasoning."""
    bare = text.strip()
    bare = bare.removesuffix("```").rstrip() if bare.endswith("```") else bare
    for found in re.finditer(r"\{", bare[-LONGEST_LENIENT:]):
        try:
            value, rest = _parse(bare[-LONGEST_LENIENT:][found.start() :], lenient=False)
        except ValueError:
            continue
        if not rest.strip():
            return value
    return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number; use null, or omit the field")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, strict=False)


def _parse(
    text: str, notes: list[str] | None = None, *, lenient: bool = True
) -> tuple[object, str]:
    """Parse the JSON value at the start of a text; return it and the remaining text."""
    try:
        value, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        strict = ValueError(
            f"the reply is not complete JSON ({error.msg} at character {error.pos})"
        )
        if not lenient or len(text) > LONGEST_LENIENT:
            raise strict from None
        value, end = _parse_leniently(text, strict)
        if notes is not None:
            notes.append("JSON with comments, trailing commas or other quotes")
    except RecursionError:
        raise ValueError("the reply's JSON is nested too deeply") from None
    return value, text[end:]


def _parse_leniently(text: str, strict: ValueError) -> tuple[object, int]:
    """Parse a value as JSON5 or a Python literal; return it and its end, or raise `strict`."""
    import json5

    if '"' not in text:
        text = text.replace("“", '"').replace("”", '"')
    try:
        value, problem, end = json5.parse(
            text, parse_constant=_refuse_constant, strict=False, consume_trailing=False
        )
        if problem is None:
            return value, end
        end = text.rfind("}") + 1
        value = ast.literal_eval(text[:end])
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise strict from None
    return value, end


def fit(
    value: object,
    model: type[M],
    context: Mapping[str, Any] | None = None,
    notes: list[str] | None = None,
    *,
    drop_unknown: bool = True,
) -> M:
    """Validate a value against a schema, repairing errors that have only one plausible fix.

    Repairs cover the schema's name wrapped around the object, unknown keys (dropped), the
    case of enumerated values, null for optional fields, and a single item where a list is
    expected. Alternatives in an untagged union are not repaired.

    Parameters
    ----------
    notes : list to which a note about each repair is added
    drop_unknown : whether unknown keys are dropped; an argument of a tool may have been meant

    Raises
    ------
    ValidationError
        If problems remain.
    """
    found: list[str] = []
    value = _unwrap(deepcopy(value), model, found)
    seen: ValidationError | None = None
    for _ in range(MOST_ROUNDS):
        try:
            fitted = model.model_validate(value, context=context)
        except ValidationError as error:
            seen = error
            problems = [
                problem
                for problem in reversed(error.errors())
                if drop_unknown or problem["type"] != "extra_forbidden"
            ]
            made = [_repair(value, problem) for problem in problems]
            if not any(made):
                raise
            found += [note for note in made if note]
        else:
            if notes is not None:
                notes += dict.fromkeys(found)
            return fitted
    assert seen is not None
    raise seen


def _unwrap(value: object, model: type[BaseModel], notes: list[str]) -> object:
    """Extract the object from `{"NAME": {…}}` or a call to a function named after the schema."""
    fields = set(model.model_fields)
    if not isinstance(value, dict) or fields & set(value):
        return value
    for key in ("arguments", "parameters", "input"):
        if set(value) in ({key}, {"name", key}, {"type", "name", key}):
            inner = value[key]
            if isinstance(inner, str):
                inner = read_object(inner)
            if isinstance(inner, dict):
                notes.append("an object written as a call")
                return inner
    if len(value) == 1 and isinstance(inner := next(iter(value.values())), dict):
        notes.append("an object wrapped in its name")
        return inner
    return value


def _repair(value: object, problem: Any) -> str:
    """Repair a problem in place; return a note about it, or "" without an unambiguous repair."""
    where = _locate(value, problem["loc"])
    if where is None:
        return ""
    holder, key = where
    kind, given = problem["type"], problem.get("input")
    place = ".".join(str(part) for part in problem["loc"])
    if kind == "extra_forbidden":
        del holder[key]
        return f"{place}: dropped"
    if kind == "union_tag_invalid":
        tag = str(problem["ctx"]["discriminator"]).strip("'")
        if not isinstance(given, dict) or not isinstance(given.get(tag), str):
            return ""
        named = _match(given[tag], problem["ctx"]["expected_tags"])
        if named is None or not isinstance(inner := holder[key], dict):
            return ""
        inner[tag] = named
        return f"{place}: case"
    if kind in ("literal_error", "enum") and isinstance(given, str):
        named = _match(given, problem["ctx"]["expected"])
        if named is None:
            return ""
        holder[key] = named
        return f"{place}: case"
    if given is None and isinstance(holder, dict):
        del holder[key]  # a required field is then missing, which is a problem of its own
        return f"{place}: null left out"
    if kind in ("list_type", "tuple_type") and isinstance(given, str | dict | int | float):
        holder[key] = [given]
        return f"{place}: a single item for a list"
    return ""


def _match(given: str, expected: str) -> str | None:
    """Find the only expected value that differs solely in case, spaces and hyphens."""

    def plain(text: str) -> str:
        return re.sub(r"[\s_-]+", "_", text.strip().casefold())

    names = re.findall(r"'([^']*)'", expected)
    fitting = [name for name in names if plain(name) == plain(given)]
    return fitting[0] if len(fitting) == 1 else None


def _locate(value: object, loc: Sequence[int | str]) -> tuple[Any, Any] | None:
    """Find the container and key of a problem; return None inside an untagged union."""
    holder: Any = None
    key: int | str = ""
    current: Any = value
    for at, part in enumerate(loc):
        inside = isinstance(current, list) and isinstance(part, int) and part < len(current)
        if inside or (isinstance(current, dict) and part in current):
            holder, key, current = current, part, current[part]
        elif not isinstance(current, dict) or part not in current.values() or at == len(loc) - 1:
            return None  # neither a key nor the tag of a union
    return None if holder is None else (holder, key)


def describe_problems(error: ValidationError) -> str:
    """Describe all problems of a value that does not match its schema."""
    found = error.errors(include_url=False, include_input=False)
    said = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'reply'}: {problem['msg']}"
        for problem in found
    ]
    return join_problems(said)


def join_problems(problems: Sequence[str]) -> str:
    """Join the problems of a reply, including as many as fit and counting the rest."""
    kept: list[str] = []
    for place, problem in enumerate(dict.fromkeys(problems)):
        if kept and sum(map(len, kept)) + len(problem) > LONGEST_PROBLEMS:
            return "; ".join((*kept, f"and {len(set(problems)) - place} more"))
        kept.append(problem)
    return "; ".join(kept)
