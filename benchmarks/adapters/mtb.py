"""MTBBench: questions for a molecular tumor board, answered by a model and scored.

Patients are reconstructed from published conversations (`agent_logs_hancock`,
`agent_logs_msk`): a folder per model, a JSON file per patient with `question`, `answer`,
`response`, `files_accessed`, `files_hallucinated`, and the conversation at the end. Text
written by models is used only to score it again, never as part of a case. Intervals are
bootstrapped over patients; the baseline is the best constant letter, chosen with
knowledge of the answers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from pydantic import BaseModel, Field, ValidationError

from benchmarks.runner import NONE, Report, Row, bootstrap, load_lines, percent
from sage.core.errors import InputError
from sage.core.files import append_line, read_json
from sage.core.llm.repair import describe_problems
from sage.core.llm.turns import BoundError, UnusableError
from sage.core.models import Strict
from sage.core.printable import one_line
from sage_tumor_board.agent import REPLIES, ROLE, Past, ask_board
from sage_tumor_board.board import Board, Desk
from sage_tumor_board.case import (
    IMAGES,
    BoardQuestion,
    Case,
    CaseFile,
    Stage,
    parse_age,
    parse_letter,
)

if TYPE_CHECKING:
    from agents.core.base import Reasoner

TRACKS = {"hancock": "agent_logs_hancock", "msk": "agent_logs_msk"}
OPTION = re.compile(r"(?:^|\?)\s*([A-F])\)\s*(.+?)\s*$", re.MULTILINE)
ASKED = re.compile(r"\n Question: (.*?)\n? ?Remember that you can ask", re.DOTALL)
CONTEXT = re.compile(
    r"You are given the following new patient information: \n(.*?)\nNew files available:\n(.*?)"
    r"Remember that you can ask",
    re.DOTALL,
)
LISTED = re.compile(r"\[FILE: ([^\]\n]{1,200})\]")
SHOWN = re.compile(
    r"\[FILE: ([^\]\n]{1,200})\] included(?: in your context)?\n(.*?)"
    r"(?=\[FILE: [^\]\n]{1,200}\] |\n\[DrugBank: |\[IHCTool: You can use|\Z)",
    re.DOTALL,
)
STAINED = re.compile(
    r"\[IHCTool: According to IHC tool around ([\d.eE+-]+)% of the cells in ([^\]\s]+) are"
)
DRUGS = re.compile(r"\n\[DrugBank: (.*?)(?=\n\[FILE: |\Z)", re.DOTALL)
DRUG = re.compile(r"^([A-Z][A-Za-z][A-Za-z -]{2,60}): ", re.MULTILINE)
VERSION = 2
"""Version of the environment; questions answered under another version are asked again."""


class Answered(Strict):
    """A question with its answer; an `error` counts as a wrong answer."""

    key: str
    case: str
    number: int
    kind: str
    truth: str
    answer: str | None = None
    reason: str = ""
    files: tuple[str, ...] = ()
    hallucinated: tuple[str, ...] = ()
    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    error: str = ""

    @property
    def right(self) -> bool:
        """True if the answer matches the key."""
        return self.answer == self.truth


class Loaded(Strict):
    """A track: cases, keys (case → number → letter), published answers, drug descriptions."""

    track: str
    cases: tuple[Case, ...]
    keys: dict[str, dict[int, str]]
    published: dict[str, tuple[Answered, ...]]
    drugs: dict[str, str]


class _Question(BaseModel):
    question: str
    answer: str
    response: str | None = None
    files_accessed: list[str] = Field(default_factory=list)
    files_hallucinated: list[str] = Field(default_factory=list)
    question_time: float = 0.0


class _Log:
    """A patient's conversation with a model."""

    def __init__(self, path: Path) -> None:
        self.path, self.case, self.model = path, path.name.split("_", 1)[0], path.parent.name
        value = read_json(path)
        try:
            *rows, last = value
            self.rows = [_Question.model_validate(row) for row in rows]
            self.prompts = [
                str(turn["content"]) for turn in last["conversation"] if turn["role"] == "user"
            ]
        except ValidationError as error:
            raise InputError(f"{path}: {describe_problems(error)}") from None
        except (TypeError, KeyError, ValueError):
            raise InputError(
                f"{path}: expected a list of questions followed by the conversation"
            ) from None


def load_track(folder: Path, track: str) -> Loaded:
    """Load a track from all models' conversations in its folder.

    Raises
    ------
    InputError
        If a file is not such a log, or two models' logs disagree about a question or its
        answer.
    """
    logs: dict[str, dict[str, _Log]] = defaultdict(dict)
    for path in sorted(folder.glob("*/*_chatlog_*.json")):
        log = _Log(path)
        logs[log.case][log.model] = log
    if not logs:
        raise InputError(f"{folder}: no MODEL/PATIENT_chatlog_TIME.json found")
    drugs: dict[str, str] = {}
    cases, keys = [], {}
    published: dict[str, list[Answered]] = defaultdict(list)
    for name, by_model in sorted(logs.items()):
        case, letters = _build_case(name, track, list(by_model.values()), drugs)
        cases.append(case)
        keys[name] = letters
        for model, log in by_model.items():
            published[model] += [
                Answered(
                    key="", case=name, number=asked.number, kind=asked.kind,
                    truth=letters[asked.number],
                    answer=parse_letter(row.response or "", asked.options),
                    files=tuple(row.files_accessed), hallucinated=tuple(row.files_hallucinated),
                    seconds=round(row.question_time, 2),
                )
                for asked, row in zip(case.questions, log.rows, strict=True)
            ]  # fmt: skip
    given = {
        agent.strip().casefold()
        for case in cases for file in case.files
        for agent in re.findall(r"AGENT: ([^,\n]+)", file.text or "")
    }  # fmt: skip
    return Loaded(
        track=track, cases=tuple(cases), keys=keys,
        published={model: tuple(rows) for model, rows in published.items()},
        drugs={name: text for name, text in drugs.items() if name in given},
    )  # fmt: skip


def _build_case(
    name: str, track: str, logs: list[_Log], drugs: dict[str, str]
) -> tuple[Case, dict[int, str]]:
    first = logs[0]
    same = [(row.question, row.answer) for row in first.rows]
    for other in logs[1:]:
        if [(row.question, row.answer) for row in other.rows] != same:
            raise InputError(
                f"{other.path}: questions or answers differ from those in {first.path}"
            )
    stages, at = _parse_stages(first)
    questions, letters = [], {}
    for number, row in enumerate(first.rows, 1):
        options = {letter: words.strip() for letter, words in OPTION.findall(row.question)}
        options = options if len(options) > 1 else {}
        truth = parse_letter(row.answer.split("\n")[0].strip(" *"), options) or parse_letter(
            row.answer.strip()[:2], options
        )
        if truth is None:
            raise InputError(
                f"{first.path}: question {number}: the answer contains no option letter"
            )
        letters[number] = truth
        text = row.question.split("\n---")[0].strip()
        kind = _classify(track, at[number - 1], text)
        questions.append(BoardQuestion(number=number, stage=at[number - 1], kind=kind, text=text,
                                       options=options, age=parse_age(text)))  # fmt: skip
    shown, stained = _collect_shown(logs, drugs)
    files = tuple(
        CaseFile(name=listed, text=shown.get(listed), percent_positive=stained.get(listed),
                 missing="" if listed in shown else "not in the published conversations")
        for listed in dict.fromkeys(n for stage in stages for n in stage.listed)
    )  # fmt: skip
    case = Case(id=name, stages=tuple(stages), files=files, questions=tuple(questions))
    return case, letters


def _parse_stages(log: _Log) -> tuple[list[Stage], list[int]]:
    """Parse the stages of a conversation, and the stage of each question."""
    stages: list[Stage] = []
    at: list[int] = []
    for text in log.prompts:
        asked = ASKED.search(text)
        if asked is None:
            continue
        context = CONTEXT.search(text)
        if context is not None:
            names = tuple(dict.fromkeys(LISTED.findall(context[2])))
            stages.append(Stage(context=context[1].strip(), listed=names))
        row = log.rows[len(at)] if len(at) < len(log.rows) else None
        if not stages or row is None or asked[1].strip() != row.question.strip():
            raise InputError(f"{log.path}: the conversation does not match the questions")
        at.append(len(stages) - 1)
    if len(at) != len(log.rows):
        raise InputError(
            f"{log.path}: {len(log.rows)} questions, but {len(at)} in its conversation"
        )
    return stages, at


def _collect_shown(
    logs: list[_Log], drugs: dict[str, str]
) -> tuple[dict[str, str], dict[str, float]]:
    """Collect the file texts and stained-image readings shown in the logs."""
    shown: dict[str, str] = {}
    stained: dict[str, float] = {}
    for log in logs:
        for text in log.prompts:
            stained |= {name: float(value) for value, name in STAINED.findall(text)}
            for block in DRUGS.findall(text):
                starts = list(DRUG.finditer(block))
                for found, following in zip(starts, [*starts[1:], None], strict=True):
                    end = following.start() if following else len(block)
                    drugs.setdefault(found[1].casefold(), block[found.end() : end].strip(" ]\n"))
            for name, body in SHOWN.findall(text):
                body = body.strip()
                if Path(name).suffix.lower() in IMAGES:
                    continue
                if shown.setdefault(name, body) != body:
                    raise InputError(
                        f"{log.path}: {name} differs from an earlier version of the same file"
                    )
    return shown, stained


def _classify(track: str, stage: int, text: str) -> str:
    """Return the question's group in the paper (Table 2)."""
    first = text.split("\n", 1)[0].casefold()
    if track == "msk":
        words = (("alive", "outcome"), ("progress", "progression"), ("recurrence", "recurrence"))
        return next((kind for word, kind in words if word in first), "other")
    if "alive in" in first or "recurrence in" in first:
        return "outcome_recurrence"
    return "digital_pathology" if stage == 0 else "hematology"


def ask_all(
    loaded: Loaded, reasoner: Reasoner, agent: str, keep: Path, desk: Desk
) -> Iterator[Answered]:
    """Ask all questions patient by patient, except those already answered in `keep`."""
    before = {row.key: row for row in load_lines(keep, Answered)}
    for case in loaded.cases:
        past: list[Past] = []
        for question in case.questions:
            text = json.dumps([VERSION, agent, case.id, question.model_dump()], sort_keys=True)
            key = hashlib.sha256(text.encode()).hexdigest()[:24]
            row = before.get(key)
            if row is None:
                truth = loaded.keys[case.id][question.number]
                row = _ask(case, question, key, truth, reasoner, tuple(past), desk)
                append_line(keep, row.model_dump_json())
            past.append(Past(question=question.text[:1000], answer=row.answer or "no answer",
                             reason=row.reason[:1000], files=row.files))  # fmt: skip
            yield row


def _ask(
    case: Case, question: BoardQuestion, key: str, truth: str, reasoner: Reasoner,
    past: tuple[Past, ...], desk: Desk,
) -> Answered:  # fmt: skip
    board = Board(case, question.number, desk)
    found: dict[str, Any]
    try:
        reply = ask_board(board, reasoner, past)
    except (UnusableError, BoundError) as error:
        spent, found = error.spent, {"error": one_line(str(error))[:300]}
    else:
        spent = reply.spent
        letter = parse_letter(reply.output.answer, question.options)
        found = {"answer": letter, "reason": one_line(reply.output.reason)}
    return Answered(
        key=key, case=case.id, number=question.number, kind=question.kind, truth=truth,
        files=tuple(board.read), hallucinated=tuple(board.hallucinated),
        tokens=spent.prompt_tokens + spent.completion_tokens, usd=spent.usd,
        seconds=round(spent.seconds, 2), **found,
    )  # fmt: skip


class Score(Strict):
    """Accuracy and that of the best constant letter, with intervals from the same resamples."""

    questions: int
    patients: int
    accuracy: float
    interval: tuple[float, float]
    letter: str
    floor: float
    over: tuple[float, float]


def score(rows: Sequence[Answered]) -> Score:
    """Score the answers in a track."""
    letter = min(Counter(row.truth for row in rows).items(), key=lambda pair: (-pair[1], pair[0]))[
        0
    ]
    patients = sorted({row.case for row in rows})
    right, floor, asked = (np.zeros(len(patients)) for _ in range(3))
    for row in rows:
        place = patients.index(row.case)
        right[place] += row.right
        floor[place] += row.truth == letter
        asked[place] += 1
    if len(patients) == 1:  # resampling a single patient gives no interval
        interval, over = (0.0, 1.0), (-1.0, 1.0)
    else:
        interval = bootstrap(patients, lambda at: right[at].sum() / asked[at].sum())
        over = bootstrap(patients, lambda at: (right[at] - floor[at]).sum() / asked[at].sum())
    return Score(
        questions=len(rows), patients=len(patients), accuracy=right.sum() / asked.sum(),
        interval=interval, letter=letter, floor=floor.sum() / asked.sum(), over=over,
    )  # fmt: skip


def run(
    folder: Annotated[Path, typer.Argument(help="Folder of the published conversations.")],
    chat: Annotated[bool, typer.Option("--chat", help="Ask the settings' model.")] = False,
    keep: Annotated[Path, typer.Option(help="Folder of the model's answers.")] = Path("bench-mtb"),
    budget_usd: Annotated[float | None, typer.Option(min=0, help="Limit on the cost.")] = None,
) -> Report:
    """Score published answers, and those from a model."""
    found = [
        load_track(folder / name, track)
        for track, name in TRACKS.items() if (folder / name).is_dir()
    ]  # fmt: skip
    if not found:
        raise InputError(f"{folder}: none of {', '.join(TRACKS.values())} found")
    rows, data = [], []
    for loaded in found:
        published = {model: score(answers) for model, answers in loaded.published.items()}
        best = max(published, key=lambda model: published[model].accuracy)
        own = _ask_model(loaded, keep, budget_usd) if chat else []
        mine = score(own) if own else None
        shown = published[best]
        rows.append(Row(
            benchmark=f"MTBBench, {loaded.track}",
            measured=f"{shown.patients} patients, {shown.questions} questions",
            baseline=f"{shown.floor:.1%} (always {shown.letter})",
            published=f"{percent(shown.accuracy, shown.interval)} ({best})",
            sage=percent(mine.accuracy, mine.interval) if mine else "needs a model",
            cost=f"{sum(row.usd for row in own):.2f} USD" if own else NONE,
            notes=("\"best published\" is the best of the conversations at hand, scored here.",),
        ))  # fmt: skip
        data.append({
            "track": loaded.track,
            "published": {model: item.model_dump() for model, item in published.items()},
            "sage": mine and mine.model_dump(),
        })  # fmt: skip
    return Report(command="mtb FOLDER --json", rows=tuple(rows), data=data)


def _ask_model(loaded: Loaded, keep: Path, budget_usd: float | None) -> list[Answered]:
    from sage.core.llm.trace import Trace
    from sage.run.wiring import make_chat
    from sage.settings import load
    from sage_tumor_board.desk import make_desk

    settings = load(reasoner="chat").model_copy(update={"repairs": REPLIES - 1})
    desk = make_desk(settings, drugs=loaded.drugs)
    reasoner = make_chat(settings, keep, budget_usd=budget_usd, trace=Trace(keep / "trace.jsonl"))
    agent = reasoner.settings.models[ROLE].name
    return list(ask_all(loaded, reasoner, agent, keep / f"{loaded.track}.jsonl", desk))
