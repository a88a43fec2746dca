"""Text cleaning and sentence boundaries shared by every source and extractor.

Cleaning happens once, when a document is read; offsets of chunks and evidence refer to the cleaned
text, so nothing downstream may alter it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from kg.lexicon.wordlist import words

LIGATURES = {
    "ﬀ": "ff",
    "ﬁ": "fi",
    "ﬂ": "fl",
    "ﬃ": "ffi",
    "ﬄ": "ffl",
    "ﬅ": "st",
    "ﬆ": "st",
}
_TRANSLATE = str.maketrans(
    {
        **LIGATURES,
        "\u00ad": "",  # soft hyphen
        "\u200b": "",
        "\u200c": "",
        "\u200d": "",
        "\ufeff": "",
        "\u2060": "",
        "\u00a0": " ",
        "\u2007": " ",
        "\u2009": " ",
        "\u200a": " ",
        "\u202f": " ",
        "\u2010": "-",
        "\u2011": "-",
        "\u2212": "-",
        "µ": "μ",
        "\r": "\n",
    }
)
# Bidirectional controls reorder the display, not the text; they are dropped.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_HYPHEN_BREAK = re.compile(r"(\w*[a-z])-\n[ \t]*([a-z]+)")
# Prefixes whose hyphen belongs to the word even at the end of a line.
_KEEP_HYPHEN = words(
    """
    non anti pro self well high low long short single double multi cross co re post pre meta
    inter intra tumor tumour immune cell age dose time risk gene
    """
)


def clean(text: str) -> str:
    """Normalize text: NFC, no ligatures, control or zero-width characters, unified line ends."""
    text = text.replace("\r\n", "\n").translate(_TRANSLATE)
    return unicodedata.normalize("NFC", _CONTROL.sub("", text))


def dehyphenate(text: str) -> str:
    """Join words broken at a line end; compounds such as `non-muscle` keep their hyphen."""

    def join(match: re.Match[str]) -> str:
        left, right = match.group(1), match.group(2)
        hyphen = "-" if left.lower() in _KEEP_HYPHEN else ""
        return f"{left}{hyphen}{right}"

    return _HYPHEN_BREAK.sub(join, text)


_ABBREVIATION = re.compile(
    r"(?:\b(?:et al|e\.g|i\.e|vs|cf|approx|ca|resp|incl|Fig|Figs|Eq|Ref|Refs|Tab|Suppl|No|Nos|Dr"
    r"|Prof|St|Inc|Ltd|Co|Corp|al|sp|spp|subsp|var|[A-Z])|\d)\.$"
)
_BOUNDARY = re.compile(r"[.!?]+[\"'”’)\]]*(?:\[[\d,–-]+\])?(?=\s)|\n\s*\n|\n(?=\s*[-*•] )")
_NEXT_START = re.compile(r"\s*[\"'“‘(\[]*[A-Z0-9Α-Ωα-ω*•-]")
_LOWER_SYMBOL = re.compile(r"\s*(?:mi?R|lnc|p\d|c-|mTOR|siRNA|shRNA|i[A-Z])")


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Split text into sentences; return their spans without surrounding whitespace, in order."""
    start = 0
    for match in _BOUNDARY.finditer(text):
        end = match.end()
        if text[match.start()] in ".!?":
            rest = text[end : end + 24]
            if not (_NEXT_START.match(rest) or _LOWER_SYMBOL.match(rest)):
                continue
            word = text[max(start, match.start() - 12) : match.start() + 1]
            # A digit before the period ends a sentence; an abbreviation does not.
            if _ABBREVIATION.search(word) and not word[-2:-1].isdigit():
                continue
        else:
            end = match.start()
        yield from _trim_span(text, start, end)
        start = match.end()
    yield from _trim_span(text, start, len(text))


_BULLET = re.compile(r"\s*(?:[-*•]\s+)?")


def _trim_span(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    bullet = _BULLET.match(text, start, end)
    if bullet:
        start = bullet.end()
    while end > start and text[end - 1].isspace():
        end -= 1
    if end > start:
        yield start, end


_PAREN = re.compile(r"\(([A-Za-z][\w+/.-]{1,14})(?:[;,][^()]*)?\)")


_GLUED = re.compile(r"(?<=\w)\(([^()\s]*)\)(?=\w)")  # `3,6-di(2,3-epoxypropoxy)xanthone (EPOX)`


def abbreviations(text: str) -> dict[str, str]:
    """Map short forms to long forms defined in the text: `tertiary lymphoid structures (TLS)`.

    Source: Schwartz and Hearst, "A simple algorithm for identifying abbreviation definitions in
    biomedical text", 2003. The letters of the short form must occur in order in the words before
    the parenthesis, the first at the start of a word.
    """
    found: dict[str, str] = {}
    for match in _PAREN.finditer(text):
        short = match.group(1).rstrip("s") if match.group(1)[:-1].isupper() else match.group(1)
        if not 2 <= len(short) <= 12 or not any(c.isupper() for c in short) or short in found:
            continue
        window = text[max(0, match.start() - 160) : match.start()].rstrip()
        window = re.split(r"[.;:()\[\]\n]", _GLUED.sub(r"-\1-", window))[-1]
        words = window.split()
        limit = min(len(short) + 5, len(short) * 2)
        candidate = " ".join(words[-limit:])
        long = long_form(short, candidate)
        if long is not None and len(long) > len(short) and len(long.split()) <= limit:
            found[short] = long
    return found


# Vectors, which carry human genes, are left out.
_VIRUS = (
    r"(?:EBV|KSHV|HHV-?8|HPV(?:-?(?:16|18))?|HIV(?:-1)?|H[BC]V|HTLV-?1|H?CMV|SV40|"
    r"(?![\w-]*(?:[Aa]deno|[Rr]etro|[Ll]enti|[Rr]ecombinant|[Oo]ncolytic))"
    r"(?:[A-Z][\w-]{1,30}|[a-z-]{1,30}) ?virus(?: type \d+)?)"
)
# `TP53 of HPV-negative tumors`, `CD4 of HIV patients`: of those who have the virus, or not.
_WHO = r"(?!-| (?:infected|transformed|positive|negative|patients?|vectors?|cells?|tumou?rs?)\b)"
_NAME = r"((?=\w*[A-Z]\w*[A-Z0-9])[A-Z]\w{1,9})"
_VIRAL = re.compile(
    rf"(?<![\w-]){_NAME}(?: (?:gene|protein|oncoprotein|oncogene|antigen))? of (?:the )?{_VIRUS}\b"
    rf"{_WHO}|(?<![\w-]){_VIRUS}[- ]"
    rf"(?:encoded|derived|oncogene|oncoprotein|protein|latent membrane protein)s? \(?{_NAME}\b"
    rf"|(?<![\w-]){_VIRUS} {_NAME} (?:onco)?(?:protein|gene)s?\b"
    rf"|\b(?!AAV|CMV|MMTV|MSCV)[A-Z]{{2,4}}V-([A-Z]+\d\w*)\b"
)


def viral(text: str) -> dict[str, str]:
    """Map names that the text attributes to a virus to the attributing phrase: `LMP1 of EBV`.

    PDLIM7 has the alias LMP1, but statements about a viral protein are not about the human
    gene.
    """
    return {str(hit[hit.lastindex or 0]): hit.group() for hit in _VIRAL.finditer(text)}


def long_form(short: str, candidate: str) -> str | None:
    """Return the words at the end of `candidate` whose letters spell `short`, or None."""
    s, c = len(short) - 1, len(candidate) - 1
    while s >= 0:
        letter = short[s].lower()
        if not letter.isalnum():
            s -= 1
            continue
        while c >= 0 and (
            candidate[c].lower() != letter or (s == 0 and c > 0 and candidate[c - 1].isalnum())
        ):
            c -= 1
        if c < 0:
            return None
        s -= 1
        c -= 1
    start = candidate.rfind(" ", 0, c + 1) + 1
    return candidate[start:].strip(" -,") or None
