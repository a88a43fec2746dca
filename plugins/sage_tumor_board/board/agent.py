"""The agent of the board: its input, its answer, and what an acceptable answer is."""

from __future__ import annotations

from dataclasses import replace

from agents.base import Agent, Reasoner, Reply, Resources, Role, prompt_file
from sage.core.errors import FaultError
from sage.core.llm.turns import Bounds
from sage_tumor_board.board.board import Board
from sage_tumor_board.board.rules.policy import TURNS as RULE_TURNS
from sage_tumor_board.board.rules.policy import policy_of
from sage_tumor_board.board.types import BoardAnswer, BoardInput, Past, letter_of

REPLIES = 3
"""A question is wrong after so many replies without an answer that can be read (E.4)."""
TURNS = 24
ROLE = Role.HIGH


def answer_problems(given: BoardInput, output: BoardAnswer) -> list[str]:
    """An answer that names none of the options."""
    if letter_of(output.answer, given.options) is not None:
        return []
    letters = ", ".join(given.options or "ABCDEF")
    return [f"answer: give one letter of {letters}"]


def _no_rule(_: BoardInput, __: Resources) -> BoardAnswer:
    raise FaultError("the tumor board's rules work with its tools alone")


AGENT = Agent(
    name="tumor_board", role=ROLE, reads=BoardInput, returns=BoardAnswer,
    prompt=prompt_file(__file__, "board.md"), rule=_no_rule, check=answer_problems,
)  # fmt: skip


def ask_board(
    board: Board, reasoner: Reasoner, earlier: tuple[Past, ...] = ()
) -> Reply[BoardAnswer]:
    """Let a reasoner answer the board's question with its tools.

    Parameters
    ----------
    board : a question of a patient
    reasoner : a model, or the rules (`sage_tumor_board.board.rules`)
    earlier : the agent's own answers to earlier questions of this patient
    """

    given = BoardInput(
        contexts=board.contexts, question=board.question.text, options=board.question.options,
        files=board.listed, earlier=earlier,
    )  # fmt: skip
    tools = board.tools()
    turns = RULE_TURNS if reasoner.name == "rules" else TURNS
    policy = policy_of(frozenset(tool.name for tool in tools))
    agent = replace(AGENT, tools=tools, bounds=Bounds(turns=turns), policy=policy)
    return reasoner.ask(agent, given)
