"""Noun phrases around mentions, used to decide whether a mention is the argument of a verb.

`bladder tumor growth` is not about the tumor, `response to PD-L1 blockade` is not about
the blockade, and `FGF-binding protein` is not about FGF. A mention represents its phrase
only if the words around it are transparent: amounts, activity and states of the thing
itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kg.extract.base import Mention
from kg.extract.syntax import Trigger
from kg.lexicon.wordlist import words
from kg.types import EntityType

# Nouns after a mention that denote its amount, state or use.
_STATE_AFTER = words(
    """
    expression level levels mrna mrnas protein proteins gene genes transcript transcripts
    signaling signalling pathway pathways axis activity activities activation overexpression
    upregulation mutation mutations alteration alterations amplification amplifications
    polymorphism polymorphisms variant variants snp snps genotype genotypes allele alleles
    haplotype haplotypes locus staining positivity concentration concentrations production
    secretion release phosphorylation status knockdown knockout silencing depletion deficiency
    loss deletion deletions downregulation stimulation treatment treatments therapy administration
    exposure intake use supplementation monotherapy infusion injection injections isoform isoforms
    infiltration infiltrates density densities number numbers count counts frequency abundance
    proportion percentage score scores presence content phenotype
    fusion fusions gain cells cell ablation inactivation haploinsufficiency withdrawal
    """
)
_REMEDY_AFTER = words(
    "antibodies antibody inhibitors inhibitor agents agent drugs drug regimen regimens blockade"
)
# The same after a disease: what happens to it, and who has it.
_DISEASE_AFTER = words(
    """
    patients patient cases risk incidence development progression onset pathogenesis
    susceptibility severity growth formation occurrence symptoms recurrence cohort cohorts
    """
)
_PLACES = words(
    "tissue tissues cell cells sample samples specimen specimens line lines tumors tumours biopsies"
)
# Nouns that govern a mention by `of` and are still about it.
_STATE_BEFORE = words(
    """
    expression level levels overexpression upregulation downregulation loss lack absence presence
    amount amounts number numbers density frequency proportion percentage abundance concentration
    concentrations activity activation inactivation inhibition knockdown silencing depletion
    deletion deletions deficiency mutation mutations alteration alterations amplification
    polymorphism polymorphisms variant variants variation production secretion release synthesis
    phosphorylation stimulation administration addition use treatment exposure infiltration
    accumulation recruitment induction increase decrease reduction inhibition suppression blockade
    risk incidence development progression onset growth pathogenesis severity occurrence formation
    prevalence symptoms patients cases majority most all half some both types forms degree extent
    rate rates dose doses transcription gain enrichment content ingestion intake ablation prevention
    generation function functions signs odds history degradation repression up-regulation
    down-regulation
    """
)
# `HeLa cells secrete X` is about HeLa.
_OF_LINE = re.compile(r" (?:cells?|cell lines?)\b")
_CELLS = frozenset({EntityType.CELL_TYPE, EntityType.CELL_LINE})
_OF_WORDS = words("of in with to for by")
# `exposure to X`, `treatment with X`, `increase in X`, `patients with X`.
_GOVERNS_OTHER = {
    "to": words("exposure"),
    "with": words("treatment patients therapy cases individuals stimulation treated infection"),
    "in": words(
        "increase decrease reduction rise decline mutation mutations polymorphisms variants"
    ),
    "for": words("risk"),
    "by": words("infiltration secretion production expression"),
}
_DETERMINERS = words(
    """
    the a an this these those both all some most many several its their his her our each any
    certain various different other such two three four five novel new known common major key
    """
)
_PREPOSITIONS = words(
    """
    of in with to for by from on at into onto via through during after before among between within
    under over without against upon despite across per as than like following including amid
    toward towards versus vs regarding concerning throughout along around because due owing
    """
)
_AUXILIARIES = words(
    """
    is are was were be been being has have had do does did can could may might will would should
    must cannot appears appear seems seem remains remained
    """
)
_RAISING = words(
    """
    found shown known reported able thought demonstrated likely observed believed suggested
    considered proven sufficient described hypothesized postulated unable failed fails fail tends
    tend tended ability confirmed expected proposed unlikely predicted appears appear seems seem
    identified
    """
)
_ADVERBS = words(
    """
    also not then thus thereby further both either neither no never only even still again often
    alone moreover however therefore therefor mainly and/or more less much most well significantly
    """
)
_COMPLEMENTS = words(
    """
    an a the important independent strong key significant diagnostic prognostic potential major
    novel useful good promising sensitive specific reliable critical essential direct central main
    """
)
_COMBINED = re.compile(
    r"\b(?:combin(?:ation|ations|ed|ing)|concomitant|co-?(?:administration|treatment|administered))\b",
    re.IGNORECASE,
)
_NEW_SUBJECT = words("the a an this these those our we it they its their")
_RELATIVES = words("which that who whose where when")
_AFTERWARDS = words(
    """
    we it they if while whereas although though independent irrespective regardless better worse
    rather together sooner later when where once until unless because respectively ns
    """
)
_CONJUNCTIONS = words("and or but nor plus as")
# Finite verbs of report and description: a subject does not reach across them.
_VERBS = words(
    """
    suggest suggests suggested show shows showed shown indicate indicates indicated reveal reveals
    revealed demonstrate demonstrates demonstrated find finds found report reports reported
    conclude concludes observe observed confirm confirms confirmed propose proposed provide
    provides provided undergo undergoes underwent receive received identify identified establish
    establishes exert exerts play plays played lead leads led cause causes caused induce induces
    induced increase increases increased decrease decreases decreased reduce reduces reduced using
    used compared include includes included represent represents allow allows become becomes occur
    occurs occurred need needs use uses exhibit exhibits exhibited develop develops developed
    result results resulted require requires required contain contains contained possess possesses
    associated related
    """
)
_NOUNS_TOO = words("increase decrease result results use need")
_TOKEN = re.compile(r"[A-Za-z][\w'/-]*|\d[\w.,-]*|[,;:–—-]|[^\w\s]")
_PARENS = re.compile(r"\s*(?:\([^()]*\)|\[[^\[\]]*\])")
_AFTER = re.compile(r"(?:'s?|’s?)?\s*(?:\([^()]*\)\s*)?([A-Za-z][\w-]*)")
# `VEGF-induced migration`, `growth factor- (GF-) induced migration`: said of the migration.
_CUT = re.compile(r"(?:\s?\([^()]*\))?[-–/](?=\w|\s(?:and|or)\b|\s?\([^()]*-\))")
_GLUED = re.compile(r"(?:[\w)][-–]|\banti-?|\bnon-?|\bpro-?|\bpre-?|\bpost-?)$", re.IGNORECASE)
_PHOSPHO = re.compile(r"\b(?:phospho|p|over|hyper|wild-type|mutant|soluble|serum)[-–]$", re.I)


def is_head(sentence: str, mention: Mention, stop: int, *, place: bool = False) -> bool:
    """Check whether the mention is the head of its noun phrase, given the words up to `stop`.

    Parameters
    ----------
    stop : latest possible end of the phrase: the start of the verb, or the end of the
        sentence
    place : whether the mention is a location, as in `expressed in bladder cancer tissue`
    """
    at = mention.end
    rest = sentence[at:stop]
    if _CUT.match(rest):
        return False
    while match := _AFTER.match(sentence[at:stop]):
        word = match.group(1).lower()
        if _ends_phrase(word):
            return True
        known = word in _STATE_AFTER or (
            mention.type == EntityType.TREATMENT and word in _REMEDY_AFTER
        )
        if mention.type == EntityType.DISEASE:
            known = word in _DISEASE_AFTER or (place and word in _PLACES)
        elif mention.type == EntityType.TISSUE_REGION:
            known = word in {"tissue", "tissues"}
        elif mention.type == EntityType.CLINICAL_ENDPOINT:
            known = word in {"rate", "rates", "time", "outcome", "outcomes", "status", "in"}
        elif mention.type not in _CELLS and word in {"cells", "cell"}:
            known = place
        if not known:
            return False
        at += match.end()
        if _CUT.match(sentence[at:stop]):
            return False
    return True


def _ends_phrase(word: str) -> bool:
    return (
        word in _PREPOSITIONS
        or word in _AUXILIARIES
        or word in _ADVERBS
        or word in _RELATIVES
        or word in _CONJUNCTIONS
        or word in _VERBS
        or word in _DETERMINERS
        or word in _AFTERWARDS
        or word.endswith("ly")
    )


def is_governed(sentence: str, mention: Mention, floor: int) -> bool:
    """Check whether another noun governs the mention, so that the phrase is about that noun.

    In `response to X` and `targets of X`, X is governed; in `expression of X` and
    `patients with X`, it is not.
    """
    before = sentence[floor : mention.start]
    if before and _GLUED.search(before) and not _PHOSPHO.search(before):
        return True
    if _COMBINED.search(before):
        return True
    tokens = _TOKEN.findall(_PARENS.sub(" ", before).lower())
    while tokens:
        word = tokens.pop()
        if word in _PREPOSITIONS:
            if word not in _OF_WORDS or not tokens:
                return bool(tokens)
            noun = tokens.pop()
            allowed = _STATE_BEFORE if word == "of" else _GOVERNS_OTHER[word]
            if noun not in allowed and noun != "%":
                return not _ends_phrase(noun)
        elif word in _RELATIVES or word in _AUXILIARIES or word in {",", ";", ":"}:
            return False
    return False


def object_follows(sentence: str, trigger: Trigger, mention: Mention, floor: int) -> bool:
    """Check whether the mention is the trigger's object, directly or by coordination.

    Parameters
    ----------
    floor : offset of the end of the trigger, or of the preceding coordinated mention

    Returns
    -------
    False if the words in between contain another verb, a conjunction that starts a clause, or a
    preposition that governs something else, or if there are more than nine of them.
    """
    gap = sentence[floor : mention.start]
    if gap and _GLUED.search(gap) and not _PHOSPHO.search(gap):
        return False
    tokens = _TOKEN.findall(_PARENS.sub(" ", gap).lower())
    if floor == trigger.end and trigger.passive:
        while tokens and (tokens[0].endswith("ly") or tokens[0] == "by"):
            tokens.pop(0)
        if tokens and tokens[0].endswith("ing"):
            return False
    if len(tokens) > 9:
        return False
    if trigger.text.startswith(("increas", "decreas", "ris", "declin", "drop")):
        tokens = tokens[1:] if tokens[:1] in (["with"], ["in"]) else tokens
    first = floor == trigger.end
    before = ""
    for word in tokens:
        if word in _PREPOSITIONS:
            allowed = _STATE_BEFORE if word == "of" else _GOVERNS_OTHER.get(word, frozenset())
            if before not in allowed and not (word == "of" and before == "%"):
                return False
        elif (
            word in _AUXILIARIES
            or word in _RELATIVES
            or word in {";", ":", "but", "nor"}
            or (word in _VERBS and not word.endswith("ed") and word not in _NOUNS_TOO)
            or (
                first
                and (before == "," or before in _CONJUNCTIONS)
                and word.endswith(("ed", "ing"))
            )
        ):
            return False
        before = word
    return True


MENTION = "\x01"
"""Placeholder for a mention in a sequence of words."""
_FAILING = frozenset({"fails", "failed", "fail"})


def subject_reaches(
    sentence: str, mentions: Sequence[Mention], head: Mention, stop: int, *, adjacent: bool = False
) -> bool:
    """Check whether `head` is the subject of the verb at `stop`: only modifiers separate them.

    Parameters
    ----------
    mentions : all entities in the sentence; a mention in between counts as a single word
    stop : offset of the verb's first character
    adjacent : require the verb to follow immediately, as after another verb in the same
        clause, because the mention is otherwise that verb's object

    Returns
    -------
    False also if more than 24 words separate the two, too many for these rules to decide.
    """
    cells = _OF_LINE.match(sentence, head.end) if head.type == EntityType.CELL_LINE else None
    tokens = _words_between(sentence, mentions, cells.end() if cells else head.end, stop)
    if len(tokens) > 24:
        return False
    inside, predicate, joined = False, False, False
    before = ""
    for number, word in enumerate(tokens):
        last = number == len(tokens) - 1
        filler = word in _ADVERBS or word.endswith("ly")
        if predicate:
            if not (filler or _goes_on(word, before)):
                return False
        elif word in _AUXILIARIES or word in _RELATIVES or word in _FAILING:
            predicate = True
        elif (
            word in {";", ":"}
            or word in _VERBS
            or (word == "to" and last)
            or (adjacent and not filler)
        ):
            return False
        elif word in _PREPOSITIONS:
            inside = True
        elif before == "," and (
            word in _NEW_SUBJECT or (word == "and" and "and" in tokens[:number])
        ):
            return False
        elif word in _CONJUNCTIONS or word == ",":
            joined, inside = True, inside and word != ","
        elif word == MENTION:
            if not inside and not joined:
                return False
        elif not (filler or word in _DETERMINERS or inside or (joined and not last)):
            return False
        before = word
    return True


def _words_between(sentence: str, mentions: Sequence[Mention], at: int, stop: int) -> list[str]:
    """List the words between a mention's end and `stop`, counting other mentions as one word.

    The rest of the mention's own phrase (`X expression`, `X-positive disease`) is skipped.
    """
    while match := _AFTER.match(sentence[at:stop]):
        word = match.group(1).lower()
        if _ends_phrase(word) or word in _PLACES or word not in _STATE_AFTER | _DISEASE_AFTER:
            break
        at += match.end()
    gap = list(sentence[at:stop])
    for mention in mentions:
        for place in range(max(mention.start, at), min(mention.end, stop)):
            gap[place - at] = MENTION
    text = re.sub(f"{MENTION}+", f" {MENTION} ", _PARENS.sub(" ", "".join(gap)))
    return re.findall(rf"{MENTION}|[A-Za-z][\w'/-]*|\d[\w.,%-]*|[,;:]", text.lower())


def _goes_on(word: str, before: str) -> bool:
    """Check whether a word continues a predicate: `was found to`, `is an independent`."""
    raised = word in _RAISING or (word == "to" and before in _RAISING)
    return raised or word in _AUXILIARIES or word in _COMPLEMENTS
