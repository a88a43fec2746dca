"""Detection of the code in a column that means the event, with evidence."""

from __future__ import annotations

import re

from sage_import.intake.guesses import Guess, make_guess
from sage_import.intake.names import BIRTH, DEATH, TIME, stem, tokens, words
from sage_import.intake.values import Column
from validation.cohort.tables import codes

YES = {"yes", "y", "true", "t", "ja", "oui"}
NO = {"no", "n", "false", "f", "nein", "non"}
HAPPENED = re.compile(
    r"^(dead|deceased|died|death|event|recurred|recurrence|relapsed?|progressed|progression|"
    r"recurred/progressed|metastasis|distant metastasis|uncensored|verstorben|tot|exitus|"
    r"d[ée]c[ée]d[ée]e?s?|d[ée]c[èe]s|morte?|"
    r"dead with tumor|dod|dead of disease)\b"
)
HAPPENED_NOT = re.compile(
    r"^(alive|living|censored|no event|event[- ]?free|disease ?free|progression ?free|"
    r"not recurred|no recurrence|no progression|no relapse|lost|lebt|lebend|vivante?|en vie|"
    r"alive or dead tumor free|ned|awd)\b"
)
AGREES = 0.97
FEWEST = 10


def side_of(value: str, name: str) -> int | None:
    """Return 1 for a code that means the event, 0 for a code that means no event, or None."""
    text = re.sub(r"^\d\s*:\s*", "", value.casefold()).strip()
    if HAPPENED_NOT.match(text):
        return 0
    if HAPPENED.match(text):
        return 1
    if text in YES | NO:
        named = set(tokens(name))
        if named & {"censor", "censored", "censoring", "cens"}:
            return None
        return int((text in YES) != bool(named & {"alive", "living"}))
    if re.match(r"^[01]\s*:", value):
        return int(value[0])
    return None


def detect_coding(
    event: Column, time: Column, own: list[Column]
) -> tuple[list[str], list[str], Guess] | None:
    """Find event and censoring codes and evidence for them; None if this is not an outcome."""
    values = sorted(event.counts)
    sides = {value: side_of(value, event.name) for value in values}
    shown = describe_sides(event, time)
    if all(side is not None for side in sides.values()):
        happened = [value for value in values if sides[value] == 1]
        censored = [value for value in values if sides[value] == 0]
        if not happened or not censored:
            return None
        return happened, censored, event_guess(event, happened, shown, "likely", "by its words")
    plain = sorted(set(codes(event.present)))
    if plain in (["0", "1"], ["1", "2"]):
        return _coded_by_number(event, plain, own, shown)
    happened = [value for value in values if sides[value] == 1]
    rest = [value for value in values if sides[value] != 1]
    unclear = [value for value in values if sides[value] is None]
    if not happened or not rest:
        return None
    guess = event_guess(
        event,
        happened,
        shown,
        "unsure",
        f"{', '.join(unclear)} could be an event or censored",
    )
    return happened, rest, guess.model_copy(update={"open": True})


def _coded_by_number(
    event: Column, plain: list[str], own: list[Column], shown: str
) -> tuple[list[str], list[str], Guess]:
    agreement = _find_agreement(event, plain, own)
    high, low = plain[1], plain[0]
    if agreement is not None:
        code, why = agreement
        other = low if code == high else high
        return [code], [other], event_guess(event, [code], shown, "likely", why)
    named = set(tokens(event.name))
    if named & {"censor", "censored", "censoring", "cens"}:
        why, code = "a column named for censoring is used in both directions", high
    elif named & {"alive", "living"}:
        return [low], [high], event_guess(event, [low], shown, "likely", "1 means alive")
    elif plain == ["1", "2"]:
        why, code = "1/2 is R's coding, where 2 is the event; other sources differ", high
    else:
        return (
            [high],
            [low],
            event_guess(event, [high], shown, "likely", "0/1 in a column named for the event"),
        )
    other = low if code == high else high
    guess = event_guess(event, [code], shown, "unsure", why)
    return (
        [code],
        [other],
        guess.model_copy(
            update={"open": True, "choices": (f"{event.name}:{low}", f"{event.name}:{high}")}
        ),
    )


def _find_agreement(event: Column, plain: list[str], own: list[Column]) -> tuple[str, str] | None:
    """Find the event's code by agreement with words, or with a date or day of death."""
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
    """Return True for a time to death that is known only for the dead."""
    return (
        column.numeric
        and "death" in tokens(column.name)
        and bool(set(tokens(column.name)) & TIME)
        and column.absent.mean() > 0.1
    )


def describe_sides(event: Column, time: Column) -> str:
    """Describe each code's rows and median time; those followed longer seldom had the event."""
    parts = []
    for value, rows in sorted(event.counts.items()):
        at = time.numbers.reindex(event.present.index[event.present == value]).dropna()
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
