"""A timeline of scans, treatments and markers: what it says about the months to come.

The chance of an event within a horizon follows from a median time of the disease's state under
constant hazard, times hazard ratios of what the timeline shows. Medians are those of the pivotal
trials named beside them, ratios are rough and not fitted to any answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sage_tumor_board.board.rules.stated import Endpoint, stated
from sage_tumor_board.board.rules.weigh import Weighed, around, yes_no
from sage_tumor_board.board.types import Cited

_ROW = re.compile(r"AGE:[ \t]{0,9}(\d{1,3}(?:\.\d{1,9})?),")
_HORIZON = re.compile(r"next\s+(\d+)\s+(month|year)s?|in\s+(\d+)\s+(month|year)s?")
_AGE = re.compile(r"\bpatient is (\d+(?:\.\d+)?) years old")
_RESULT = re.compile(r"(?:RESULT|CEA|PSA): (\d+(?:\.\d+)?)")
RECENT_YEARS = 0.5
LONG_YEARS = 2.0
"""Without an event for so long the hazard is about halved: most relapses come earlier."""
RISING_CLEAR, RISING_ACTIVE = 5.0, 1.5
"""Ratios for a rising marker: where scans are clear it precedes a visible relapse by months."""
SPREAD_SITES = frozenset(
    ("liver", "lung", "bone", "cns/brain", "brain", "adrenal glands", "pleura", "intra-abdominal")
)


@dataclass(frozen=True)
class Disease:
    """Median months of survival and until progression, localized and spread, and their source."""

    pattern: str
    survival: tuple[float, float]
    progression: tuple[float, float]
    source: str
    home: str = ""


DISEASES: tuple[Disease, ...] = (
    Disease(r"pancrea", (28, 11), (14, 6.4), "ESPAC-4 (resected), ACCORD 11 (metastatic)"),
    Disease(r"colorectal|colon|rect(?:al|um)|sigmoid", (120, 30), (90, 10.5),
            "MOSAIC (resected), CALGB/SWOG 80405 (metastatic)"),
    Disease(r"lung", (75, 22), (37, 9), "IMpower010 controls (resected), KEYNOTE-189 (metastatic)",
            "lung"),
    Disease(r"breast", (240, 45), (150, 14), "SEER (localized), controls of MONALEESA-2"),
    Disease(r"prostate", (200, 45), (100, 18), "ProtecT (localized), LATITUDE (metastatic)"),
)  # fmt: skip
OTHER = Disease(r"", (90, 18), (40, 8), "SAGE's guess for other cancers, without a source")


@dataclass(frozen=True)
class Row:
    """A line of a timeline."""

    age: float
    kind: str
    text: str
    cited: Cited


def rows_of(texts: Mapping[str, str]) -> list[Row]:
    """The rows of all timelines, by age."""
    found = []
    for file, text in texts.items():
        for line in text.split("\n"):
            match = _ROW.match(line)
            kind, arrow, said = line[match.end() :].partition("-->") if match else ("", "", "")
            if match and arrow:
                cited = Cited(file=file, quote=line.strip()[:300])
                found.append(Row(float(match[1]), kind.strip(), said.strip(), cited))
    return sorted(found, key=lambda row: row.age)


def horizon(question: str) -> float | None:
    """Months that a question looks ahead."""
    found = _HORIZON.search(question.split("\n", 1)[0].casefold())
    if found is None:
        return None
    return float(found[1] or found[3]) * (12 if (found[2] or found[4]) == "year" else 1)


def disease_of(contexts: Mapping[str, str], texts: Mapping[str, str]) -> tuple[Disease, Cited]:
    """The cancer, as the story tells it or else the files; the first mention decides."""
    for name, text in {**contexts, **texts}.items():
        for disease in DISEASES:
            if found := re.search(disease.pattern, text, re.IGNORECASE):
                file = name if name in texts else ""
                quote = around(text, found, 80, 60, ".\n,")
                return disease, Cited(sentence="This is the cancer.", file=file, quote=quote)
    return OTHER, Cited(sentence="No file names a cancer that is known here.", quote=OTHER.source)


@dataclass(frozen=True)
class State:
    """Where the disease stands: spread or not, the ratio of hazards, and what they rest on.

    `rising` is the further ratio of a rising marker for the next relapse or progression.
    """

    spread: bool
    active: bool
    ratio: float
    rising: float
    cited: tuple[Cited, ...]


def _note(row: Row, sentence: str) -> Cited:
    return row.cited.model_copy(update={"sentence": sentence})


def state_of(rows: list[Row], contexts: Mapping[str, str], disease: Disease, age: float) -> State:
    """What the rows and the last context say about the disease at an age.

    Parameters
    ----------
    rows : of the timeline, by age
    contexts : what the question tells, by name
    disease : which
    age : years, at the question
    """
    cited: list[Cited] = []
    ratio, spread, active = 1.0, False, False
    present = [row for row in rows if "HAS CANCER" in row.text]
    scans = [row for row in rows if row.kind.endswith("progression")]
    grown = [row for row in scans if _progressed(row)]
    recent = bool(grown) and age - grown[-1].age <= RECENT_YEARS
    if present:
        active = "HAS CANCER: Yes" in present[-1].text
        said = f"The last scan {'shows' if active else 'does not show'} cancer."
        cited.append(_note(present[-1], said))
    if grown:
        ratio *= 1.6 if recent and len(grown) > 1 else 1.0
        active = active or recent
        spread = True
        cited.append(_note(grown[-1], "A scan showed progression."))
    elif scans:
        clear = scans[-1].age - scans[0].age
        ratio *= 0.5 if clear >= LONG_YEARS and not active else 1.0
        cited.append(_note(scans[-1], f"No scan in {clear:.1f} years showed progression."))
    sites = [row for row in rows if (s := re.search(r"TUMOR_SITE: ([^,]+)", row.text))
             and s[1].strip().casefold() in SPREAD_SITES - {disease.home}]  # fmt: skip
    if len(sites) > 1 and active:
        spread = True
        cited.append(_note(sites[-1], "Reports name a site beyond the primary tumor."))
    staged = next((row for row in rows if re.search(r"Stage 4|SUMMARY: Distant", row.text)), None)
    if staged is not None:
        spread = True
        cited.append(_note(staged, "The disease was distant at diagnosis."))
    for row in reversed(rows):
        if found := re.search(r"ECOG: (\d)", row.text):
            ratio *= (0.85, 1.0, 1.7, 2.5, 3.0)[min(4, int(found[1]))]
            cited.append(_note(row, f"The last performance status is ECOG {found[1]}."))
            break
    told = next(reversed(tuple(contexts.values())), "").casefold()
    if re.search(r"no evidence of (?:cancer )?(?:recurrence|progression)|neither recurred", told):
        active = active and recent
    elif re.search(r"(?:shown|experienced|has) (?:\w+ )*?progress|rence and progression", told):
        active = spread = True
    if active and not spread:
        ratio *= 1.3
    rising = _rising(rows)
    if rising is not None:
        cited.append(_note(rising, "A tumor marker has risen to more than one and a half times its"
                                   " least value."))  # fmt: skip
    factor = 1.0 if rising is None else RISING_ACTIVE if active else RISING_CLEAR
    return State(spread, active, ratio, factor, tuple(cited))


def _progressed(row: Row) -> bool:
    return bool(re.search(r"\bhas progressed\b|PROGRESSION: Y", row.text))


def _rising(rows: list[Row]) -> Row | None:
    """The last value of CEA above 5, or CA 19-9 above 37, or PSA above 4, if it has risen."""
    for name, above in (("ca_19-9", 37.0), ("cea", 5.0), ("ca_15-3", 30.0), ("psa", 4.0)):
        values = [(row, float(found[1])) for row in rows if name in row.kind
                  if (found := _RESULT.search(row.text))]  # fmt: skip
        if len(values) > 1 and values[-1][1] > above:
            least = min(value for _, value in values[:-1])
            if values[-1][1] > 1.5 * least:
                return values[-1][0]
    return None


def outcome(
    question: str, options: Mapping[str, str], texts: Mapping[str, str], contexts: Mapping[str, str]
) -> dict[str, Weighed] | None:
    """Yes and no to survival, recurrence or progression within a horizon; None for others.

    Parameters
    ----------
    question : the question's text
    options : its options by letter
    texts : opened files by name
    contexts : what was told, in order, by a name that is no file's
    """
    first = question.split("\n", 1)[0].casefold()
    months = horizon(question)
    alive = "alive" in first or "surviv" in first
    if months is None or not (alive or re.search(r"recur|progress|relapse", first)):
        return None
    rows = rows_of(texts)
    asked = _AGE.search(question)
    age = float(asked[1]) if asked else rows[-1].age if rows else 0.0
    disease, named = disease_of(contexts, texts)
    state = state_of(rows, contexts, disease, age)
    endpoint: Endpoint = "survival" if alive else "progression"
    given = stated(texts, endpoint, months)
    if given is not None:
        free = given.chance
        cited: tuple[Cited, ...] = (given.cited, named)
    else:
        medians = disease.survival if alive else disease.progression
        median = medians[1] if state.spread or (state.active and not alive) else medians[0]
        # A rising marker announces a relapse; of death it tells no more than of active disease.
        rising = min(state.rising, RISING_ACTIVE) if alive else state.rising
        free = 0.5 ** (months * state.ratio * rising / median)
        fate = "alive" if alive else "free of progression"
        prior = Cited(sentence=f"In this state half are {fate} after about {median:g} months.",
                      quote=f"general prior: {disease.source}")  # fmt: skip
        cited = (*state.cited, named, prior)
    return yes_no(options, free if alive else 1 - free, cited)
