"""Percent of positive cells per marker and region, held against what options claim of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from sage_tumor_board.board.rules.specimen import invasion_claims
from sage_tumor_board.board.rules.weigh import (
    DOUBTED,
    UNKNOWN,
    Claim,
    Weighed,
    leading,
    logistic,
    together,
)
from sage_tumor_board.board.types import Cited

CENTER, FRONT = "TumorCenter", "InvasionFront"
REGIONS: dict[str, re.Pattern[str]] = {
    CENTER: re.compile(r"tumou?r ?cent(?:er|re)s?|\bcent(?:er|re)\b|intratumoral|tumou?r core"),
    FRONT: re.compile(r"invasi(?:on|ve) ?(?:front|margin)s?|invasion ?front"),
}
USUAL: dict[str, float] = {
    "CD3": 12.8, "CD8": 9.9, "CD56": 2.3, "CD68": 8.7, "CD163": 10.4, "MHC1": 1.6, "PDL1": 6.0,
}  # fmt: skip
"""Medians of the readings of the development half's patients, without a look at any answer: what
divides high from low where no file gives a cut."""
ABSENT = 1.0
"""Percent of positive cells below which a marker is called absent or negligible."""
SPREAD = 0.35
"""Standard deviation of the log of a region's mean of two cores, as cores of one region differ."""
EVEN = 0.1
"""Regions whose means differ by less are called equal."""
UNIFORM = 0.5
"""Two cores of a region cannot show that all of it is alike."""
FRONT_ODDS, PER_LOG = 0.9, 1.2
"""For readings that are only recorded: log odds that immune cells are denser at the front, and by
how much they change per unit of the log ratio of the regions. Calibrated on the development half:
20 of 27 one-sided answers name the front, and recorded readings point there in few of them."""
FRONT_HIGH = 0.5
"""Likewise the log odds by which a marker counts as high at the front."""
PRIOR = Cited(
    sentence="No reading of this stain is at hand: immune cells are mostly denser at the front.",
    quote="general prior: immune cells gather at the invasive margin (development half: 20 of 27)",
)

_MARKERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("PDL1", re.compile(r"pd-?l1")),
    ("MHC1", re.compile(r"mhc-?(?:1|i)\b|antigen presentation")),
    ("CD163", re.compile(r"cd163|\bm2\b")),
    ("M1", re.compile(r"\bm1\b")),
    ("CD68", re.compile(r"cd68|macrophage")),
    ("CD56", re.compile(r"cd56|\bnk\b|natural killer")),
    ("CD8", re.compile(r"cd8\b|cytotoxic")),
    ("CD3", re.compile(r"cd3\b|(?<!cytotoxic )t-?(?:helper|cells?)\b|lymphocytes?")),
    ("immune", re.compile(r"immune (?:cell )?(?:infiltrat|respon|activ)|infiltrated|inflamed")),
)
_STANDS_FOR: dict[str, tuple[str, ...]] = {"immune": ("CD3", "CD8"), "M1": ("CD68",)}
_MORE = re.compile(r"\b(?:higher|highest|greater|more|denser|predominantly|dominate\w*|mainly"
                   r"|concentrated|prominent|increased)\b")  # fmt: skip
_LESS = re.compile(r"\b(?:lower|less|fewer|lowest)\b")
_EVEN = re.compile(r"\b(?:equal\w*|similar\w*|equivalent|comparable|evenly|uniform\w*|same"
                   r"|no difference)\b")  # fmt: skip
_NONE = re.compile(r"\b(?:absent|absence|no (?:detectable|evidence|cd\d+\S*|t-cell|significant)"
                   r"|neither|negligible|devoid|lacks?|none|has no)\b")  # fmt: skip
_LOW = re.compile(r"\b(?:low|minimal|limited|sparse|reduced|poor(?:ly)?|weak|downregulation"
                  r"|downregulated|suppression|desert|excluded|loss)\b")  # fmt: skip
_HIGH = re.compile(r"\b(?:high|robust|significant|strong|dense|extensive|marked|abundant"
                   r"|presence|present|inflamed|elevated)\b")  # fmt: skip
_ELSEWHERE = re.compile(r"\b(?:only|restricted|confined|limited to|adjacent|perivascular|vascular"
                        r"|necro\w+|perinodal|stromal|peri?phery|lymph nodes?|perineural|margins?"
                        r"|vessels?)\b")  # fmt: skip
_THAN = re.compile(r"\b(?:compared (?:to|with)|than|versus|vs\.?|relative to)\b")
_CLAUSE = re.compile(r",|;|\b(?:and(?! invasion)|but|despite|while|with|due to|as)\b")


@dataclass(frozen=True)
class Stains:
    """Readings by marker and region: percent of positive cells of each core, with its passage.

    `measured` tells readings of the images themselves from recorded ones, which say less.
    """

    cores: Mapping[tuple[str, str], Sequence[tuple[float, Cited]]]
    measured: bool = False

    def mean(self, marker: str, region: str) -> float | None:
        """Mean percent of a marker in a region; None where nothing was read."""
        found = [v for name in _names(marker) for v, _ in self.cores.get((name, region), ())]
        return fmean(found) if found else None

    def cited(self, marker: str) -> tuple[Cited, ...]:
        """The readings of a marker."""
        return tuple(
            item for name in _names(marker) for region in REGIONS
            for _, item in self.cores.get((name, region), ())
        )  # fmt: skip


def _names(marker: str) -> tuple[str, ...]:
    return _STANDS_FOR.get(marker, (marker,))


def marker_of(file: str) -> tuple[str, str] | None:
    """Marker and region of an image, by its name; None where the name tells neither."""
    region = next((region for region in REGIONS if region.casefold() in file.casefold()), None)
    for marker in USUAL:
        if region and re.search(rf"(?:^|_){marker}(?:_|\.)", file, re.IGNORECASE):
            return marker, region
    return None


def wanted(question: str, options: Iterable[str]) -> set[str]:
    """The markers that a question and its options speak of."""
    text = " ".join([question, *options]).casefold()
    return {name for marker in _markers(text) for name in _names(marker)}


def _markers(text: str) -> list[str]:
    return [marker for marker, pattern in _MARKERS if pattern.search(text)]


def _regions(text: str) -> list[str]:
    at = [(found.start(), region) for region, p in REGIONS.items() if (found := p.search(text))]
    return [region for _, region in sorted(at)]


def weigh(question: str, options: Mapping[str, str], stains: Stains) -> dict[str, Weighed]:
    """Each option by how its claims fit the readings."""
    first = question.split("\n", 1)[0].casefold()
    asked = _markers(first) or ["immune"]
    subject = _regions(_THAN.split(first)[0])
    if most := re.search(r"which (?:\w+ )*markers?\b.*\b(highest|lowest|most|least)\b", first):
        return _ranked(options, subject or list(REGIONS), stains, most[1] in ("highest", "most"))
    found = {}
    for letter, words in options.items():
        text = words.casefold()
        claims = list(_claims(text, asked, subject, first, stains)) + invasion_claims(text)
        if claims:
            found[letter] = together(claims, 1.05 ** (len(claims) - 1))
        else:
            found[letter] = Weighed(UNKNOWN / 2)
    if any(leading(words) is not None for words in options.values()):
        found = _yes_no(found, options, first, asked, subject, stains)
    return found


def _ranked(
    options: Mapping[str, str], regions: Sequence[str], stains: Stains, most: bool
) -> dict[str, Weighed]:
    """Options that each name a marker, by its mean over the regions; unread ones are unlikely."""
    means: dict[str, tuple[float, tuple[Cited, ...]]] = {}
    for letter, words in options.items():
        for marker in _markers(words.casefold())[:1]:
            read = [m for region in regions if (m := stains.mean(marker, region)) is not None]
            if read:
                means[letter] = (fmean(read), stains.cited(marker))
    order = sorted(means, key=lambda letter: means[letter][0], reverse=most)
    return {
        letter: Weighed(0.9 * 0.5 ** order.index(letter), means[letter][1])
        if letter in means else Weighed(DOUBTED)
        for letter in options
    }  # fmt: skip


def _yes_no(
    found: Mapping[str, Weighed], options: Mapping[str, str], question: str, asked: list[str],
    subject: list[str], stains: Stains,
) -> dict[str, Weighed]:  # fmt: skip
    """A bare yes or no is the question's own claim, or its opposite."""
    claims = list(_claims(question, asked, subject, question, stains))
    own = together(claims) if claims else Weighed(UNKNOWN)
    bare = {letter for letter, w in options.items() if len(re.findall(r"\w+", w)) <= 2}
    made = dict(found)
    for letter in bare:
        yes = leading(options[letter])
        if yes is not None:
            made[letter] = Weighed(own.chance if yes else 1 - own.chance, own.cited)
    return made


def _claims(
    words: str, asked: list[str], subject: list[str], question: str, stains: Stains
) -> Iterable[Claim]:
    text = re.sub(r"^\s*(?:yes|no)\b[,.]?", "", words)
    comparing = bool(_MORE.search(question) or _THAN.search(question) or len(_regions(question)) > 1
                     or "which region" in question or "which area" in question)  # fmt: skip
    last: list[str] = []
    for clause in [text] if _THAN.search(text) else _CLAUSE.split(text):
        here = _markers(clause)
        markers = here or last or asked
        regions = _regions(clause)
        claim = _claim(clause, markers, here, regions, subject, comparing, stains)
        if claim is not None:
            yield claim
        last = here or last


def _claim(
    clause: str, markers: list[str], here: list[str], regions: list[str], subject: list[str],
    comparing: bool, stains: Stains,
) -> Claim | None:  # fmt: skip
    marker = markers[0]
    if _ELSEWHERE.search(clause):
        return Claim(0.1)
    everywhere = regions or subject or list(REGIONS)
    if _NONE.search(clause):
        return _level(markers, everywhere, stains, absent=True)
    if _EVEN.search(clause) and not _HIGH.search(clause) and not _LOW.search(clause):
        return _compared(marker, None, stains)
    than = _THAN.search(clause)
    if re.search(r"dominat|predominan", clause) and here and not regions:
        return _dominates(marker, everywhere, stains)
    more = _MORE.search(clause)
    if more or _LESS.search(clause):
        before = clause[: than.start()] if than else clause
        winners = _regions(before)
        if not winners and than and (against := _regions(clause[than.end() :])):
            winners = [_other(against[0])]
        winners = winners or subject[:1]
        if len(winners) == 1:
            winner = winners[0] if more else _other(winners[0])
            strong = bool(re.search(r"significantly|strongly|much|markedly", clause))
            return _compared(marker, winner, stains, strong=strong)
    whole = UNIFORM if re.search(r"uniform|all (?:\w+ )?regions|throughout", clause) else 1.0
    if _LOW.search(clause):
        return _level(markers, everywhere, stains, high=False, factor=whole)
    if _HIGH.search(clause):
        return _level(markers, everywhere, stains, factor=whole)
    if regions and comparing:
        both = len(regions) > 1 or "both" in clause
        return _compared(marker, None if both else regions[0], stains)
    return None


def _other(region: str) -> str:
    return FRONT if region == CENTER else CENTER


def _compared(marker: str, winner: str | None, stains: Stains, *, strong: bool = False) -> Claim:
    """How likely a marker is higher in the winner, or equal in both where there is none."""
    center, front = (stains.mean(marker, region) for region in (CENTER, FRONT))
    if center is None or front is None:
        front_chance = logistic(FRONT_ODDS)
        chance = front_chance if winner == FRONT else 1 - front_chance
        return Claim(0.05 if winner is None else 0.9 * chance, (PRIOR,))
    ratio = math.log((front + 0.1) / (center + 0.1))
    if winner is None:
        even = (0.4 if stains.measured else 0.2) * math.exp(-((ratio / EVEN) ** 2) / 8)
        return Claim(even, stains.cited(marker))
    odds = 1.7 * ratio / SPREAD if stains.measured else FRONT_ODDS + PER_LOG * ratio
    chance = logistic(odds if winner == FRONT else -odds)
    if strong:
        chance *= 0.9 if abs(ratio) > SPREAD else 0.6
    return Claim(0.9 * chance, stains.cited(marker))


def _dominates(marker: str, regions: Sequence[str], stains: Stains) -> Claim:
    """How likely a marker has more positive cells than every other immune marker that was read."""

    def over(name: str) -> float | None:
        read = [mean for region in regions if (mean := stains.mean(name, region)) is not None]
        return fmean(read) if read else None

    own = over(marker)
    rivals = [m for name in ("CD3", "CD8", "CD56", "CD68", "CD163")
              if name not in _names(marker) and (m := over(name)) is not None]  # fmt: skip
    if own is None or not rivals:
        return Claim(UNKNOWN)
    ratio = math.log((own + 0.1) / (max(rivals) + 0.1))
    return Claim(logistic(1.7 * ratio / SPREAD), stains.cited(marker))


def _level(
    markers: Sequence[str], regions: Sequence[str], stains: Stains, *, high: bool = True,
    absent: bool = False, factor: float = 1.0,
) -> Claim:  # fmt: skip
    """How likely markers are high (or low, or absent) in regions."""
    chance, cited = 1.0, []
    for marker in markers:
        for region in regions:
            mean = stains.mean(marker, region)
            if mean is None:
                chance *= UNKNOWN if not absent else 0.1
                continue
            usual = fmean(USUAL[name] for name in _names(marker))
            if absent:
                own = logistic(3 * math.log((ABSENT + 0.1) / (mean + 0.1)))
            else:
                over = math.log((mean + 0.1) / (usual + 0.1))
                shift = FRONT_HIGH if region == FRONT else 0.0
                own = logistic(2 * over if stains.measured else over + shift)
                own = own if high else 1 - own
            chance *= own
        cited += list(stains.cited(marker))
    size = max(1, len(markers) * len(regions))
    return Claim(factor * chance ** (1 / size), tuple(cited))
