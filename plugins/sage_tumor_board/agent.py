"""The board's two agents, for MTBBench's multiple choice and for passages in patient files."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from agents.core.base import Agent, Reasoner, Reply, Resources, Role, View, prompt_file
from sage.core.errors import InputError
from sage.core.llm.turns import Bounds
from sage.core.models import Strict
from sage_tumor_board.board import Board
from sage_tumor_board.case import parse_letter

REPLIES = 3
"""Number of unusable replies after which a question counts as wrong (E.4)."""
ROLE = Role.HIGH
BOUNDS = Bounds(turns=24)
MOST_PASSAGES = 40


class Past(Strict):
    """An earlier question about this patient, with the agent's own answer."""

    question: str
    answer: str
    reason: str
    files: tuple[str, ...]


class BoardInput(View):
    """A multiple-choice question with file names, never file texts."""

    contexts: tuple[str, ...]
    question: str
    options: dict[str, str]
    files: tuple[str, ...]
    earlier: tuple[Past, ...] = ()


class BoardAnswer(View):
    """A letter and the reason for it."""

    answer: str = Field(max_length=400)
    reason: str = Field(default="", max_length=3000)


class PassagesInput(View):
    """A question about a patient, and the names of the files available as of `as_of`."""

    question: str
    files: tuple[str, ...]
    as_of: str


class Passage(Strict):
    """An exact quote from a file."""

    file: str = Field(max_length=200)
    quote: str = Field(max_length=600)


class Passages(View):
    """Passages relevant to a question, with no field for the model's own words."""

    passages: tuple[Passage, ...] = Field(default=(), max_length=MOST_PASSAGES)


def _check_letter(given: BoardInput, output: BoardAnswer) -> list[str]:
    if parse_letter(output.answer, given.options) is not None:
        return []
    return [f"answer: give one letter of {', '.join(given.options or 'ABCDEF')}"]


def check_passages(board: Board, output: Passages) -> list[str]:
    """List passages that do not occur in a file that was opened, measured, or found."""
    texts = {file.name: file.text or "" for file in board.case.files if file.name in board.read}
    problems = []
    for number, item in enumerate(output.passages, 1):
        known = (texts.get(item.file), board.measured.get(item.file), board.papers.get(item.file))
        if not any(text is not None for text in known):
            problems.append(f"passage {number}: file {item.file!r} was not opened")
        elif not any(text and _occurs(item.quote, text) for text in known):
            problems.append(
                f"passage {number}: its quote does not occur in {item.file}; copy it exactly"
            )
        elif sum(map(str.isalnum, item.quote)) < 2:
            problems.append(f"passage {number}: its quote has no words")
    return problems


def _occurs(quote: str, text: str) -> bool:
    plain = " ".join(quote.split())
    return bool(plain) and plain in " ".join(text.split())


def _refuse(_: View, __: Resources) -> Passages | BoardAnswer:
    raise InputError("the tumor board requires a language model")


BOARD = Agent(
    name="tumor_board", role=ROLE, reads=BoardInput, returns=BoardAnswer,
    prompt=prompt_file(__file__, "board.md"), rule=_refuse,  # type: ignore[arg-type]
    check=_check_letter, bounds=BOUNDS,
)  # fmt: skip
PASSAGES = Agent(
    name="tumor_board_passages", role=ROLE, reads=PassagesInput, returns=Passages,
    prompt=prompt_file(__file__, "passages.md"), rule=_refuse,  # type: ignore[arg-type]
    bounds=BOUNDS,
)  # fmt: skip


def ask_board(
    board: Board, reasoner: Reasoner, earlier: tuple[Past, ...] = ()
) -> Reply[BoardAnswer]:
    """Ask a model the board's multiple-choice question, with the board's tools."""
    given = BoardInput(
        contexts=board.contexts, question=board.question.text, options=board.question.options,
        files=board.listed, earlier=earlier,
    )  # fmt: skip
    return reasoner.ask(replace(BOARD, tools=board.tools()), given)


def find_passages(board: Board, reasoner: Reasoner, as_of: str) -> Reply[Passages]:
    """Ask a model for passages relevant to the board's question.

    Every passage occurs verbatim, apart from spaces, in a file that the model opened.
    """
    agent = replace(
        PASSAGES, tools=board.tools(), check=lambda _, output: check_passages(board, output)
    )
    given = PassagesInput(question=board.question.text, files=board.listed, as_of=as_of)
    return reasoner.ask(agent, given)
