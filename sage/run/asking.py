"""The first step of a run: its question is read and becomes a contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.question.agent import QUESTION
from sage.core.files import write_json
from sage.run.questions import Corrections, contract, question_input

if TYPE_CHECKING:
    from agents.question.types import Question
    from sage.run.services import Services


def ask_question(services: Services, corrections: Corrections) -> Question:
    """Read the run's question, with the asker's corrections, and keep its contract."""
    folder = services.folder
    with services.node("question"):
        given = question_input(services.manifest.prompt, services.dictionary, services.graph)
        try:
            reading = services.ask(QUESTION, given, "question").output
            question = contract(given, reading, services.ontology, corrections)
        except Exception as error:
            folder.update(status="failed", problem=str(error)[:1000])
            raise
        write_json(folder.output("question_contract"), question)
    return question
