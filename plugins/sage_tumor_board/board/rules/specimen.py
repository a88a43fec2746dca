"""Head and neck tumors: what pathology and clinical files say about survival and recurrence.

Weights are log odds set from the direction and rough size of what staging systems and trials
report (UICC TNM; HPV: PMID 18270337), not fitted to any answer. Where images cannot be read, how
common a finding is among resected head and neck carcinomas stands in, and is named as a prior.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sage_tumor_board.board.rules.blood import objects
from sage_tumor_board.board.rules.weigh import (
    UNKNOWN,
    Claim,
    Weighed,
    around,
    leading,
    logistic,
    together,
)
from sage_tumor_board.board.types import Cited

ALIVE_5_YEARS, RECURRED_2_YEARS = 0.65, 0.25
"""Rough shares in head and neck cancer of all stages (PMID 29313949 for five-year survival)."""
PRIOR = Cited(
    sentence="No file tells; how common it is among head and neck carcinomas stands in.",
    quote="general prior: most head and neck carcinomas are squamous (PMID 25612050)",
)
_BASE = Cited(
    sentence="Five-year survival of head and neck cancer of all stages is about 65%, recurrence"
    " within two years about 25%.",
    quote="general prior (PMID 29313949)",
)
Sign = tuple[str, str, float, float]
_SIGNS: tuple[Sign, ...] = (
    ("pT_stage", r"p?T1", 0.5, -0.4), ("pT_stage", r"p?T3", -0.5, 0.3),
    ("pT_stage", r"p?T4", -0.9, 0.5),
    ("pN_stage", r"p?N0", 0.3, -0.3), ("pN_stage", r"p?N2", -0.4, 0.3),
    ("pN_stage", r"p?N3", -0.8, 0.5),
    ("grading", r"G3", -0.2, 0.1), ("hpv_association_p16", r"positive", 0.9, -0.6),
    ("perinodal_invasion", r"yes", -0.7, 0.5), ("lymphovascular_invasion_L", r"yes", -0.4, 0.3),
    ("vascular_invasion_V", r"yes", -0.4, 0.3), ("perineural_invasion_Pn", r"yes", -0.4, 0.3),
    ("resection_status", r"R[12]", -0.7, 0.8),
    ("closest_resection_margin_in_cm", r"<0\.1|0\.0", -0.1, 0.3),
    ("smoking_status", r"smoker|current", -0.3, 0.2),
)  # fmt: skip
"""Field, pattern of its value, log odds for being alive at five years, for recurrence in two."""
_TOLD: tuple[Sign, ...] = (
    ("told", r"(?:distant|mediastinal(?:ly)?|pulmonary|hepatic|bone) metasta\w+|metastasized",
     -1.5, 0.8),
    ("told", r"second (?:primary|carcinoma|tumou?r)|synchronous", -0.8, 0.3),
    ("told", r"recurren(?:t|ce)|relapse", -0.6, 0.8),
    ("told", r"lymph node metasta\w+|cystic metasta\w+|metastatic (?:mass|lymph|node)\w*",
     -0.3, 0.3),
    ("told", r"\bextensive\b|infiltrat\w+|advanced", -0.4, 0.3),
    ("told", r"multiple risk factors|renal insufficiency|cirrhosis|heart failure|COPD", -0.5, 0.0),
    ("told", r"free flap|radial forearm|pectoralis", -0.3, 0.2),
    ("told", r"laser (?:resection|surgery)|transoral|robotic", 0.3, -0.2),
)  # fmt: skip
_AGE = re.compile(r"(\d{2,3})[- ]year[- ]old|age_at_initial_diagnosis'?\"?: (\d{2,3})")


def outcome(
    question: str, options: Mapping[str, str], texts: Mapping[str, str], contexts: Mapping[str, str]
) -> dict[str, Weighed] | None:
    """Yes and no to survival or recurrence; None for another question.

    Parameters
    ----------
    question : the question's text
    options : its options by letter
    texts : opened files by name
    contexts : what was told, by a name that is no file's
    """
    first = question.split("\n", 1)[0].casefold()
    alive = "alive" in first or "surviv" in first
    if not alive and "recurrence" not in first and "recur " not in first:
        return None
    column = 2 if alive else 3
    base = ALIVE_5_YEARS if alive else RECURRED_2_YEARS
    odds = _logit(base)
    cited: list[Cited] = []
    fields = {key: (str(value), file, passage) for file, text in texts.items()
              for item, passage in objects(text) for key, value in item.items()}  # fmt: skip
    for sign in _SIGNS:
        value, file, passage = fields.get(sign[0], ("", "", ""))
        if not value or re.match(sign[1], value, re.IGNORECASE) is None:
            continue
        odds += float(sign[column])
        found = re.search(rf"['\"]?{sign[0]}['\"]?\s*:\s*[^,}}]+", passage)
        if found:
            cited.append(Cited(sentence=f"{sign[0]} is {value}.", file=file, quote=found[0]))
    told = {**contexts, **{n: t for n, t in texts.items() if n.endswith(".txt")}}
    for sign in _TOLD:
        for name, text in told.items():
            found = re.search(sign[1], text, re.IGNORECASE)
            if found:
                odds += float(sign[column])
                file = name if name in texts else ""
                said = "This weighs on the course."
                quote = around(text, found, 120, 80, ".\n")
                cited.append(Cited(sentence=said, file=file, quote=quote))
                break
    for name, text in {**texts, **contexts}.items():
        if age := _AGE.search(text):
            years = int(age[1] or age[2])
            odds += (-0.9 if years >= 75 else -0.5 if years >= 68 else 0.2) if alive else 0.0
            file = name if name in texts else ""
            cited.append(Cited(sentence=f"The patient is {years} years old.", file=file,
                               quote=age[0]))  # fmt: skip
            break
    chance = logistic(odds)
    every = (*cited, _BASE)
    return {
        letter: Weighed(chance if leading(words) else 1 - chance, every)
        for letter, words in options.items()
    }  # fmt: skip


def _logit(chance: float) -> float:
    from math import log

    return log(chance / (1 - chance))


_FREQUENT: tuple[tuple[str, float], ...] = (
    (r"non-?keratinizing", 0.2), (r"basaloid", 0.06), (r"sarcomatoid|spindle", 0.02),
    (r"verrucous|papillary|acantholytic|adenosquamous", 0.02),
    (r"keratinizing|conventional", 0.5), (r"squamous|\bscc\b", 0.5),
    (r"lymphoepithelial", 0.02), (r"undifferentiated", 0.02),
    (r"adenocarcinoma|mucoepidermoid|adenoid", 0.02),
    (r"neuroendocrine|small cell|lymphoma|melanoma|sarcoma", 0.01),
)  # fmt: skip
"""How common a histologic type is among resected head and neck cancers, roughly."""
_INVASION: tuple[tuple[str, float], ...] = (
    (r"lympho?-?vascular|lymphatic", 0.3), (r"perineural|nerve", 0.3),
    (r"perinodal|extranodal", 0.2),
    (r"(?<!lympho)(?<!peri)vascular|vessels?", 0.1),
)  # fmt: skip
_NOT = re.compile(r"\bno\b|\bnot\b|\bnone\b|\babsen\w+|\bwithout\b|\bneither\b")
HPV_POSITIVE = 0.3


def by_frequency(question: str, options: Mapping[str, str]) -> dict[str, Weighed] | None:
    """Options about histology, invasion or HPV by how common each is; None for other questions."""
    first = question.split("\n", 1)[0].casefold()
    if re.search(r"histolog\w* (?:sub)?type|type of (?:carcinoma|the tumor)|cancer type", first):
        return {
            letter: Weighed(next((c for p, c in _FREQUENT if re.search(p, words.casefold())), 0.01),
                            (PRIOR,))
            for letter, words in options.items()
        }  # fmt: skip
    if re.search(r"(?:hpv|p16)[- ](?:association|status)", first) and not re.search(
        r"correlat|explain|associated with", first
    ):
        return {letter: together([_hpv(words.casefold())]) for letter, words in options.items()}
    kinds = [(pattern, chance) for pattern, chance in _INVASION if re.search(pattern, first)]
    if kinds and "invasion" in first and not re.search(r"immune|infiltrat|explan", first):
        return {letter: _invaded(words, kinds) for letter, words in options.items()}
    return None


def _hpv(words: str) -> Claim:
    positive = re.search(r"hpv[- ]?(?:associated|positive)|positive hpv", words) is not None
    p16 = re.search(r"p16[- ]?(positive|negative)", words)
    chance = HPV_POSITIVE if positive else 1 - HPV_POSITIVE
    if "indeterminate" in words or "undetermined" in words:
        chance = 0.05
    elif p16 is not None and (p16[1] == "positive") != positive:
        chance *= 0.1
    return Claim(chance, (PRIOR,))


def _invaded(words: str, kinds: list[tuple[str, float]]) -> Weighed:
    """The chance of what an option says about invasion; details beyond the question cost."""
    text = words.casefold()
    said = leading(words)
    here = [(pattern, chance) for pattern, chance in _INVASION if re.search(pattern, text)]
    denied = said is False or (said is None and _NOT.search(text) is not None)
    claims = [Claim(1 - c if denied else c, (PRIOR,)) for _, c in here or kinds]
    named = {pattern for pattern, _ in here}
    for pattern, chance in kinds:
        if here and pattern not in named:
            claims.append(Claim(1 - chance, (PRIOR,)))
    if re.search(r"\b(?:only|minimal|extensive|confined|limited|instead|cannot|suspicion)\b", text):
        claims.append(Claim(UNKNOWN))
    return together(claims)


def invasion_claims(words: str) -> list[Claim]:
    """What an option says of invasion beside other things, by how common each kind is."""
    found = []
    for pattern, chance in _INVASION:
        if match := re.search(rf"(?:{pattern})\w*[^,;]{{0,20}}invasion[^,;]*", words):
            denied = _NOT.search(match[0]) or re.search(r"^\s*no\b", words)
            present = re.search(r"is (?:present|observed)\b", match[0])
            yes = bool(present) or not denied
            found.append(Claim(chance if yes else 1 - chance, (PRIOR,)))
    return found
