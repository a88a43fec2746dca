"""Entity mentions: ontology and imported lexicons, abbreviations of the document, patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kg.extract.base import Mention
from kg.lexicon import Lexicon
from kg.ontology import Ontology
from kg.types import EntityType

_MICRORNA = re.compile(r"\b(?:hsa-)?mi[Rr](?:NA)?-?\d+[a-z]?(?:-[35]p)?(?:-\d)?\b|\blet-7[a-i]?\b")
_VARIANT = re.compile(
    r"\b(?:rs\d{3,}|[cgmnp]\.[\w>_*+-]+|[ACDEFGHIKLMNPQRSTVWY]\d{2,4}(?:[ACDEFGHIKLMNPQRSTVWY]|X|fs|del)"
    r"|(?:Ala|Arg|Asn|Asp|Cys|Gln|Glu|Gly|His|Ile|Leu|Lys|Met|Phe|Pro|Ser|Thr|Trp|Tyr|Val)-?\d{1,4}"
    r"-?(?:Ala|Arg|Asn|Asp|Cys|Gln|Glu|Gly|His|Ile|Leu|Lys|Met|Phe|Pro|Ser|Thr|Trp|Tyr|Val|Ter|Stop)"
    r"|-?\d{2,5}[ACGT]\s?(?:/|>|-->|-)\s?[ACGT])\b"
)
# T24, H1299 and friends look like variants; a variant needs a reference and a new residue.
_PATTERNS = (
    (_MICRORNA, EntityType.GENE),
    (_VARIANT, EntityType.MUTATION),
)


class MentionFinder:
    """Finds entities in text. Earlier lexicons outrank later ones where spans overlap equally."""

    def __init__(
        self,
        ontology: Ontology,
        lexicons: Sequence[Lexicon] = (),
        types: frozenset[EntityType] | None = None,
    ) -> None:
        self._ontology = ontology
        self._lexicons = (ontology.lexicon, *lexicons)
        self._types = types

    def find(self, text: str, abbreviations: Iterable[tuple[str, str]] = ()) -> list[Mention]:
        """Mentions in `text`, longest first where they overlap, ordered by position."""
        candidates: list[tuple[int, int, Mention]] = []
        for rank, lexicon in enumerate(self._lexicons):
            for match in lexicon.find(text):
                entry = lexicon.entry(match.entry)
                candidates.append(
                    (
                        match.start - match.end,
                        rank,
                        Mention(match.start, match.end, entry.name, entry.type, entry.id),
                    )
                )
        for short, long in abbreviations:
            known = self._denotes(long)
            pattern = re.compile(rf"(?<![\w-]){re.escape(short)}s?(?!\w)")
            for hit in pattern.finditer(text):
                if known is None:
                    # The document says what it means by these letters, and it is no known entity:
                    # the lexicon's reading of them is blocked.
                    candidates.append(
                        (hit.start() - hit.end() - 1, -1,
                         Mention(hit.start(), hit.end(), "", EntityType.OTHER, None))
                    )  # fmt: skip
                else:
                    candidates.append(
                        (hit.start() - hit.end() - 1, -1,
                         Mention(hit.start(), hit.end(), known.name, known.type, known.entity_id))
                    )  # fmt: skip
        for pattern, kind in _PATTERNS:
            for hit in pattern.finditer(text):
                candidates.append(
                    (hit.start() - hit.end(), 50,
                     Mention(hit.start(), hit.end(), hit.group(), kind, None))
                )  # fmt: skip
        candidates.sort(key=lambda c: (c[0], c[1], c[2].start))
        taken = bytearray(len(text))
        chosen = []
        for _length, _rank, mention in candidates:
            if any(taken[mention.start : mention.end]):
                continue
            taken[mention.start : mention.end] = b"\x01" * (mention.end - mention.start)
            if mention.name and (self._types is None or mention.type in self._types):
                chosen.append(mention)
        chosen.sort(key=lambda m: m.start)
        return chosen

    def _denotes(self, long: str) -> Mention | None:
        """What a long form denotes: the whole of it, or its end (`human bladder cancer`)."""
        for lexicon in self._lexicons:
            for match in reversed(lexicon.find(long)):
                if match.end == len(long) and match.start <= len(long) // 3:
                    entry = lexicon.entry(match.entry)
                    return Mention(0, len(long), entry.name, entry.type, entry.id)
        return None
