"""Spelling variants that tokenization does not unify, and recognition of symbols."""

from __future__ import annotations

import re

from kg.lexicon.wordlist import words

GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta",
    "η": "eta", "θ": "theta", "ι": "iota", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu",
    "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "χ": "chi",
    "ψ": "psi", "ω": "omega",
}  # fmt: skip

_SPELLINGS = (
    ("tumour", "tumor"),
    ("signalling", "signaling"),
    ("haem", "hem"),
    ("oestr", "estr"),
    ("oedema", "edema"),
    ("centre", "center"),
    ("fibre", "fiber"),
    ("leukaemia", "leukemia"),
    ("anaemia", "anemia"),
    ("ischaem", "ischem"),
    ("oesoph", "esoph"),
    ("paediatric", "pediatric"),
    ("labelling", "labeling"),
    ("colour", "color"),
    ("localis", "localiz"),
)


def variants(text: str, symbol: bool, *, plural: bool = True) -> set[str]:
    """List spellings that tokens do not unify: plurals, British and American, joined Greek.

    `plural=False` omits the plural of a symbol: `SAPKs` are a family, not the gene SAPK.
    """
    forms = {text}
    lowered = text.lower()
    for british, american in _SPELLINGS:
        if british in lowered:
            forms |= {re.sub(british, american, form, flags=re.I) for form in list(forms)}
        elif american in lowered:
            forms |= {re.sub(american, british, form, flags=re.I) for form in list(forms)}
    for form in list(forms):
        if "-" in form and (symbol or len(form) <= 14):
            forms.add(form.replace("-", ""))
        for name in GREEK.values():
            # The bare test first: it is fifty times as fast, and most names have no Greek.
            if name in form and re.search(rf"(?<![A-Za-z]){name}(?![A-Za-z])", form):
                forms.add(re.sub(rf"[- ]?{name}(?![A-Za-z])", name, form))
                if symbol and name in {"alpha", "beta", "gamma"}:
                    forms.add(re.sub(rf"{name}(?![A-Za-z])", name[0], form))
                    forms.add(re.sub(rf"[- ]?{name}(?![A-Za-z])", name[0], form))
    if symbol and plural and len(text) >= 3 and text[-1].isupper():
        forms.add(text + "s")
    if not symbol:
        for form in list(forms):
            last = form.rsplit(" ", 1)[-1]
            if len(last) > 3 and last.isalpha():
                if last.endswith("y") and last[-2] not in "aeiou":
                    forms.add(form[:-1] + "ies")
                elif last.endswith(("ss", "x", "ch", "sh")):
                    forms.add(form + "es")
                elif last.endswith("sis"):
                    forms.add(form[:-2] + "es")
                elif not last.endswith("s"):
                    forms.add(form + "s")
    return forms


# Words that a capital at the start of a sentence must not turn into gene symbols.
_COMMON = words(
    """
    the and are can had has his her its our was were will not but for from with this that all
    any one two may met set cat kit rest fat old new age aid air arc art bad bag bar bed bid bit
    box by cap car cut day did due end far few fix gap get got hot how ice ill kid lap led let
    lie lot low mad man map mar men mid mix net nod non now off oil out own pan pay pen per pet
    pig put ran rat raw red rim run sat saw say sea see she sir sit six son spa sun tag tan tap
    ten tip top toy try use via war way who why win yes yet you mice here there then than they
    them such some more most much many only also both each even ever find form full gain gene
    give gold half hand hard have help high hope host hour idea into just keep kind last late
    lead left less life like line link live long look loss made main make male mass mean mild
    mind mode near need next none note once open over part past plan poor pure rare rate real
    rise risk role same seen self side sign site size skin slow soft soon stem step stop sure
    take task test text time trap tree true tube turn type unit upon used very view wide work
    year impact large light clock flower dose pace cell cells
    """
)


# Everyday and scientific words that are also gene symbols or term names.
HAZARDS = words(
    """
    antibodies antibody codon codons entropy noise neoplasms
    and are can has had not was were set cat act age aid air all arc art bad bag bar bed bit cap
    car cell cells cope cox day dna rna ros end eye fat fix flow for gap gas hot how ice ill
    impact its kit large last light link mad map mass max met mice mid min mom nod of off old
    one out pan pen pet pig plan post rat red rest rim sea she side sit six small son spr sun
    tag tan ten the top trap two type use via wars who wish yes hr ci or iii ph mri pcr cns ct
    wt ko vs ca mg ml kg male female human patients group control protein gene time role study
    analysis disease syndrome death pain risk family sex women men adult child children infant
    dose drug therapy treatment affect attention animals association base blood body brain
    damage effect face fasting food growth hand head health history hospital hospitals house
    image individuality infection injury language life lung memory method methods model models
    mortality observation parents persons phenotype population power practice pressure
    publications records research science seizures skin sleep surgery survival temperature
    tissue touch ultrasound volunteers water weight work exons introns alleles genotype genome
    genes mutation lead gold iron fire reading running exercise emotions solutions attitude
    knowledge goals cart nih usa fda sds page nacl edta dmso elisa roc auc bmi anova spss
    """
)


def same_symbol(given: str, expected: str) -> bool:
    """Check whether a surface form matches a symbol: `CAT` is not `cat`, but `Akt` matches `AKT`.

    Case may differ if the surface form still looks like a symbol: it has two capitals, an
    initial capital (unless that makes a common word), or lower-case letters with a digit.
    """
    if given == expected:
        return True
    if len(expected) > 2 and expected[-1] == "s" and expected[:-1].isupper():
        return False  # a plural must be written as one: TILs, not TILS
    if len(expected) <= 4 and expected[0].islower() and expected[1:].isupper():
        return expected == "mTOR" and given == "MTOR"  # pCR is not PCR
    if expected.islower() and expected.isalpha() and len(expected) > 4:
        return True  # a name in small letters: insulin, Insulin
    if given.islower():
        return len(given) >= 4 and any(map(str.isdigit, given)) and given[0].isalpha()
    capitals = sum(map(str.isupper, given))
    if capitals >= 2:
        return True
    return len(given) >= 3 and given[0].isupper() and given.lower() not in _COMMON


def squeeze(text: str) -> str:
    """Keep only letters and digits."""
    return "".join(char for char in text if char.isalnum())
