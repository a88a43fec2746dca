"""The moves of the agent without a model: which files it requests, and how it decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from agents.base import Resources
from sage.core.llm.turns import Moves, Use
from sage_tumor_board.board.rules import blood, sayings, specimen, stains, timeline
from sage_tumor_board.board.rules.weigh import UNKNOWN, Weighed, choose
from sage_tumor_board.board.types import Cited

if TYPE_CHECKING:
    from sage_tumor_board.board.types import BoardAnswer, BoardInput

R = TypeVar("R")
Asking = Generator[Use, Any, R]
"""A part of the moves: uses tools, and returns what it made of their results."""
VERSION = 4
"""Of the rules: answers of others are not taken up again."""
MOST_FILES = 24
MOST_IMAGES = 40
TURNS = MOST_IMAGES + 8
_IMAGE = re.compile(r"\.(?:jpe?g|png|tiff?|svs|ndpi|mrxs)$", re.IGNORECASE)
_AGED = re.compile(r"reference|timeline|\.csv$|\.tsv$")
NOTHING = Cited(
    sentence="No rule and no file tells this question's options apart: the answer is a guess.",
    quote="SAGE: a guess",
)


def policy_of(tools: frozenset[str]) -> Callable[[BoardInput, Resources], Moves[BoardAnswer]]:
    """The policy for a board that offers these tools."""

    def answer(given: BoardInput, _: Resources) -> Moves[BoardAnswer]:
        from sage_tumor_board.board.types import BoardAnswer

        weighed = yield from _weighed(given, tools)
        options = given.options or dict.fromkeys("ABCDEF", "")
        letter = choose(options, weighed)
        best = [option for option in weighed.values() if option.chance == weighed[letter].chance]
        cited = (best[0].cited if len(best) == 1 else ()) or (NOTHING,)
        return BoardAnswer(answer=letter, reason=_reason(cited), evidence=cited)

    return answer


def _reason(cited: tuple[Cited, ...]) -> str:
    parts = []
    for item in cited:
        passage = " ".join(item.quote.split())
        parts.append(f'{item.sentence} [{item.file or "not from a file"}: "{passage}"]'.strip())
    return " ".join(parts)[:3000]


def _weighed(given: BoardInput, tools: frozenset[str]) -> Asking[dict[str, Weighed]]:
    if not given.options:
        return {letter: Weighed(UNKNOWN) for letter in "ABCDEF"}
    question, options = given.question, given.options
    contexts = {f"what was told, {n}": text for n, text in enumerate(given.contexts, 1)}
    first = question.split("\n", 1)[0].casefold()
    if re.search(r"\balive\b|surviv|recur|progress\w* in the next", first):
        texts = yield from _texts(given, _about_the_course)
        ahead = timeline.rows_of(texts) or "next" in first
        outcome = timeline.outcome if ahead else specimen.outcome
        found = outcome(question, options, texts, contexts)
        if found is not None:
            return found
    tables = any(blood.is_table(name) for name in given.files)
    if re.search(r"\bblood|hematolog|laborator|coagul|clotting|renal|electrolyte|an(?:a)?emi"
                 r"|platelet|lympho(?:peni|cyte count)|white blood", first) or any(
        blood.claims(words, {}, {}) for words in options.values()
    ) or (tables and blood.asks_a_value(first)):  # fmt: skip
        values = yield from _texts(given, lambda n: "blood" in n or "lab" in n or blood.is_table(n))
        ranges = {name: text for name, text in values.items() if "reference" in name.casefold()}
        measured = {name: text for name, text in values.items() if name not in ranges}
        known = blood.readings(measured, ranges, _sex(given.contexts))
        if known:
            return blood.weigh(question, options, known)
    common = specimen.by_frequency(question, options)
    if common is not None:
        return common
    texts = yield from _texts(given, lambda name: not _AGED.search(name))
    said = sayings.weigh(question, options, texts)
    if said is not None:
        return said
    read = yield from _stains(given, tools)
    return stains.weigh(question, options, read)


def _about_the_course(name: str) -> bool:
    return not re.search(r"blood|icd|ops_codes", name)


def _texts(given: BoardInput, wanted: Callable[[str], bool]) -> Asking[Mapping[str, str]]:
    from sage_tumor_board.board.board import Files

    names = [n for n in given.files if not _IMAGE.search(n) and wanted(n.casefold())][:MOST_FILES]
    if not names:
        return {}
    opened = yield Use("request_files", Files(names=tuple(names)))
    return {item["name"]: item["text"] for item in opened if item["text"]}


def _stains(given: BoardInput, tools: frozenset[str]) -> Asking[stains.Stains]:
    from sage_tumor_board.board.board import OneFile

    cores: dict[tuple[str, str], list[tuple[float, Cited]]] = {}
    measured = True
    if "ihc_percent_positive" not in tools:
        return stains.Stains(cores)
    markers = stains.wanted(given.question, given.options.values())
    if re.search(r"dominat", " ".join(given.options.values()).casefold()):
        markers |= {"CD3", "CD8", "CD68"}
    images = [(name, of) for name in given.files if (of := stains.marker_of(name))]
    for name, (marker, region) in [item for item in images if item[1][0] in markers][:MOST_IMAGES]:
        read = yield Use("ihc_percent_positive", OneFile(name=name))
        percent = read["percent_positive"]
        if percent is None:
            continue
        measured = measured and read["by"] == "measured"
        said = f"{percent:.3g}% of the cells are positive ({read['by']})."
        cited = Cited(sentence=said, file=name, quote=f"{percent}")
        cores.setdefault((marker, region), []).append((percent, cited))
    return stains.Stains(cores, measured)


def _sex(contexts: tuple[str, ...]) -> str | None:
    found = re.search(r"\b(female|woman|male|man)\b", " ".join(contexts), re.IGNORECASE)
    if found is None:
        return None
    return "female" if found[1].casefold() in ("female", "woman") else "male"
