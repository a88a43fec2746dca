"""Questions about slides in the formats of public benchmarks, asked of a reader and scored.

Formats, by their fields:

- WSI-VQA: JSON, a list of `{"Id", "Question", "Answer", "Choice"}`; `Id` is a case, `Choice` a list
  or absent (an open question).
- SlideBench: CSV with `Slide`, `Question`, `A` to `D`, `Answer` (a letter); `Task` or `Tumor` is a
  group.
- PathMMU: JSON, `{SOURCE: {SPLIT: [{"No", "img", "question", "options", "answer"}]}}`; options and
  answer begin with a letter ("A) ...").
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError

from sage.core.errors import InputError, SageError
from sage.core.files import append_line, write_text
from sage.core.llm.budget import BudgetError
from sage.core.llm.turns import problems_of
from sage.core.models import Strict
from sage.core.printable import one_line
from sage_slide_reading.reader.types import Options, Question, plain

if TYPE_CHECKING:
    from sage.core.llm.trace import Trace
    from sage_slide_reading.reader.eyes import Eyes

Format = Literal["WSI-VQA", "SlideBench", "PathMMU"]
MOST_BYTES = 256 << 20
MOST_QUESTIONS = 200_000
LONGEST = 4000
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CASE = re.compile(r"TCGA-[A-Z0-9]{2}-[A-Z0-9]{4}", re.IGNORECASE)
LETTERED = re.compile(r"\s*\(?([A-Z])\s*[).:]\s*(.+)", re.DOTALL)
WHOLE_FIELD_MM2 = 1.0
FIELD = Options(patch_px=64, finest_um=40.0, first_share=1.0, later_share=1.0)
"""A field of less than a square millimeter is looked at whole."""
SUFFIXES = frozenset(
    (".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".bif", ".vms", ".png", ".jpg", ".jpeg")
)


class Item(Strict):
    """One question of a benchmark; `truth` is the text of an option where there are some."""

    number: int
    slide: str
    group: str = ""
    question: str
    options: tuple[str, ...] = ()
    truth: str


def read_questions(path: Path) -> tuple[Format, list[Item]]:
    """The questions of a benchmark's file, and the format that it has.

    Raises
    ------
    InputError
        If it is of none of the three formats; the first question that does not fit is named.
    """
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path}: larger than {MOST_BYTES >> 20} MiB; split it")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    form: Format
    if path.suffix.lower() == ".csv":
        form, rows = "SlideBench", _csv_rows(path, text)
        make = _slidebench
    else:
        form, rows = _json_rows(path, text)
        make = _wsi_vqa if form == "WSI-VQA" else _pathmmu
    if not rows:
        raise InputError(f"{path}: there is no question in it")
    if len(rows) > MOST_QUESTIONS:
        raise InputError(f"{path}: more than {MOST_QUESTIONS:,} questions; split it")
    items = []
    for number, (group, row) in enumerate(rows, 1):
        try:
            items.append(make(number, group, row))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            said = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{path}, question {number}: {one_line(said)[:300]}") from None
    return form, items


def _csv_rows(path: Path, text: str) -> list[tuple[str, Any]]:
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        rows = list(reader)
    except csv.Error as error:
        raise InputError(f"{path}: no CSV: {error}") from None
    missing = {"Slide", "Question", "A", "B", "Answer"} - set(reader.fieldnames or ())
    if missing:
        raise InputError(
            f"{path}: no column {sorted(missing)[0]}; SlideBench has Slide, Question, A, B, C, D,"
            " Answer"
        )
    return [(row.get("Task") or row.get("Tumor") or "", row) for row in rows]


def _json_rows(path: Path, text: str) -> tuple[Format, list[tuple[str, Any]]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: no JSON: {str(error)[:200]}") from None
    if isinstance(data, list):
        return "WSI-VQA", [("", row) for row in data]
    if isinstance(data, dict):
        return "PathMMU", [
            (f"{source} {split}", row)
            for source, splits in data.items()
            if isinstance(splits, dict)
            for split, rows in splits.items()
            if isinstance(rows, list)
            for row in rows
        ]
    raise InputError(
        f"{path}: neither a list of WSI-VQA's questions nor PathMMU's sources and splits"
    )


def _text(value: object) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError(f"a text is expected, not {type(value).__name__}")
    found = one_line(str(value))
    if not found:
        raise ValueError("a text is empty")
    return found[:LONGEST]


def _wsi_vqa(number: int, group: str, row: Any) -> Item:
    choices = row.get("Choice") or ()
    if not isinstance(choices, list | tuple):
        raise ValueError("Choice is no list")
    options = tuple(_text(choice) for choice in choices)
    return Item(
        number=number, slide=_text(row["Id"]), group="open" if not options else "choice",
        question=_text(row["Question"]), options=options,
        truth=_truth(_text(row["Answer"]), options),
    )  # fmt: skip


def _slidebench(number: int, group: str, row: Any) -> Item:
    options = tuple(_text(row[letter]) for letter in "ABCD" if (row.get(letter) or "").strip())
    return Item(
        number=number, slide=_text(row["Slide"]), group=one_line(group)[:80],
        question=_text(row["Question"]), options=options,
        truth=_truth(_text(row["Answer"]), options),
    )  # fmt: skip


def _pathmmu(number: int, group: str, row: Any) -> Item:
    if not isinstance(row["options"], list) or len(row["options"]) < 2:
        raise ValueError("options is no list of two and more")
    said = [_text(option) for option in row["options"]]
    options = tuple(found[2].strip() if (found := LETTERED.fullmatch(o)) else o for o in said)
    return Item(
        number=number, slide=_text(row["img"]), group=one_line(group)[:80],
        question=_text(row["question"]), options=options,
        truth=_truth(_text(row["answer"]), options),
    )  # fmt: skip


def _truth(answer: str, options: tuple[str, ...]) -> str:
    """The option that an answer names by its text, its letter, or both."""
    if not options:
        return answer
    by_text = [option for option in options if plain(option) == plain(answer)]
    if by_text:
        return by_text[0]
    found = LETTERED.fullmatch(answer)
    letter = (found[1] if found else answer).upper()
    if len(letter) == 1 and letter in LETTERS[: len(options)]:
        return options[LETTERS.index(letter)]
    raise ValueError(f'the answer "{answer[:80]}" is none of the options')


# -- slides -----------------------------------------------------------------------------------


def slide_files(folder: Path) -> list[Path]:
    """Slides and images below a folder, none of them a link out of it."""
    if not folder.is_dir():
        raise InputError(f"--slides {folder}: no folder")
    root = folder.resolve()
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file()
        and path.resolve().is_relative_to(root)
    )  # fmt: skip


def slide_of(item: Item, files: Sequence[Path]) -> Path | None:
    """The file that a question is about: of that name, else a case's first diagnostic slide."""
    name = Path(item.slide.replace("\\", "/")).name
    exact = [path for path in files if name in (path.name, path.stem, path.name.split(".")[0])]
    if exact:
        return exact[0]
    if not CASE.fullmatch(name):
        return None
    own = [path for path in files if path.name.upper().startswith(f"{name.upper()}-")]
    return min(own, key=lambda path: ("-DX" not in path.name.upper(), path.name), default=None)


# -- asking -----------------------------------------------------------------------------------


class Asked(Strict):
    """One question with its answer; `error` says why there is none, which counts as wrong."""

    key: str
    number: int
    slide: str
    group: str
    options: int
    place: int = Field(description="Which option is the truth, from 0; -1 for an open question")
    truth: str
    answer: str | None = None
    right: bool = False
    regions: int = 0
    high_power: float = 0.0
    seconds: float = 0.0
    usd: float = 0.0
    error: str = ""


def key_of(item: Item, eyes: str, options: Options) -> str:
    """What stands for a question, its reader and its options, in the file of answers."""
    text = json.dumps([item.model_dump(), eyes, options.model_dump()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def answered(path: Path) -> dict[str, Asked]:
    """Answers of an earlier, perhaps interrupted, run; a last line cut short is removed."""
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        write_text(path, whole)
    found = {}
    for number, line in enumerate(whole.split("\n")[:-1], 1):
        try:
            asked = Asked.model_validate_json(line)
        except ValidationError:
            raise InputError(f"{path}, line {number} is damaged; remove the file") from None
        found[asked.key] = asked
    return found


def ask_all(
    items: Sequence[Item],
    files: Sequence[Path],
    make_eyes: Callable[[], Eyes],
    options: Options,
    out: Path,
    *,
    mpp: float | None = None,
    trace: Callable[[], Trace] | None = None,
) -> Iterator[Asked]:
    """Ask every question that was not asked yet, and keep each answer as it comes.

    Parameters
    ----------
    items : questions
    files : slides to look for
    make_eyes : fresh eyes for every question
    options : Algorithm 1's; fields below a square millimeter are looked at whole
    out : file of answers, appended to
    mpp : µm per pixel of files that do not say
    trace : a trace for every question; None keeps none
    """
    before = answered(out)
    for item in items:
        eyes = make_eyes()
        key = key_of(item, eyes.name, options)
        if key in before:
            yield before[key]
            continue
        asked = _ask(item, key, slide_of(item, files), eyes, options, mpp, trace)
        append_line(out, asked.model_dump_json())
        yield asked


def _ask(
    item: Item, key: str, slide: Path | None, eyes: Eyes, options: Options, mpp: float | None,
    trace: Callable[[], Trace] | None,
) -> Asked:  # fmt: skip
    from mcp_servers.slides.slide import Slide
    from sage.core.llm.trace import Trace, read_trace
    from sage_slide_reading.reader.algorithm import read_slide
    from sage_slide_reading.reader.scope import Scope

    place = item.options.index(item.truth) if item.options else -1
    asked = Asked(key=key, number=item.number, slide=item.slide, group=item.group,
                  options=len(item.options), place=place, truth=item.truth)  # fmt: skip
    begun = time.perf_counter()
    if slide is None:
        return asked.model_copy(update={"error": "there is no slide of this name"})
    kept = trace() if trace is not None else Trace()
    try:
        question = Question(text=item.question[:1000], options=item.options)
        with Slide.open(slide) as opened:
            stated = opened.mpp
        with Slide.open(slide, mpp=mpp if stated is None else None) as opened:
            area = opened.width * opened.height * (opened.need_mpp() / 1000) ** 2
            own = FIELD if area < WHOLE_FIELD_MM2 else options
            reading = read_slide(Scope(opened, own), eyes, question, own, trace=kept)
    except BudgetError:
        raise  # what nobody could pay for was not asked
    except (SageError, ValidationError) as error:
        said = problems_of(error) if isinstance(error, ValidationError) else str(error)
        return asked.model_copy(
            update={"error": one_line(said)[:300], "seconds": time.perf_counter() - begun}
        )
    usd = 0.0
    if kept.path is not None and kept.path.is_file():
        usd = sum(line.usd or 0.0 for line in read_trace(kept.path) if line.kind == "end")
    return asked.model_copy(
        update={
            "answer": reading.answer,
            "right": bool(item.options) and reading.answer == item.truth,
            "regions": reading.read.regions,
            "high_power": reading.read.high_power_share,
            "seconds": round(time.perf_counter() - begun, 2),
            "usd": usd,
        }
    )


# -- scores -----------------------------------------------------------------------------------


class Choice(Strict):
    """Multiple-choice questions: accuracy with a 95% interval that draws slides."""

    group: str
    questions: int
    slides: int
    accuracy: float
    low: float
    high: float
    floor: float
    floor_answer: str
    abstained: float
    failed: float


class Open(Strict):
    """Open answers, 0 to 100 as the papers give them; abstentions and failures score zero."""

    questions: int
    bleu_1: float
    bleu_4: float
    rouge_l: float
    meteor: float
    floor_bleu_1: float
    floor_answer: str
    abstained: float
    failed: float
    how: str


HOW = (
    "BLEU: corpus level, nltk, smoothing 1; ROUGE-L: F1, rouge-score, stemmed; METEOR: nltk with"
    " exact and stem matches alone, without WordNet's synonyms, so not above the full METEOR"
)


def choices(rows: Sequence[Asked], *, seed: int = 1, draws: int = 2000) -> list[Choice]:
    """Accuracy of all multiple-choice questions and of each group."""
    own = [row for row in rows if row.options]
    groups: dict[str, list[Asked]] = defaultdict(list)
    for row in own:
        groups["all"].append(row)
        if row.group:
            groups[row.group].append(row)
    return [_choice(name, found, seed, draws) for name, found in groups.items()]


def _choice(name: str, rows: list[Asked], seed: int, draws: int) -> Choice:
    import numpy as np

    from sage.core.seeds import generator

    slides = sorted({row.slide for row in rows})
    place = {slide: k for k, slide in enumerate(slides)}
    right, asked = np.zeros(len(slides)), np.zeros(len(slides))
    for row in rows:
        right[place[row.slide]] += row.right
        asked[place[row.slide]] += 1
    picks = generator(seed).integers(len(slides), size=(draws, len(slides)))
    means = right[picks].sum(axis=1) / asked[picks].sum(axis=1)
    letters = Counter(row.place for row in rows).most_common(1)[0]
    texts = Counter(plain(row.truth) for row in rows).most_common(1)[0]
    floor, words = max(
        (letters[1], f"always option {LETTERS[letters[0]]}"), (texts[1], f'always "{texts[0]}"')
    )
    return Choice(
        group=name,
        questions=len(rows),
        slides=len(slides),
        accuracy=float(right.sum() / asked.sum()),
        low=float(np.percentile(means, 2.5)),
        high=float(np.percentile(means, 97.5)),
        floor=floor / len(rows),
        floor_answer=words,
        abstained=sum(row.answer is None and not row.error for row in rows) / len(rows),
        failed=sum(bool(row.error) for row in rows) / len(rows),
    )


def open_answers(rows: Sequence[Asked]) -> Open | None:
    """BLEU, ROUGE and METEOR of the open questions; None where there are none."""
    own = [row for row in rows if not row.options]
    if not own:
        return None
    truths = [row.truth for row in own]
    scored = text_scores([row.answer or "" for row in own], truths)
    constant = Counter(truths).most_common(1)[0][0]
    floor = text_scores([constant] * len(own), truths)
    return Open(
        questions=len(own),
        **scored,
        floor_bleu_1=floor["bleu_1"],
        floor_answer=constant[:200],
        abstained=sum(row.answer is None and not row.error for row in own) / len(own),
        failed=sum(bool(row.error) for row in own) / len(own),
        how=HOW,
    )


class _NoSynonyms:
    """In the place of WordNet, whose data nltk would download."""

    def synsets(self, word: str) -> list[Any]:
        """None."""
        return []


def text_scores(answers: Sequence[str], truths: Sequence[str]) -> dict[str, float]:
    """BLEU-1, BLEU-4, ROUGE-L and METEOR (exact and stem) of answers, in percent."""
    from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu
    from nltk.translate.meteor_score import single_meteor_score
    from rouge_score.rouge_scorer import RougeScorer

    said = [plain(text).split() for text in answers]
    true = [plain(text).split() for text in truths]
    smooth = SmoothingFunction().method1
    bleu = {
        n: corpus_bleu([[t] for t in true], said, weights=(1 / n,) * n, smoothing_function=smooth)
        if any(said)
        else 0.0
        for n in (1, 4)
    }
    rouge = RougeScorer(["rougeL"], use_stemmer=True)
    lcs = [rouge.score(t, a)["rougeL"].fmeasure for t, a in zip(truths, answers, strict=True)]
    meteor = [
        single_meteor_score(t, s, wordnet=_NoSynonyms()) if s and t else 0.0
        for t, s in zip(true, said, strict=True)
    ]
    return {
        "bleu_1": 100 * float(bleu[1]),
        "bleu_4": 100 * float(bleu[4]),
        "rouge_l": 100 * sum(lcs) / len(lcs),
        "meteor": 100 * sum(meteor) / len(meteor),
    }
