"""Subgroups in words ("in women", "stage II or III", "under 70") as conditions on the cohort."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agents.question.vocabulary import names_of
from agents.question.words import key_of
from validation.core.dictionary import Variable
from validation.core.hypothesis import Filter
from validation.inputs.population import two_levels

ROMAN = {"i": 1, "ii": 2, "iii": 3, "iv": 4}
NUMBER = r"(?:iv|i{1,3}|[1-4])[abc]?"
SEVERAL = rf"({NUMBER}(?:\s*(?:,|/|-|and|or|to)\s*{NUMBER})*)"
AGED = re.compile(
    r"\b(?:(?P<over>older than|over|above|more than|at least|>|≥)|"
    r"(?P<under>younger than|under|below|less than|<|≤))\s*(?P<years>\d{2})"
    r"(?:\s*years?(?: of age| old)?)?\b"
)
NUMBERED = re.compile(rf"\b(?P<what>stage|grade)s?\s+{SEVERAL}\b")
EXTENT = r"[cy]?p?(?P<what>[tn])\s?[0-4][abc]?"
STAGED = re.compile(
    rf"\b{EXTENT}(?:\s*(?P<to>-|–|to|/|,|or|and)\s*(?:[cy]?p?(?P=what))?\s?[0-4][abc]?)*(?![\w+])"
)
"""Extent of the tumor (T) or of the nodes (N): "pT3", "T3-T4", "T2 or T3"."""
PEOPLE = r"(?:patients?|tumors?|cases?|disease|cancers?|carcinomas?|subtype|people|individuals)"
NODES = re.compile(
    r"(?:\b(?:in|among|within|(?:patients|women|men|people) with)\s+(?:the\s+)?|^)"
    r"(?P<words>(?:lymph[- ]?)?(?:node|nodal)[- ](?P<side>positive|negative))"
    rf"(?=(?:\s+(?!(?:and|or|vs|versus)\b)[\w-]+){{0,2}}?\s+{PEOPLE}\b)"
)
"""The state of the nodes said of those who are asked about ("in node-positive breast cancer")."""
AGAINST = re.compile(
    r"(?:.*\b(?:than|compared (?:with|to))|\s*(?:versus|vs|against))\s+"
    r"(?:the |in |those (?:of |with )?)*"
)
YES = frozenset(("yes", "y", "positive", "present", "true", "1", "received", "treated"))
NO = frozenset(("no", "n", "negative", "absent", "false", "0", "none", "untreated"))
WORDS = (
    (r"\b(?:women|woman|females?|female patients)\b", "sex", ("female", "f", "w", "women")),
    (r"\b(?:men|man|males?|male patients)\b", "sex", ("male", "m", "men")),
    (
        r"\b(?:non[- ]?smokers?|never[- ]?smokers?|(?:who )?never smoked|nonsmoking)\b",
        "smoking",
        ("never", "no", "non-smoker", "never smoker"),
    ),
    (r"\bcurrent smokers?\b", "smoking", ("current", "current smoker")),
    (r"\b(?:former|previous|ex)[- ]smokers?\b", "smoking", ("previous", "former")),
    (r"(?<!non)(?<![-\w])(?<!non )(?<!never )smokers?\b", "smoking", ("ever", "yes", "smoker")),
    (r"\bpost[- ]?menopausal\b", "menopausal status", ("post", "postmenopausal")),
    (r"\bpre[- ]?menopausal\b", "menopausal status", ("pre", "premenopausal")),
    (r"\bhigh[- ]grade\b", "grade", ("high", "high grade")),
    (r"\blow[- ]grade\b", "grade", ("low", "low grade")),
)
VARIABLES = {
    "sex": ("sex", "gender"),
    "smoking": ("smoking", "tobacco", "smoking history", "smoking status"),
    "menopausal status": ("menopausal status", "menopause"),
    "grade": ("grade", "histologic grade", "tumor grade"),
    "stage": ("stage", "pathologic stage", "tumor stage", "ajcc stage"),
    "age": ("age", "age at diagnosis"),
    "t stage": ("t stage", "pt", "pt stage", "pathologic t", "pathologic t stage", "t category"),
    "nodes": (
        "positive lymph nodes",
        "positive nodes",
        "nodes positive",
        "lymph nodes",
        "number of positive lymph nodes",
        "lymph node status",
        "nodal status",
        "node positivity",
        "n stage",
        "pn stage",
        "pathologic n stage",
        "nodal stage",
    ),
    "n stage": ("n stage", "pn", "pn stage", "pathologic n", "pathologic n stage", "nodal stage"),
}


@dataclass(frozen=True)
class Condition:
    """A condition that a text names, with its place; without filters the cohort has none for it.

    `contrast` is the variable whose levels a text holds against one another ("grade II versus grade
    III", "men … than women"); the filters then keep those levels, and none where there are no
    others. `level` is the side of the level that is named first, where levels have an order.
    """

    start: int
    end: int
    words: str
    variable: str
    filters: tuple[Filter, ...]
    contrast: Variable | None = None
    level: Literal["high", "low"] | None = None
    aside: bool = False
    """The first level of a contrast whose second one follows later in the sentence."""


def conditions(text: str, variables: Iterable[Variable]) -> list[Condition]:
    """The subgroups that a lower-case English text names, in their order."""
    known = list(variables)
    found = [
        *_aged(text, known), *_numbered(text, known), *_staged(text, known),
        *_worded(text, known), *_nodes(text, known), *_levels(text, known), *_given(text, known),
    ]  # fmt: skip
    found.sort(key=lambda item: (item.start, -(item.end - item.start)))
    kept: list[Condition] = []
    for item in found:
        if all(item.start >= other.end or item.end <= other.start for other in kept):
            kept.append(item)
    return _contrasted(text, kept, known)


def _contrasted(text: str, found: list[Condition], known: list[Variable]) -> list[Condition]:
    """Levels of one variable that are held against one another are one condition."""
    out: list[Condition] = []
    for item in found:
        before = out[-1] if out else None
        if before is None or not AGAINST.fullmatch(text, before.end, item.start):
            out.append(item)
            continue
        if before.variable != item.variable:
            out.append(item)
            continue
        values = [value for side in (before, item) for value in _values(side)]
        key = item.filters[0].variable if item.filters else ""
        variable = next((variable for variable in known if variable.key == key), None)
        adjacent = _adjacent(text, before, item)
        start = before.start if adjacent else item.start
        words = text[start : item.end]
        if adjacent:
            out.pop()
        else:
            out[-1] = replace(before, filters=(), aside=True)
        if variable is None or len(set(values)) < 2:
            out.append(Condition(start, item.end, words, item.variable, ()))
            continue
        whole = variable.kind == "binary" or len(variable.levels) == len(set(values)) > 0
        kept = Filter(variable=variable.key, op="in", value=tuple(dict.fromkeys(values)))
        out.append(
            Condition(
                start, item.end, words, item.variable, () if whole else (kept,), variable,
                _side(variable, values),
            )
        )  # fmt: skip
    return out


def _adjacent(text: str, before: Condition, item: Condition) -> bool:
    """Whether nothing but the words of a comparison stands between two levels."""
    return len(text[before.end : item.start].split()) <= 3


def _side(variable: Variable, values: Sequence[str | float]) -> Literal["high", "low"] | None:
    """On which side of the second level the first one is."""
    first, second = values[0], values[-1]
    if isinstance(first, float) and isinstance(second, float):
        return "high" if first > second else "low"
    pair = two_levels(variable.levels)
    if pair is None or not {first, second} <= set(pair):
        return None
    return "high" if first == pair[1] else "low"


def _values(condition: Condition) -> list[str | float]:
    values: list[str | float] = []
    for item in condition.filters:
        if item.op == "in" and isinstance(item.value, tuple):
            values += item.value
        elif item.op == "eq" and item.value is not None and not isinstance(item.value, tuple):
            values.append(item.value)
    return values


def contradictions(filters: Iterable[Filter]) -> list[str]:
    """Pairs of conditions that no patient meets."""
    listed = list(dict.fromkeys(filters))
    out = []
    for at, first in enumerate(listed):
        for second in listed[at + 1 :]:
            if first.variable == second.variable and _exclusive(first, second):
                out.append(
                    f"no patient has {first.variable} {first.op} {first.value} and"
                    f" {second.op} {second.value}"
                )
    return out


def _exclusive(first: Filter, second: Filter) -> bool:
    if first.op == "eq" and second.op == "eq":
        return first.value != second.value
    bounds = {first.op: first.value, second.op: second.value}
    low = next((bounds[op] for op in ("gt", "ge") if op in bounds), None)
    high = next((bounds[op] for op in ("lt", "le") if op in bounds), None)
    return isinstance(low, float) and isinstance(high, float) and low >= high


OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def ruled_out(filters: Iterable[Filter]) -> tuple[Filter, ...]:
    """The conditions on patients whom these do not describe."""
    out: list[Filter] = []
    for item in filters:
        if item.op == "in" and isinstance(item.value, tuple):
            out += [Filter(variable=item.variable, op="ne", value=value) for value in item.value]
        elif item.op in OPPOSITE:
            out.append(Filter.model_validate({**item.model_dump(), "op": OPPOSITE[item.op]}))
    return tuple(out)


def variable_for(what: str, variables: Iterable[Variable]) -> Variable | None:
    """The cohort's variable for sex, age, stage, grade, smoking or menopausal status."""
    wanted = {key_of(name) for name in VARIABLES[what]}
    return next(
        (item for item in variables if wanted & {key_of(name) for name in names_of(item)}), None
    )


def _aged(text: str, variables: list[Variable]) -> Iterator[Condition]:
    age = variable_for("age", variables)
    for match in AGED.finditer(text):
        op = "gt" if match["over"] else "lt"
        if match["over"] in ("at least", "≥"):
            op = "ge"
        if match["under"] == "≤":
            op = "le"
        filters = (
            (
                Filter.model_validate(
                    {"variable": age.key, "op": op, "value": float(match["years"])}
                ),
            )
            if age
            else ()
        )
        yield Condition(match.start(), match.end(), match[0], "age", filters)


def _numbered(text: str, variables: list[Variable]) -> Iterator[Condition]:
    for match in NUMBERED.finditer(text):
        variable = variable_for(match["what"], variables)
        numbers = [_number(word) for word in re.findall(NUMBER, match[2])]
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
        yield Condition(match.start(), match.end(), match[0], match["what"], filters)


def _staged(text: str, variables: list[Variable]) -> Iterator[Condition]:
    for match in STAGED.finditer(text):
        what = f"{match['what']} stage"
        variable = variable_for(what, variables)
        numbers = [int(digit) for digit in re.findall(r"[0-4]", match[0])]
        if match["to"] in ("-", "–", "to") and len(numbers) == 2:
            numbers = list(range(numbers[0], numbers[1] + 1))
        filters: tuple[Filter, ...] = ()
        if variable is not None:
            values: tuple[str | float, ...] = tuple(float(number) for number in numbers)
            if variable.kind != "ordinal":
                values = tuple(
                    level
                    for level in variable.levels
                    if (digit := re.search(r"[0-4]", level)) and int(digit[0]) in numbers
                )
            if len(values) == 1:
                filters = (Filter(variable=variable.key, op="eq", value=values[0]),)
            elif values:
                filters = (Filter(variable=variable.key, op="in", value=values),)
        yield Condition(match.start(), match.end(), match[0], what, filters)


def _nodes(text: str, variables: list[Variable]) -> Iterator[Condition]:
    variable = variable_for("nodes", variables)
    for match in NODES.finditer(text):
        positive = match["side"] == "positive"
        filters: tuple[Filter, ...] = ()
        if variable is not None and variable.kind in ("continuous", "ordinal"):
            op = "gt" if positive else "eq"
            filters = (Filter.model_validate({"variable": variable.key, "op": op, "value": 0.0}),)
        elif variable is not None:
            levels = {level.casefold(): level for level in variable.levels}
            wanted = YES if positive else NO
            value = next((levels[name] for name in levels if name in wanted), None)
            if value is not None:
                filters = (Filter(variable=variable.key, op="eq", value=value),)
        yield Condition(
            match.start("words"), match.end("words"), match["words"], "node status", filters
        )


def _number(word: str) -> int:
    bare = word.rstrip("abc")
    return ROMAN.get(bare) or int(bare)


def _worded(text: str, variables: list[Variable]) -> Iterator[Condition]:
    for pattern, what, names in WORDS:
        variable = variable_for(what, variables)
        for match in re.finditer(pattern, text):
            yield Condition(
                match.start(), match.end(), match[0], what, _of_level(variable, names, what)
            )


def _of_level(variable: Variable | None, names: tuple[str, ...], what: str) -> tuple[Filter, ...]:
    if variable is None or not variable.levels:
        return ()
    levels = {level.casefold(): level for level in variable.levels}
    level = next((levels[name] for name in names if name in levels), None)
    if level is not None:
        return (Filter(variable=variable.key, op="eq", value=level),)
    if what == "smoking" and "ever" in names and "never" in levels:
        return (Filter(variable=variable.key, op="ne", value=levels["never"]),)
    return ()


def _levels(text: str, variables: list[Variable]) -> Iterator[Condition]:
    """Levels by their own names: "basal tumors", "in papillary cancers"."""
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
                yield Condition(match.start(), match.end(), match[0], variable.label, (condition,))


def _given(text: str, variables: list[Variable]) -> Iterator[Condition]:
    """Yes-or-no variables: "patients without lymphovascular invasion", "women who received X"."""
    people = r"(?:patients?|tumors?|cases?|women|men|those|people|in)"
    for variable in variables:
        levels = {level.casefold(): level for level in variable.levels}
        yes = next((levels[name] for name in levels if name in YES), None)
        no = next((levels[name] for name in levels if name in NO), None)
        if yes is None or no is None or len(levels) != 2:
            continue
        for name in names_of(variable):
            pattern = (
                rf"\b(?:{people}\s+(?:with|who received|who had|receiving|treated with|on|under)|"
                rf"(?P<no>without|with no|not receiving|who did not receive))\s+"
                rf"{re.escape(name.casefold())}\b"
            )
            for match in re.finditer(pattern, text):
                value = no if match["no"] else yes
                yield Condition(
                    match.start(),
                    match.end(),
                    match[0],
                    variable.label,
                    (Filter(variable=variable.key, op="eq", value=value),),
                )
