"""The question agent, which turns a prompt into a contract."""

from __future__ import annotations

from agents.core.base import Agent, Resources, Role, prompt_file
from agents.question.names import key_of
from agents.question.read import read_by_rules
from agents.question.types import PartRole, QuestionInput, Reading
from agents.question.vocabulary import Vocabulary
from sage.core.printable import quote_text


def read_question(given: QuestionInput, resources: Resources) -> Reading:
    """Read the question with rules (see `agents.question.read.read`)."""
    return read_by_rules(given.prompt, Vocabulary(given, resources.ontology))


def check_reading(given: QuestionInput, reading: Reading) -> list[str]:
    """Check that parts quote the prompt, that each has a name, and that no symbol was altered.

    There must be an exposure, or a reason why there is none.
    """
    prompt = key_of(given.prompt)
    problems = [
        f"part {quote_text(part.words)} is not in the question; quote its words exactly"
        for part in reading.parts
        if key_of(part.words) not in prompt
    ]
    problems += [
        f"part {quote_text(part.words)} has no name; write the concept in plain English"
        for part in reading.parts
        if not part.name.strip()
    ]
    problems += [
        f'"{part.corrected_from}" is a symbol: symbols are not corrected, name it as it stands'
        for part in reading.parts
        if any(char.isdigit() for char in part.corrected_from)
    ]
    if not reading.parts and not reading.refusals and given.prompt.strip():
        problems.append("name the parts of the question, or refuse it and say why")
    if sum(part.role is PartRole.ENDPOINT for part in reading.parts) > 3:
        problems.append("name at most three endpoints")
    return problems


QUESTION = Agent(
    name="question",
    role=Role.NANO,
    reads=QuestionInput,
    returns=Reading,
    prompt=prompt_file(__file__, "question.md"),
    rule=read_question,
    check=check_reading,
    spare=("cohort.notes", "cohort.variables"),
)
