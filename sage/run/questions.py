"""A run's question: parsed, corrected, shown, and checked against graph and cohort."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from agents.question.agent import QUESTION, read_question
from agents.question.carried import UNMEASURED, account_line, without_subgroups
from agents.question.types import (
    CohortWords,
    GraphName,
    Intent,
    Part,
    PartRole,
    Question,
    QuestionInput,
    Reading,
)
from sage.core.data import data_root
from sage.core.errors import InputError
from sage.core.files import write_json
from sage.core.models import Strict, read_model
from sage.core.printable import join_names, quote_text
from sage.run.folder import RunFolder
from sage.run.spec import Corrections
from validation.core.hypothesis import Direction

if TYPE_CHECKING:
    from kg.graph.model import Graph
    from kg.lexicon.ontology import Ontology
    from sage.run.services import Services
    from validation.core.dictionary import DataDictionary
    from validation.core.hypothesis import Hypothesis


LONGEST = 2000


def question_input(prompt: str, dictionary: DataDictionary, graph: Graph | None) -> QuestionInput:
    """Combine the prompt with the names that the graph and the cohort contain.

    Raises
    ------
    InputError
        If the prompt is too long to be a question.
    """
    if len(prompt) > LONGEST:
        raise InputError(
            f"the question has {len(prompt):,} characters, but the maximum is {LONGEST:,}; ask "
            "one question, and leave the background to the literature"
        )
    return QuestionInput(
        prompt=prompt,
        cohort=CohortWords(
            cohort=dictionary.cohort,
            title=dictionary.title,
            notes=dictionary.notes,
            variables=dictionary.variables,
            genes=dictionary.expression,
            endpoints=dictionary.endpoints,
            slides=dictionary.slides,
            signature_genes=_signature_genes(),
        ),
        graph=_graph_names(graph) if graph is not None else (),
    )


def _signature_genes() -> dict[str, tuple[str, ...]]:
    """Return the genes in the registered signatures under all of their names."""
    folder = data_root() / "signatures"
    listed = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
    ]
    return {
        " ".join((it["id"], it["label"], *it.get("synonyms", ()))): tuple(it["genes"])
        for it in listed
    }


def _graph_names(graph: Graph) -> tuple[GraphName, ...]:
    nodes = map(graph.node, range(graph.n_nodes))
    return tuple(
        GraphName(
            name=node.name,
            kind=node.type,
            aliases=(*node.aliases, *node.synonyms),
            degree=node.degree,
        )
        for node in nodes
    )


def make_contract(
    given: QuestionInput, reading: Reading, ontology: Ontology, corrections: Corrections
) -> Question:
    """Build a question's contract from its parsed reading and the user's corrections.

    Parameters
    ----------
    corrections : parts to be replaced or dropped, or a whole contract that replaces both

    Returns
    -------
    Each part of the question with the variables that represent it, or the reason why none
    does.

    Raises
    ------
    InputError
        If a correction names a part that the question does not have.
    """
    from agents.question.correct import apply_corrections, check_edited
    from agents.question.ground import ground
    from agents.question.vocabulary import Vocabulary

    vocabulary = Vocabulary(given, ontology)
    if corrections.edited is not None:
        read = ground(given, reading, vocabulary)
        return check_edited(corrections.edited, given, read)
    return apply_corrections(given, reading, vocabulary, corrections.replaced, corrections.dropped)


def read_contract(services: Services) -> Question:
    """Parse the run's question with rules, without storing anything."""
    given = question_input(services.spec.prompt, services.dictionary, services.graph)
    reading = read_question(given, services.resources)
    return make_contract(given, reading, services.ontology, services.spec.corrections)


def ask_question(services: Services) -> Question:
    """Have the run's reasoner read the question, and save the resulting contract."""
    folder = services.folder
    with services.node("question"):
        given = question_input(services.spec.prompt, services.dictionary, services.graph)
        try:
            reading = services.ask(QUESTION, given, "question").output
            question = make_contract(given, reading, services.ontology, services.spec.corrections)
        except Exception as error:
            folder.update(status="failed", problem=str(error)[:1000])
            raise
        write_json(folder.output("question_contract"), question)
    return question


class Redesign(Strict):
    """The infeasible hypothesis that a draft replaces, with the reason."""

    of: str
    reason: str


def redesign_of(folder: RunFolder, hypothesis_id: str) -> Redesign | None:
    """Load the redesign record of a hypothesis; None if it is not a redesign."""
    path = folder.output(f"redesign-{hypothesis_id}")
    return read_model(path, Redesign) if path.exists() else None


def question_of(folder: RunFolder, hypothesis_id: str = "") -> Question:
    """Return the contract of a run's question in the form that a hypothesis must answer.

    A redesigned hypothesis must answer it for all patients. For a run started before
    contracts were introduced, the question is the prompt.
    """
    path = folder.output("question_contract")
    if not path.exists():
        return Question(prompt=folder.manifest().spec.prompt)
    question = read_model(path, Question)
    redesign = redesign_of(folder, hypothesis_id)
    if redesign is None:
        return question
    return without_subgroups(question, f"removed, because {redesign.of} was infeasible with it")


def describe_carried(folder: RunFolder, hypothesis: Hypothesis) -> str:
    """Describe in a single line which part of the question a hypothesis answers."""
    line = account_line(question_of(folder, hypothesis.id), hypothesis)
    redesign = redesign_of(folder, hypothesis.id)
    if redesign is None:
        return line
    return f"{line} Redesign of {redesign.of}, which was infeasible: {redesign.reason}"


def refuse(question: Question, *, yes: bool = False) -> None:
    """Raise an error if the question cannot be answered in its present form.

    With `yes`, a part that the cohort cannot represent is left out, and the answer begins by
    saying so.

    Raises
    ------
    InputError
        With each reason and its remedy.
    """
    lost = () if yes else describe_lost(question)
    if question.refusals or lost:
        raise InputError(" ".join(question.refusals or lost))


def describe_lost(question: Question) -> tuple[str, ...]:
    """Describe each part that the cohort cannot represent, and the options for proceeding."""
    named = " ".join(question.refusals)
    return tuple(
        f"The {part.role.value} {part.quoted} would be lost: {part.supply or UNMEASURED}."
        f"{_did_you_mean(part)}"
        f" Put it in other words, leave it out with --drop {part.quoted}, or continue without it "
        "with --yes."
        for part in question.unknown
        if not (part.left_out or part.setting) and part.quoted not in named
    )


def name_lost(question: Question) -> str:
    """Name the parts omitted from an agreed question; empty if none."""
    lost = [part for part in question.unknown if not part.negated]
    return join_names([f"without the {part.role.value} {part.quoted}" for part in lost])


def _did_you_mean(part: Part) -> str:
    if not part.nearest or part.left_out:
        return ""
    return f" Did you mean {' or '.join(map(quote_text, part.nearest))}?"


AIMS = {
    Intent.RELATE: "Association",
    Intent.PREDICT_RESPONSE: "Benefit from a treatment",
    Intent.MODIFY: "Difference between groups of patients",
    Intent.EXPLAIN: "Mechanism",
    Intent.DISCOVER: "Open question",
}
"""Text describing each aim of a question."""


def describe_question(question: Question, *, begun: bool = False) -> list[str]:
    """Describe the contract as text, one line per part.

    Refusals are not included, since they end the command with a separate message. For a run
    that has `begun`, the user is no longer asked for agreement.
    """
    out = [AIMS[question.intent]]
    if question.language != "en":
        out[0] += f" (language: {question.language})"
    width = max((len(part.role.value) for part in question.parts), default=0)
    out += [
        f"  {part.role.value:<{width}}  {describe_part(part)}{_did_you_mean(part)}"
        for part in question.parts
    ]
    if not question.list_parts(PartRole.ENDPOINT) and not question.refusals:
        out.append("  endpoint: none given; each hypothesis names its own")
    if question.direction is not None:
        sooner = question.direction is Direction.HIGHER_RISK
        words = "more likely or sooner" if sooner else "less likely or later"
        out.append(f"  direction: the outcome's event is {words}")
    elif not question.refusals and question.intent is not Intent.DISCOVER:
        out.append("  direction: none given; both directions are tested")
    setting = question.setting
    about = {"question": setting.asked, "cohort": setting.cohort, "graph": setting.graph}
    names = sorted({name for name in about.values() if name})
    said = "; ".join(f"{what}: {name or 'not said'}" for what, name in about.items())
    same = len(names) == 1 and all(about.values())
    out.append(f"  disease: {f'{names[0]} (question, cohort and graph)' if same else said}")
    if len(names) > 1 and not setting.mismatches:
        out.append(
            f"  note: {' and '.join(names)} are treated as one setting because they share the "
            "organ; findings in one may not apply to the other"
        )
    out += [f"  note: {note}" for note in question.notes]
    out += [f"  mismatch: {text}" for text in setting.mismatches]
    if setting.mismatches and not begun:
        out.append("  before a run: agree to it with --yes, or give another --cohort or --kg")
    return out


def describe_part(part: Part) -> str:
    """Describe the interpretation of a part of the question, or why the part is lost."""
    words = part.quoted
    if part.negated:
        words = f"not {words}"
    if part.level and not part.filters and part.role is not PartRole.COMPARATOR:
        words += f" ({part.level})"
    if part.left_out:
        return f"{words}: {part.left_out}"
    if part.testable:
        return f"{words} = {_carrier(part)}"
    what = f"{part.name}, unknown to the cohort" if part.name else "unknown"
    return f"{words}: {what}; {part.supply or UNMEASURED}."


def _carrier(part: Part) -> str:
    if part.setting:
        return f"{part.name} (the whole cohort)"
    if part.endpoint:
        return f"{part.name} ({part.endpoint})"
    if part.filters:
        return " and ".join(f"{item.variable} {item.op} {item.value}" for item in part.filters)
    if part.open_to and not part.variables:
        kinds = {"expression": "any measured gene", "imaging": "any imaging variable"}
        return kinds.get(part.open_to, "any measured variable")
    shown = ", ".join(part.variables[:4]) + (", …" if len(part.variables) > 4 else "")
    return f"any of {shown}" if part.every or len(part.variables) > 1 else f"{part.name} ({shown})"
