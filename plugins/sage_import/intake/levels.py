"""Classification of a column's levels: variable kind, order, and equivalent spellings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from sage_import.intake.names import AFTER, AT_BASELINE, NOT_BASELINE, tokens, word_set, words
from sage_import.intake.values import COUNTED, Column
from validation.core.levels import plain_level

ROMAN = {"0": 0, "i": 1, "ii": 2, "iii": 3, "iv": 4, "v": 5}
STAGE = re.compile(r"^(?:sta[gd]e\s*)?(0|iii|ii|iv|i|v|[0-5])\s*([abc]\d?)?$")
TNM = re.compile(r"^[pcyr]*([tnm])\s*(\d)\s*([a-d]\d?)?(\(?(mi|i[+-]|sn)\)?)?$")
TNM_LOW = re.compile(r"^[pcyr]*t(a|is)$")
STAGED = word_set("stage stade tnm figo ajcc")
UNSTAGED = re.compile(r"^(stage\s*)?[pcyr]*[tnmg]?\s*x$|^(stage )?(x|unstaged)$")
GRADE = re.compile(r"^(?:g|grade\s*|grad\s*)(iii|ii|i|\d)(?:\s*[-/]\s*\d)?$")
NUMBERED = re.compile(r"^([a-z]{1,6})[ _-]?(\d)\+?$")
PLUSES = re.compile(r"^(\d)\+$")
SIGNS = {"-": 0.0, "–": 0.0, "—": 0.0, "−": 0.0, "0": 0.0, "negative": 0.0, "±": 0.5, "+/-": 0.5,
         "+-": 0.5, "(+)": 0.5}  # fmt: skip
NUMBER_OF_TNM = re.compile(r"^(\d)\s*([a-d]\d?|mi)?$")
TNM_NAMES = word_set("t n m pt pn pm ct cn cm ypt ypn ypm yct ycn ycm")
SCALES = (
    ("none", "negative", "absent", "no"),
    ("very low",),
    (
        "low",
        "mild",
        "weak",
        "gering",
        "schwach",
        "leicht",
        "low grade",
        "well differentiated",
        "small",
    ),
    (
        "intermediate",
        "moderate",
        "medium",
        "mittel",
        "mäßig",
        "moderat",
        "moderately differentiated",
    ),
    (
        "high",
        "severe",
        "strong",
        "stark",
        "ausgeprägt",
        "high grade",
        "poorly differentiated",
        "large",
    ),
    ("very high", "undifferentiated"),
)
ORDERED = word_set(
    "stage stade grade score level ecog karnofsky performance ps gleason intensity zubrod tgrade"
)
OPPOSITES = (
    {"male", "female"}, {"yes", "no"}, {"positive", "negative"}, {"mutated", "wildtype"},
    {"present", "absent"}, {"high", "low"},
)  # fmt: skip
"""Pairs of opposite levels in their standard wording, whatever their spelling in the file."""
MOST_LEVELS = 20
MOST_LENGTH = 60


@dataclass
class Levels:
    """A variable's kind and the meaning of its levels; empty `values` leave levels unchanged."""

    kind: str
    evidence: str
    values: dict[str, str | int | float] = field(default_factory=dict)
    drops_others: bool = False
    sure: bool = True


def classify_column(column: Column) -> Levels | str:
    """Classify a column as a variable, or return the reason why it cannot be used."""
    counts = column.counts
    if not counts:
        return "empty"
    if len(counts) == 1:
        return f"the same value for all ({next(iter(counts))[:40]})"
    if column.is_date:
        return "dates"
    if column.numeric:
        return _numbers(column)
    ordered = ordered_levels(list(counts), column.name)
    if ordered is not None:
        return ordered
    folded = {level: plain_level(level) for level in counts}
    levels = len(set(folded.values()))
    if levels > MOST_LEVELS:
        return f"free text: {levels} different values"
    if max(map(len, counts)) > MOST_LENGTH:
        return f"free text of up to {max(map(len, counts))} characters"
    kind = "binary" if levels == 2 else "categorical"
    if levels == 1:
        return "the same value for all, in several spellings"
    words_of = set(folded.values())
    spelled_so = {level.casefold() for level in counts}
    if words_of in OPPOSITES and spelled_so != words_of and not spelled_so & {"true", "false"}:
        shown = ", ".join(f"{level} as {word}" for level, word in folded.items())
        return Levels("binary", f"2 levels: {shown}", dict(folded))
    if levels < len(counts):
        values: dict[str, str | int | float] = {}
        for name in set(folded.values()):
            spelled = Counter({level: counts[level] for level in counts if folded[level] == name})
            values |= dict.fromkeys(spelled, spelled.most_common(1)[0][0])
        return Levels(kind, f"{len(counts)} spellings of {levels} levels", values, sure=False)
    return Levels(kind, f"{levels} levels")


def _numbers(column: Column) -> Levels | str:
    values = column.numbers
    distinct = sorted(set(values))
    named = set(tokens(column.name))
    span = f"{len(values)} numbers from {distinct[0]:g} to {distinct[-1]:g}"
    whole = all(value.is_integer() for value in distinct)
    if len(distinct) == 2 and not named & (COUNTED - {"n", "node"}):
        return Levels("binary", f"two values, {distinct[0]:g} and {distinct[1]:g}")
    if named & (ORDERED | TNM_NAMES) and whole and len(distinct) <= 11:
        return Levels("ordinal", f"{len(distinct)} whole numbers, ordered as its name suggests")
    if whole and len(distinct) <= 6 and not named & COUNTED and len(values) > 4 * len(distinct):
        return Levels(
            "categorical", f"{len(distinct)} whole numbers that appear to be codes", sure=False
        )
    return Levels("continuous", span)


def ordered_levels(levels: list[str], name: str) -> Levels | None:
    """Order levels that are stages, TNM categories, grades, or words of degree."""
    plain = {level: " ".join(level.casefold().split()) for level in levels}
    unstaged = [level for level, text in plain.items() if UNSTAGED.match(text)]
    rest = {level: text for level, text in plain.items() if level not in unstaged}
    named = set(tokens(name))
    readers = (
        ("stages", _stage), ("categories of TNM", _tnm), ("grades", _grade), ("signs", _sign)
    )  # fmt: skip
    for said, read in readers:
        places = {level: read(text, named) for level, text in rest.items()}
        if len(rest) >= 2 and all(place is not None for place in places.values()):
            values = {level: place for level, place in places.items() if place is not None}
            distinct = len(set(values.values()))
            if distinct < 2:
                return None
            shown = " < ".join(sorted(values, key=lambda level: (values[level], level))[:6])
            extra = f"; {', '.join(unstaged)} counts as missing" if unstaged else ""
            if distinct == 2 and len(values) == 2:
                kept: dict[str, str | int | float] = {level: level for level in values}
                if said == "signs":
                    kept = {level: plain_level(level) for level in values}
                    return Levels("binary", "positive and negative", kept)
                return Levels(
                    "binary", f"two {said}{extra}", kept if unstaged else {}, bool(unstaged)
                )
            return Levels("ordinal", f"{said}: {shown}{extra}", _in_order(values), bool(unstaged))
    return _degrees(rest, named) if not unstaged else None


def _stage(text: str, named: set[str]) -> int | None:
    match = STAGE.match(text)
    if match is None or not (named & STAGED or text.startswith(("stage", "stade"))):
        return None
    return ROMAN.get(match[1], int(match[1]) if match[1].isdigit() else None)


def _tnm(text: str, named: set[str]) -> int | None:
    if TNM_LOW.match(text) or (named & TNM_NAMES and text in ("a", "is")):
        return 0
    match = TNM.match(text)
    if match is None and named & TNM_NAMES and (number := NUMBER_OF_TNM.match(text)):
        return int(number[1])
    return int(match[2]) if match else None


def _sign(text: str, named: set[str]) -> float | None:
    if re.fullmatch(r"\+{1,4}", text):
        return len(text)
    if match := PLUSES.match(text):
        return int(match[1])
    return SIGNS.get(text, SIGNS.get(plain_level(text)))


def _grade(text: str, named: set[str]) -> int | None:
    match = GRADE.match(text) or PLUSES.match(text)
    if match is None and named & ORDERED:
        numbered = NUMBERED.match(text)
        return int(numbered[2]) if numbered else None
    return ROMAN.get(match[1], int(match[1]) if match[1].isdigit() else None) if match else None


def _degrees(rest: dict[str, str], named: set[str]) -> Levels | None:
    places = {
        level: next(
            (at for at, scale in enumerate(SCALES) if {text, plain_level(text)} & set(scale)), None
        )
        for level, text in rest.items()
    }
    found = {level: place for level, place in places.items() if place is not None}
    if len(found) < len(rest) or len(set(found.values())) < 3:
        return None
    shown = " < ".join(sorted(found, key=lambda level: found[level]))
    return Levels("ordinal", f"words of degree: {shown}", _in_order(found), sure=False)


def _in_order(places: Mapping[str, float]) -> dict[str, str | int | float]:
    return {level: places[level] for level in sorted(places, key=lambda item: (places[item], item))}


def parse_order(text: str, levels: list[str], name: str) -> dict[str, str | int | float] | str:
    """Return the ranks of levels in the user's order, or a message about the mismatch."""
    order = [item.strip() for item in text.split("<") if item.strip()]
    strange = sorted(set(order) - set(levels))
    if strange or len(order) < 2:
        return f"{name}.order: {(strange[0] if strange else text)!r} is not a level; levels: " + (
            ", ".join(sorted(levels)[:8])
        )
    return {level: place for place, level in enumerate(order)}


def implies_baseline(name: str) -> bool:
    """Return True if the name implies that the value was known at baseline."""
    text = words(name)
    return bool(AT_BASELINE.search(text)) and not (AFTER.search(text) or NOT_BASELINE.search(text))
