"""Interpretation of table columns: decimal separator, date order, and missing-value codes."""

from __future__ import annotations

from collections import Counter

from sage.core.errors import InputError
from sage_import.intake.guesses import Corrections, Guess, make_guess
from sage_import.intake.names import BIRTH, words
from sage_import.intake.text import RawTable
from sage_import.intake.values import (
    YOUNGEST,
    Column,
    date_votes,
    decimal_votes,
    looks_like_date,
    this_year,
)


def interpret_columns(table: RawTable, said: Corrections) -> tuple[list[Column], list[Guess]]:
    """Determine each column's decimal separator, date order, and missing-value codes.

    A column's own cells decide; the table's other columns are used only if its cells are
    ambiguous.
    """
    own = []
    for place, name in enumerate(map(str, table.rows.columns)):
        fields = said.columns.get(name, {})
        given = frozenset(code.strip() for code in fields.get("missing", "").split(",")) - {""}
        ordered = frozenset(level.strip() for level in fields.get("order", "").split("<")) - {""}
        kept = ordered | (said.event_codes(name))
        further = said.missing | (given - {"none"})
        column = Column(table.name, name, table.rows[name], place, further, kept=kept)
        column.label = table.labels.get(name, "")
        if given == {"none"}:
            column.kept |= frozenset(column.cells)
        own.append(column)
    guesses = [*_decimals(table, own, said), *_dates(table, own, said)]
    for column in own:
        if column.sentinels:
            text = "; ".join(column.sentinels.values())
            guesses.append(_missing(column, f"{column.name}: missing", column.sentinels, text))
        codes = Counter(column.missing_codes)
        for code in column.sentinels:
            del codes[code]
        if codes:
            shown = [f"{code!r}" for code, _ in codes.most_common(4)]
            text = f"{sum(codes.values()):,} of {len(column.cells):,} cells, besides empty ones"
            guesses.append(_missing(column, f"{column.name}: codes for missing", shown, text))
        if column.bounded:
            shown = [f"{cell} as {column.numbers[column.present == cell].max():g}"
                     for cell, _ in column.bounded.most_common(3)]  # fmt: skip
            text = f"{sum(column.bounded.values())} cells name a bound; the nearest number is used"
            guesses.append(_missing(column, f"{column.name}: bounds", shown, text, fixed=True))
    return own, guesses


def _missing(column: Column, what: str, shown: object, text: str, *, fixed: bool = False) -> Guess:
    value = ", ".join(map(str, shown))[:200]  # type: ignore[call-overload]
    return make_guess(f"{column.name}.missing", what, value, text, fixed=fixed)


def _decimals(table: RawTable, own: list[Column], said: Corrections) -> list[Guess]:
    what = f"{table.origin}: decimal sign"
    given = said.whole.get("decimal")
    if given:
        for column in own:
            column.decimal = given
        return [make_guess("decimal", what, given, "as set", "given")]
    votes = {column.name: decimal_votes(Counter(column.cells)) for column in own}
    comma = sum(vote[0] for vote in votes.values())
    point = sum(vote[1] for vote in votes.values())
    either = [name for name, vote in votes.items() if vote[2] and not (vote[0] or vote[1])]
    whole = "," if comma > point else "."
    for column in own:
        by_comma, by_point, _ = votes[column.name]
        column.decimal = whole if bool(by_comma) == bool(by_point) else "," if by_comma else "."
        if by_comma and by_point and column.numeric:
            rare = Counter(column.cells)
            odd = next(c for c in rare if decimal_votes(Counter([c]))[0 if whole == "." else 1])
            raise InputError(
                f"{table.origin}, line {column.line_of(odd, table.lines)}: {column.name} contains "
                f"{odd!r}, but other numbers use {whole!r} as the decimal separator; use "
                "only one of them"
            )
    if comma or point:
        evidence = f"{point:,} numbers use a point, {comma:,} a comma"
        return [make_guess("decimal", what, whole, evidence,
                           "likely" if comma and point else "sure")]  # fmt: skip
    if not either:
        return []
    shown = next(cell for cell in map(str, table.rows[either[0]]) if "," in cell)
    evidence = (
        f"{shown!r} in {either[0]} could be {shown.replace(',', '')} or {shown.replace(',', '.')}; "
        "no other number settles it"
    )
    return [make_guess("decimal", what, "", evidence, "unsure", open=True, choices=(".", ","))]


def _dates(table: RawTable, own: list[Column], said: Corrections) -> list[Guess]:
    dated = [column for column in own if column.is_date]
    votes = {column.name: date_votes(Counter(column.cells[~column.coded])) for column in dated}
    for column in dated:
        days, months, _ = votes[column.name]
        if days and months and not said.whole.get("dates"):
            known = column.cells[~column.coded]
            rare = 0 if months > days else 1
            odd = next(cell for cell in known if date_votes(Counter([cell]))[rare])
            raise InputError(
                f"{table.origin}, line {column.line_of(odd, table.lines)}: {odd} in {column.name} "
                "does not match the day and month order of most dates; correct it, or "
                "write dates as 2019-03-31"
            )
    clear = {"dmy" if days else "mdy" for days, months, _ in votes.values() if days or months}
    open_ones = [column for column in dated if votes[column.name][2]]
    dots = any("." in cell for column in open_ones for cell in column.cells[~column.coded])
    usual, why = said.whole.get("dates", ""), "as set"
    if not usual and len(clear) == 1:
        (usual,), why = clear, "some dates have a number above 12 in the place of the day"
    elif not usual and not clear and dots:
        usual, why = "dmy", "dates with points are written day first"
    guesses: list[Guess] = []
    for column in dated:
        days, months, _ = votes[column.name]
        own_order = "dmy" if days else "mdy" if months else ""
        column.order = said.whole.get("dates") or own_order or usual or "dmy"
    for column in dated:
        _place_years(column, dated)
        _require_calendar(table, column)
        serial = sum(cell.isdigit() for cell in column.cells[~column.coded])
        notes = [f"{serial} cells are serial numbers of a spreadsheet"] if serial else []
        notes += ["years have two digits"] if column.short_years else []
        if notes and len(column.present):
            first = column.present.iloc[0]
            notes.append(f"{first} is read as {column.date_of(first)}")
            guesses.append(make_guess("dates", f"{column.name}: dates", "read", "; ".join(notes),
                                      "unsure" if column.short_years else "likely",
                                      fixed=True))  # fmt: skip
    left = [column for column in open_ones if not any(votes[column.name][:2])]
    if left or clear:
        open_order = bool(left) and not usual
        evidence = why if usual else (
            f"{sum(votes[c.name][2] for c in left)} dates could be day first or month first, such "
            f"as {next(iter(left[0].counts))}" if left else "each column has its own order"
        )  # fmt: skip
        guesses.append(make_guess("dates", f"{table.origin}: dates", usual, evidence,
                                  "given" if said.whole.get("dates") else
                                  "likely" if usual else "unsure",
                                  open=open_order, choices=("dmy", "mdy")))  # fmt: skip
    return guesses


def _place_years(column: Column, dated: list[Column]) -> None:
    """Place two-digit birth years before the table's other dates."""
    if not BIRTH.search(words(column.name)):
        return
    others = [
        found.year
        for other in dated
        if not BIRTH.search(words(other.name))
        for cell in list(Counter(other.cells[~other.coded]))[:200]
        if (found := other.date_of(cell)) is not None
    ]
    column.latest = min(others, default=this_year()) - YOUNGEST


def _require_calendar(table: RawTable, column: Column) -> None:
    for cell in dict.fromkeys(column.cells[~column.coded]):
        if looks_like_date(cell) and column.date_of(cell) is None:
            raise InputError(
                f"{table.origin}, line {column.line_of(cell, table.lines)}: {cell} in "
                f"{column.name} is not a valid date when read as {column.order}; correct "
                "it"
            )
