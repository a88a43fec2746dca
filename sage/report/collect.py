"""Collection of a run folder's content for the report's templates, with numbers by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from agents.core.statement import describe_direction, same_claim
from agents.core.types import Citation, Draft, ExpandedHypothesis, OntologyBrief
from agents.core.words import ModelText
from agents.feasibility.agent import list_conditions, read_evidence
from agents.findings.answer import NOT_TESTED, VERDICT_WORDS, Answer, answer_results
from agents.findings.types import Finding
from agents.instructions.demands import Demands
from agents.interpreter.agent import Interpretation
from agents.question.types import Question
from agents.scientist.rank import Ranking
from agents.summary.agent import Summary
from kg.types import ScoredPath
from sage.core.data import data_root
from sage.core.errors import InputError
from sage.core.files import read_json
from sage.report.candidates import read_candidates
from sage.report.debate import (
    Turn,
    debate_facts,
    debate_sources,
    describe_novelty,
    describe_papers,
    list_turns,
)
from sage.report.exploration import Exploration, read_explorations
from sage.report.facts import Facts
from sage.report.front import Front, build_front
from sage.report.reading import Checklist, checklists
from sage.report.reproduction import Exploratory, ReproductionPage, read_reproduction
from sage.report.results import (
    ContractPage,
    ResultsPage,
    read_contract,
    read_ledger,
    read_results,
)
from sage.report.spending import Spending, spending
from sage.run.folder import Manifest, RunFolder
from sage.run.questions import describe_carried, name_lost, question_of
from sage.run.state import Decision, Evaluation
from sage.run.steps import describe_stand_ins

if TYPE_CHECKING:
    from agents.feasibility.types import FeasibilityVerdict
    from kg.lexicon.ontology import Ontology
    from validation.ledger.lines import Entry

R = TypeVar("R")

PUT_OFF = {"reject": "rejected", "another": "set aside for another"}


@dataclass
class Step:
    """An edge of a mechanism path with its evidence.

    `elsewhere` names the cancers covered by the step's passages if every passage is about a
    cancer other than the question's.
    """

    process: str
    key: str
    contradicted: bool
    evidence: tuple[Citation, ...]
    contradicting: tuple[Citation, ...]
    elsewhere: str = ""
    remark: ModelText | None = None


@dataclass
class Chain:
    """A path as a sentence, with the key of its scores and its steps.

    `axes` is `linked` if the graph links the two ends directly, `open` if it does not, and
    empty if the numbers are missing. `supported` is false if rewired graphs have an equally
    strong path.
    """

    key: str
    sentence: str
    steps: list[Step]
    axes: str = ""
    supported: bool = True


@dataclass
class Source:
    """A cited passage and its relation to the claim: "against it", "another cancer", etc."""

    citation: Citation
    relation: str


@dataclass
class HypothesisPage:
    """All report content about a hypothesis."""

    id: str
    answer: Answer
    front: Front
    results: ResultsPage
    expanded: ExpandedHypothesis
    review: str
    comment: str
    revisions: int
    direction_words: str
    chains: list[Chain]
    debate: dict[str, Any]
    turns: list[Turn]
    papers: str
    novelty: str
    feasibility: FeasibilityVerdict | None = None
    contract: ContractPage | None = None
    interpretation: Interpretation | None = None
    summary: Summary | None = None
    checklists: list[Checklist] = field(default_factory=list)
    limits: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    demands: Demands | None = None
    remark: ModelText | None = None
    carries: str = ""
    support_absent: bool = False
    sources: tuple[Source, ...] = ()
    contrary: tuple[Source, ...] = ()
    coding: dict[str, Any] | None = None
    reproduction: ReproductionPage | None = None

    @property
    def steps(self) -> list[Step]:
        """The distinct steps in all chains."""
        found = {step.process: step for chain in self.chains for step in chain.steps}
        return list(found.values())


@dataclass
class Page:
    """The content of the report."""

    run: Manifest
    question: Question
    hypotheses: list[HypothesisPage]
    rejected: list[tuple[Decision, str]]
    candidates: list[Ranking]
    stood_in: tuple[str, ...]
    ledger: tuple[Entry, ...]
    explorations: list[tuple[Exploration, Exploratory]]
    spending: list[Spending]
    facts: Facts
    sources: list[Citation]


def collect_page(folder: RunFolder, *, pages: bool = True) -> Page:
    """Collect the report's content from a run folder, without model, graph, cohort or network.

    Raises
    ------
    InputError
        If a run file was changed, lost, added or damaged; the message names the file.
    """
    folder.verify(pages=pages)
    run = folder.manifest()
    facts = Facts()
    facts.add("scale.one", 1)
    facts.add("scale.ten", 10)
    facts.add("scale.hundred", 100)
    facts.add("run.seed", run.spec.seed, str(run.spec.seed))
    sources: list[Citation] = []
    paths = _paths(folder)
    brief = _model(folder.output("brief"), OntologyBrief)
    if brief:
        for relationship in brief.relationships:
            sources += [*relationship.evidence, *relationship.contradicting]
    state_path = folder.output("state")
    state = _read_file(state_path, dict) if state_path.exists() else {}
    decisions = [Decision.model_validate(decision) for decision in state.get("decisions", [])]
    ended = {
        evaluation["hypothesis_id"]: Evaluation.model_validate(evaluation)
        for evaluation in state.get("evaluations", [])
    }
    tested = []
    for name in state.get("ranking", []):
        page = _hypothesis(folder, name, ended.get(name), decisions, paths, brief, facts, sources)
        tested.append(page)
    tested.sort(key=lambda page: list(VERDICT_WORDS).index(page.answer.verdict))
    for page in tested:
        page.carries = describe_carried(folder, page.expanded.hypothesis)
        if lost := name_lost(question_of(folder, page.id)):
            sentence = f"Not as asked: {lost}. {page.answer.sentence}"
            page.answer = page.answer.model_copy(update={"sentence": sentence})
        page.checklists = checklists(page, facts) if page.contract and page.results.tables else []
    return Page(
        run=run,
        question=question_of(folder),
        hypotheses=tested,
        rejected=_list_rejected(folder, decisions),
        candidates=read_candidates(folder, facts),
        ledger=read_ledger(
            folder.root / "ledger.jsonl",
            facts,
            max((page.contract.alpha for page in tested if page.contract), default=0.05),
        ),
        explorations=read_explorations(folder, _read_file),
        stood_in=describe_stand_ins(folder),
        spending=_spending(folder, facts),
        facts=facts,
        sources=sources,
    )


def _model(path: Path, kind: Any) -> Any:
    return _read_file(path, lambda found: kind.model_validate(found)) if path.exists() else None


def _read_file(path: Path, read: Callable[[Any], R]) -> R:
    """Parse a run file, naming the file in any error."""
    try:
        return read(read_json(path))
    except FileNotFoundError:
        raise InputError(f"{path} is missing. Restore it from a backup") from None
    except (ValidationError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged: its contents differ from what a run writes"
            f" ({type(error).__name__}). Restore it from a backup"
        ) from None


def _answer(folder: RunFolder, name: str, kind: Any) -> Any:
    path = folder.output(name)
    if not path.exists():
        return None
    return _read_file(path, lambda found: kind.model_validate(found["output"]))


def _paths(folder: RunFolder) -> list[ScoredPath]:
    path = folder.output("paths")
    if not path.exists():
        return []
    return _read_file(
        path, lambda found: [ScoredPath.model_validate(path) for path in found["paths"]]
    )


def _answer_claim(home: Path, ended: str, disease: str) -> Answer:
    """Write the answer to a claim, tested or not; numbers are `[[key]]`."""
    from validation.contracts.contract import FrozenContract
    from validation.results.results import Results

    if ended != "tested":
        return Answer(verdict=ended, sentence=NOT_TESTED[ended])
    contract = FrozenContract.load(home / "contract.json").contract
    return answer_results(Results.load(home / "results" / "results.json"), contract, disease)


def _list_rejected(folder: RunFolder, decisions: list[Decision]) -> list[tuple[Decision, str]]:
    """List the decisions that rejected a draft, each with the draft's statement."""
    found = []
    for decision in decisions:
        if decision.action in PUT_OFF:
            draft = _model(folder.output(f"draft-{decision.hypothesis_id}"), Draft)
            found.append((decision, draft.hypothesis.statement))
    return found


def _hypothesis(
    folder: RunFolder,
    name: str,
    evaluation: Evaluation | None,
    decisions: list[Decision],
    paths: list[ScoredPath],
    brief: OntologyBrief | None,
    facts: Facts,
    sources: list[Citation],
) -> HypothesisPage:
    draft = _read_file(folder.output(f"draft-{name}"), Draft.model_validate)
    decision = next((decision for decision in decisions if decision.hypothesis_id == name), None)
    revision = evaluation.revisions if evaluation else 0
    tail = name if revision == 0 else f"{name}-r{revision}"
    expanded = _model(folder.output(f"expanded-{tail}"), ExpandedHypothesis)
    debate = _read_file(
        folder.output(f"novelty-{tail}"), lambda found: _debate(found["output"], name, facts)
    )
    reported = [(item.citation, item.supports(expanded.hypothesis)) for item in draft.reported]
    sources += [*draft.citations, *draft.contradicting, *(cited for cited, _ in reported)]
    sources += debate_sources(debate)
    feasibility = _feasibility(folder, name, facts)
    evidence = read_evidence(folder.output(f"evidence-{name}")) if feasibility else ()
    home = folder.hypothesis(name)
    ended = evaluation.ended if evaluation else "pending"
    results = read_results(home, name, facts) or ResultsPage()
    tested = bool(results.verdict) and ended == "tested"
    interpretation = _interpretation(folder, name, facts)
    summary = _answer(folder, f"summary-{name}", Summary)
    chosen = (
        *(interpretation.findings if interpretation else ()),
        *(summary.next_steps if summary else ()),
    )
    contract = read_contract(home)
    setting = question_of(folder, name).setting
    disease = setting.asked or setting.cohort
    chains = _chains(name, _mechanism(draft, decision), paths, brief, facts, disease)
    on_paths = {c.key for chain in chains for step in chain.steps for c in step.evidence}
    coding = _coding(folder, name, facts)
    return HypothesisPage(
        id=name,
        answer=_answer_claim(home, "tested" if tested else ended, setting.cohort),
        front=_front(home, name, facts, chosen) if tested else Front(),
        results=results,
        expanded=expanded,
        review=_review_words(decision, draft, expanded),
        comment=decision.comment if decision else "",
        revisions=revision,
        direction_words=describe_direction(
            expanded.hypothesis, contract.endpoint_kind if contract else "survival"
        ),
        chains=chains,
        support_absent=draft.support_absent,
        sources=_sort_sources(
            [cited for cited in draft.citations if cited.key not in on_paths], reported, disease
        ),
        contrary=_list_contrary(draft, reported, disease),
        debate=debate,
        turns=list_turns(debate),
        papers=describe_papers(debate, name, facts, partial(_cancers_elsewhere, disease), reported),
        novelty=describe_novelty(debate),
        feasibility=feasibility,
        contract=contract,
        interpretation=interpretation,
        summary=summary,
        limits=results.limits,
        facts={fact.id: fact.statement for fact in evidence},
        conditions=list_conditions(feasibility, evidence) if feasibility else (),
        demands=_model(folder.output(f"demands-{name}"), Demands),
        remark=draft.remark,
        coding=coding,
        reproduction=read_reproduction(home, name, coding, facts),
    )


def _front(home: Path, name: str, facts: Facts, chosen: Sequence[Finding]) -> Front:
    """Build the front page of a tested claim."""
    from agents.findings.hold import hold
    from validation.contracts.contract import FrozenContract
    from validation.results.results import Results

    results = Results.load(home / "results" / "results.json")
    contract = FrozenContract.load(home / "contract.json").contract
    sentences = {item.finding: item.sentence for item in hold(results, contract)}
    return build_front(results, contract, name, facts, sentences, chosen)


def _feasibility(folder: RunFolder, name: str, facts: Facts) -> FeasibilityVerdict | None:
    """Load the feasibility verdict and add its numbers to the facts."""
    from agents.feasibility.types import FeasibilityVerdict

    found: FeasibilityVerdict | None = _answer(folder, f"feasibility-{name}", FeasibilityVerdict)
    if found:
        facts.add(f"{name}.feasibility.score", round(found.score, 1))
        for step in found.steps:
            facts.add(f"{name}.feasibility.{step.name}.weight", round(step.weight))
            facts.add(f"{name}.feasibility.{step.name}.score", round(step.score, 1))
    return found


def _interpretation(folder: RunFolder, name: str, facts: Facts) -> Interpretation | None:
    """Load the interpreter's answer and add its score to the facts."""
    found: Interpretation | None = _answer(folder, f"interpreter-{name}", Interpretation)
    if found:
        facts.add(f"{name}.interpreter.feasibility_score", found.feasibility_score)
    return found


def _debate(debate: dict[str, Any], name: str, facts: Facts) -> dict[str, Any]:
    """Return the debate after checking that everything the report shows from it is readable."""
    debate_facts(debate, name, facts)
    debate_sources(debate)
    list_turns(debate)
    return debate


def _review_words(decision: Decision | None, draft: Draft, tested: ExpandedHypothesis) -> str:
    if decision is None:
        return "Not reviewed"
    if decision.automatic:
        return "Approved automatically; no person looked at it"
    words = {"approve": "Approved by a person", "edit": "Edited by a person"}
    seen = decision.edited or draft.hypothesis
    same = same_claim(seen) == same_claim(tested.hypothesis)
    changed = "" if same else "; the claim was changed after that, in the debate"
    return words.get(decision.action, decision.action) + changed


def _mechanism(draft: Draft, decision: Decision | None) -> tuple[str, ...]:
    """Return the processes that still support the claim after the review."""
    from sage.run.hypothesis_nodes import accept

    return accept(draft, decision).mechanism if decision else draft.mechanism


def _chains(
    name: str,
    mechanism: tuple[str, ...],
    paths: list[ScoredPath],
    brief: OntologyBrief | None,
    facts: Facts,
    disease: str,
) -> list[Chain]:
    """Build the paths that support the draft, with the steps that it uses."""
    if brief is None:
        return []
    used = sorted(
        {
            relationship.chain
            for relationship in brief.relationships
            if relationship.process in mechanism
        }
    )
    found = []
    for chain in used:
        rows = sorted(
            (
                relationship
                for relationship in brief.relationships
                if relationship.chain == chain and relationship.process in mechanism
            ),
            key=lambda relationship: relationship.step,
        )
        key = f"{name}.path{chain}"
        path = paths[chain - 1]
        axes = _axes(key, path, facts)
        steps = []
        for row in rows:
            facts.add(f"{key}.step{row.step}.belief", row.belief, f"{row.belief:.2f}")
            steps.append(
                Step(
                    process=row.process,
                    key=f"{key}.step{row.step}.belief",
                    contradicted=row.contradicted,
                    evidence=row.evidence,
                    contradicting=row.contradicting,
                    elsewhere=_elsewhere(row.evidence, disease),
                    remark=row.remark,
                )
            )
        said = path.sentence()
        found.append(Chain(key, said, steps, axes=axes, supported=path.supported))
    return found


Direction = tuple[Citation, bool | None]
"""A finding and its agreement with the claim's direction."""


def _relate(cited: Citation, reported: Sequence[Direction], disease: str) -> str:
    """Name the cancer that a passage is about if it is not the claim's, else its direction."""
    if other := _name_cancer(cited, disease):
        return other
    same = {(other.key, other.quote) for other, agrees in reported if agrees}
    return "same direction" if (cited.key, cited.quote) in same else "indirect"


def _sort_sources(
    sources: Sequence[Citation], reported: Sequence[Direction], disease: str
) -> tuple[Source, ...]:
    """Sort passages: those with the claim's direction, indirect ones, those on other cancers."""
    found = [Source(cited, _relate(cited, reported, disease)) for cited in sources]
    order = ("same direction", "indirect")
    return tuple(sorted(found, key=lambda item: [*order, item.relation].index(item.relation)))


def _list_contrary(draft: Draft, reported: Sequence[Direction], disease: str) -> tuple[Source, ...]:
    """List the passages that contradict the claim, naming the cancer if it is a different one."""
    against = [*draft.contradicting, *(cited for cited, same in reported if same is False)]
    once = {(cited.key, cited.quote): cited for cited in against}
    return tuple(Source(cited, _name_cancer(cited, disease)) for cited in once.values())


def _name_cancer(cited: Citation, disease: str) -> str:
    """Name the other cancers that a passage or its title is about; return "" if there are none."""
    others = _cancers_elsewhere(disease, f"{cited.quote}. {cited.title}")
    return f"in {', '.join(others)}" if others else ""


def _elsewhere(evidence: tuple[Citation, ...], disease: str) -> str:
    """Name the other cancers if every passage or title in a step is about another cancer."""
    others = [_cancers_elsewhere(disease, f"{cited.quote}. {cited.title}") for cited in evidence]
    if not others or not all(others):
        return ""
    named = ", ".join(dict.fromkeys(name for found in others for name in found))
    return f"in papers on {named} only"


def _cancers_elsewhere(disease: str, text: str) -> tuple[str, ...]:
    """List the cancers that a text is about, provided that none is the question's."""
    from kg.literature.cancers import list_other_cancers

    return list_other_cancers(text, disease, _ontology())


@cache
def _ontology() -> Ontology:
    from kg.lexicon.ontology import Ontology

    return Ontology.load(data_root() / "ontology")


def _axes(key: str, path: ScoredPath, facts: Facts) -> str:
    """Add the scores of a path to the facts; return "linked", "open", or "" if they are unknown."""
    scores = path.scores.model_dump()
    for part in ("total", "logic", "relevance", "novelty", "surprise"):
        facts.add(f"{key}.{part}", scores[part], f"{scores[part]:.2f}")
        if part != "total":
            facts.add(f"{key}.{part}_raw", scores[f"{part}_raw"])
    how, understudied = path.mechanism, path.understudied
    if how is None or understudied is None or path.papers is None:
        return ""
    facts.add(f"{key}.mechanism", how.strength, f"{how.strength:.2f}")
    facts.add(f"{key}.understudied", understudied, f"{understudied:.2f}")
    facts.add(f"{key}.papers", path.papers)
    return "linked" if path.linked else "open"


def _coding(folder: RunFolder, name: str, facts: Facts) -> dict[str, Any] | None:
    path = folder.output(f"coding-{name}")
    if not path.exists():
        return None

    def read(found: dict[str, Any]) -> dict[str, Any]:
        outcome: dict[str, Any] = found["output"]
        facts.add(f"{name}.coding.attempts", int(outcome["attempts"]))
        return {**outcome, "sandbox": outcome["sandbox"], "compiled": outcome["compiled"]}

    return _read_file(path, read)


def _spending(folder: RunFolder, facts: Facts) -> list[Spending]:
    """List the steps in the run, adding their numbers to the facts under `run.stepN` and `run`."""
    # The report step is unfinished while the report is written; without it, a replay matches.
    counted = [step for step in spending(folder) if step.step != "report"]
    forms = {"seconds": ".2f", "calls": ",", "prompt_tokens": ",", "completion_tokens": ",",
             "usd": ".4f"}  # fmt: skip
    for name, form in forms.items():
        for number, item in enumerate(counted, 1):
            value = getattr(item, name)
            facts.add(f"run.step{number}.{name}", value, format(value, form))
        total = sum(getattr(item, name) for item in counted)
        facts.add(f"run.{name}", total, format(total, form))
    return counted
