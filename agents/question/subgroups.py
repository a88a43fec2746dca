"""Parsing of numbers ("stage II or III", "under 70", "more than four nodes") as conditions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agents.question.labels import Labels, LevelMatch
from agents.question.names import terms_of
from validation.core.dictionary import Variable
from validation.core.hypothesis import Filter

ROMAN = {"i": 1, "ii": 2, "iii": 3, "iv": 4}
NUMBER = r"(?:iv|i{1,3}|[1-4])[abc]?"
NUMBERED = re.compile(
    rf"\b(?P<what>stage|grade)s?\s+({NUMBER}(?:\s*(?:,|/|-|and|or|to)\s*{NUMBER})*)\b"
)
COUNTS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
OPERATORS = {
    "gt": ("older than", "over", "above", "more than", "greater than", "higher than", "exceeding",
           "beyond", ">"),
    "ge": ("at least", "≥", ">="),
    "lt": ("younger than", "under", "below", "less than", "fewer than", "lower than", "<"),
    "le": ("at most", "up to", "no more than", "≤", "<="),
}  # fmt: skip
_SIGNS = "|".join(re.escape(it) for it in sorted(sum(OPERATORS.values(), ()), key=len)[::-1])
_UNIT = r"(?:\s*(?:years?(?: of age| old)?|%|mm|cm))?"
BOUND = re.compile(
    rf"(?<![\w<>])(?:aged? )?(?P<op>{_SIGNS})\s*(?:the age of )?"
    rf"(?P<number>\d+(?:\.\d+)?|{'|'.join(COUNTS)})(?![\d.]*\d){_UNIT}(?!\w)"
)
AGED = re.compile(
    rf"(?<!\w)(?:aged? )?(?P<number>\d{{2}}){_UNIT} (?:and|or) "
    r"(?P<op>older|over|above|younger|under|below)\b"
)
AGAINST = re.compile(
    r"(?:.*\b(?:than|compared (?:with|to))|\s*(?:versus|vs|against))\s+"
    r"(?:the |in |those (?:of |with )?)*"
)


WORD = re.compile(r"[^\W_][\w+-]*")
BREAK = re.compile(r"[,;:?.]")
LINK = re.compile(r"\s*\b(?:of|is|was|are|were)?\s*$")


@dataclass(frozen=True)
class Condition:
    """A condition named in a text, with its position; no filters if the cohort lacks it."""

    start: int
    end: int
    name: str
    filters: tuple[Filter, ...]


def find_numbers(text: str, labels: Labels) -> list[Condition]:
    """Find bounds and numbered stages or grades in a lower-case English text."""
    return [*_find_bounds(text, labels), *_find_stages(text, labels)]


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


def _find_bounds(text: str, labels: Labels) -> Iterator[Condition]:
    """Find bounds on the variable named next to the number; a bare two-digit number is an age."""
    for match in [*AGED.finditer(text), *BOUND.finditer(text)]:
        op = next((op for op, words in OPERATORS.items() if match["op"] in words), "")
        op = op or ("ge" if match["op"] == "older" else "le")
        if match.re is AGED:
            op = op.replace("t", "e")
        number = match["number"]
        value = float(COUNTS.index(number) if number in COUNTS else number)
        found = _beside(text, match.start(), match.end(), labels)
        if match.re is AGED or (found is None and re.fullmatch(r"\d{2}", number)):
            found = (labels.find("age"), "age", match.start(), match.end())
        if found is not None:
            variable, name, start, end = found
            fields = {"op": op, "value": value}
            filters = (
                (Filter.model_validate({"variable": variable.key, **fields}),) if variable else ()
            )
            yield Condition(start, end, name, filters)


def _beside(
    text: str, start: int, end: int, labels: Labels
) -> tuple[Variable | None, str, int, int] | None:
    """Find the number's variable in the words after it, or else in those before it."""
    stop = BREAK.search(text, end)
    after = [*WORD.finditer(text, end, stop.start() if stop else len(text))]
    before = [*WORD.finditer(text, 0, len(LINK.sub("", text[:start])))]
    for size in (4, 3, 2, 1):
        for words in (after[:size], before[-size:]):
            edges = len(words) == size and terms_of(words[0][0]) and terms_of(words[-1][0])
            phrase = text[words[0].start() : words[-1].end()] if edges else ""
            variable = labels.find(phrase, part=False)
            if variable is not None and variable.kind in ("continuous", "ordinal"):
                first, last = min(words[0].start(), start), max(words[-1].end(), end)
                return variable, variable.label, first, last
    return None


def _find_stages(text: str, labels: Labels) -> Iterator[Condition]:
    for match in NUMBERED.finditer(text):
        bare = [word.rstrip("abc") for word in re.findall(NUMBER, match[2])]
        numbers = [ROMAN.get(word) or int(word) for word in bare]
        if re.search(r"\bto\b|-", match[2]) and len(numbers) == 2:
            numbers = list(range(numbers[0], numbers[1] + 1))
        found = (
            LevelMatch(variable, levels).filters
            for _, variable in labels.nearest(labels.terms(match["what"]))
            if (levels := _list_levels(variable, numbers))
        )
        yield Condition(match.start(), match.end(), match["what"], next(found, ()))


def _list_levels(variable: Variable, numbers: list[int]) -> tuple[str | float, ...]:
    """List the levels of a variable that contain these numbers, in the order given."""
    pattern = re.compile(rf"(?:stage|grade|[gt])? ?({NUMBER}|[1-4]\.0)")
    levels: dict[int, str] = {}
    for level in variable.levels:
        if found := pattern.fullmatch(level.casefold()):
            bare = found[1].rstrip("abc")
            levels[ROMAN.get(bare) or int(float(bare))] = level
    ordinal = variable.kind == "ordinal"
    listed = [number for number in dict.fromkeys(numbers) if number in levels]
    return tuple(float(it) if ordinal else levels[it] for it in listed)
