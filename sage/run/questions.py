"""The question of a run: read, corrected, shown, and held against graph and cohort."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from agents.question.carried import account_line, without_subgroups
from agents.question.types import (
    CohortWords,
    GraphName,
    Part,
    PartRole,
    Question,
    QuestionInput,
    Reading,
)
from sage.core.data import data_root
from sage.core.errors import InputError
from sage.core.files import read_json
from sage.core.models import Strict, read_model
from sage.run.folder import RunFolder

if TYPE_CHECKING:
    from kg.graph.model import Graph
    from kg.lexicon.ontology import Ontology
    from validation.core.dictionary import DataDictionary
    from validation.core.hypothesis import Hypothesis


LONGEST = 2000


@dataclass(frozen=True)
class Corrections:
    """What the asker says beside the question: other parts, parts to leave out, a whole contract.

    `yes` goes on without asking, also where graph, cohort and question are about other diseases.
    """

    replaced: dict[PartRole, tuple[str, ...]] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    edited: Path | None = None
    yes: bool = False


def question_input(prompt: str, dictionary: DataDictionary, graph: Graph | None) -> QuestionInput:
    """The prompt with the names that graph and cohort have.

    Raises
    ------
    InputError
        If the prompt is too long to be a question.
    """
    if len(prompt) > LONGEST:
        raise InputError(
            f"the question has {len(prompt):,} characters, and at most {LONGEST:,} are read; ask"
            " one question, and leave its background to the literature"
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
    folder = data_root() / "signatures"
    return {
        path.stem: tuple(json.loads(path.read_text(encoding="utf-8"))["genes"])
        for path in sorted(folder.glob("*.json"))
    }


def _graph_names(graph: Graph) -> tuple[GraphName, ...]:
    names = []
    for node in range(graph.n_nodes):
        view = graph.node(node)
        names.append(
            GraphName(
                name=view.name,
                kind=view.type,
                aliases=(*view.aliases, *view.synonyms),
                degree=view.degree,
            )
        )
    return tuple(names)


def contract(
    given: QuestionInput, reading: Reading, ontology: Ontology, corrections: Corrections
) -> Question:
    """The contract of a reading, with the asker's corrections.

    Parameters
    ----------
    given : the question, with the names that cohort and graph have
    reading : what the rules or a model read in it, in the question's own words
    ontology : finds entities by their names and synonyms
    corrections : parts replaced or left out, or a file with a whole contract in place of both

    Returns
    -------
    Each part of the question with the variables that stand for it, or the reason why none does.

    Raises
    ------
    InputError
        If an edited contract cannot be read, or a correction names what is not there.
    """
    from agents.question.correct import corrected, edited
    from agents.question.ground import ground
    from agents.question.vocabulary import Vocabulary

    vocabulary = Vocabulary(given, ontology)
    if corrections.edited is not None:
        read = ground(given, reading, vocabulary)
        return edited(_read_file(corrections.edited), given, read)
    return corrected(given, reading, vocabulary, corrections.replaced, corrections.dropped)


def _read_file(path: Path) -> Question:
    try:
        found = read_json(path)
        return Question.model_validate(found.get("question", found))
    except FileNotFoundError:
        raise InputError(
            f"--question: there is no {path}; `sage ask … --json` writes one"
        ) from None
    except (ValidationError, ValueError, AttributeError) as error:
        first = str(error).splitlines()[0]
        raise InputError(
            f"--question {path}: this is no contract of a question ({first}); begin from"
            " `sage ask … --json`"
        ) from None


class Redesign(Strict):
    """Why a hypothesis was drafted anew: which one was infeasible, and why."""

    of: str
    reason: str


def redesign_of(folder: RunFolder, hypothesis_id: str) -> Redesign | None:
    """What the hypothesis is a redesign of, if it is one."""
    path = folder.output(f"redesign-{hypothesis_id}")
    return read_model(path, Redesign) if path.exists() else None


def question_of(folder: RunFolder, hypothesis_id: str = "") -> Question:
    """The contract of a run's question, as a hypothesis of the run has to answer it.

    A redesign is for all patients; of a run begun before there was a contract, it is the prompt.
    """
    path = folder.output("question_contract")
    if not path.exists():
        return Question(prompt=folder.manifest().prompt)
    question = read_model(path, Question)
    redesign = redesign_of(folder, hypothesis_id)
    if redesign is None:
        return question
    return without_subgroups(question, f"left out, because {redesign.of} was infeasible with it")


def carries(folder: RunFolder, hypothesis: Hypothesis) -> str:
    """The first line of terminal and report on a hypothesis: what it answers of the question."""
    line = account_line(question_of(folder, hypothesis.id), hypothesis)
    redesign = redesign_of(folder, hypothesis.id)
    if redesign is None:
        return line
    return f"{line} Redesign of {redesign.of}, which was infeasible: {redesign.reason}"


def refuse(question: Question) -> None:
    """Raise where the question cannot be answered as it stands.

    Raises
    ------
    InputError
        With each reason and what to do.
    """
    if question.refusals:
        raise InputError(" ".join(question.refusals))


def settle(question: Question, *, yes: bool) -> None:
    """Let the asker agree: on a terminal by asking, in a script by `--yes` where diseases differ.

    Raises
    ------
    InputError
        If diseases differ and nobody agreed, or the asker declined.
    """
    mismatches = question.setting.mismatches
    if yes:
        return
    remedy = (
        "Give a cohort with --cohort, build a graph of its literature (`sage kg build`, then --kg),"
        " or go on all the same with --yes."
    )
    if not sys.stdin.isatty():
        if mismatches:
            raise InputError(f"{' '.join(mismatches)} {remedy}")
        return
    from sage.cli.console import err

    if mismatches:
        err.print(f"[yellow]{' '.join(mismatches)}[/] {remedy}", soft_wrap=True)
    err.print("Go on with this question? [Y/n] " if not mismatches else "Go on? [y/N] ", end="")
    answer = sys.stdin.readline().strip().lower()
    if answer in ("y", "yes") or (answer == "" and not mismatches):
        return
    raise InputError(
        "stopped at the question; correct it with --exposure, --endpoint, --modifier, --treatment,"
        " --population, --drop, or edit what `sage ask … --json` prints and give it with --question"
    )


def lines(question: Question, *, begun: bool = False) -> list[str]:
    """The contract in words, one line per part. Refusals end the command in a line of their own.

    A run that has `begun` was agreed to: nobody is asked to.
    """
    out = [f"{question.intent.value.replace('_', ' ')} ({question.language})"]
    width = max((len(part.role.value) for part in question.parts), default=0)
    out += [f"  {part.role.value:<{width}}  {_part(part)}" for part in question.parts]
    if not question.named(PartRole.ENDPOINT) and not question.refusals:
        out.append("  endpoint: none named; the hypothesis chooses one")
    if question.direction is not None:
        out.append(f"  direction: {question.direction.value.replace('_', ' ')}")
    setting = question.setting
    about = {"question": setting.asked, "cohort": setting.cohort, "graph": setting.graph}
    said = "; ".join(f"{what}: {name or 'not said'}" for what, name in about.items())
    out.append(f"  disease: {said}")
    names = sorted({name for name in about.values() if name})
    if len(names) > 1 and not setting.mismatches:
        out.append(
            f"  note: {' and '.join(names)} are taken as one setting, by the organ; what is found"
            " in one need not hold in the other"
        )
    out += [f"  note: {note}" for note in question.notes]
    out += [f"  mismatch: {text}" for text in setting.mismatches]
    if setting.mismatches and not begun:
        out.append("  before a run: agree to it with --yes, or give another --cohort or --kg")
    return out


def _part(part: Part) -> str:
    words = f'"{part.words}"'
    if part.negated:
        words = f"not {words}"
    if part.level:
        words += f" ({part.level})"
    if part.left_out:
        return f"{words}: {part.left_out}"
    if part.testable:
        return f"{words} = {_carrier(part)}"
    how = part.supply[0].how if part.supply else "the cohort does not measure it"
    near = f" Nearest: {', '.join(part.nearest)}." if part.nearest else ""
    what = f"{part.name}, unknown to the cohort" if part.name else "unknown"
    return f"{words}: {what}; {how}.{near}"


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
