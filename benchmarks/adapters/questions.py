"""Questions: gold prompts compared with the parsed question and the drafted hypothesis.

A part is *kept* if the parse finds it and, for an answered question, the hypothesis
includes it; *reported* if the question, a refusal or the account of the hypothesis states
that it was lost; otherwise *silent*, which must not happen.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import Field

from agents.question.agent import QUESTION
from agents.question.carried import account
from agents.question.ground import ground
from agents.question.read import read_by_rules
from agents.question.types import CohortWords, Part, PartRole, Question, QuestionInput, Reading
from agents.question.vocabulary import Vocabulary
from benchmarks.runner import Report, Row, load_lines
from sage.core.data import data_root
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.run.questions import describe_lost
from validation.core.hypothesis import Filter, Hypothesis

if TYPE_CHECKING:
    from sage.settings import Settings

GOLD = ("gold.jsonl", "gold_cohorts.jsonl", "gold_blind.jsonl")
"""Files of gold questions; the last is by an author who had not seen the reader."""
RESULTS = ("as asked", "refused rightly", "stopped", "wrong", "silent loss")
"""Outcomes of a question; `stopped` requests rewording and reports everything lost."""
COHORTS = {
    "demo": ("demo", ""),
    "gbsg2": ("gbsg2", ""),
    "tcga-blca": ("cohorts/tcga-blca.toml", "tcga_blca"),
    "imvigor210": ("cohorts/imvigor210.toml", "cohorts/IMvigor210"),
    "klinik": ("questions/cohorts/klinik.toml", ""),
    "centre": ("questions/cohorts/centre.toml", ""),
    "veteran": ("questions/cohorts/veteran.toml", ""),
}
"""Gold cohorts: name or bundled cohort.toml, and shared-data folder ("": none needed).

Others are described in `data/questions/cohorts` and use the entire shared data.
"""


class GoldPart(Strict):
    """An expected part; `carriers` may represent it (empty if the cohort lacks it)."""

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
    """Score of a prompt; `answered` is true if it was refused or answered as expected."""

    id: str
    kind: str
    held_out: bool
    language: bool = False
    intent: bool = False
    answered: bool = False
    parsed: int = 0
    kept: int = 0
    reported: int = 0
    silent: int = 0
    parts: int = 0
    statement: str = ""
    trouble: tuple[str, ...] = ()
    skipped: str = ""
    result: str = ""
    floor: str = Field(default="", description="the result of matching exact labels alone")
    reader: str = Field(default="", description="the reasoner whose reading was used")


@dataclass(frozen=True)
class Answer:
    """Result for a prompt: parsed question, refusal, hypothesis."""

    question: Question
    refusal: str = ""
    hypothesis: Hypothesis | None = None
    reader: str = "rules"


def load_gold(path: Path | None = None) -> list[GoldQuestion]:
    """Load the bundled gold prompts, or those in a file."""
    paths = [path] if path else [data_root() / "questions" / name for name in GOLD]
    return [item for each in paths for item in load_lines(each, GoldQuestion, given=True)]


class Recorded(Strict):
    """A model's parse of a prompt."""

    id: str
    reading: Reading


def score(
    gold: Iterable[GoldQuestion],
    settings: Settings,
    shared: Path | None,
    *,
    hypotheses: bool,
    readings: Mapping[str, Reading] | None = None,
) -> list[QuestionScore]:
    """Parse each prompt, draft its hypothesis, and compare both with the gold standard.

    `readings` replace the reasoner in the settings; prompts on unavailable cohorts are
    skipped.
    """
    asker = Asker(settings, shared, readings)
    out = []
    for item in gold:
        missing = asker.missing(item)
        if missing:
            out.append(QuestionScore(id=item.id, kind=item.kind, held_out=item.held_out,
                                     skipped=missing))  # fmt: skip
        else:
            found = compare(item, asker.answer(item, hypotheses=hypotheses))
            floor = match_labels(item, asker.load_known(item.cohort)[0].cohort)
            out.append(found.model_copy(update={"floor": floor}))
    return out


def compare(item: GoldQuestion, answer: Answer) -> QuestionScore:
    """Score a prompt."""
    question, hypothesis = answer.question, answer.hypothesis
    trouble = []
    refused = bool(answer.refusal)
    answered = refused == (item.outcome == "refuse")
    if refused and answered:
        answered = item.reason.casefold() in answer.refusal.casefold()
    if not answered:
        trouble.append(f"outcome: {answer.refusal or 'answered'}")
    rows = account(question, hypothesis) if hypothesis is not None else ()
    parsed = kept = reported = silent = 0
    for part in item.parts:
        found = _is_parsed(part, question)
        parsed += found
        if not found:
            trouble.append(f"not parsed: {part.role.value} {part.words}")
        held = found if hypothesis is None else _is_carried(part, hypothesis)
        noted = (refused and answered) or _is_reported(part, question)
        noted = noted or any(not row.kept and _same(row.words, part.words) for row in rows)
        if part.carriers and held:
            kept += 1
        elif noted:
            reported += 1
        else:
            silent += 1
            trouble.append(f"lost silently: {part.role.value} {part.words}")
    return QuestionScore(
        id=item.id,
        kind=item.kind,
        held_out=item.held_out,
        language=question.language == item.language or item.reason == "language",
        intent=question.intent.value == item.intent,
        answered=answered,
        parsed=parsed,
        kept=kept,
        reported=reported,
        silent=silent,
        parts=len(item.parts),
        statement=hypothesis.statement if hypothesis else "",
        trouble=tuple(trouble),
        result=_result(item, refused, answered, parsed == len(item.parts), bool(silent)),
        reader=answer.reader,
    )


def _result(item: GoldQuestion, refused: bool, answered: bool, whole: bool, silent: bool) -> str:
    if refused:
        return "refused rightly" if answered else "stopped"
    right = answered and whole and item.outcome == "answer"
    return "as asked" if right else "silent loss" if silent else "wrong"


def match_labels(item: GoldQuestion, cohort: CohortWords) -> str:
    """Return the outcome of a question if only verbatim labels and levels are understood."""
    text = item.prompt.casefold()
    named = [it for it in cohort.variables if it.label.casefold() in text]
    timed = {it.key for it in cohort.endpoints if it.label.casefold() in text or it.key in text}
    found = {it.key for it in named} | timed | {"@setting"}
    found |= {
        f"{it.key} eq {level}"
        for it in cohort.variables
        for level in it.levels
        if re.search(rf"\b{re.escape(level.casefold())}\b", text)
    }
    found |= {f"expression:{it}" for it in cohort.genes if re.search(rf"\b{it}\b", item.prompt)}
    refused = not timed or len(found) == len(timed) + 1
    whole = all(not part.carriers or found & {*part.carriers} for part in item.parts)
    return _result(item, refused, refused == (item.outcome == "refuse"), whole, not whole)


def _is_parsed(part: GoldPart, question: Question) -> bool:
    found = [other for other in question.parts if other.role is part.role]
    if part.carriers:
        return any(
            _is_any(part, other) or set(part.carriers) & list_carriers(other) for other in found
        )
    return any(not other.testable and _same(other.words, part.words) for other in question.parts)


def _is_any(part: GoldPart, other: Part) -> bool:
    return part.carriers == ("any",) and bool(other.open_to or other.every)


def _same(first: str, second: str) -> bool:
    shorter, longer = sorted((first.casefold(), second.casefold()), key=len)
    return shorter in longer


def _is_reported(part: GoldPart, question: Question) -> bool:
    """Check whether the parsed question itself reports the part as lost."""
    lost = any(not other.testable and _same(other.words, part.words) for other in question.parts)
    return lost or any(part.words.casefold() in note.casefold() for note in question.notes)


def list_carriers(part: Part) -> set[str]:
    """List the fields that may represent a part, in gold-standard notation."""
    if part.negated:
        return {f"!{key}" for key in part.variables}
    if not part.testable:
        return set()
    keys = {key for given in part.variables for key in (given, given.partition("=")[0])}
    out = {*keys, *(render_filter(item) for item in part.filters)}
    return (
        out
        | ({part.endpoint} if part.endpoint else set())
        | ({"@setting"} if part.setting else set())
    )


def render_filter(condition: Filter) -> str:
    """Render a condition in gold-standard notation."""
    values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    return f"{condition.variable} {condition.op} {','.join(texts)}"


def _is_carried(part: GoldPart, hypothesis: Hypothesis) -> bool:
    """Check whether a field of the hypothesis represents the part."""
    exposed = {exposure.variable for exposure in hypothesis.exposures}
    exposed |= {key.partition("=")[0] for key in exposed}
    used = exposed | {*hypothesis.covariates, *hypothesis.strata}
    used |= {condition.variable for condition in hypothesis.subgroups}
    used |= {hypothesis.endpoint, "@setting"}
    used |= {render_filter(condition) for condition in hypothesis.population.filters}
    for name in part.carriers:
        if name == "any" or (name.startswith("!") and name[1:] not in exposed) or name in used:
            return True
    return False


class Asker:
    """Runner that processes prompts as `sage run` does, up to the draft of a hypothesis."""

    def __init__(
        self, settings: Settings, shared: Path | None, readings: Mapping[str, Reading] | None
    ) -> None:
        self.settings = settings
        self.shared = shared
        self.readings = readings
        self._given: dict[str, tuple[QuestionInput, Vocabulary]] = {}
        self._by_rules = settings.effective_reasoner == "rules"

    def missing(self, item: GoldQuestion) -> str:
        """Return the reason why a prompt cannot be run, or empty text."""
        cohort = item.cohort
        if self.readings is not None and item.id not in self.readings:
            return "no recorded reading"
        if self.readings is None and item.language != "en" and self._by_rules:
            return "rules read English only"
        _, place = COHORTS.get(cohort, ("", "."))
        if not place:
            return ""
        if self.shared is None:
            return f"{cohort} needs the shared data: --shared FOLDER, or $SAGE_SHARED"
        folder = self.shared / "data" / place
        return "" if folder.is_dir() else f"{cohort}: {folder} not found"

    def place(self, cohort: str) -> tuple[str, Path | None]:
        """Return a cohort's name or TOML file, and the folder with its files."""
        name, place = COHORTS.get(cohort, (f"questions/cohorts/{cohort}.toml", "."))
        if name.endswith(".toml"):
            name = str(data_root() / name)
        return name, self.shared / "data" / place if place and self.shared else None

    def answer(self, item: GoldQuestion, *, hypotheses: bool) -> Answer:
        """Parse a prompt and, if it can be answered, draft the first hypothesis."""
        given, vocabulary = self.load_known(item.cohort)
        given = given.model_copy(update={"prompt": item.prompt})
        reader = "rules" if self.readings is None else "recorded"
        if self.readings is not None:
            reading = self.readings[item.id]
        elif self._by_rules:
            reading = read_by_rules(item.prompt, vocabulary)
        else:
            from sage.run.wiring import make_reasoner

            reply = make_reasoner(self.settings).ask(QUESTION, given)
            reading, reader = reply.output, reply.reasoner
        question = ground(given, reading, vocabulary)
        setting = question.setting
        refusal = " ".join((*question.refusals, *describe_lost(question)))
        if not refusal and setting.asked and setting.cohort and setting.mismatches:
            other = [text for text in setting.mismatches if "and the cohort" in text]
            refusal = f"The diseases differ. {' '.join(other)}" if other else ""
        if refusal or not hypotheses:
            return Answer(question, refusal, reader=reader)
        try:
            return Answer(question, hypothesis=self._draft(item), reader=reader)
        except InputError as error:
            return Answer(question, str(error), reader=reader)

    def load_known(self, cohort: str) -> tuple[QuestionInput, Vocabulary]:
        """Load the graph and cohort, once per cohort."""
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
        from sage.run.questions import question_of
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
            state = {"prompt": item.prompt, "question": question_of(services.folder)}
            paths = path_generation(services, {**state})["paths"]  # type: ignore[typeddict-item]
            brief = ontologist(services, {**state, "paths": paths})["brief"]  # type: ignore[typeddict-item]
            drafts = scientist(services, {**state, "brief": brief})["drafts"]  # type: ignore[typeddict-item]
            services.folder.release()
            found: Hypothesis = drafts[0].hypothesis
            return found


def run(
    gold: Annotated[
        Path | None, typer.Option(help="Gold prompts; default: those that ship.")
    ] = None,
    shared: Annotated[
        Path | None, typer.Option(envvar="SAGE_SHARED", help="Folder of shared cohorts.")
    ] = None,
    reasoner: Annotated[str, typer.Option(help="rules or chat")] = "rules",
    readings: Annotated[Path | None, typer.Option(help="Recorded readings to score.")] = None,
    parse_only: Annotated[bool, typer.Option("--parse-only", help="Draft no hypotheses.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="First prompts only.")] = None,
) -> Report:
    """Score the outcomes of questions, in comparison with exact label matching."""
    from sage.settings import load

    recorded = (
        {line.id: line.reading for line in load_lines(readings, Recorded, given=True)}
        if readings
        else None
    )
    scores = score(load_gold(gold)[:limit], load(reasoner=reasoner), shared,
                   hypotheses=not parse_only, readings=recorded)  # fmt: skip
    done = [item for item in scores if not item.skipped]
    groups = {kind: [item for item in done if item.kind == kind]
              for kind in dict.fromkeys(item.kind for item in done)}  # fmt: skip
    groups |= {
        "seen during development": [item for item in done if not item.held_out],
        "held out": [item for item in done if item.held_out],
        "read by the rules in place of the model": [
            item for item in done if item.reader == "rules" and reasoner != "rules"
        ],
        "all": done,
    }
    rows = []
    for name, own in groups.items():
        if not own:
            continue
        counts, floor = (Counter(getattr(it, kind) for it in own) for kind in ("result", "floor"))
        rows.append(Row(
            benchmark=f"Questions, {name}",
            measured=f"{len(own)} prompts: {'; '.join(RESULTS)}",
            baseline="; ".join(str(floor[kind]) for kind in RESULTS),
            sage="; ".join(str(counts[kind]) for kind in RESULTS),
        ))  # fmt: skip
    skipped = Counter(item.skipped for item in scores if item.skipped)
    notes = tuple(f"{count} skipped: {reason}." for reason, count in skipped.items())
    rows[-1:] = [row.model_copy(update={"notes": notes}) for row in rows[-1:]]
    return Report(rows=tuple(rows), data=[item.model_dump(mode="json") for item in scores])
