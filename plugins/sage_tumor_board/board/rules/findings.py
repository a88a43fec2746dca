"""What can be read in a patient's files without a question: each finding with its passage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sage_tumor_board.board.rules import blood, timeline
from sage_tumor_board.board.rules.stated import stated
from sage_tumor_board.board.types import Cited

LONGEST_PASSAGE = 400
MOST_OF_A_KIND = 4
"""Passages of one kind in one file that are listed."""
_T = r"T(?:[0-4][a-d]?|is|a|[xX])"
_N = r"N(?:[0-3][a-c]?|[xX])"
_NO_SCAN = r"(?![-\s]*(?i:weighted|signal|sequence|hyper|hypo))"
_PASSAGES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (said, re.compile(pattern))
    for said, pattern in (
        ("Stage: {}.",
         rf"\b(?:[cpyr]{{1,3}}{_T}|{_T}(?=[ ,;]*[cp]?{_N}))\b{_NO_SCAN}"
         rf"(?:[ ,;]*[cp]?{_N}\b(?:[ ,;]*[cp]?M[01xX]\b)?)?|\b[cpyr]{{1,3}}{_N}\b"),
        ("Grade: {}.", r"\bG[1-4]\b|\b[Gg]rade (?:[1-4]\b|I{1,3}\b|IV\b)"
                       r"|\b(?:[Hh]igh|[Ll]ow)[- ]grade\b|Gleason[^.;\n]{0,20}\d\s?\+\s?\d"),
        ("Resection: {}.", r"\bR[012]\b"),
        ("A resection margin is described.", r"\b[Mm]argins?\b"),
        ("Invasion is mentioned.",
         r"(?i:(?:lympho-?vascular|perineural|vascular|extranodal|perinodal) invasion)"),
        ("HPV or p16 is mentioned.", r"\bHPV\b|\bp16\b"),
        ("A performance status is mentioned.", r"\bECOG\b|Karnofsky"),
        ("Metastasis is mentioned.", r"(?i:metasta\w+)"),
        ("The course is described.", r"(?i:recurren\w+|relaps\w+|progress(?:ion|ed|ive)"
                                     r"|stable disease|remission)"),
        ("A molecular marker is mentioned.",
         r"\bp\.[A-Z*]\d+|\bMSI\b|\bTMB\b|\bPD-?L1\b|(?i:microsatellite)|\b(?:KRAS|EGFR|BRAF|TP53"
         r"|PIK3CA|BRCA[12]|HER2|ALK|ROS1|NTRK\d?|MET|RET|IDH[12])\b"),
    )
)  # fmt: skip
"""A sentence with {} takes the words that were matched."""
_UNSURE = re.compile(
    r"\b(?:no|not|without|nor|or|if|versus|vs|rather|rules? out|ruled out|exclud\w+|suspect\w*"
    r"|possibl[ey]|probabl[ey]|likely|question\w*)\b|\?",
    re.IGNORECASE,
)
"""A sentence of which a value is not taken: it denies, asks or leaves open, somewhere."""
_KEYS: dict[str, str] = {
    "pT_stage": "pT", "pN_stage": "pN", "grading": "Grading", "hpv_association_p16": "HPV / p16",
    "resection_status": "Resection status", "perinodal_invasion": "Perinodal invasion",
    "lymphovascular_invasion_L": "Lymphovascular invasion",
    "vascular_invasion_V": "Vascular invasion", "perineural_invasion_Pn": "Perineural invasion",
    "closest_resection_margin_in_cm": "Closest margin (cm)", "histologic_type": "Histologic type",
    "infiltration_depth_in_mm": "Depth of infiltration (mm)",
    "primary_tumor_site": "Primary site", "number_of_positive_lymph_nodes": "Positive lymph nodes",
}  # fmt: skip
_SENTENCE = re.compile(r"[^\n]+?(?:(?<!\d)[.!?](?=\s|$)|\d[.!?](?=\s+[A-Z])|$)", re.MULTILINE)


def of(texts: Mapping[str, str]) -> list[Cited]:
    """The findings in all files, file by file.

    Each has a sentence of the rules' own and a passage that stands in the file as it is quoted.
    """
    found: list[Cited] = []
    ranges = {name: text for name, text in texts.items() if "normal_male_min" in text}
    values = {name: text for name, text in texts.items() if name not in ranges}
    sex = next((m[1].casefold() for text in values.values()
                if (m := re.search(r"\b(female|male)\b", text, re.IGNORECASE))), None)  # fmt: skip
    listed = {name: text for name, text in values.items() if not blood.is_table(name)}
    for reading in blood.readings(listed, ranges, sex).values():
        if reading.state in ("low", "high"):
            found.append(reading.cited[0])
    for name, text in texts.items():
        if name in ranges:
            continue
        found += _table(name, text)
        found += _fields(name, text)
        if "AGE:" not in text and not name.endswith((".csv", ".tsv", ".json")):
            found += _passages(name, text)
    rows = timeline.rows_of(texts)
    if rows:
        disease, _ = timeline.disease_of({}, texts)
        found += timeline.state_of(rows, {}, disease, rows[-1].age).cited
    for endpoint in ("survival", "progression"):
        figure = stated(values, endpoint, 12)
        if figure is not None:
            found.append(figure.cited)
    return [item for item in dict.fromkeys(found) if item.quote.strip()]


def _fields(name: str, text: str) -> Iterator[Cited]:
    for item, passage in blood.objects(text):
        for key, said in _KEYS.items():
            quote = re.search(rf"['\"]{key}['\"]\s*:\s*[^,}}]+", passage)
            if item.get(key) is not None and quote is not None:
                value = " ".join(str(item[key]).split())[:80]
                yield Cited(sentence=f"{said}: {value}.", file=name, quote=quote[0][:600])


def _passages(name: str, text: str) -> Iterator[Cited]:
    counts: dict[str, int] = {}
    for match in _SENTENCE.finditer(text):
        sentence = match[0].strip()
        if not 2 < len(sentence) <= LONGEST_PASSAGE:
            continue
        plain = False
        for kind, pattern in _PASSAGES:
            named = "{}" in kind
            held = None if plain and not named else pattern.search(sentence)
            if held is None or counts.get(kind, 0) >= MOST_OF_A_KIND:
                continue
            said = kind.format(" ".join(held[0].split()))
            if named and _UNSURE.search(sentence):
                said = f"{kind.partition(':')[0]} is mentioned."
            plain |= not named
            counts[kind] = counts.get(kind, 0) + 1
            yield Cited(sentence=said, file=name, quote=sentence)


def _table(name: str, text: str) -> Iterator[Cited]:
    """Values of a table beside their own limits, in rows that lie outside them."""
    for row in blood.rows(name, text):
        if row.state in ("low", "high"):
            said = f"{row.name} {row.value:g} {row.unit}".strip()
            yield Cited(sentence=f"{said} is {row.state} by the limits beside it.", file=name,
                        quote=row.line)  # fmt: skip
