"""Names with several meanings, distinguished by the words around them.

`homonyms.tsv`: surface, near, entity. `surface` is written exactly as in text (`eGFR` is not
`EGFR`); `near` lists words or phrases, separated by `|`, of which any must be within `WINDOW`
characters (empty: always); `entity` is an id of the ontology, or empty where the surface then names
nothing that the ontology knows. The first row that fits decides; where none fits, the lexicon does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

COLUMNS = ("surface", "near", "entity")
WINDOW = 90


@dataclass(frozen=True, slots=True)
class Homonym:
    """A reading of a surface: `entity` is None where it names nothing known."""

    surface: str
    near: tuple[str, ...]
    entity: str | None


class Homonyms:
    """Readings of ambiguous surfaces, in order of precedence."""

    def __init__(self, readings: Iterable[Homonym] = ()) -> None:
        self.readings = tuple(readings)
        self._by_surface: dict[str, list[tuple[re.Pattern[str] | None, str | None]]] = {}
        for reading in self.readings:
            words = "|".join(re.escape(word) for word in reading.near)
            pattern = re.compile(rf"(?<!\w)(?:{words})s?(?!\w)", re.IGNORECASE) if words else None
            self._by_surface.setdefault(reading.surface, []).append((pattern, reading.entity))

    def decide(self, text: str, start: int, end: int) -> tuple[bool, str | None]:
        """Check if a row decides what `text[start:end]` names, and which entity (None: nothing)."""
        readings = self._by_surface.get(text[start:end])
        if readings is None:
            return False, None
        around = f"{text[max(0, start - WINDOW) : start]}\n{text[end : end + WINDOW]}"
        for pattern, entity in readings:
            if pattern is None or pattern.search(around):
                return True, entity
        return False, None
