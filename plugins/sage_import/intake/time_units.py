"""Detection of a time column's unit from its name, other columns, or its magnitude."""

from __future__ import annotations

from sage_import.intake.coding import FEWEST
from sage_import.intake.guesses import Guess, make_guess
from sage_import.intake.names import CONTACT, DEATH, stem, unit_in, words
from sage_import.intake.values import Column

FAR_DAYS = 700
"""Value above which times must be in days, since as months they would be 58 years."""
DAYS = {"days": 1.0, "weeks": 7.0, "months": 365.25 / 12, "years": 365.25}


def detect_time_unit(time: Column, own: list[Column]) -> tuple[str, Guess]:
    """Detect a time column's unit from its name, other columns, or its size, or leave it open."""

    def guess(value: str, evidence: str, confidence: str, *, still_open: bool = False) -> Guess:
        return make_guess(
            "unit",
            f"unit of {time.name}",
            value,
            evidence,
            confidence,
            choices=tuple(DAYS),
            open=still_open,
        )

    values = time.numbers
    span = f"{values.min():g} to {values.max():g}"
    if named := unit_in(time.name):
        if values.max() * DAYS[named] / 365.25 > 60:
            return named, guess(
                named,
                f"its name says so, but {span} would be "
                f"{values.max() * DAYS[named] / 365.25:.0f} years",
                "unsure",
                still_open=True,
            )
        return named, guess(named, f"from its name; {span}", "sure")
    for other in own:
        named = unit_in(other.name)
        if (
            not named
            or other.name == time.name
            or not other.numeric
            or not (
                DEATH.search(words(other.name))
                or CONTACT.search(words(other.name))
                or stem(other.name)
            )
        ):
            continue
        ratio = (other.numbers / time.numbers.reindex(other.numbers.index)).dropna()
        ratio = ratio[(ratio > 0) & (ratio < 1e5)]
        for unit, days in DAYS.items():
            wanted = days / DAYS[named]
            if len(ratio) >= FEWEST and ((ratio / wanted - 1).abs() < 0.03).mean() > 0.8:
                return unit, guess(
                    unit,
                    f"{wanted:.3g} times the value of {other.name} ({named}) in {len(ratio)} rows",
                    "likely",
                )
    if values.max() > FAR_DAYS:
        return "days", guess(
            "days", f"{span}: in months this would be {values.max() / 12:.0f} years", "likely"
        )
    unit = "years" if values.max() < 15 and any(value % 1 for value in values) else "months"
    return unit, guess(
        unit, f"{span} fits several units, and no column name settles it", "unsure", still_open=True
    )
