"""Keys that identify equal names, and guards against merging similar but different names."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from kg.lexicon.terms import GREEK as LETTERS
from kg.types import EntityType

GREEK = {**LETTERS, "ς": "sigma", "υ": "upsilon"}
_GREEK_NAMES = frozenset(GREEK.values())
_GREEK_TABLE = str.maketrans({letter: f" {name} " for letter, name in GREEK.items()})
_DASHES = str.maketrans(dict.fromkeys("‐‑‒–—−⁃﹣－", "-"))
_ROMAN = {
    "ii": "2", "iii": "3", "iv": "4", "vi": "6", "vii": "7", "viii": "8", "ix": "9", "xi": "11",
    "xii": "12", "xiii": "13",
}  # fmt: skip

#: Types often given to the same entity; names of a group may merge.
_GROUPS = (
    frozenset({EntityType.GENE, EntityType.PROTEIN}),
    frozenset({EntityType.PATHWAY, EntityType.BIOLOGICAL_PROCESS}),
    frozenset({EntityType.TREATMENT, EntityType.CHEMICAL}),
    frozenset({EntityType.CLINICAL_ENDPOINT, EntityType.CLINICAL_FACTOR}),
    frozenset({EntityType.TISSUE_REGION, EntityType.IMAGING_FEATURE}),
)
_CHEMICAL = frozenset({EntityType.CHEMICAL, EntityType.TREATMENT})
_SYMBOLIC = frozenset(
    {EntityType.GENE, EntityType.PROTEIN, EntityType.MUTATION, EntityType.CELL_LINE}
)

#: Words that turn a name into its opposite or its sibling. Names must agree on them.
_POLARITY_WORDS = """
positive negative pos neg no not non without with absent absence presence lack loss gain high
low higher lower increased decreased increase decrease up down upregulated downregulated
upregulation downregulation overexpression underexpression activation inhibition activator
inhibitor inhibitors agonist agonists antagonist antagonists stimulator suppressor receptor
receptors ligand ligands transporter precursor pseudogene antisense anti pro pre post acute
chronic benign malignant primary secondary metastatic early late mild severe left right upper
inner outer anterior posterior dorsal ventral lateral medial proximal distal internal external
superior inferior central peripheral male female maternal paternal adult child juvenile infant
fetal neonatal congenital acquired hereditary sporadic dominant recessive active inactive open
closed invasive noninvasive responder nonresponder sensitive resistant sensitivity resistance
short long large small major minor light heavy soluble insoluble type deficiency excess like
therapy disease cancer carcinoma sarcoma adenoma lymphoma leukemia cell cells tissue gene
protein kinase phosphatase synthase one two three four five single double triple dual multi plus
minus anterograde retrograde biosynthetic catabolic metabolic binding activity complex
regulation atrial ventricular typical atypical canonical noncanonical ferric ferrous synthetase
oxidase reductase hydrolase ligase transferase dehydrogenase
"""
_POLARITY = frozenset(_POLARITY_WORDS.split())
_PREFIXES = (
    "hyper", "hypo", "anti", "non", "macro", "micro", "intra", "inter", "extra", "pre", "post",
    "supra", "infra", "pan", "poly", "mono", "di", "tri", "tetra", "penta", "hexa", "endo", "exo",
    "homo", "hetero", "neo", "de", "un", "in", "im", "dys", "iso", "nor", "pro", "sub", "super",
)  # fmt: skip
_TOKEN = re.compile(r"[a-z]+|\d+|[^\W\d_]+")


@lru_cache(maxsize=400_000)
def clean_name(name: str) -> str:
    """Normalize a name: Unicode NFC, no control or bidirectional marks, single spaces."""
    if name.isascii() and name.isprintable():
        return " ".join(name.split())
    name = unicodedata.normalize("NFC", name)
    kept = "".join(
        " " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c
        for c in name
        if unicodedata.category(c) not in ("Cf", "Co", "Cs")
    )
    return " ".join(kept.split())


def are_compatible(first: EntityType, second: EntityType) -> bool:
    """Check whether an entity can have both types."""
    if first == second or EntityType.OTHER in (first, second):
        return True
    return any(first in group and second in group for group in _GROUPS)


_BRITISH = (
    ("tumour", "tumor"), ("leukaem", "leukem"), ("anaem", "anem"), ("haem", "hem"),
    ("oedema", "edema"), ("oesoph", "esoph"), ("oestr", "estr"), ("paed", "ped"),
    ("sulph", "sulf"), ("aluminium", "aluminum"), ("caesium", "cesium"), ("colour", "color"),
    ("fibre", "fiber"), ("grey", "gray"), ("ischaem", "ischem"), ("faec", "fec"),
    ("signalling", "signaling"), ("labelling", "labeling"),
)  # fmt: skip
_ORDINAL = re.compile(r"\b(type|stage|grade|class|group)\s+(i{1,3}|iv|v|vi{0,3}|ix|x)\b", re.I)
_NUMERALS = {
    "i": "1", "ii": "2", "iii": "3", "iv": "4", "v": "5", "vi": "6", "vii": "7", "viii": "8",
    "ix": "9", "x": "10",
}  # fmt: skip
#: Suffixes that say what kind of thing a chemical is, not which.
_KIND_WORDS = {"drug": "agent", "atom": ""}


@lru_cache(maxsize=400_000)
def lexical_key(name: str, type_: EntityType = EntityType.OTHER) -> str:
    """Normalize case, punctuation, Greek letters, plurals, inversion and British spelling.

    Digits separated in the name stay separate ("1,2-" is not "12-"), and a trailing plus or minus
    is kept ("CD8+" is not "CD8"). "Carcinoma, Basal Cell" becomes "basal cell carcinoma" and "grade
    III" becomes "grade 3"; for chemicals, "L-arginine" becomes "arginine" and "-ine" becomes "-in".
    """
    text = unicodedata.normalize("NFKC", name).translate(_DASHES)
    symbolic = type_ in _SYMBOLIC
    if not symbolic:
        text = _ORDINAL.sub(lambda m: f"{m[1]} {_NUMERALS[m[2].casefold()]}", text)
        text = _uninverted(text)
        if type_ == EntityType.DISEASE:
            text = re.sub(r"\btype (?=\d)", "", text, flags=re.IGNORECASE)
    if type_ in _CHEMICAL:
        text = re.sub(r"(?<![A-Za-z])L-(?=[A-Za-z]{4})", "", text)
    text = re.sub(r"\(([+-]|\+/-)\)", lambda m: _sign(m[1]), text)
    text = re.sub(r"(?<=\w)(\+/-|[+-])(?=\s|$|,|\))", lambda m: _sign(m[1]), text)
    tokens: list[str] = []
    for word in re.findall(r"[^\W_]+", text):
        tokens += _tokens(word, symbolic)
    if symbolic and len(tokens) > 1 and tokens[-1] in ("gene", "protein"):
        tokens.pop()
    if type_ in _CHEMICAL and tokens:
        last = tokens[-1]
        if len(tokens) > 1:
            last = _KIND_WORDS.get(last, last)
        if last.endswith("ine") and len(last) > 6:
            last = last[:-1]
        tokens[-1:] = [last] if last else []
    tokens = [t for t in tokens if t != "the"] or tokens
    key = ""
    for token in tokens:
        if key and key[-1].isdigit() and token[0].isdigit():
            key += "."
        key += token
    return key


@lru_cache(maxsize=100_000)
def _tokens(word: str, symbolic: bool) -> list[str]:
    parts = word.casefold().translate(_GREEK_TABLE).split()
    if symbolic or _is_code(word):
        return parts
    return [_american(_singular(part)) for part in parts]


def _uninverted(text: str) -> str:
    """Undo the inversion in "Carcinoma, Basal Cell"; "Ataxia, Type 2" is not inverted."""
    if text.count(", ") != 1 or "(" in text:
        return text
    head, qualifier = text.split(", ")
    if any(c.isdigit() for c in qualifier) or qualifier.casefold().endswith(" type"):
        return text
    return f"{qualifier} {head}"


def _american(word: str) -> str:
    for british, american in _BRITISH:
        if british in word:
            word = word.replace(british, american)
    return word


def _sign(mark: str) -> str:
    return {"+": " pos ", "-": " neg ", "+/-": " posneg "}[mark]


def _is_code(word: str) -> bool:
    """Check whether a word is a symbol, with a digit or capitals (TILs, KRAS, mTOR)."""
    if any(c.isdigit() for c in word):
        return True
    return sum(c.isupper() for c in word) >= 2 and not word.endswith("s")


def _singular(word: str) -> str:
    if len(word) <= 3 or not word.isalpha() or not word.isascii():
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


Signature = tuple[tuple[str, ...], ...]


@lru_cache(maxsize=400_000)
def guard_signature(name: str) -> Signature:
    """Extract the features that two names must share to be merged.

    These are digits, Greek letters, single letters, polarity words, and codes (tokens with digits
    or in capitals).
    """
    text = unicodedata.normalize("NFKC", name).translate(_DASHES)
    text = re.sub(r"\(([+-])\)", lambda m: _sign(m[1]), text)
    text = re.sub(r"(?<=\w)([+-])(?=\s|$|,|\))", lambda m: _sign(m[1]), text)
    shouting = text.isupper() and len(text.split()) > 1
    digits: list[str] = []
    greek: list[str] = []
    singles: list[str] = []
    polarity: list[str] = []
    codes: list[str] = []
    for word in re.findall(r"[^\W_]+", text):
        lowered = word.casefold()
        if _is_code(word) and not shouting:
            codes.append(lowered.translate(_GREEK_TABLE).replace(" ", ""))
        for token in _TOKEN.findall(lowered.translate(_GREEK_TABLE)):
            if token.isdecimal():
                digits.append(str(int(token)))
            elif token in _ROMAN:
                digits.append(_ROMAN[token])
            elif token in _GREEK_NAMES:
                greek.append(token)
            elif len(token) == 1:
                singles.append(token)
            elif token in _POLARITY:
                polarity.append(_singular(token))
            else:
                polarity.extend(
                    p for p in _PREFIXES if token.startswith(p) and len(token) > len(p) + 3
                )
    # Digits keep their order: keratin associated protein 1-3 is not 3-1.
    return (tuple(digits), *(tuple(sorted(p)) for p in (greek, singles, polarity, codes)))


#: Words that only one of two names may have without naming something narrower.
_NEUTRAL_WORDS = """
the a an of and in on for to by with syndrome disease disorder condition human process structure
system level state pathway signaling signalling
"""
_NEUTRAL = frozenset(_NEUTRAL_WORDS.split())


@lru_cache(maxsize=400_000)
def _content_words(name: str) -> frozenset[str]:
    text = unicodedata.normalize("NFKC", name).casefold().translate(_GREEK_TABLE)
    return frozenset(_singular(w) for w in re.findall(r"[^\W\d_]+", text)) - _NEUTRAL


def guard_allows(first: str, second: str, first_type: EntityType, second_type: EntityType) -> bool:
    """Check whether similarity alone may merge these names.

    The names must have compatible types and the same signature, and neither may extend the
    other by a word, which narrows the meaning ("Castleman disease", "multicentric Castleman
    disease"). Gene symbols are never merged by similarity. Chemicals and treatments are
    merged only if they have the same words, because a single letter can denote a different
    substance, and vectors barely reflect it.
    """
    if not are_compatible(first_type, second_type):
        return False
    if guard_signature(first) != guard_signature(second):
        return False
    types = {first_type, second_type}
    if _SYMBOLIC & types and not (len(first.split()) > 1 and len(second.split()) > 1):
        return False
    words, others = _content_words(first), _content_words(second)
    if _CHEMICAL & types:
        return words == others and len(first.split()) > 1 and len(second.split()) > 1
    return words == others or bool(words - others and others - words)
