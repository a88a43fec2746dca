"""Names with several meanings, distinguished by the words around them.

The columns of `homonyms.tsv` are surface, near and entity. `surface` is case-sensitive
(`eGFR` is not `EGFR`). `near` lists words or phrases, separated by `|`, one of which must
occur within `WINDOW` characters (if empty, the row always applies). `entity` is an
ontology id, or empty if the surface then does not name anything in the ontology. The
first matching row decides; if no row matches, the lexicon decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

COLUMNS = ("surface", "near", "entity")
WINDOW = 90


@dataclass(frozen=True, slots=True)
class Homonym:
    """A meaning of a surface form; `entity` is None if it does not name a known entity."""

    surface: str
    near: tuple[str, ...]
    entity: str | None


class Homonyms:
    """Meanings of ambiguous surface forms, in order of precedence."""

    def __init__(self, readings: Iterable[Homonym] = ()) -> None:
        self.readings = tuple(readings)
        self._by_surface: dict[str, list[tuple[re.Pattern[str] | None, str | None]]] = {}
        for reading in self.readings:
            words = "|".join(re.escape(word) for word in reading.near)
            pattern = re.compile(rf"(?<!\w)(?:{words})s?(?!\w)", re.IGNORECASE) if words else None
            self._by_surface.setdefault(reading.surface, []).append((pattern, reading.entity))

    def decide(self, text: str, start: int, end: int) -> tuple[bool, str | None]:
        """Return whether a row decides the meaning of `text[start:end]`, and the entity or None."""
        readings = self._by_surface.get(text[start:end])
        if readings is None:
            return False, None
        around = f"{text[max(0, start - WINDOW) : start]}\n{text[end : end + WINDOW]}"
        for pattern, entity in readings:
            if pattern is None or pattern.search(around):
                return True, entity
        return False, None
