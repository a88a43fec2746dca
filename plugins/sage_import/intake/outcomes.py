"""Detection of outcomes: the columns of times, the codes of the event, and the unit.

If the files do not settle something that affects results (the code of the event, the unit of time,
or the position of the day in dates), the guess stays open until a person decides.
"""

from __future__ import annotations

from collections.abc import Mapping

from sage_import.intake.dated import find_dated_outcomes
from sage_import.intake.guesses import Corrections, make_guess
from sage_import.intake.names import stem, tokens
from sage_import.intake.outcome import Outcome, find_column
from sage_import.intake.outcomes_set import apply_settings
from sage_import.intake.paired import build_endpoint, pair_columns
from sage_import.intake.values import Column

RESPONDED = frozenset(
    {"cr", "pr", "cr/pr", "complete response", "partial response", "responder", "r", "response"}
    | {"complete", "partial"}
)
NOT_RESPONDED = frozenset(
    {"sd", "pd", "sd/pd", "stable disease", "progressive disease", "non-responder", "nr"}
    | {"nonresponder", "non-response", "no response", "stable", "progressive"}
)


def find_outcomes(columns: Mapping[tuple[str, str], Column], said: Corrections) -> list[Outcome]:
    """Find the endpoints of all tables, those that were set first.

    Raises `InputError` if a setting names a column or code that does not exist.
    """
    found: list[Outcome] = []
    taken: set[str] = set()
    set_names = [name for name in said.endpoints if name]
    if "" in said.endpoints:
        owner = _first_name(columns, said)
        said.endpoints[owner] = said.endpoints.pop("") | said.endpoints.get(owner, {})
        set_names = [owner, *(name for name in set_names if name != owner)]
    for table in dict.fromkeys(table for table, _ in columns):
        own = [column for (where, _), column in columns.items() if where == table]
        for name, event, time in pair_columns(own):
            if name not in taken and name not in set_names:
                made = build_endpoint(name, event, time, own, columns, said)
                if made is not None:
                    taken.add(name)
                    found.append(made)
        for made in [
            *find_dated_outcomes(own, columns, said, taken | set(set_names)),
            *_responses(own),
        ]:
            if made.name not in taken and made.name not in set_names:
                taken.add(made.name)
                found.append(made)
    set_so = [
        apply_settings(
            name, columns, said.endpoints[name], _guess_without_settings(columns, said, name)
        )
        for name in set_names
    ]
    return [*set_so, *found]


def _first_name(columns: Mapping[tuple[str, str], Column], said: Corrections) -> str:
    """Return the name of the endpoint to which settings without a name apply."""
    fields = said.endpoints[""]
    for key in ("event", "time"):
        if key in fields:
            column = find_column(
                fields[key].split(":")[0] if key == "event" else fields[key],
                columns,
                key,
                whole=fields[key],
            )
            if outcome := stem(column.name):
                return outcome
    return "OS"


def _responses(own: list[Column]) -> list[Outcome]:
    """Find a two-level response to treatment as a binary outcome."""
    for column in own:
        named = set(tokens(column.name))
        if not named & {"response", "responder", "responders", "recist"} or len(column.counts) != 2:
            continue
        positive = [value for value in column.counts if value.casefold() in RESPONDED]
        negative = [value for value in column.counts if value.casefold() in NOT_RESPONDED]
        if len(positive) == len(negative) == 1:
            evidence = ", ".join(f"{value}: {rows} rows" for value, rows in column.counts.items())
            value = f"{column.name}:{positive[0]}"
            guess = make_guess("response.event", "response", value, evidence, fixed=True)
            spec = {
                "kind": "binary",
                "table": column.table,
                "column": column.name,
                "positive_values": positive,
                "negative_values": negative,
                "label": "Response to treatment",
            }
            return [Outcome("response", column.table, spec, {column.name}, [guess])]
    return []


def _guess_without_settings(
    columns: Mapping[tuple[str, str], Column], said: Corrections, name: str
) -> Outcome | None:
    """Guess an endpoint while ignoring its settings."""
    plain = Corrections(whole=said.whole, columns=said.columns)
    return next((item for item in find_outcomes(columns, plain) if item.name == name), None)
