"""Advice by its wording: what tells somebody what to do, and what only tells what is or was.

Wording is all that is looked at. A treatment may be named to tell what was done, not more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import name

_CARE = r"(?:option|treatment|choice|therapy|drug|regimen|approach|chemotherapy|surgery|operation)"
_BEST = r"(?:best|better|preferred|optimal|(?:most|more) (?:appropriate|suitable|effective))"
ADVICE = re.compile(
    r"\b(?:should|ought to|shall|recommend\w*|advis\w*|prescrib\w*|administer(?:ing)?|we propose"
    r"|must (?:be|receive|undergo|start|stop|have|not)"
    r"|needs? to (?:be|receive|undergo|start|stop)"
    r"|(?:is|are|seems?) (?:\w+ )?(?:indicated|warranted|advisable|preferable|preferred)"
    r"|suggest(?:s|ed|ing)? (?:that|start|giv|add|switch|treat)\w*"
    r"|(?:please|consider(?:ing|ed)?)"
    r" (?:start|giv|add|stop|switch|treat|perform|order|the|an?)\w*"
    r"|(?:tell|ask|instruct|urge|have|put) (?:the patient|her|him|them) (?:to|on)"
    r"|(?:start|begin|initiate|stop|switch|discontinue|give|offer|take)"
    r"(?: (?:the|a|an|with|to|him|her))* (?:patient|treatment|therapy|chemotherapy|radiotherapy"
    r"|immunotherapy|surgery|\w+(?:mab|nib|platin|taxel|ciclib|parib))"
    rf"|{_BEST} {_CARE}|{_CARE} of choice|next steps?|what to do (?:next|now)"
    r"|what (?:would|can|do|shall) (?:you|we|I) (?:do|give|try)"
    rf"|which (?:one )?is {_BEST}"
    rf"|{_CARE} (?:is|are|would be|works?|fits?|suits?) (?:the )?{_BEST}"
    r"|how (?:to|(?:would|do|can) (?:you|we|I)) (?:treat|manage)"
    r"|(?:eligible|candidate) for|would benefit|let us"
    r"|you (?:can|could|may|might) (?:give|start|try))\b",
    re.IGNORECASE,
)
"""Wording that tells somebody what to do."""
_TREATMENT = re.compile(
    r"\b(?:\w+(?:mab|nib|platin|taxel|ciclib|parib|rubicin|citabine|trexed|vedotin|lutamide|terone)"
    r"|\w*(?:chemo|radio|immuno|hormono|chemoradio)therapy|radiation|chemoradiation|surgery|\w+ectomy"
    r"|FOLF\w+|BCG|methotrexate|vinblastine|mitomycin|tamoxifen|MVAC)\b",
    re.IGNORECASE,
)
_KNOWN = re.compile(
    r"\b(?:was|were|did|had|has|have|came|received|given|got|underwent|known|history|files?|notes?"
    r"|records?|recorded|documented|mention\w*|stated|reported|according|say|says|said)\b",
    re.IGNORECASE,
)
"""Words of a question for what is in the files, not for what to do."""
_MODAL = r"(?:should|would|could|(?-i:may)|might|must|can|will|shall|ought)"
_TOLD = re.compile(
    r"^\W*(?:no|not|nothing)\b|\b(?:is|are|was|were|has|had|have|did|does|tells?|names?|shows?|states?|says?|mentions?"
    r"|reports?|reveals?|describes?|began|rose|fell|took|underwent|got|lies|lay|lives|lived|carries|contains?|\w{2,}ed)\b",
    re.IGNORECASE,
)
"""An English sentence that tells something has one of these; a command, or German, has none."""
_DONE = re.compile(
    r"\b(?:was|were|had|(?:has|have) been|did|received|underwent|got|took|began|started|stopped"
    r"|completed|finished|ended|planned|scheduled|declined|refused|according|reports?|states?"
    r"|says?|mentions?|tells?|stated|noted|recorded|documented|showed|revealed|found)\b",
    re.IGNORECASE,
)
_CARED = re.compile(
    rf"\b(?:{_CARE}|treat\w*|operat\w+|irradiat\w+|dos(?:e|es|age|ing)|dissection|trials?"
    r"|palliat\w*|supportive care|(?:re-?)?resect(?:ion(?! (?:margin|status|specimen))|ed|ing)?)\b",
    re.IGNORECASE,
)
_NEED = re.compile(
    r"\b(?:needs?|needed|requir\w+|necessary|prudent|reasonable|sensible|worth\w*|essential"
    r"|mandatory|urgen\w+|deserves?|\w*indicated|qualif\w+|to be|let|please|avoid"
    r"|wise|advis\w+|appropriate|(?:best|better|right|fine|safe|time) to|called for|mistake"
    r"|overdue|hence|therefore|thus|suggest\w*|opinion|in favou?r|(?-i:I)|we|my|our|us)\b",
    re.IGNORECASE,
)
_OTHER = re.compile(
    r"\b(?:der|das|und|bitte|soll\w*|muss|wird|werden|nicht|ist|eine[rnms]?|geben|erhalten|les|une"
    r"|avec|doit|devrait|el|una|debe\w*|della|deve|een|moet\w*|niet)\b",
    re.IGNORECASE,
)
"""Frequent words of German, French, Spanish, Italian and Dutch that English does not have."""


def gives_advice(text: str) -> bool:
    """Whether a text tells somebody what to do."""
    return ADVICE.search(text) is not None


def asks_to_choose(question: str, options: Sequence[str]) -> bool:
    """Whether treatments are put side by side without asking for what was done.

    One among the options is enough: something else is weighed against it.
    """
    offered = any(_TREATMENT.search(option) or _CARED.search(option) for option in options)
    named = {hit.lower() for hit in _TREATMENT.findall(question)}
    return (offered or len(named) > 1) and _KNOWN.search(question) is None


def asks_for_care(question: str) -> bool:
    """Whether a question asks what would or must be done, not what was."""
    cared = _CARED.search(question) or _TREATMENT.search(question)
    wished = _NEED.search(question) or re.search(rf"\b{_MODAL}\b", question, re.IGNORECASE)
    return bool(cared and wished) and _KNOWN.search(question) is None


def other_language(text: str) -> bool:
    """Whether a text shows by its letters or by frequent words that it is not English."""
    script = any(char.isalpha() and not name(char, "").startswith(("LATIN", "GREEK", "MICRO"))
                 for char in text)  # fmt: skip
    return script or _OTHER.search(text) is not None


def only_tells(text: str) -> bool:
    """Whether every sentence of a model's text tells, in English, what is or what was done.

    Refused are questions, commands, other languages, what is said to be needed, and treatments
    about which no more is said than what would, could or will be. It errs on that side: the model
    says it again.
    """
    return "?" not in text and all(
        _tells(sentence) for sentence in re.split(r"[.!;]\s+", text) if sentence.strip(" .!")
    )


def _tells(sentence: str) -> bool:
    if gives_advice(sentence) or _NEED.search(sentence) or other_language(sentence):
        return False
    if _TOLD.search(sentence) is None:
        return False
    if _CARED.search(sentence) is None and _TREATMENT.search(sentence) is None:
        return True
    modal = re.search(rf"\b{_MODAL}\b", sentence, re.IGNORECASE)
    return modal is None and _DONE.search(sentence) is not None
