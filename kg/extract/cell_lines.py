"""Recognition of cell lines by context, as in `SW480 or SNU-C5 cells`, `the cell line Ishikawa`.

No list of names is complete, and a name by itself (`H446`, `PA-1`) is ambiguous. A name
counts as a cell line where the text identifies it as such, and wherever it is repeated
later in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kg.lexicon.wordlist import words

_NAME = (
    r"(?<![\w/.+-])[A-Z0-9][A-Za-z0-9]*(?:[-/.](?![a-z]{3})[A-Za-z0-9]+){0,3}"
    r"(?: 264\.7| 3T3)?(?![\w+])"
)
_AND = (
    r"(?:\s?[,/]\s?(?:and |or |but not )?|,? (?:and|or|and/or|versus|vs\.?|but not) )"
    r"(?:in |the |human )?"
)
_LIST = rf"{_NAME}(?:\s?\([^()]{{0,40}}\))?(?:{_AND}{_NAME}(?:\s?\([^()]{{0,40}}\))?){{0,9}}"
# Words between the name and `cells`: the origin of the cells and their treatment.
_MODIFIER = (
    r"(?:human|murine|mouse|rat|cancer|tumou?r|bladder|breast|lung|colon|liver|kidney|prostate|ovary"
    r"|skin|brain|crypt|stem|cell|blood|ductal|squamous|cultured|transfected|parental|resistant"
    r"|sensitive|wild-type|mutant|control|[a-z]{2,}omas?|[a-z]{2,}[ae]mia|[a-z]*(?:blasts?|clasts?|cytes?)"
    r"|(?:[a-z]+-)?[a-z]{3,}(?:al|ic|ar|ary|ous|oid)|[a-z-]+-(?:like|type|derived|resistant|positive"
    r"|negative|expressing|transfected|deficient|treated))"
)
_CELLS = (
    r"(?:cells?|(?:cell[ -])?(?:sub)?lines?|sublines?|transfectants?|xenografts?|monolayers?"
    r"|spheroids?|(?:gonado|lacto|cortico|somato)trophs?|[a-z]*(?:fibro|osteo|myo|lympho)blasts?|keratinocytes?"
    r"|hepatocytes?|adipocytes?|myotubes|macrophages)"
)
_BEFORE = re.compile(
    rf"(?P<names>{_LIST}),?(?:-derived)?(?: {_MODIFIER}){{0,4}} (?P<what>{_CELLS})\b(?!-| cycle)"
)
_AFTER = re.compile(
    r"\b(?P<what>(?:cell|tumou?r|cancer)[ -](?:sub)?lines?|sublines?|oma lines?)"
    r"(?:,? (?:such as|including|included|named|namely|designated|called|i\.e\.,?|e\.g\.,?)|:|,)?"
    rf" ?\(?(?:the |human )?(?P<names>{_LIST})"
)
_TUMOR = re.compile(
    rf"(?P<names>{_NAME})(?: {_MODIFIER}){{0,2}} (?:[a-z]+oma|cancer|tumou?r)"
    r" (?:models?|tumou?rs?|grafts?)\b"
)
_IS = re.compile(rf"(?P<names>{_NAME}) \([^()]{{0,80}}\b(?P<what>cell line)s?\)")
_OF = re.compile(
    rf"(?:cancer|tumou?r|[a-z]oma|[ae]mia|epithelial|endothelial) cells? \(?(?P<names>{_LIST})"
)
# Names with digits that are not cell lines: markers, cell subsets, genes, viruses, stages, times.
_OTHER = re.compile(
    r"(?:CD\d+\w*|T[hHcCrR]\d+|M\d\w?|G[0-2](?:/\w+)?|[SNTMP]\d\w?|DN\d|ILC\d|iPS\w*"
    r"|IL-?\d+\w*|TLR-?\d+|C?CX?C[LR]-?\d+|CK-?\d+|KRT\d+|HLA\S*|MHC\S*|PD-?L?\d|GLP-?1"
    r"|[HS]IV\S*|HPV\S*|HSV\S*|HTLV\S*|H[BC]V\S*|SARS\S*|SV-?40|COVID\S*"
    r"|K[iI]-?67|NK-?1\.1|Gr-?1\w*|Ly-?\d\w*|Sca-?1|F4/80|B220|B[cC][lL]-?\d\w*|F[oO][xX]\w?\d"
    r"|S[oO][xX]-?\d+|O[cC][tT]-?4|L[gG][rR]-?\d|Rag-?[12]|(?:Na|Ca)[vV]\S*|TRP\w\d+"
    r"|[A-Z][a-z]{2}\d[a-z]?|[A-Z]{3,}[1-9][A-Z]?|[A-Z]\d{2,4}[A-Z]|[pP]\d+\S*"
    r"|\d+[a-z]{0,3}|\dD|CA[1-4]|V\w\d\S*|CO2|O2|H2O2?|Ca2|Mg2"
    r"|(?:Table|Fig|Day|Grade|Stage|Group|Phase)\S*)"
)
# Names that are cell lines next to `cells` but mean something else by themselves.
_BESIDE_CELLS = words(
    "HEK CHO COS BHK NRK MEF LLC KB HOS AGS EJ C6 L929 Ishikawa Ramos Namalwa HK-2 HK2 PA-1 INS-1"
    " TE-1 CAL-27 HEp-2 J774 P19 F9 B16 CV-1 ES-2 HEC-1 NB4"
)
_DIGIT = re.compile(r"(?=.*\d)(?=.*[A-Z])[A-Za-z0-9/. -]{3,20}")
_MIXED = re.compile(r"(?!.*[A-Z]{2}s$)[A-Z][A-Za-z]*[a-z][A-Z][A-Za-z]*")
_WORD = re.compile(r"[A-Z][a-z]{3,}")


def cell_lines(
    text: str, known: Callable[[str], bool], other: Callable[[str], bool]
) -> Iterator[tuple[int, int]]:
    """Find the spans of names that the text identifies as cell lines, without the word `cells`.

    Parameters
    ----------
    other : predicate for whether a name also has another meaning (a gene, an abbreviation
        defined in the document); such a name is a cell line only if the text says `cell
        line`, or lists it with a name that has no other meaning
    """
    found: set[str] = set()
    for pattern in (_BEFORE, _AFTER, _IS, _OF, _TUMOR):
        for match in pattern.finditer(text):
            line = "line" in (match.groupdict().get("what") or "")
            start = match.start("names")
            spans = [
                (start + name.start(), start + name.end())
                for name in re.finditer(_NAME, match.group("names"))
            ]
            names = [text[low:high] for low, high in spans]
            called = [name in _BESIDE_CELLS or known(name) for name in names]
            shaped = [
                sure
                or _is_line_name(name, other)
                or (pattern is _AFTER and bool(_WORD.fullmatch(name)))
                for name, sure in zip(names, called, strict=True)
            ]
            if not line and not any(
                sure or (good and not other(name))
                for name, sure, good in zip(names, called, shaped, strict=True)
            ):
                continue
            for span, name, good in zip(spans, names, shaped, strict=True):
                if good:
                    yield span
                    if not other(name):
                        found.add(name)
    if found:
        again = "|".join(map(re.escape, sorted(found, key=len, reverse=True)))
        for match in re.finditer(rf"(?<![\w/-])(?:{again})(?!\w|[+/]\w)", text):
            yield match.span()


def _is_line_name(name: str, other: Callable[[str], bool]) -> bool:
    if _OTHER.fullmatch(name):
        return False
    if "/" in name and all(_OTHER.fullmatch(part) or other(part) for part in name.split("/")):
        return False
    return bool(_DIGIT.fullmatch(name) or (len(name) > 3 and _MIXED.fullmatch(name)))
