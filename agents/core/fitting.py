"""Fitting of an agent's input to a model's context by omitting the least relevant items."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from pydantic import BaseModel

from agents.core.base import I

_WORD = re.compile(r"\w{3,}")


def fit_input(
    given: I, spare: Sequence[str], fits: Callable[[I], bool]
) -> tuple[I, tuple[str, ...]]:
    """Remove items from the spare fields until the input fits, exhausting each field in turn.

    Items that share the most words with the rest of the input are kept, with rare words
    weighted more, and they stay in their order. If the input does not fit even without any of
    them, it is returned without them.

    Parameters
    ----------
    spare : fields with several items, such as "dictionary.genes", the least needed first

    Returns
    -------
    The input, and for each field the number of items left out and the original number.
    """
    left_out = []
    wanted = _words(reduce(lambda rest, path: _with_items(rest, path, ()), spare, given))
    for path in spare:
        items = _items(given, path)
        if fits(given) or not items:
            continue
        order = _rank(items, wanted)

        least, most = 0, len(items)  # fits with `least`, or not even then; not with `most`
        given = _with_items(given, path, ())
        while most - least > 1:
            middle = (least + most) // 2
            kept = tuple(items[at] for at in sorted(order[:middle]))
            fewer = _with_items(given, path, kept)
            least, most = (middle, most) if fits(fewer) else (least, middle)
        given = _with_items(given, path, tuple(items[at] for at in sorted(order[:least])))
        left_out.append(f"{path}: {len(items) - least} of {len(items)}")
    return given, tuple(left_out)


def _items(given: BaseModel, path: str) -> tuple[Any, ...]:
    return tuple(reduce(getattr, path.split("."), given))


def _with_items(given: I, path: str, items: tuple[Any, ...]) -> I:
    name, _, rest = path.partition(".")
    inner = _with_items(getattr(given, name), rest, items) if rest else items
    return given.model_copy(update={name: inner})


def _words(value: object) -> set[str]:
    text = value.model_dump_json() if isinstance(value, BaseModel) else str(value)
    return set(_WORD.findall(text.lower()))


def _rank(items: tuple[Any, ...], wanted: set[str]) -> list[int]:
    """Rank item positions by the words they share with `wanted`, most words first."""
    words = [_words(item) for item in items]
    number = Counter(word for each in words for word in each)
    shared = [sum(math.log(1 + len(items) / number[w]) for w in each & wanted) for each in words]
    return sorted(range(len(items)), key=lambda at: -shared[at])
