"""Interpretation of a question's words as concepts, and of position words as places."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sage_slide_reading.reader.types import Question, plain


class Concept(StrEnum):
    """Concepts that the computed backend can look for."""

    TUMOR = "tumor"
    LYMPHOID = "lymphoid"
    TLS = "tls"
    MITOSIS = "mitosis"
    NECROSIS = "necrosis"
    STROMA = "stroma"
    GLAND = "gland"
    PLEOMORPHISM = "pleomorphism"
    CELLULARITY = "cellularity"
    MARGIN = "margin"


class Asked(StrEnum):
    """Type of answer that a question asks for."""

    WHERE = "where"
    PRESENT = "present"
    COUNT = "count"
    WHAT = "what"
    HOW_MUCH = "how much"


WORDS: tuple[tuple[Concept, str], ...] = (
    (Concept.TLS, r"tls|tertiary lymphoid|lymphoid (?:aggregate|follicle|structure)|germinal cent"),
    (Concept.MITOSIS, r"mitos[ie]s|mitotic|proliferat"),
    (Concept.NECROSIS, r"necro|ghost|comedo"),
    (Concept.MARGIN, r"margin|resection edge|cut edge|tissue edge"),
    (Concept.LYMPHOID, r"lympho|inflammat|immune|\btils?\b"),
    (Concept.PLEOMORPHISM, r"pleomorph|nuclear (?:size|grade|atypia)|anisokaryo|anaplas|atypia"),
    (Concept.GLAND, r"gland|lumen|lumina|acin|tubule|duct\b|ducts\b"),
    (Concept.STROMA, r"stroma|fibro(?:us|sis)|collagen|desmoplas|connective"),
    (Concept.TUMOR, r"tumou?r|carcinoma|cancer|malignan|neoplas|epitheli|deposit|metasta"),
    (Concept.CELLULARITY, r"cellular|cell dens|nuclear dens|nuclei per"),
)
"""Words by concept, in order of priority.

If several concepts occur, the first row decides, so that "tumor at the margin" is a
question about the margin.
"""

NEGATIVE = re.compile(r"^(?:no|none|absent|not present|negative|free|not involved|clear)\b")
POSITIVE = re.compile(r"^(?:yes|present|positive|involved)\b")


@dataclass(frozen=True)
class Meaning:
    """Meaning of a question: concepts in order of weight, and the type of answer."""

    concepts: tuple[Concept, ...]
    asked: Asked
    field_um: float


def concepts_of(text: str) -> tuple[Concept, ...]:
    """Return the concepts named in a text, in the order of `WORDS`."""
    low = text.lower()
    return tuple(dict.fromkeys(concept for concept, words in WORDS if re.search(words, low)))


FIELD_UM = 450.0
"""Side of a field if the question gives no size: 0.2 mm², about a high-power field."""


def meaning(question: Question) -> Meaning:
    """Parse a question; its options count only if the question itself names no concept."""
    text = question.text.lower()
    found = concepts_of(text)
    named = [concepts_of(option) for option in question.options]
    placed = [place_of(option) is not None for option in question.options]
    if sum(bool(concepts) for concepts in named) >= 2 and sum(placed) < 2:
        every = tuple(dict.fromkeys(concepts[0] for concepts in named if concepts))
        return Meaning(every, Asked.WHAT, FIELD_UM)
    if sum(placed) >= 2 or (
        not question.options
        and re.search(r"\bwhere\b|which (?:side|region|quadrant|part|piece|area|half|corner)", text)
    ):
        asked = Asked.WHERE
    elif any(re.search(r"\d", option) for option in question.options) or "how many" in text:
        asked = Asked.COUNT
    elif any(POSITIVE.match(plain(o)) or NEGATIVE.match(plain(o)) for o in question.options) or (
        re.match(r"\s*(?:is|are|does|do|can|has|have)\b", text)
    ):
        asked = Asked.PRESENT
    elif found:
        asked = Asked.HOW_MUCH
    else:
        asked = Asked.WHAT
    field = re.search(r"(\d{2,4}) ?(?:µm|um|micromet)", text)
    return Meaning(found, asked, float(field[1]) if field else FIELD_UM)


NEGATED = re.compile(
    r"\b(?:no|not|non|none|never|neither|nor|without|absent|absence|lack(?:s|ing)?|free|devoid"
    r"|clear|negative|uninvolved|spared?|exclude[sd]?|rule[sd]? out)\b|n['’]t\b"
)
NOT_SEEN = re.compile(
    r"\bgleason\b|(?<!nuclear )\bgrade[sd]?\b|\bgrading\b|\bsub-?types?\b|\breceptors?\b|\bher-?2\b"
    r"|\b(?:o?estrogen|progesterone|pd-?l1|ki-?67|msi|egfr|braf|kras|microsatellite)\b|\bmutat"
    r"|\bstag(?:e|ing)\b|\bp?t[1-4][abc]?\b|\bsurviv|\bprognos|\badeno|\bsquamous|\burotheli"
    r"|\bserous\b|\bductal\b|\blobular\b|sarcoma|melanoma|lymphoma|leuk[ae]"
    r"|\bglio|\bin situ\b|\bbenign\b"
    r"|\b(?:prostate|prostatic|breast|lung|colon|colorectal|kidney|renal|liver|hepat\w+|bladder"
    r"|gastric|pancrea\w+|ovarian|thyroid) (?:cancer|carcinoma|tumou?r|neoplasm)"
)
"""Types, grades, receptors, genes, stages, and outcomes, which no finding can show."""
MANY_FIELDS = re.compile(r"\b(?:[2-9]|\d{2,}) ?(?:hpfs?\b|high[- ]power)|(?:\bper |/) ?(?:mm|hpf)")


def out_of_reach(question: Question, asked: Meaning) -> str:
    """Return the reason why these rules cannot answer a question; empty if they can.

    A rule that answers yes when it finds something would get "Is there no tumor?" backward.
    Options that name the state itself (present, absent) are unambiguous in either form.
    """
    text = re.sub(r"\bor (?:not|none|free|absent|clear|uninvolved)\b", "", question.text.lower())
    if found := NOT_SEEN.search(text):
        return f'"{found[0].strip()}" is something that these eyes cannot see'
    own = set(concepts_of(text))
    closed = re.match(r"\s*(?:is|are|does|do|has|have)\b", text)
    if asked.asked is Asked.WHAT and closed and own and not own & set(asked.concepts):
        return "the options are about something other than the question"
    said = [plain(option) for option in question.options]
    states = said and not any(re.match(r"(?:yes|no)(?!ne|t)\b", option) for option in said)
    if asked.asked is Asked.WHAT or (asked.asked is Asked.PRESENT and states):
        return ""
    if found := NEGATED.search(text):
        return f'the question is negative ("{found[0]}"); ask what is present'
    if asked.asked is Asked.PRESENT:
        parts = [set(concepts_of(part)) for part in re.split(r"\band\b|\bbut\b", text)]
        named = [part for part in parts if part]
        if len(named) > 1 and not set.intersection(*named):
            return "the question asks for more than one thing; ask separate questions"
    if asked.asked is Asked.COUNT and MANY_FIELDS.search(text):
        return "figures are counted in one field, not over several or per area"
    return ""


def place_of(text: str) -> tuple[int, int] | None:
    """Return the direction that a text names: -1 left or upper, 0 middle, 1 right or lower."""
    words = set(plain(text).split())
    across = (1 if words & {"right"} else 0) - (1 if words & {"left"} else 0)
    down = (1 if words & {"lower", "bottom", "below"} else 0) - (
        1 if words & {"upper", "top", "above"} else 0
    )
    if across or down:
        return across, down
    return (0, 0) if words & {"center", "centre", "central", "middle"} else None


CENTRAL = 0.36
"""Fraction of the half width and half height within which a point is central."""


def option_at(options: Sequence[str], u: float, v: float) -> str | None:
    """Return the option whose direction is nearest to a position within the tissue, -1 to 1."""
    ways = {option: way for option in options if (way := place_of(option)) is not None}
    middle = next((option for option, way in ways.items() if way == (0, 0)), None)
    if middle is not None and max(abs(u), abs(v)) < CENTRAL:
        return middle

    def along(option: str) -> float:
        across, down = ways[option]
        return (u * across + v * down) / math.sqrt(abs(across) + abs(down))

    return max((option for option, way in ways.items() if way != (0, 0)), key=along, default=None)


def words_at(u: float, v: float) -> str:
    """Describe a point's position in words."""
    if max(abs(u), abs(v)) < CENTRAL:
        return "center"
    down = "upper" if v < -0.15 else "lower" if v > 0.15 else ""
    across = "left" if u < -0.15 else "right" if u > 0.15 else ""
    return " ".join(part for part in (down, across) if part) or "center"


def numbers_of(option: str) -> tuple[float, float] | None:
    """Parse the range in an option ("5 to 9", "10 or more", "0"); None if there is no range."""
    said = option.lower().replace("–", "-")
    if found := re.search(r"(\d+(?:\.\d+)?)\s*(?:-|to|and)\s*(\d+(?:\.\d+)?)", said):
        return float(found[1]), float(found[2])
    if found := re.search(r"(\d+(?:\.\d+)?)", said):
        low = float(found[1])
        if re.search(r"or more|at least|more than|above|over|≥|>|\+", said):
            return low + (1 if re.search(r"more than|above|over|>(?!=)", said) else 0), float("inf")
        if re.search(r"or fewer|or less|at most|≤", said):
            return 0.0, low
        if re.search(r"fewer than|less than|below|under|<", said):
            return 0.0, low - 1
        return low, low
    return (0.0, 0.0) if NEGATIVE.match(plain(said)) else None
