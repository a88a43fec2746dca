"""How well questions are kept: gold prompts against their contract and against the hypothesis.

A part is *kept* where the parse finds it and, of an answered question, the hypothesis carries it;
it is *said* where the contract, a refusal or the account of the hypothesis says that it is lost; it
is *silent* otherwise, which is what must not happen.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agents.question.carried import account
from agents.question.ground import ground
from agents.question.read import read_by_rules
from agents.question.types import Part, PartRole, Question, QuestionInput, Reading
from agents.question.vocabulary import Vocabulary
from sage.core.data import data_root
from sage.core.errors import InputError
from sage.core.models import Strict
from validation.core.hypothesis import Filter, Hypothesis

if TYPE_CHECKING:
    from sage.settings import Settings

COHORTS = {
    "demo": ("demo", ""),
    "gbsg2": ("gbsg2", ""),
    "tcga-blca": ("tcga-blca.toml", "tcga_blca"),
    "imvigor210": ("imvigor210.toml", "cohorts/IMvigor210"),
}
"""Each gold cohort: a name or a shipped cohort.toml, and where its files lie in the shared data."""


class GoldPart(Strict):
    """An expected part; `carriers` are what may carry it, none where the cohort lacks it."""

    role: PartRole
    words: str
    carriers: tuple[str, ...]


class GoldQuestion(Strict):
    """A prompt with its expected parse, and whether it can be answered on the cohort."""

    id: str
    held_out: bool
    kind: str
    cohort: str
    language: str
    intent: str
    outcome: Literal["answer", "refuse"]
    reason: str
    prompt: str
    parts: tuple[GoldPart, ...]


class QuestionScore(Strict):
    """How one prompt fared. `answered`: refused or answered as it should be."""

    id: str
    kind: str
    held_out: bool
    language: bool
    intent: bool
    answered: bool
    parsed: int
    kept: int
    said: int
    silent: int
    parts: int
    statement: str = ""
    trouble: tuple[str, ...] = ()
    skipped: str = ""


@dataclass(frozen=True)
class Answer:
    """What SAGE made of a prompt: its contract, a refusal, a hypothesis."""

    question: Question
    refusal: str = ""
    hypothesis: Hypothesis | None = None


def read_gold(path: Path | None = None) -> list[GoldQuestion]:
    """The gold prompts that ship, or those of a file of the same form."""
    path = path or data_root() / "questions" / "gold.jsonl"
    try:
        text = path.read_text(encoding="utf-8")
        return [GoldQuestion.model_validate(json.loads(line)) for line in text.splitlines()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no gold questions ({str(error).splitlines()[0]})") from None


def read_readings(path: Path) -> dict[str, Reading]:
    """What a model read of each prompt, by the prompt's id.

    Raises
    ------
    InputError
        If the file is not of such lines.
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return {line["id"]: Reading.model_validate(line["reading"]) for line in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: no recorded readings ({str(error).splitlines()[0]})") from None


def score(
    gold: Iterable[GoldQuestion],
    settings: Settings,
    shared: Path | None,
    *,
    hypotheses: bool,
    readings: Mapping[str, Reading] | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> list[QuestionScore]:
    """Read each prompt, draft its hypothesis, and compare both with what was expected.

    Parameters
    ----------
    gold : prompts with their parse
    settings : whose reasoner reads and drafts
    shared : the folder of shared data; prompts on cohorts that need it are skipped without it
    hypotheses : whether hypotheses are drafted, or only the contract is read
    readings : what a model read of each prompt, by id, in the place of the settings' reasoner
    progress : told how many are done
    """
    asker = _Asker(settings, shared, readings)
    out = []
    for done, item in enumerate(gold):
        progress(done)
        missing = asker.missing(item)
        if missing:
            blank = dict.fromkeys(("parsed", "kept", "said", "silent"), 0)
            out.append(
                QuestionScore(id=item.id, kind=item.kind, held_out=item.held_out, language=False,
                              intent=False, answered=False, parts=0, skipped=missing, **blank)
            )  # fmt: skip
            continue
        out.append(compare(item, asker.answer(item, hypotheses=hypotheses)))
    return out


def compare(item: GoldQuestion, answer: Answer) -> QuestionScore:
    """One prompt's score."""
    question, hypothesis = answer.question, answer.hypothesis
    trouble = []
    refused = bool(answer.refusal)
    answered = refused == (item.outcome == "refuse")
    if refused and answered:
        answered = item.reason.casefold() in answer.refusal.casefold()
    if not answered:
        trouble.append(f"outcome: {answer.refusal or 'answered'}")
    rows = account(question, hypothesis) if hypothesis is not None else ()
    parsed = kept = said = silent = 0
    for part in item.parts:
        found = _parsed(part, question)
        parsed += found
        if not found:
            trouble.append(f"not parsed: {part.role.value} {part.words}")
        held = found if hypothesis is None else _carried(part, hypothesis)
        told = (refused and answered) or _said(part, question)
        told = told or any(not row.kept and _same(row.words, part.words) for row in rows)
        if part.carriers and held:
            kept += 1
        elif told:
            said += 1
        else:
            silent += 1
            trouble.append(f"lost without a word: {part.role.value} {part.words}")
    return QuestionScore(
        id=item.id,
        kind=item.kind,
        held_out=item.held_out,
        language=question.language == item.language or item.reason == "language",
        intent=question.intent.value == item.intent,
        answered=answered,
        parsed=parsed,
        kept=kept,
        said=said,
        silent=silent,
        parts=len(item.parts),
        statement=hypothesis.statement if hypothesis else "",
        trouble=tuple(trouble),
    )


def _parsed(part: GoldPart, question: Question) -> bool:
    found = [other for other in question.parts if other.role is part.role]
    if part.carriers:
        return any(_is_any(part, other) or set(part.carriers) & carriers(other) for other in found)
    return any(not other.testable and _same(other.words, part.words) for other in question.parts)


def _is_any(part: GoldPart, other: Part) -> bool:
    return part.carriers == ("any",) and bool(other.open_to or other.every)


def _same(first: str, second: str) -> bool:
    shorter, longer = sorted((first.casefold(), second.casefold()), key=len)
    return shorter in longer


def _said(part: GoldPart, question: Question) -> bool:
    """True where the contract itself says that the part cannot be carried."""
    lost = any(not other.testable and _same(other.words, part.words) for other in question.parts)
    return lost or any(part.words.casefold() in note.casefold() for note in question.notes)


def carriers(part: Part) -> set[str]:
    """What may carry a part, as the gold writes it."""
    if part.negated:
        return {f"!{key}" for key in part.variables}
    if not part.testable:
        return set()
    out = {*part.variables, *(shown(item) for item in part.filters)}
    return (
        out
        | ({part.endpoint} if part.endpoint else set())
        | ({"@setting"} if part.setting else set())
    )


def shown(condition: Filter) -> str:
    """A condition as the gold writes it."""
    values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    return f"{condition.variable} {condition.op} {','.join(texts)}"


def _carried(part: GoldPart, hypothesis: Hypothesis) -> bool:
    """Whether the hypothesis itself has the part, by its fields alone."""
    exposed = {exposure.variable for exposure in hypothesis.exposures}
    used = exposed | {condition.variable for condition in hypothesis.subgroups}
    used |= {hypothesis.endpoint, "@setting"}
    used |= {shown(condition) for condition in hypothesis.population.filters}
    for name in part.carriers:
        if name == "any" or (name.startswith("!") and name[1:] not in exposed) or name in used:
            return True
    return False


class _Asker:
    """Asks SAGE, as `sage run` does, up to the draft of a hypothesis."""

    def __init__(
        self, settings: Settings, shared: Path | None, readings: Mapping[str, Reading] | None
    ) -> None:
        self.settings = settings
        self.shared = shared
        self.readings = readings
        self._given: dict[str, tuple[QuestionInput, Vocabulary]] = {}
        self._by_rules = settings.effective_reasoner == "rules"

    def missing(self, item: GoldQuestion) -> str:
        """Why a prompt cannot be asked here, or an empty text."""
        cohort = item.cohort
        if self.readings is not None and item.id not in self.readings:
            return "no recorded reading of it"
        if self.readings is None and item.language != "en" and self._by_rules:
            return "rules read English only"
        _, place = COHORTS.get(cohort, ("", "?"))
        if not place:
            return ""
        if self.shared is None:
            return f"{cohort} needs the shared data: --shared FOLDER, or $SAGE_SHARED"
        folder = self.shared / "data" / place
        return "" if folder.is_dir() else f"{cohort}: there is no {folder}"

    def place(self, cohort: str) -> tuple[str, Path | None]:
        """A cohort's name or toml, and where its files lie."""
        name, place = COHORTS[cohort]
        if not place or self.shared is None:
            return name, None
        return str(data_root() / "cohorts" / name), self.shared / "data" / place

    def answer(self, item: GoldQuestion, *, hypotheses: bool) -> Answer:
        """The contract of a prompt and, where it can be answered, the first hypothesis."""
        given, vocabulary = self._known(item.cohort)
        given = given.model_copy(update={"prompt": item.prompt})
        if self.readings is not None:
            reading = self.readings[item.id]
        elif self._by_rules:
            reading = read_by_rules(item.prompt, vocabulary)
        else:
            from sage.run.wiring import question_reader

            reading = question_reader(self.settings)(given)
        question = ground(given, reading, vocabulary)
        setting = question.setting
        refusal = " ".join(question.refusals)
        if not refusal and setting.asked and setting.cohort and setting.mismatches:
            other = [text for text in setting.mismatches if "and the cohort" in text]
            refusal = f"The diseases differ. {' '.join(other)}" if other else ""
        if refusal or not hypotheses:
            return Answer(question, refusal)
        try:
            return Answer(question, hypothesis=self._draft(item))
        except InputError as error:
            return Answer(question, str(error))

    def _known(self, cohort: str) -> tuple[QuestionInput, Vocabulary]:
        """Graph and cohort by name, read once per cohort."""
        if cohort not in self._given:
            from kg.graph.model import Graph
            from sage.run.questions import question_input
            from sage.run.wiring import graph_path, load_cohort, make_ontology

            name, root = self.place(cohort)
            dictionary = load_cohort(name, self.settings, root).dictionary()
            graph = Graph.load(graph_path(None, self.settings))
            given = question_input("", dictionary, graph)
            self._given[cohort] = (given, Vocabulary(given, make_ontology()))
        return self._given[cohort]

    def _draft(self, item: GoldQuestion) -> Hypothesis:
        from sage.run.begin import begin
        from sage.run.hypothesis_nodes import ontologist, path_generation, scientist
        from sage.run.spec import Corrections, RunSpec

        name, root = self.place(item.cohort)
        with tempfile.TemporaryDirectory() as place:
            request = RunSpec(
                prompt=item.prompt,
                cohort=name,
                cohort_root=root,
                auto_approve=True,
                corrections=Corrections(yes=True),
            )
            services = begin(request, self.settings, out=Path(place) / "run")
            state = {"prompt": item.prompt, "question": services.question}
            paths = path_generation(services, {**state})["paths"]  # type: ignore[typeddict-item]
            brief = ontologist(services, {**state, "paths": paths})["brief"]  # type: ignore[typeddict-item]
            drafts = scientist(services, {**state, "brief": brief})["drafts"]  # type: ignore[typeddict-item]
            services.folder.release()
            found: Hypothesis = drafts[0].hypothesis
            return found
