"""Patients rebuilt from published conversations, in which the text of files stands.

A folder holds one folder per model, with one JSON file per patient: a list of questions with
`question`, `answer`, `response`, `files_accessed`, `files_hallucinated`, and last the conversation.
What models wrote is read only for `replay`, and never becomes part of a case.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from benchmarks.adapters.mtb.types import Loaded, Said, absent_files
from sage.core.errors import InputError
from sage.core.files import read_json
from sage.core.llm.turns import problems_of
from sage_tumor_board.board.types import (
    IMAGES,
    BoardQuestion,
    Case,
    CaseFile,
    Key,
    Stage,
    Track,
    age_of,
    kind_of,
    letter_of,
    options_of,
)

FOLDERS = {Track.HANCOCK: "agent_logs_hancock", Track.MSK: "agent_logs_msk"}
MOST_BYTES = 64 << 20
ASKED = re.compile(r"\n Question: (.*?)\n? ?Remember that you can ask", re.DOTALL)
TOLD = re.compile(
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


class _Row(BaseModel):
    question: str
    answer: str
    response: str | None = None
    files_accessed: list[str] = Field(default_factory=list)
    files_hallucinated: list[str] = Field(default_factory=list)
    question_time: float = 0.0


class _Message(BaseModel):
    role: str
    content: str


class _Log:
    """One patient's conversation with one model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.case = path.name.split("_", 1)[0]
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path}: larger than {MOST_BYTES >> 20} MiB")
        value = read_json(path)
        try:
            if not isinstance(value, list) or len(value) < 2:
                raise InputError(f"{path}: no list of questions with the conversation at its end")
            self.rows = [_Row.model_validate(row) for row in value[:-1]]
            last: Any = value[-1]
            turns = last.get("conversation") if isinstance(last, dict) else None
            if not isinstance(turns, list):
                raise InputError(f"{path}: its last entry holds no conversation")
            said = [_Message.model_validate(turn) for turn in turns]
        except ValidationError as error:
            raise InputError(f"{path}: {problems_of(error)}") from None
        self.told = [message.content for message in said if message.role == "user"]


def read(folder: Path, track: Track) -> Loaded:
    """Patients of a track from the conversations of all models in its folder.

    Raises
    ------
    InputError
        If a file is no such log, or two models' logs disagree about a question or its answer.
    """
    root = folder.resolve()
    logs: dict[str, dict[str, _Log]] = defaultdict(dict)
    for path in sorted(folder.glob("*/*_chatlog_*.json")):
        if not path.resolve().is_relative_to(root):
            raise InputError(f"{path}: a link out of the folder")
        log = _Log(path)
        if path.parent.name in logs[log.case]:
            raise InputError(f"{path}: a second log of patient {log.case} by {path.parent.name}")
        logs[log.case][path.parent.name] = log
    if not logs:
        raise InputError(f"{folder}: no MODEL/PATIENT_chatlog_TIME.json in it")
    drugs: dict[str, str] = {}
    cases, keys = [], {}
    said: dict[str, dict[str, dict[int, Said]]] = defaultdict(dict)
    for name, by_model in sorted(logs.items()):
        case, key = _case(name, track, list(by_model.values()), drugs)
        cases.append(case)
        keys[name] = key
        for model, log in by_model.items():
            said[model][name] = {
                number: Said(
                    letter=letter_of(row.response or "", case.questions[number - 1].options),
                    files=tuple(row.files_accessed), hallucinated=tuple(row.files_hallucinated),
                    seconds=row.question_time,
                )
                for number, row in enumerate(log.rows, 1)
            }  # fmt: skip
    return Loaded(
        track=track, cases=tuple(cases), keys=keys, said=dict(said), drugs=_agents(drugs, cases),
        absent={case.id: absent_files(case) for case in cases},
    )  # fmt: skip


def _case(name: str, track: Track, logs: list[_Log], drugs: dict[str, str]) -> tuple[Case, Key]:
    first = logs[0]
    for other in logs[1:]:
        if [(r.question, r.answer) for r in other.rows] != [
            (r.question, r.answer) for r in first.rows
        ]:
            raise InputError(f"{other.path}: other questions or answers than {first.path}")
    stages, at = _stages(first)
    questions, letters = [], {}
    for number, row in enumerate(first.rows, 1):
        options = options_of(row.question)
        truth = letter_of(row.answer.split("\n")[0].strip(" *"), options) or letter_of(
            row.answer.strip()[:2], options
        )
        if truth is None:
            raise InputError(f"{first.path}: question {number}: no letter in its answer")
        letters[number] = truth
        text = row.question.split("\n---")[0].strip()
        questions.append(
            BoardQuestion(
                number=number, stage=at[number - 1], kind=kind_of(track, at[number - 1], text),
                text=text, options=options, age=age_of(text),
            )
        )  # fmt: skip
    shown, stained = _shown(logs, drugs)
    files = []
    for listed in dict.fromkeys(n for stage in stages for n in stage.listed):
        body = shown.get(listed)
        missing = "" if body is not None else "not in the published conversations"
        files.append(
            CaseFile(name=listed, text=body, percent_positive=stained.get(listed), missing=missing)
        )
    case = Case(id=name, track=track, stages=tuple(stages), files=tuple(files),
                questions=tuple(questions))  # fmt: skip
    return case, Key(case=name, letters=letters)


def _stages(log: _Log) -> tuple[list[Stage], list[int]]:
    """The stages of a conversation, and the stage of each question."""
    stages: list[Stage] = []
    at: list[int] = []
    for text in log.told:
        asked = ASKED.search(text)
        if asked is None:
            continue
        told = TOLD.search(text)
        if told is not None:
            names = tuple(dict.fromkeys(LISTED.findall(told[2])))
            stages.append(Stage(context=told[1].strip(), listed=names))
        row = log.rows[len(at)] if len(at) < len(log.rows) else None
        if not stages or row is None or asked[1].strip() != row.question.strip():
            raise InputError(f"{log.path}: its conversation does not follow its questions")
        at.append(len(stages) - 1)
    if len(at) != len(log.rows):
        raise InputError(f"{log.path}: {len(log.rows)} questions, {len(at)} in its conversation")
    return stages, at


def _shown(logs: list[_Log], drugs: dict[str, str]) -> tuple[dict[str, str], dict[str, float]]:
    """What the environment showed of each file, and its readings of stained images."""
    shown: dict[str, str] = {}
    stained: dict[str, float] = {}
    for log in logs:
        for text in log.told:
            for percent, name in STAINED.findall(text):
                stained[name] = float(percent)
            for block in DRUGS.findall(text):
                _note_drugs(block, drugs)
            for name, body in SHOWN.findall(text):
                body = body.strip()
                if Path(name).suffix.lower() in IMAGES:
                    continue
                if shown.setdefault(name, body) != body:
                    raise InputError(
                        f"{log.path}: {name} has another text than where it was shown before; what"
                        " was known when cannot be told"
                    )
    return shown, stained


def _note_drugs(block: str, drugs: dict[str, str]) -> None:
    starts = list(DRUG.finditer(block))
    for found, following in zip(starts, [*starts[1:], None], strict=True):
        end = following.start() if following else len(block)
        drugs.setdefault(found[1].casefold(), block[found.end() : end].strip(" ]\n"))


def _agents(drugs: dict[str, str], cases: list[Case]) -> dict[str, str]:
    """Descriptions of what patients were given; the published look-up also matched other words."""
    given = {
        agent.strip().casefold()
        for case in cases
        for file in case.files
        for agent in re.findall(r"AGENT: ([^,\n]+)", file.text or "")
    }
    return {name: text for name, text in drugs.items() if name in given}
