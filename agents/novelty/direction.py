"""Findings that contradict a hypothesis's direction, detected from words near a name.

"High FABP5 is associated with longer survival" contradicts "high FABP5 predicts shorter
survival". The detection is shallow: it requires a level word next to the exposure's name,
an outcome word next to survival or prognosis, and no negation. It can miss findings, and
serves only to flag sentences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kg.lexicon.ontology import Ontology
from kg.literature.expansion import list_synonyms
from kg.literature.text import normalize
from validation.core.hypothesis import Direction, Hypothesis

_HIGH = r"high|higher|elevated|increased|over-?express\w*|up-?regulat\w*|abundant|dense|presence"
_LOW = r"low|lower|reduced|decreased|loss|absence|absent|down-?regulat\w*"
_OUTCOME = r"(?:[\w-]+\s+){0,4}(?:survival|prognosis|outcomes?|os|pfs|rfs|dfs|dss)\b"
_GOOD = re.compile(
    rf"\b(?:longer|better|improved|favou?rable|prolonged|superior|good)\s+{_OUTCOME}"
    r"|\b(?:lower|reduced|decreased)\s+(?:risk|mortality|hazard)"
)
_BAD = re.compile(
    rf"\b(?:shorter|worse|poor|poorer|unfavou?rable|adverse|inferior|worst)\s+{_OUTCOME}"
    r"|\b(?:higher|increased|greater)\s+(?:risk|mortality|hazard)"
)
_NEGATED = re.compile(r"\bnot\b|\bno\b|\bneither\b|\bnor\b|\bwithout\b")
_TEXT = "text:"
"""Type of exposure, without a direction, in proposals other than cohort hypotheses."""


class Opposition:
    """Detector of sentences that contradict a hypothesis's direction."""

    def __init__(self, hypothesis: Hypothesis, ontology: Ontology | None = None) -> None:
        self._risky = hypothesis.direction is Direction.HIGHER_RISK
        self._exposures = [
            (exposure.level, _near(_names(exposure.variable, exposure.label, ontology)))
            for exposure in hypothesis.exposures
            if not exposure.variable.startswith(_TEXT)
            and hypothesis.direction is not Direction.EITHER
        ]

    def __call__(self, sentence: str) -> bool:
        """Check whether the sentence reports the opposite of the claim about an exposure."""
        return False in self._readings(sentence)

    @property
    def has_direction(self) -> bool:
        """True if the hypothesis has a direction and names cohort variables with their levels."""
        return bool(self._exposures)

    def agrees(self, sentence: str) -> bool:
        """Check whether the sentence supports the claim about an exposure and never opposes it."""
        return set(self._readings(sentence)) == {True}

    def _readings(self, sentence: str) -> list[bool]:
        """List, for each exposure with a detectable direction, whether it agrees with the claim."""
        text = normalize(sentence)
        good, bad = _GOOD.search(text) is not None, _BAD.search(text) is not None
        if good == bad or _NEGATED.search(text):
            return []
        readings = []
        for level, (high, low) in self._exposures:
            said_high, said_low = high.search(text) is not None, low.search(text) is not None
            if said_high != said_low:
                same_level = said_high == (level == "high")
                readings.append(same_level != (good if self._risky else bad))
        return readings


def _names(variable: str, label: str, ontology: Ontology | None) -> list[str]:
    kind, _, symbol = variable.partition(":")
    bare = re.sub(r"\s+(expression|density|score|level|signature)s?\b.*$", "", label).strip()
    names = [bare, *([symbol] if kind == "expression" else [])]
    return [name for text in names for name in list_synonyms(text, ontology) if len(name) > 2]


def _near(names: Sequence[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compile patterns for level words (high, low) shortly before or right after a name."""
    # Hyphens are optional: "B-cell" is the B cell.
    spelled = (
        r"[\s-]".join(map(re.escape, re.split(r"[\s-]", normalize(name))))
        for name in dict.fromkeys(names)
    )
    either = "|".join(spelled) or r"(?!)"
    plural = rf"(?:{either})s?"

    def pattern(level: str) -> re.Pattern[str]:
        before = rf"\b(?:{level})\s+(?:[\w+-]+\s+){{0,3}}?(?:\(\s*)?{plural}\b"
        after = rf"\b{plural}\b\)?\s+(?:[\w-]+\s+)?(?:{level})\b"
        return re.compile(f"{before}|{after}")

    return pattern(_HIGH), pattern(_LOW)
