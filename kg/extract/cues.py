"""Cue words that negate, hedge or quantify a statement."""

from __future__ import annotations

import re

from kg.lexicon.wordlist import words

UP = words(
    """
    high higher highest elevated increased increasing raised strong stronger overexpressed
    upregulated abundant positive enriched better best longer improved favorable favourable
    prolonged superior greater more rich enhanced good active overexpression
    upregulation larger favored increase rise gain amplification amplified presence rising
    upregulating hyperactivated activated dense extended exogenous recombinant up-regulation
    up-regulated
    """
)
#: `late stage` is more of the stage; `early impairment` is not less of it.
STAGES = {"advanced": 1, "late": 1, "later": 1, "early": -1, "earlier": -1}
DOWN = words(
    """
    low lower lowest reduced decreased decreasing loss lost absent weak weaker worse poor poorer
    shorter unfavorable unfavourable adverse inferior dismal downregulated deficient lack
    lacking less fewer decline diminished impaired absence downregulation
    underexpression depleted bad worst shortened suppressed negative declining limited defective
    dysfunctional attenuated down-regulated degradation
    """
)
# A perturbation of the head: what follows describes the effect of its presence.
LOSS = words(
    """
    knockdown knockout depletion deletion silencing inhibition inhibitor inhibitors blockade
    deficiency ablation withdrawal loss antagonist neutralization antibody sirna shrna
    suppression deficient knock-down knock-out knocking downregulation lowering inactivation
    abrogation haploinsufficiency down-regulation degradation inactivated
    """
)
NEGATION = re.compile(
    r"\b(?:not|no|neither|nor|without|never|fail(?:s|ed|ing)? to|lack(?:s|ed)? of|lacks|unable to"
    r"|cannot|can't|didn't|doesn't|wasn't|weren't|absence of (?:an? )?(?:association|correlation|"
    r"effect|difference)|unlikely|rather than|little|no longer|did not|does not|do not)\b",
    re.IGNORECASE,
)
# Negation words that do not deny the statement.
PSEUDO = re.compile(
    r"\b(?:not only|no doubt|not necessarily|whether or not|not surprisingly|no (?:prior|previous)"
    r"|without (?:affecting|altering|changing))\b",
    re.IGNORECASE,
)
NEGATED_ITEM = re.compile(r"\b(?:but|and|or|though|yet|,) not (?:with |in |of |by |for )?$", re.I)
BUT_NOT = re.compile(r"\b(?:but|and) not\b(?! (?:only|limited|to)\b)[^;:]*$", re.IGNORECASE)
# The denied part of a list before its verb.
EXCEPTED = re.compile(
    r"\b(?:but|and) not\b.*?(?=\b(?:is|are|was|were|has|have|had|did|does|do|can|may)\b|$)", re.I
)

SPECULATION = re.compile(
    r"\b(?:may|might|could|possibly|potential(?:ly)?|putative|presumabl[ye]|perhaps"
    r"|suggest(?:s|ed)?(?: that)?|hypothes[ie][sz]e?[sd]?|candidate|proposed|appears? to|seems? to"
    r"|likely|speculat\w+|would|thought to|believed to|can be hypothesi[sz]ed"
    r"|(?:it is )?possible that|we (?:believe|speculate|propose|postulate)|postulated"
    r"|conceivabl[ey]|probabl[ey]|assum(?:e|ed|ing) (?:to|that)|imply|implies"
    r"|raises? the possibility)\b",
    re.IGNORECASE,
)
INQUIRY = re.compile(
    r"\b(?:whether|aim(?:s|ed)? (?:to|of|at|was)|objective|to (?:investigate|determine|evaluate|"
    r"assess|examine|explore|test|study|clarify|elucidate|analy[sz]e|compare)|we (?:investigated|"
    r"examined|evaluated|assessed|explored|tested|studied|hypothesi[sz]ed|asked)"
    r"|remains? (?:unclear|"
    r"unknown|controversial|to be)|(?:is|are|was|were) (?:unknown|unclear|examined|investigated|"
    r"evaluated|assessed|studied|discussed)|inconsistent)\b",
    re.IGNORECASE,
)
# `there is no evidence that`, `did not show that`, `it is unlikely that`: what follows is denied.
UNPROVEN = re.compile(
    r"\b(?:(?:no|little|insufficient|limited|without|lack of|any) (?:\w+ ){0,2}?(?:evidence|proof"
    r"|indication|support|data|signs?)(?: \w+){0,3}? (?:that|of|for)"
    r"|(?:not|never|fail(?:s|ed)? to|unable to|cannot) (?:\w+ ){0,2}?(?:show|find|demonstrate"
    r"|detect|support|observe|confirm|indicate|suggest|prove|reveal|establish|provide|imply|mean)\w*"
    r"(?: (?:any|an?|the|evidence|significant|clear))*"
    r"(?: (?:that|of|for|association|effect|between|hypothesis|to)\b)"
    r"|unlikely that|not (?:true|clear) that|(?:refute|contradict|disprove|reject|argues? against"
    r"|rule out|ruled out|excluded?)(?:s|d|ed)?\b[^,;]*? that)\b",
    re.IGNORECASE,
)
# `an attempt to inhibit X`, `in order to reduce Y`, `strategies to prevent Z`: not said to happen.
PURPOSE = re.compile(
    r"\b(?:attempt(?:s|ed|ing)?|intended|intends?|designed|planned|sought|seek(?:s|ing)?|order"
    r"|needed|required|necessary|strateg(?:y|ies)|approach(?:es)?|efforts?|trials?|goal|aim|purpose"
    r"|try|tried|tries|hope[ds]?|opportunit(?:y|ies)|how|means|ways?|tools?|methods?|used|desire"
    r"|as if|so as) (?:\w+ )?to (?:\w+ly )?$"
    r"|\b(?:goal|aim|purpose|strateg(?:y|ies)|challenges?) (?:of|for) $",
    re.IGNORECASE,
)
SUFFICIENT = re.compile(r"\bnot (?:\w+ )?(?:sufficient|enough|required|necessary|essential) ", re.I)
CONDITION = re.compile(
    r"(?:^|[,;] ?)(?:if|unless|should|were|provided that|whether or not)\b[^,;]*$", re.I
)
EXAMINED = re.compile(
    r"\b(?:is|are|was|were|has been|have been) (?:then |also )?(?:examined|investigated|evaluated|"
    r"assessed|studied|discussed|analy[sz]ed|tested|explored|unclear|unknown|controversial)\b",
    re.IGNORECASE,
)
INDIRECT = re.compile(
    r"\b(?:determin|assess|test|investigat|ask|examin|explor|evaluat|clarif|stud|know|unclear)\w*\s+"
    r"(?:if|whether)\b",
    re.IGNORECASE,
)
# A mention after these is the setting of a statement, not its argument.
SETTING = re.compile(
    r"\b(?:in|within|among|from|under|during|after|before|across|throughout|at|on|versus|vs\.?"
    r"|compared (?:with|to)|than(?: in| in the)?|following|inside|outside|between|over|despite"
    r"|unlike|upon|via|through|as|using|against|for)"
    r"(?: (?:the|a|an|all|both|some|most|many|human|primary|advanced|patients with|patient with"
    r"|patients|women|men|cells|several|mouse|certain|various|different|other|treated|low|high"
    r"|normal|adjacent|matched|metastatic|aggressive|pretreated|early|severe|chronic|acute))*\s*$",
    re.IGNORECASE,
)
EXCLUDED = re.compile(
    r"\b(?:independent(?:ly)? (?:of|from)|irrespective of|regardless of|adjust(?:ed|ing) for"
    r"|unlike|other than|except(?: for)?|instead of|rather than|than|versus|vs\.?"
    r"|compared (?:to|with)"
    r"|contrary to|contrasts with|contradicts|opposite to|correct(?:ed|ing) for|controlling for)"
    r"(?: \w+){0,3}\s*$",
    re.IGNORECASE,
)
COORDINATION = re.compile(
    r"^[\s,;/&+-]*(?:(?:and|or|plus|as well as|but also|but not|and/or|but|with"
    r"|with or without)\b)?"
    r"[\s,]*(?:(?:the|a|an|of|both|by|with|its|their|to|also|most) )*"
    r"(?:[\w'+-]+ ){0,4}?(?:[\w'-]+-)?\s*$",
    re.IGNORECASE,
)
WORDS = re.compile(r"[A-Za-z][\w'+-]*")

# Words of judgment: `better recurrence` means less of it.
JUDGMENT = words(
    """
    better best improved favorable favourable superior good worse worst poor poorer unfavorable
    unfavourable adverse inferior dismal bad
    """
)
# Outcomes and factors of which more is worse.
HARMS = frozenset(
    {
        "recurrence",
        "progression",
        "mortality",
        "cancer-specific mortality",
        "tumor stage",
        "tumor grade",
        "lymph node metastasis",
        "distant metastasis",
        "lymphovascular invasion",
        "bladder cancer incidence",
    }
)
# `CXCL13-producing Tfh cells`, `iCAF-derived FGF2`, `PD-L1+ cells`: the first only qualifies.
QUALIFIER = re.compile(
    r"^(?:\+|⁺|(?:\((?:\+|-)\))|-(?:\w+-)?(?:\w+(?:ed|ing|ive|ent)|rich|poor|like|low|high|free|null|"
    r"wild-type|intact)\b)",
    re.IGNORECASE,
)
# A disease before these names the patients, not the disease.
CARRIER = re.compile(
    r"^\s+(?:patients?|cases?|specimens?|samples?|prediction|analys[ie]s|models?)\b"
)
# An entity that compensates for the loss of another acts like it.
MAKES_UP = frozenset({"compensates_for"})
