"""Mood of a clause: a statement, an open question, or work that is still to be done.

Only what is stated has to be supported. What is left open may be neither decided nor
excluded by the facts; what is still to be done claims nothing, unless it foretells a result.
"""

from __future__ import annotations

import re
from enum import StrEnum

from agents.prose.reading import Clause, word_set


class Mood(StrEnum):
    """Mood of a clause."""

    STATED = "stated"
    OPEN = "open"
    TO_DO = "to do"


IMPERATIVE = word_set(
    "repeat test measure ask register compare collect design validate replicate check add "
    "extend examine assess seek plan include record read report state"
)
PAST = re.compile(r"^(?:because|since|as|which|who)\b|\b(?:is|are|was|were|has|had|did|already)\b")
WHETHER = re.compile(
    r"^(?:(?:test|ask|see|check|decide|show|learn|say|know)\w* )?whether\b|"
    r"\b(?:test|tests|ask|asks|see|check|decide|decides|learn|t(?:ell|ells)|show|shows) whether\b"
)
UNKNOWN = re.compile(
    r"\b(?:can|could|do|does|did) not (?:yet |here )?(?:be )?(?:say|said|t(?:ell|old)|know|known|"
    r"judged?|conclude[d]?|determined?|settle[d]?|learn(?:ed)?) (?:\w+ ){0,4}?"
    r"(?:whether|if|how|which)\b|"
    r"\b(?:whether|how far|how much) .*(?:(?:is|are|was|were|be|stays?|remains?|left|leave[sd]?) "
    r"(?:\w+ )?(?:open|unknown|unclear|undecided|unsettled|uncertain)|"
    r"(?:can|could) not (?:yet )?be (?:said|t(?:old)|known|judged))\b|"
    r"\b(?:not (?:known|clear)|unknown|unclear) (?:whether|if|how)\b|"
    r"\bneither (?:an? )?(?:effect|association|difference) nor (?:its|an?) absence\b"
)
MUST = re.compile(
    r"\b(?:must|should|ha(?:s|ve) to|needs? to|remains? to|would have to) (?:\w+ )?be "
    r"(?:\w+ )?(?:repeat|test|measur|ask|regist|compar|collect|design|validat|replicat|reproduc|"
    r"check|add|extend|examin|assess|sought|plan|includ|record|read|report|resolv|understood|shown|"
    r"seen|settl|decid|taken|interpret|consider|stud|found|look|investigat|weigh|judg|clarif)\w*"
)
UNTIL = re.compile(r"^(?:until|unless|if)\b(?!.*\b(?:was|were|had|anything|possible|ever)\b)")
MAY = re.compile(r"\b(?:may|might) (?:not )?(?:differ|remain|depend|vary)\b")
STUDY = (
    r"(?:cohorts?|study|studies|samples?|data|follow up|models?|analys[ie]s|patients|events|trials?"
    r"|measurements?|tests?|cut points?|cuts?|cutoffs?|thresholds?|panels?|stains?|slides?|centers?"
    r"|hospitals?|work|contracts?|endpoints?|scores?|programs?|detectors?|designs?|assays?)"
)
FURTHER = re.compile(
    r"\b(?:larger|bigger|further|additional|another|more|longer|independent|fresh|new|different|"
    rf"external|future|prospective|other|finer|any) (?:\w+ ){{0,3}}?{STUDY}\b|"
    rf"\b{STUDY} (?:with|of|that (?:has|have|follows?)) (?:\w+ )?(?:more|longer|larger|other|"
    rf"another|further)\b|\bnext steps?\b|\b{STUDY} (?:\w+ ){{0,3}}?(?:is|are|be) "
    r"(?:needed|required|necessary) (?:to|before|for)\b|\b(?:randomi[sz]ed|controlled|prospective) "
    r"(?:trial|study)\b|\bneeds? (?:more|another|further|other) (?:\w+ )?"
    rf"{STUDY}\b"
)
WANTED = re.compile(
    r"\b(?:would|could|may|might|should|must|needs?|needed|required|wanted|necessary|remedy|"
    r"next steps?|worth|before|helps?|have to|has to)\b"
)
THREAT = re.compile(
    r"\b(?:unmeasured|unrecorded|residual|hidden|missing|other|unknown|chance|selection|"
    r"confound\w*|bias\w*|factors?|covariates?|treatments?|age|sex|stage|grade|batch|errors?|"
    r"differences? (?:in|of|between)) (?:\w+ ){0,5}?(?:may|might|could|can) (?:\w+ )?(?:explain|"
    r"account|bias|distort|blur|confound|mask|hide|drive|differ|remain|contribute|influence|affect|"
    r"weaken|mimic|produce|create|shift|dilute|lie behind|play|act|stand behind)\b"
)
FORETOLD = re.compile(
    r"\b(?:will|would|could|can|should|may|might|must) (?:\w+ ){0,2}?(?:only|merely|repeat|"
    r"deepen|show|find|found|give|bring|"
    r"make|yield|reach|become|turn|prove|confirm|support|demonstrate|be (?:true|right|real|"
    r"significant|seen|found|shown)|bear|see|hold|succeed|strengthen)\b(?! (?:whether|if|how|what|"
    r"which|more|another|a (?:narrower|different|more)))"
)


def mood_of(clause: Clause, first_word: str) -> Mood:
    """The mood of a clause.

    `first_word` opens the sentence: a demand ("Repeat the test ...") governs all of its clauses.
    """
    text = clause.text
    if UNKNOWN.search(text):
        return Mood.OPEN
    if WHETHER.search(text) or MUST.search(text) or MAY.search(text) or UNTIL.search(text):
        return Mood.TO_DO
    if first_word in IMPERATIVE and PAST.search(text) is None:
        return Mood.TO_DO
    if FORETOLD.search(text):
        return Mood.STATED
    if THREAT.search(text) or (FURTHER.search(text) and WANTED.search(text)):
        return Mood.TO_DO
    return Mood.STATED
