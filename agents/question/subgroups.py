"""Parsing of subgroups ("in women", "stage II or III", "under 70") as conditions on the cohort."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from agents.question.names import key_of
from agents.question.types import Level
from agents.question.vocabulary import names_of
from validation.core.dictionary import Variable
from validation.core.hypothesis import Filter
from validation.inputs.population import two_levels

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
PEOPLE = r"(?:patients?|tumors?|cases?|disease|cancers?|carcinomas?|subtype|people|individuals)"
AGAINST = re.compile(
    r"(?:.*\b(?:than|compared (?:with|to))|\s*(?:versus|vs|against))\s+"
    r"(?:the |in |those (?:of |with )?)*"
)
YES = frozenset(("yes", "y", "positive", "present", "true", "1", "received", "treated"))
NO = frozenset(("no", "n", "negative", "absent", "false", "0", "none", "untreated"))
WORDS = (
    (r"\b(?:women|woman|females?)\b", "sex", ("female", "f", "w", "women")),
    (r"\b(?:men|man|males?)\b", "sex", ("male", "m", "men")),
    (r"\b(?:non[- ]?smokers?|never[- ]?smokers?|(?:who )?never smoked)\b", "smoking",
     ("never", "no", "non-smoker", "never smoker")),
    (r"\bcurrent smokers?\b", "smoking", ("current", "current smoker")),
    (r"\b(?:former|previous|ex)[- ]smokers?\b", "smoking", ("previous", "former")),
    (r"(?<!non)(?<![-\w])(?<!non )(?<!never )smokers?\b", "smoking", ("ever", "yes", "smoker")),
    (r"\bpost[- ]?menopausal\b", "menopausal status", ("post", "postmenopausal")),
    (r"\bpre[- ]?menopausal\b", "menopausal status", ("pre", "premenopausal")),
    (r"\bhigh[- ]grade\b", "grade", ("high", "high grade")),
    (r"\blow[- ]grade\b", "grade", ("low", "low grade")),
)  # fmt: skip
"""Words of a subgroup, the variable that they describe, and names of the level."""
VARIABLES = {
    "sex": ("sex", "gender"),
    "smoking": ("smoking", "tobacco", "smoking history", "smoking status"),
    "menopausal status": ("menopausal status", "menopause"),
    "grade": ("grade", "histologic grade", "tumor grade"),
    "stage": ("stage", "pathologic stage", "tumor stage", "ajcc stage"),
    "age": ("age", "age at diagnosis"),
}


@dataclass(frozen=True)
class Condition:
    """A condition named in a text, with its position; no filters if the cohort has none for it.

    `contrast` is the variable whose levels are compared ("men … than women");
    `filters` then keep those levels. `level` is the side of the level that is named first.
    """

    start: int
    end: int
    variable: str
    filters: tuple[Filter, ...]
    contrast: Variable | None = None
    level: Level | None = None


def find_conditions(text: str, variables: Iterable[Variable]) -> list[Condition]:
    """Find the subgroups named in a lower-case English text, in order."""
    known = list(variables)
    found = [
        *_find_ages(text, known), *_find_stages(text, known), *_find_words(text, known),
        *_named_levels(text, known), *_yes_or_no(text, known),
    ]  # fmt: skip
    found.sort(key=lambda item: (item.start, -(item.end - item.start)))
    out: list[Condition] = []
    for item in found:
        before = out[-1] if out else None
        if before is not None and item.start < before.end:
            continue
        if (
            before is not None
            and before.variable == item.variable
            and AGAINST.fullmatch(text, before.end, item.start)
        ):
            item = _contrast(before, item, known)
            out.pop()
        out.append(item)
    return out


def _contrast(first: Condition, second: Condition, known: list[Variable]) -> Condition:
    """Find two levels of a variable that are compared."""
    whole = Condition(first.start, second.end, first.variable, ())
    values = [value for side in (first, second) for value in _values(side)]
    key = second.filters[0].variable if second.filters else ""
    variable = next((variable for variable in known if variable.key == key), None)
    if variable is None or len(set(values)) < 2:
        return whole
    ends = (values[0], values[-1])
    pair = two_levels(variable.levels)
    level: Level | None = None
    if isinstance(ends[0], float) and isinstance(ends[1], float):
        level = "high" if ends[0] > ends[1] else "low"
    elif pair is not None and set(ends) <= set(pair):
        level = "high" if ends[0] == pair[1] else "low"
    every = variable.kind == "binary" or len(variable.levels) == len(set(values))
    kept = Filter(variable=variable.key, op="in", value=tuple(dict.fromkeys(values)))
    return replace(whole, filters=() if every else (kept,), contrast=variable, level=level)


def _values(condition: Condition) -> list[str | float]:
    values: list[str | float] = []
    for item in condition.filters:
        if item.op == "in" and isinstance(item.value, tuple):
            values += item.value
        elif item.op == "eq" and item.value is not None and not isinstance(item.value, tuple):
            values.append(item.value)
    return values


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


def _variable_for(what: str, variables: Iterable[Variable]) -> Variable | None:
    wanted = {key_of(name) for name in VARIABLES[what]}
    return next(
        (item for item in variables if wanted & {key_of(name) for name in names_of(item)}), None
    )


def _find_ages(text: str, variables: list[Variable]) -> Iterator[Condition]:
    age = _variable_for("age", variables)
    for match in AGED.finditer(text):
        fields = {"op": OPERATORS[match["op"] or match["sign"]], "value": float(match["years"])}
        filters = (Filter.model_validate({"variable": age.key, **fields}),) if age else ()
        yield Condition(match.start(), match.end(), "age", filters)


def _find_stages(text: str, variables: list[Variable]) -> Iterator[Condition]:
    for match in NUMBERED.finditer(text):
        variable = _variable_for(match["what"], variables)
        bare = [word.rstrip("abc") for word in re.findall(NUMBER, match[2])]
        numbers = [ROMAN.get(word) or int(word) for word in bare]
        if re.search(r"\bto\b|-", match[2]) and len(numbers) == 2:
            numbers = list(range(numbers[0], numbers[1] + 1))
        values = tuple(float(number) for number in dict.fromkeys(numbers))
        filters: tuple[Filter, ...] = ()
        if variable is not None and variable.kind == "ordinal":
            filters = (
                Filter(variable=variable.key, op="eq", value=values[0])
                if len(values) == 1
                else Filter(variable=variable.key, op="in", value=values),
            )
        yield Condition(match.start(), match.end(), match["what"], filters)


def _find_words(text: str, variables: list[Variable]) -> Iterator[Condition]:
    for pattern, what, names in WORDS:
        variable = _variable_for(what, variables)
        for match in re.finditer(pattern, text):
            yield Condition(match.start(), match.end(), what, _level_filter(variable, names))


def _level_filter(variable: Variable | None, names: tuple[str, ...]) -> tuple[Filter, ...]:
    if variable is None:
        return ()
    levels = {level.casefold(): level for level in variable.levels}
    level = next((levels[name] for name in names if name in levels), None)
    if level is not None:
        return (Filter(variable=variable.key, op="eq", value=level),)
    if "ever" in names and "never" in levels:
        return (Filter(variable=variable.key, op="ne", value=levels["never"]),)
    return ()


def _named_levels(text: str, variables: list[Variable]) -> Iterator[Condition]:
    """Find levels named directly: "basal tumors", "in papillary cancers"."""
    for variable in variables:
        for level in variable.levels:
            word = level.casefold()
            if len(word) < 4 or word in YES | NO or not re.fullmatch(r"[a-z][a-z /-]+", word):
                continue
            name = re.escape(word)
            near = (
                rf"(?<![\w-]){name}\b(?=\s+{PEOPLE}\b)|(?<=\bin )(?:the )?{name}\b(?!\s+(?:to|of))"
            )
            for match in re.finditer(near, text):
                condition = Filter(variable=variable.key, op="eq", value=level)
                yield Condition(match.start(), match.end(), variable.label, (condition,))


def _yes_or_no(text: str, variables: list[Variable]) -> Iterator[Condition]:
    """Find yes-or-no variables: "patients without lymphovascular invasion", "who received X"."""
    people = r"(?:patients?|tumors?|cases?|women|men|those|people|in)"
    for variable in variables:
        levels = {level.casefold(): level for level in variable.levels}
        yes = next((levels[name] for name in levels if name in YES), None)
        no = next((levels[name] for name in levels if name in NO), None)
        if yes is None or no is None or len(levels) != 2:
            continue
        names = "|".join(re.escape(name.casefold()) for name in names_of(variable))
        pattern = (
            rf"\b(?:{people}\s+(?:with|who received|who had|receiving|treated with|on|under)|"
            rf"(?P<no>without|with no|not receiving|who did not receive))\s+(?:{names})\b"
        )
        for match in re.finditer(pattern, text):
            condition = Filter(variable=variable.key, op="eq", value=no if match["no"] else yes)
            yield Condition(match.start(), match.end(), variable.label, (condition,))
