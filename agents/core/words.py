"""Text written by a model: short, attributed, and shown only in separate boxes.

A reply field of type `Words` is plain text if written by a SAGE rule, and a `ModelText`
if written by a model. A field of type `OwnText` is empty in a model's reply: its sentence
is rendered from the other fields. A `ModelText` cannot be formatted into another text: a
template shows it in a box, and a later prompt shows it as a quoted remark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.json_schema import SkipJsonSchema

from agents.core.base import View
from sage.core.printable import ForeignText, count_noun, quote_text
from validation.core.hypothesis import Hypothesis

LONGEST = 400
"""Maximum number of characters of a remark; longer remarks end with an ellipsis."""
KEYED = re.compile(r"\[\[([a-z0-9_.\-]+)\]\]", re.IGNORECASE)
LEFT_OUT = "A model's remark was omitted: it contained a number, or a name that was not given."
_TOKEN = re.compile(r"[^\s,;:()\[\]{}\"'“”‘’<>=|\\]+")
T = TypeVar("T", bound=BaseModel)


class ModelText(View):
    """A model's remark, on one line. `by` is the model's name."""

    text: str = Field(max_length=LONGEST)
    by: str

    def __str__(self) -> str:
        """Raise an error, since the remark must not pass for SAGE's own text."""
        raise TypeError("model text must be shown in a separate box")

    def __format__(self, form: str) -> str:
        """Raise an error, as `str` does."""
        return str(self)


def _mark(value: object, info: ValidationInfo) -> object:
    """Attach the author to text in a reply; return anything else unchanged."""
    author = (info.context or {}).get("author")
    if author is None:
        return value
    if not isinstance(value, str):
        raise ValueError("expected plain text; the author is added automatically")
    return ModelText(text=str(ForeignText(value, LONGEST)), by=author)


def _clear(value: object, info: ValidationInfo) -> object:
    """Return empty text for a field in a model's reply, regardless of its content."""
    return value if (info.context or {}).get("author") is None else ""


def _strip(hypothesis: Hypothesis, info: ValidationInfo) -> Hypothesis:
    """Remove text from a model's hypothesis, since SAGE generates it from the fields."""
    if (info.context or {}).get("author") is None:
        return hypothesis
    texts = {"statement": "", "rationale": "", "feasibility": "", "unadjusted_because": ""}
    exposures = tuple(
        exposure.model_copy(
            update={
                "label": f"score of {exposure.signature.genes[0]} and"
                f" {count_noun(len(exposure.signature.genes) - 1, 'other gene')}"
            }
        )
        if exposure.signature is not None
        else exposure
        for exposure in hypothesis.exposures
    )
    return hypothesis.model_copy(update=texts | {"untested": (), "exposures": exposures})


Words = Annotated[
    str | ModelText,
    BeforeValidator(_mark),
    WithJsonSchema({"type": "string", "maxLength": LONGEST}),
]
"""SAGE's own text, or a model's remark."""
OwnText = Annotated[str, BeforeValidator(_clear), SkipJsonSchema()]
"""Text written by SAGE; a model is not asked for it and cannot fill it in."""
PlainHypothesis = Annotated[Hypothesis, AfterValidator(_strip)]
"""A hypothesis in which a model fills in only the fields."""


def quote_remark(words: str | ModelText) -> str:
    """Return SAGE's own text unchanged, and a model's remark as a quotation with its author."""
    if isinstance(words, ModelText):
        return f"written by the model {words.by}, not checked: {quote_text(words.text)}"
    return words


def remarks_in(value: object) -> Iterator[ModelText]:
    """Yield every remark within a value."""
    if isinstance(value, ModelText):
        yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from remarks_in(getattr(value, name))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from remarks_in(item)


def refuse_words(given: BaseModel, output: BaseModel) -> list[str]:
    """List remarks in `output` containing digits outside the keys and names in `given`.

    Names in the output's own checked fields, such as a variable's key, count as given.
    """
    known = _known(given, output)
    return [
        f'"{remark.text[:80]}": "{strange[0]}" is not a key or name that was given; write no '
        "numbers"
        for remark in remarks_in(output)
        if (strange := _strange(remark.text, known))
    ]


def drop_refused(given: BaseModel, output: T) -> T:
    """Replace each refused remark in the output with a sentence written by SAGE."""
    known = _known(given, output)
    changed: T = replace_remarks(
        output, lambda found: LEFT_OUT if _strange(found.text, known) else found
    )
    return changed


def _known(given: BaseModel, output: BaseModel) -> frozenset[str]:
    fields: BaseModel = replace_remarks(output, lambda found: "")
    return _tokens(given.model_dump_json()) | _tokens(fields.model_dump_json())


def _tokens(text: str) -> frozenset[str]:
    return frozenset(token.strip(".!?-–…").lower() for token in _TOKEN.findall(text))


def _strange(text: str, known: frozenset[str]) -> list[str]:
    """Find keys and tokens with digits absent from the input; bare numbers are never allowed."""
    keys = [key for key in KEYED.findall(text) if key.lower() not in known]
    found = [
        token
        for token in _tokens(KEYED.sub(" ", text))
        if any(char.isdigit() for char in token) and not _is_given(token, known)
    ]
    return keys + sorted(found)


def _is_given(token: str, known: frozenset[str]) -> bool:
    def named(part: str) -> bool:
        return part in known and any(char.isalpha() for char in part)

    return named(token) or all(
        named(part) for part in re.split(r"[-–/]", token) if any(map(str.isdigit, part))
    )


def replace_remarks(value: Any, change: Callable[[ModelText], object]) -> Any:
    """Replace each remark in a value."""
    if isinstance(value, ModelText):
        return change(value)
    if isinstance(value, BaseModel):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        return value.model_copy(
            update={name: replace_remarks(item, change) for name, item in fields.items()}
        )
    if isinstance(value, tuple):
        return tuple(replace_remarks(item, change) for item in value)
    return value
