"""Parsing of subgroups ("in women", "stage II or III", "under 70") as conditions on the cohort."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agents.question.labels import Labels, LevelMatch
from validation.core.hypothesis import Filter

ROMAN = {"i": 1, "ii": 2, "iii": 3, "iv": 4}
NUMBER = r"(?:iv|i{1,3}|[1-4])[abc]?"
NUMBERED = re.compile(
    rf"\b(?P<what>stage|grade)s?\s+({NUMBER}(?:\s*(?:,|/|-|and|or|to)\s*{NUMBER})*)\b"
)
AGED = re.compile(
    r"\b(?:(?P<op>older than|over|above|more than|at least|younger than|under|below|less than)|"
    r"(?P<sign>[<>≤≥]))\s*(?P<years>\d{2})(?![\d.])(?:\s*years?(?: of age| old)?)?\b"
)
OPERATORS = {
    "older than": "gt", "over": "gt", "above": "gt", "more than": "gt", ">": "gt",
    "at least": "ge", "≥": "ge", "younger than": "lt", "under": "lt", "below": "lt",
    "less than": "lt", "<": "lt", "≤": "le",
}  # fmt: skip
AGAINST = re.compile(
    r"(?:.*\b(?:than|compared (?:with|to))|\s*(?:versus|vs|against))\s+"
    r"(?:the |in |those (?:of |with )?)*"
)


@dataclass(frozen=True)
class Condition:
    """A condition named in a text, with its position; no filters if the cohort has none for it."""

    start: int
    end: int
    variable: str
    filters: tuple[Filter, ...]


def find_numbers(text: str, labels: Labels) -> list[Condition]:
    """Find the ages and numbered stages or grades in a lower-case English text."""
    return [*_find_ages(text, labels), *_find_stages(text, labels)]


def find_contradictions(filters: Iterable[Filter]) -> list[str]:
    """Describe pairs of conditions that no patient can meet."""
    listed = list(dict.fromkeys(filters))
    return [
        f"no patient has {first.variable} {first.op} {first.value} and {second.op} {second.value}"
        for at, first in enumerate(listed)
        for second in listed[at + 1 :]
        if first.variable == second.variable and _exclusive(first, second)
    ]


def _exclusive(first: Filter, second: Filter) -> bool:
    if first.op == "eq" and second.op == "eq":
        return first.value != second.value
    if {first.op, second.op} == {"eq", "ne"}:
        return first.value == second.value
    bounds = {first.op: first.value, second.op: second.value}
    low = next((bounds[op] for op in ("gt", "ge") if op in bounds), None)
    high = next((bounds[op] for op in ("lt", "le") if op in bounds), None)
    return isinstance(low, float) and isinstance(high, float) and low >= high


OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def invert_filters(filters: Iterable[Filter]) -> tuple[Filter, ...]:
    """Return conditions for the patients whom the given conditions exclude."""
    out: list[Filter] = []
    for item in filters:
        if item.op == "in" and isinstance(item.value, tuple):
            out += [Filter(variable=item.variable, op="ne", value=value) for value in item.value]
        elif item.op in OPPOSITE:
            out.append(Filter.model_validate({**item.model_dump(), "op": OPPOSITE[item.op]}))
    return tuple(out)


def _find_ages(text: str, labels: Labels) -> Iterator[Condition]:
    age = labels.find("age")
    for match in AGED.finditer(text):
        fields = {"op": OPERATORS[match["op"] or match["sign"]], "value": float(match["years"])}
        filters = (Filter.model_validate({"variable": age.key, **fields}),) if age else ()
        yield Condition(match.start(), match.end(), "age", filters)


def _find_stages(text: str, labels: Labels) -> Iterator[Condition]:
    for match in NUMBERED.finditer(text):
        variable = labels.find(match["what"])
        bare = [word.rstrip("abc") for word in re.findall(NUMBER, match[2])]
        numbers = [ROMAN.get(word) or int(word) for word in bare]
        if re.search(r"\bto\b|-", match[2]) and len(numbers) == 2:
            numbers = list(range(numbers[0], numbers[1] + 1))
        values = tuple(float(number) for number in dict.fromkeys(numbers))
        filters: tuple[Filter, ...] = ()
        if variable is not None and variable.kind == "ordinal":
            filters = LevelMatch(variable, values).filters
        yield Condition(match.start(), match.end(), match["what"], filters)
