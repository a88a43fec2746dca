"""Interpretation of a table's cells: decimal sign, order of dates, and missing-value codes."""

from __future__ import annotations

from collections import Counter

from sage.core.errors import InputError
from sage_import.intake.guesses import Corrections, Guess, make_guess
from sage_import.intake.names import tokens, unit_in
from sage_import.intake.text import RawTable
from sage_import.intake.values import (
    Column,
    date_votes,
    decimal_votes,
    find_sentinels,
    parse_date,
)


def interpret_columns(table: RawTable, said: Corrections) -> tuple[list[Column], list[Guess]]:
    """Determine each column's decimal sign, order of dates, and missing-value codes."""
    own = [
        Column(
            table.name,
            str(name),
            table.rows[name],
            place,
            said.missing,
            label=table.labels.get(str(name), ""),
        )
        for place, name in enumerate(table.rows.columns)
    ]
    guesses = [*_decimals(table, own, said), *_dates(table, own, said)]
    for column in own:
        found = (
            []
            if unit_in(column.name)
            and min(column.numbers, default=0) < 0
            and ("birth" in tokens(column.name))
            else find_sentinels(column)
        )
        if found:
            column.sentinels = tuple(code for code, _ in found)
            for cached in ("absent", "present", "counts", "percent", "numbers", "numeric", "odd"):
                column.__dict__.pop(cached, None)
            guesses.append(
                make_guess(
                    "missing",
                    f"{column.name}: missing",
                    ", ".join(column.sentinels),
                    "; ".join(text for _, text in found),
                )
            )
    coded = Counter(
        code for column in own for code, n in column.missing_codes.items() for _ in range(n)
    )
    if coded:
        guesses.append(
            make_guess(
                "missing",
                f"{table.origin}: codes for missing values",
                ", ".join(f"{code!r}" for code, _ in coded.most_common(6))[:200],
                f"{sum(coded.values()):,} cells, besides empty ones",
            )
        )
    return own, guesses


def _decimals(table: RawTable, own: list[Column], said: Corrections) -> list[Guess]:
    guesses: list[Guess] = []
    given = said.whole.get("decimal")
    if given:
        for column in own:
            column.decimal = given
        guesses.append(
            make_guess("decimal", f"{table.origin}: decimal sign", given, "as set", "given")
        )
        return guesses
    votes = {column.name: decimal_votes(Counter(column.cells)) for column in own}
    comma = sum(vote[0] for vote in votes.values())
    point = sum(vote[1] for vote in votes.values())
    either = [name for name, vote in votes.items() if vote[2] and not (vote[0] or vote[1])]
    whole = "," if comma > point else "."
    for column in own:
        by_comma, by_point, _ = votes[column.name]
        column.decimal = whole
        if by_comma and not by_point:
            column.decimal = ","
        elif by_point and not by_comma:
            column.decimal = "."
        elif by_comma and by_point and column.numeric:
            odd = next(
                cell
                for cell in column.cells
                if decimal_votes(Counter([cell]))[0 if whole == "." else 1]
            )
            line = column.line_of(odd, table.lines)
            raise InputError(
                f"{table.origin}, line {line}: {column.name} contains {odd!r} among numbers with "
                f"a decimal {whole!r}; write all of them the same way"
            )
    if comma or point:
        guesses.append(
            make_guess(
                "decimal",
                f"{table.origin}: decimal sign",
                whole,
                f"{point:,} numbers use a point, {comma:,} a comma",
                "sure" if not (comma and point) else "likely",
            )
        )
    if either and not (comma or point):
        shown_cell = next(
            cell
            for cell in own[0].cells.index.map(lambda at: str(table.rows[either[0]].iloc[at]))
            if "," in cell
        )
        guesses.append(
            make_guess(
                "decimal",
                f"{table.origin}: decimal sign",
                "",
                (
                    f"{shown_cell!r} in {either[0]} could be {shown_cell.replace(',', '')} or "
                    f"{shown_cell.replace(',', '.')}; no other number settles it"
                ),
                "unsure",
                open=True,
                choices=(".", ","),
            )
        )
    return guesses


def _dates(table: RawTable, own: list[Column], said: Corrections) -> list[Guess]:
    guesses: list[Guess] = []
    dated = [column for column in own if column.is_date]
    votes = {column.name: date_votes(column.counts) for column in dated}
    days = sum(vote[0] for vote in votes.values())
    months = sum(vote[1] for vote in votes.values())
    either = sum(vote[2] for vote in votes.values())
    dots = any("." in cell for column in dated for cell in column.counts)
    order = said.whole.get("dates", "")
    if not order and days and not months:
        order, why = "dmy", f"{days} dates start with a number above 12"
    elif not order and months and not days:
        order, why = "mdy", f"{months} dates have a number above 12 in second place"
    elif not order and dots and not months:
        order, why = "dmy", "dates with points are written day first"
    else:
        why = "as set"
    if days and months and not said.whole.get("dates"):
        column = next(item for item in dated if votes[item.name][0 if months > days else 1])
        odd = next(
            cell for cell in column.counts if date_votes(Counter([cell]))[0 if months > days else 1]
        )
        raise InputError(
            f"{table.origin}, line {column.line_of(odd, table.lines)}: {odd} in {column.name} "
            "does not match the order of day and month in most dates; correct it, or write dates "
            "as 2019-03-31"
        )
    for column in dated:
        column.order = order or "dmy"  # an undetermined order is not written
        bad = [cell for cell in column.counts if parse_date(cell, column.order) is None]
        if bad:
            raise InputError(
                f"{table.origin}, line {column.line_of(bad[0], table.lines)}: {bad[0]} in "
                f"{column.name} is not a calendar date when read as {order}; correct it"
            )
    if days or months or either:
        guesses.append(
            make_guess(
                "dates",
                f"{table.origin}: dates",
                order,
                (
                    why
                    if order
                    else f"{either} dates could be day first or month first, such as "
                    f"{next(iter(dated[0].counts))}"
                ),
                ("given" if why == "as set" and order else "likely" if order else "unsure"),
                open=not order,
                choices=("dmy", "mdy"),
            )
        )
    return guesses
