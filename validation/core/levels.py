"""Spellings of a level, shared by import, check, claims and analyses."""

from __future__ import annotations

import re

SPELLINGS = {
    spelling: level
    for level, text in (
        ("male", "m man men mann männlich maennlich homme masculin hombre"),
        ("female", "f w woman women frau weiblich femme feminin féminin mujer"),
        ("yes", "y ja oui si sí true t"),
        ("no", "n nein non false"),
        ("positive", "+ pos positiv positif detected reactive involved"),
        ("positive", "befallen befallene befallener envahi atteint"),
        ("negative", "- − – neg negativ négatif negatif notdetected nonreactive uninvolved frei"),
        ("wildtype", "wt wild unmutated nonmutated nonmutant notmutated notmutant unmutiert"),
        ("mutated", "mut mutant mutation mutiert mute muté"),
        ("present", "vorhanden nachweisbar"),
        ("absent", "nichtvorhanden"),
        ("never", "nie niemals jamais"),
        ("former", "previous prior past ex ehemalig ehemals ancien"),
        ("current", "aktuell aktiv actuel actif"),
        ("high", "hoch hi eleve élevé"),
        ("low", "niedrig lo faible bas"),
        ("unknown", "unk"),
    )
    for spelling in text.split()
}
"""Spellings of a level in lowercase, without spaces, points or inner hyphens."""
YES = frozenset(["yes", "1", "positive", "present", "mutated", "received", "driver"])
NO = frozenset(["no", "0", "negative", "absent", "wildtype", "untreated", "nodriver"])
"""Levels that state only the presence or absence of a property."""
POSITIVE = YES | {"high", "male", "amplified", "expressed"}


def plain_level(level: str) -> str:
    """Return the usual term for a level, or the level itself in lowercase without separators."""
    text = level.casefold()
    text = re.sub(r"[\s._-]+", "", text) or text.strip()
    return SPELLINGS.get(text, text) or level


def is_positive(level: str) -> bool:
    """Return True for yes, positive, mutated and the like, in any spelling."""
    return plain_level(level) in POSITIVE
