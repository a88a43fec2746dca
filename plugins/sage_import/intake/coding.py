"""Detection, with evidence, of the event code in a column."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage_import.intake.guesses import Guess, make_guess
from sage_import.intake.names import BIRTH, DEATH, TIME, stem, tokens, words
from sage_import.intake.values import Column
from validation.cohort.tables import codes

if TYPE_CHECKING:
    import pandas as pd

YES = {"yes", "y", "true", "t", "ja", "oui"}
NO = {"no", "n", "false", "f", "nein", "non"}
HAPPENED = re.compile(
    r"^(dead|deceased|died|death|event|recurred|recurrence|relapsed?|progressed|progression|"
    r"recurred/progressed|metastasis|distant metastasis|uncensored|verstorben|gestorben|tot|exitus|"
    r"d[ée]c[ée]d[ée]e?s?|d[ée]c[èe]s|morte?|"
    r"dead with tumor|dod|doc|dead of disease)\b"
)
HAPPENED_NOT = re.compile(
    r"^(alive|living|censored|no event|event[- ]?free|disease ?free|progression ?free|"
    r"not recurred|no recurrence|no progression|no relapse|lost|lebt|lebend|am leben|vivante?|"
    r"en vie|zensiert|alive or dead tumor free|ned|awd)\b"
)
FLAGS = (("0", "1"), ("1", "2"), ("false", "true"), ("no", "yes"))
"""Pairs of codes whose values do not name the event."""
AGREES = 0.97
FEWEST = 10
CLEARLY = 3.0
"""Standard errors of the rank sum beyond which times support or contradict a coding."""


@dataclass
class Coding:
    """Codes for event and censoring in an event column, and the guess about them."""

    happened: list[str]
    censored: list[str]
    guess: Guess


def side_of(value: str, name: str) -> int | None:
    """Return 1 for an event code, 0 for a no-event code, and None for any other value."""
    text = re.sub(r"^\d\s*:\s*", "", value.casefold()).strip()
    if HAPPENED_NOT.match(text):
        return 0
    if HAPPENED.match(text):
        return 1
    if text in YES | NO:
        named = set(tokens(name))
        if "censored" in named:
            return None
        return int((text in YES) != bool(named & {"alive", "living"}))
    if re.match(r"^[01]\s*:", value):
        return int(value[0])
    return None


def detect_coding(event: Column, times: pd.Series, own: list[Column]) -> Coding | None:
    """Find event and censoring codes with evidence; None if the column is not an outcome.

    Parameters
    ----------
    times : time per row of the event's table, for the evidence
    """
    values = sorted(
        {low if (low := code.casefold()) in ("true", "false") else code for code in event.counts}
    )
    sides = {value: side_of(value, event.name) for value in values}
    shown = describe_sides(event, times)
    plain = sorted({code.casefold() for code in codes(event.present)})
    if all(side is not None for side in sides.values()):
        happened = [value for value in values if sides[value] == 1]
        censored = [value for value in values if sides[value] == 0]
        if not happened or not censored:
            return None
        return Coding(happened, censored, event_guess(event, happened, shown, "likely",
                                                      "by its words"))  # fmt: skip
    if tuple(plain) in FLAGS:
        return _coded_by_flag(event, times, own, shown)
    happened = [value for value in values if sides[value] == 1]
    rest = [value for value in values if sides[value] != 1]
    unclear = [value for value in values if sides[value] is None]
    if not happened or not rest:
        return None
    why = f"{', '.join(unclear)} could be an event or censored"
    return Coding(happened, rest, _ask_code(event, happened, rest, shown, why))


def _coded_by_flag(event: Column, times: pd.Series, own: list[Column], shown: str) -> Coding | None:
    """Decide a two-valued flag by another column or its name; ask if the times contradict it.

    Names for censoring, `1`/`2` and a bare vital status are used in both directions, so only
    another column settles them.
    """
    pair = sorted(set(codes(event.present)), key=str.casefold)
    if len(pair) != 2:
        return None
    low, high = pair
    agreement = _find_agreement(event, [low, high], own)
    named = set(tokens(event.name))
    longer = compare_times(event, times, low, high)
    if agreement is not None:
        code, why = agreement
        other = low if code == high else high
        return Coding([code], [other], event_guess(event, [code], shown, "likely", why))
    if "censored" in named:
        why = "columns named for censoring are used in both directions"
    elif (low, high) == ("1", "2"):
        why = "1/2 is R's coding, where 2 is the event; other sources differ"
    elif "vital" in named:
        why = "1 in a vital status can mean alive or dead"
    else:
        code, other = (low, high) if named & {"alive", "living"} else (high, low)
        against = longer is not None and longer == code
        if not against:
            why = (
                "1 means alive" if code == low else f"{low}/{high} in a column named for the event"
            )
            return Coding([code], [other], event_guess(event, [code], shown, "likely", why))
        why = f"its name says that {code} is the event, but the times speak against it"
    if longer is not None:
        other = low if longer == high else high
        why += f"; {longer} was followed longer, as censored patients usually are, so {other} "
        why += "would be the event"
    return Coding([high], [low], _ask_code(event, [low], [high], shown, why))


def compare_times(event: Column, times: pd.Series, low: str, high: str) -> str | None:
    """Return the code whose times are clearly longer (rank-sum test), or None."""
    code = codes(event.cells)
    both = code.isin([low, high]) & times.notna()
    ranks, side = times[both].rank(), code[both] == low
    n, m = int(side.sum()), int((~side).sum())
    if min(n, m) < FEWEST // 2:
        return None
    spread = (n * m * (n + m + 1) / 12) ** 0.5
    z = (float(ranks[side].sum()) - n * (n + m + 1) / 2) / spread
    return None if abs(z) < CLEARLY else low if z > 0 else high


def _ask_code(event: Column, happened: list[str], rest: list[str], shown: str, why: str) -> Guess:
    """Build the question of which code is the event, with no default that Enter would accept."""
    sides = (happened, rest) if len(happened) == len(rest) == 1 else (happened,)
    choices = tuple(f"{event.name}:{'|'.join(side)}" for side in sides)
    guess = event_guess(event, happened, shown, "unsure", why)
    return guess.model_copy(update={"open": True, "value": "", "choices": choices})


def _find_agreement(event: Column, plain: list[str], own: list[Column]) -> tuple[str, str] | None:
    """Find the event code by agreement with a text column or with a date or day of death."""
    mine = codes(event.cells).where(~event.absent)
    if stem(event.name) not in ("OS", ""):
        return None
    for other in own:
        if other.name == event.name:
            continue
        sides = {value: side_of(value, other.name) for value in other.counts}
        if (
            {"vital", "status"} & set(tokens(other.name))
            and set(sides.values()) == {0, 1}
            and len(sides) <= 6
            and stem(other.name) in ("OS", "")
        ):
            theirs = other.cells.map(sides).where(~other.absent)
        elif (
            DEATH.search(words(other.name))
            and not BIRTH.search(words(other.name))
            and (other.is_date or (is_number_of_death(other)))
        ):
            theirs = (~other.absent).astype(float)
        else:
            continue
        both = mine.notna() & theirs.notna()
        if both.sum() < FEWEST:
            continue
        for code in plain:
            agree = float(((mine[both] == code) == (theirs[both] == 1)).mean())
            if agree >= AGREES:
                return code, f"agrees with {other.name} in {agree:.0%} of {int(both.sum())} rows"
    return None


def is_number_of_death(column: Column) -> bool:
    """Return True for a numeric time to death that is missing for some patients."""
    return (
        column.numeric
        and "death" in tokens(column.name)
        and bool(set(tokens(column.name)) & TIME)
        and bool(column.absent.any())
    )


def describe_sides(event: Column, times: pd.Series) -> str:
    """Describe each code's rows and median time.

    Patients who are followed longer seldom had the event.
    """
    parts = []
    for value, rows in sorted(event.counts.items()):
        at = times[event.cells == value].dropna()
        median = f", median time {at.median():g}" if len(at) else ""
        parts.append(f"{value}: {rows} rows{median}")
    return "; ".join(parts[:6])


def event_guess(event: Column, happened: list[str], shown: str, confidence: str, why: str) -> Guess:
    """Build the guess about an event column."""
    return make_guess(
        "event",
        "event",
        f"{event.name}:{'|'.join(happened)}",
        f"{why}; {shown}; all other values are censored",
        confidence,
    )
