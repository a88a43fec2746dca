"""Correction of a question by the user: changed or dropped parts, or an edited contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agents.question.ground import ground
from agents.question.names import key_of
from agents.question.types import Asked, Part, PartRole, Question, QuestionInput, Reading
from agents.question.vocabulary import Vocabulary
from sage.core.errors import InputError


def apply_corrections(
    given: QuestionInput,
    reading: Reading,
    vocabulary: Vocabulary,
    replaced: Mapping[PartRole, Sequence[str]],
    dropped: Sequence[str] = (),
) -> Question:
    """Return the contract with the user's corrections, each recorded as a note.

    Raises
    ------
    InputError
        If a word to drop is not in the question, or a correction is itself unknown.
    """
    wanted = {key_of(words): words for words in dropped}

    def is_dropped(part: Asked | Part) -> bool:
        return bool({key_of(part.words), key_of(part.name)} & {*wanted})

    parts = [part for part in reading.parts if not replaced.get(part.role)]
    notes = list(reading.notes)
    for role, several in replaced.items():
        parts += [Asked(words=words, role=role, name=words) for words in several]
        notes += [f'You set the {role.value} to "{words}".' for words in several]
    refusals = () if replaced else reading.refusals
    fields = {"parts": tuple(parts), "notes": tuple(notes), "refusals": refusals}
    changed = reading.model_copy(update=fields)
    whole = ground(given, changed, vocabulary, reading)
    named = {key for part in whole.parts for key in (key_of(part.words), key_of(part.name))}
    for words in (words for key, words in wanted.items() if key not in named):
        listed = ", ".join(part.quoted for part in whole.parts) or "none"
        raise InputError(
            f'--drop "{words}": the question has no such part; available parts: {listed}'
        )
    if not wanted:
        return whole
    kept = tuple(part for part in parts if not is_dropped(part))
    question = ground(given, changed.model_copy(update={"parts": kept}), vocabulary, reading)
    others = [part for part in question.parts if key_of(part.words) not in wanted]
    left_out = {"left_out": "left out at the asker's word"}
    others += [part.model_copy(update=left_out) for part in whole.parts if is_dropped(part)]
    return question.model_copy(update={"parts": tuple(others)})


BY_HAND = "the asker's own choice"


def check_edited(question: Question, given: QuestionInput, read: Question) -> Question:
    """Check an edited contract against the cohort and the original question, and return it.

    Parts that the user reassigned to another variable or removed are noted; a part whose
    variables do not match its wording is marked wherever it is used.

    Raises
    ------
    InputError
        If the contract belongs to another question, names a variable or an endpoint that the
        cohort does not have, or has a condition that no value meets.
    """
    if " ".join(question.prompt.split()) != " ".join(given.prompt.split()):
        raise InputError(
            f'--question: the contract is for another question ("{question.prompt[:200]}"); create'
            " a new contract with `sage ask … --json`, or use the original question"
        )
    keys = {variable.key for variable in given.cohort.variables}
    keys |= {f"expression:{gene}" for gene in given.cohort.genes}
    endpoints = {endpoint.key for endpoint in given.cohort.endpoints}
    for part in question.parts:
        named = [*part.variables, *(item.variable for item in part.filters)]
        strange = next((key for key in named if key not in keys), "")
        problem = ""
        if strange:
            problem = f"refers to {strange}, which {given.cohort.cohort} does not have; see"
            problem += " `sage cohort show`"
        for item in part.filters:
            number, several = isinstance(item.value, float), isinstance(item.value, tuple)
            ordered = item.op in ("lt", "le", "gt", "ge")
            if several != (item.op == "in") or (ordered and not number) or (
                item.value is None and item.op != "present"
            ):  # fmt: skip
                problem = f'has an invalid condition {item.variable} {item.op} {item.value}; "in"'
                problem += " requires a list, and lt, le, gt and ge require a number"
        if part.role is PartRole.ENDPOINT and not part.endpoint and part.variables:
            problem = "is an endpoint but lists variables; set `endpoint` to one of: "
            problem += ", ".join(sorted(endpoints))
        if part.endpoint and part.endpoint not in endpoints:
            problem = f"refers to unknown endpoint {part.endpoint}; {given.cohort.cohort} has "
            problem += ", ".join(sorted(endpoints))
        if problem:
            raise InputError(f"--question: part {part.quoted} {problem}")
    before = {(part.role, key_of(part.words)): part for part in read.parts}
    notes, parts = list(question.notes), []
    for part in question.parts:
        was = before.pop((part.role, key_of(part.words)), None)
        carried = (*part.variables, part.endpoint, *(str(item) for item in part.filters))
        if was is None:
            notes.append(f"The asker added the {part.role.value} {part.quoted}.")
        elif carried != (*was.variables, was.endpoint, *(str(item) for item in was.filters)):
            notes.append(f"The asker changed what {part.quoted} is measured by.")
            if part.variables and not set(part.variables) <= set(was.variables):
                part = part.model_copy(update={"stands_in": BY_HAND})
        parts.append(part)
    notes += [
        f"The asker took out the {part.role.value} {part.quoted}." for part in before.values()
    ]
    return question.model_copy(update={"parts": tuple(parts), "notes": tuple(dict.fromkeys(notes))})
