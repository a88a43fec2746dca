"""Null campaigns: the number of false claims among 60 in worlds where no claim is true.

The claims are those of the rule-based `sage campaign`: first the suggestions from the
literature's paths, then follow-up moves based on the outcomes. Each is drafted and split
in the same way, and its primary test is run in the exploration patients. A claim that
misses its level in these patients, or whose primary and adjusted p-values both miss the
campaign's level in the confirmation patients, cannot be supported, so the rest of its
contract is skipped. Any other claim goes through contract, controls, ledger and verdict.
A world takes six seconds of CPU time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agents.campaign.moves import Came, Earlier, Policy, came_to
from agents.core.statement import settle_fields
from benchmarks.adapters.worlds import DECIDING
from benchmarks.runner import Report, Row, rate, run_missing
from sage.core.errors import InputError
from sage.core.models import Strict
from validation.contracts.contract import Contract, Online, SplitRule
from validation.core.hypothesis import Hypothesis
from validation.ledger.lines import entry_of
from validation.results.results import TestOutcome
from validation.statistics.online import level
from validation.verdict.relevance import expected_direction
from validation.verdict.verdict import CLEAR

if TYPE_CHECKING:
    from agents.scientist.views import ScientistInput
    from sage.settings import Settings
    from validation.cohort.cohort import Cohort
    from validation.core.dictionary import DataDictionary
    from validation.ledger.ledger import Ledger

SPLIT = SplitRule(policy="discovery_confirmation")
CLAIMS = 60
PATIENTS = 400
MOST_PATHS = 50
QUESTION = (
    "Which genes, immune features and stromal features relate to overall survival in bladder"
    " cancer?"
)


@dataclass(frozen=True)
class Trial:
    """A claim in a campaign.

    `p` is the primary p-value in the exploration patients; `confirmed` is the smaller of the
    primary and adjusted p-values in the expected direction in the confirmation patients
    (None: not opened); `place` and `level` are those in the online control; `verdict` is
    empty if the claim could not be supported.
    """

    hypothesis: Hypothesis
    came: Came
    p: float | None = None
    confirmed: float | None = None
    place: int | None = None
    level: float | None = None
    verdict: str = ""
    because: str = ""


@dataclass
class World:
    """A cohort for campaigns with its folder and ledger."""

    cohort: Cohort
    folder: Path
    seed: int
    ledger: Ledger
    opened: int = 0
    explored: dict[str, TestOutcome] = field(default_factory=dict)
    """Primary test of each claim in the exploration patients, all that a proposal may see."""
    known: DataDictionary = field(init=False)

    def __post_init__(self) -> None:
        self.known = self.cohort.dictionary()

    def draft(self, hypothesis: Hypothesis) -> Contract:
        """Draft a claim's contract with the campaign's split and the tests used by verdicts."""
        from validation.drafting.draft import draft

        plan = draft(hypothesis, self.known, seed=self.seed, split=SPLIT)
        tests = tuple(test for test in plan.tests if test.id in DECIDING)
        return Contract.model_validate(plan.model_copy(update={"tests": tests}).model_dump())

    def outcomes(self, contract: Contract) -> Iterator[tuple[TestOutcome, TestOutcome | None]]:
        """Yield the primary test in the exploration patients, then both tests in the others."""
        import numpy as np

        from validation.contracts.timing import as_known
        from validation.inputs.population import confirmation_mask, find_cuts
        from validation.inputs.study import Study
        from validation.methods import run_method
        from validation.results.results import Book

        table = self.cohort.table(contract.keys(), [contract.primary_test.endpoint])
        table, _ = as_known(table, contract)
        held = np.asarray(confirmation_mask(table, contract))
        cuts = find_cuts(table[~held], contract)
        adjusted = next((test for test in contract.tests if test.id == "adjusted"), None)
        study = Study.build(contract, table[~held], cuts)
        yield run_method(study, contract.primary_test, Book(), {}), None
        study = Study.build(contract, table[held], cuts)
        beside = None if adjusted is None else run_method(study, adjusted, Book(), {})
        yield run_method(study, contract.primary_test, Book(), {}), beside


def try_claim(world: World, hypothesis: Hypothesis, number: int) -> Trial:
    """Explore a claim, confirm it if it held, and reach a verdict if it can be supported."""
    try:
        contract = world.draft(hypothesis.model_copy(update={"id": f"c{number}"}))
        parts = world.outcomes(contract)
        found, _ = next(parts)
    except (InputError, ValueError):
        return Trial(hypothesis, "dead end")
    world.explored[contract.hypothesis.id] = found
    came = came_to(contract, found)
    if came != "held":
        return Trial(hypothesis, came, found.p)
    world.opened += 1
    spent = level(world.opened)
    try:
        primary, beside = next(parts)
    except (InputError, ValueError):
        return Trial(hypothesis, came, found.p, 1.0, world.opened, spent)
    confirmed = smallest_p(contract, primary, beside)
    trial = Trial(hypothesis, came, found.p, confirmed, world.opened, spent)
    if confirmed >= spent:
        _record(world, contract, primary)
        return trial
    return _judge(world, contract, trial)


def smallest_p(contract: Contract, primary: TestOutcome, beside: TestOutcome | None) -> float:
    """Return the smallest p by which the verdict might call the claim associated, or else 1."""

    def is_expected(test: TestOutcome | None) -> bool:
        return (
            test is not None
            and test.p is not None
            and test.effect is not None
            and expected_direction(contract, test.effect)
        )

    if not is_expected(primary) or primary.p is None:
        return 1.0
    ways = [primary.p]
    sign = primary.p < CLEAR * contract.rules.alpha
    if sign and beside is not None and is_expected(beside) and beside.p is not None:
        ways.append(beside.p)
    return min(ways)


def _record(world: World, contract: Contract, primary: TestOutcome) -> None:
    """Record a failed confirmation in the ledger, so that later claims have stricter levels."""
    from validation.drafting.freezing import freeze

    frozen = freeze(contract, world.cohort)
    world.ledger.register(frozen)
    world.ledger.record(
        entry_of(frozen, primary.model_copy(update={"part": "confirmation", "claim": True}))
    )


def _judge(world: World, contract: Contract, trial: Trial) -> Trial:
    """Validate a claim."""
    from validation.drafting.freezing import freeze
    from validation.run.runner import run

    assert trial.place is not None and trial.level is not None
    online = Online(campaign="bench", place=trial.place, level=trial.level)
    dated = contract.model_copy(update={"online": online})
    frozen = freeze(Contract.model_validate(dated.model_dump()), world.cohort)
    out = world.folder / contract.hypothesis.id
    found = run(
        frozen, world.cohort, out, ledger=world.ledger, figures=False, reproduce=False
    ).verdict
    return Trial(
        trial.hypothesis, trial.came, trial.p, trial.confirmed, trial.place, trial.level,
        found.verdict, found.because,
    )  # fmt: skip


Choose = Callable[[Sequence[Earlier], World], tuple[Hypothesis, int] | None]
"""Function that selects the next claim and its number of moves; None if no claim is left."""


def choose_by_rules(fresh: Sequence[Hypothesis], known: DataDictionary) -> Choose:
    """Choose the most informative claim, as the rule-based `sage campaign` does."""
    policy = Policy([settle_fields(claim, known) for claim in fresh], known)

    def choose(earlier: Sequence[Earlier], world: World) -> tuple[Hypothesis, int] | None:
        found = policy.rank(earlier)
        return (found[0][1].hypothesis, found[0][1].depth) if found else None

    return choose


def run_campaign(world: World, choose: Choose, claims: int = CLAIMS) -> list[Trial]:
    """Test up to `claims` claims, each chosen by the outcomes of earlier claims."""
    earlier: list[Earlier] = []
    trials: list[Trial] = []
    for number in range(1, claims + 1):
        chosen = choose(earlier, world)
        if chosen is None:
            break
        hypothesis, depth = chosen
        trials.append(try_claim(world, hypothesis, number))
        came = trials[-1].came
        earlier.append(Earlier(id=f"c{number}", hypothesis=hypothesis, came=came, depth=depth))
    return trials


def propose_claims(question: str, known: DataDictionary, settings: Settings) -> list[Hypothesis]:
    """Propose all claims by the rule-based scientist on the demonstration graph, best first.

    No outcome is used, so the same list applies to every cohort with the same variables.
    """
    from agents.core.base import Resources
    from agents.core.rules import RulesReasoner
    from agents.scientist.agent import SCIENTIST
    from sage.run.wiring import make_ontology

    rules = RulesReasoner(Resources(ontology=make_ontology()))
    asked = brief_scientist(question, known, settings).model_copy(update={"wanted": 40})
    found: list[Hypothesis] = []
    while True:
        already = tuple(hypothesis.statement for hypothesis in found)
        try:
            answer = rules.ask(SCIENTIST, asked.model_copy(update={"already": already})).output
        except ValueError:
            return found
        found += [proposal.hypothesis for proposal in answer.candidates]


def brief_scientist(question: str, known: DataDictionary, settings: Settings) -> ScientistInput:
    """Build the scientist's input from the demonstration graph and a cohort's dictionary."""
    from agents.core.base import Resources
    from agents.core.rules import RulesReasoner
    from agents.core.types import dictionary_view
    from agents.ontologist.agent import ONTOLOGIST, OntologistInput, compose_brief
    from agents.question.types import Question
    from agents.scientist.views import ScientistInput
    from kg.graph.model import Graph
    from kg.paths.find import find_paths
    from sage.run.wiring import demo_graph, make_embedder, make_ontology

    ontology = make_ontology()
    rules = RulesReasoner(Resources(ontology=ontology))
    options = settings.path_options(k=MOST_PATHS)
    graph = Graph.load(demo_graph(settings))
    search = find_paths(graph, question, options, make_embedder(settings))
    given = OntologistInput(paths=tuple(search.paths))
    brief = compose_brief(given, rules.ask(ONTOLOGIST, given).output)
    terms = [name for edge in brief.relationships for name in (edge.head, edge.tail)]
    for name in list(terms):
        entry = ontology.find(name)
        terms += [entry.name, *entry.synonyms] if entry is not None else []
    view = dictionary_view(known, terms, settings.min_count)
    return ScientistInput(question=Question(prompt=question), brief=brief, dictionary=view)


class Line(Strict):
    """Result of a campaign in a world."""

    seed: int
    patients: int
    claims: int
    opened: int
    confirmed: tuple[float, ...]
    passed: int
    supported: tuple[str, ...]


def null_campaign(fresh: Sequence[Hypothesis], seed: int) -> Line:
    """Run a campaign of 60 claims in a world where no biomarker is related to any outcome.

    Stage and age are related to outcomes, so claims on clinical variables, some of which are
    true, are left out.
    """
    from validation.cohort import load
    from validation.ledger.ledger import Ledger
    from validation.simulate.world import write_world

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_world(folder / "cohort", seed=seed, patients=PATIENTS, null=True)
        cohort = load(folder / "cohort")
        world = World(cohort, folder, seed, Ledger(folder / "ledger.jsonl"))
        trials = run_campaign(world, choose_by_rules(select_biomarkers(fresh), world.known))
    opened = [trial.confirmed for trial in trials if trial.confirmed is not None]
    return Line(
        seed=seed,
        patients=PATIENTS,
        claims=len(trials),
        opened=len(opened),
        confirmed=tuple(round(p, 8) for p in opened),
        passed=sum(bool(trial.verdict) for trial in trials),
        supported=tuple(
            trial.hypothesis.statement for trial in trials if trial.verdict == "supported"
        ),
    )


def select_biomarkers(claims: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Select the claims whose exposures are all measured in tissue."""
    return [
        claim
        for claim in claims
        if not any(exposure.variable.startswith("clinical:") for exposure in claim.exposures)
    ]


def summarize(lines: Sequence[Line]) -> Report:
    """Compute the share of campaigns with a false claim, along with that of claims at 0.05."""
    rates = [
        rate("supported", (bool(line.supported) for line in lines)),
        rate("below the campaign's level", (line.passed > 0 for line in lines)),
        rate("every claim at 0.05", (min(line.confirmed, default=1) < 0.05 for line in lines)),
    ]
    supported, _, naive = rates
    row = Row(
        benchmark="Null campaigns",
        measured=f"{len(lines)} campaigns, {sum(line.claims for line in lines):,} claims;"
        " campaigns with a false claim",
        baseline=f"{naive} (every claim at 0.05)",
        sage=str(supported),
        notes=("; ".join(f"{item.name} {item}" for item in rates) + ".",),
    )
    return Report(
        command="campaigns --json", rows=(row,), data=[item.model_dump() for item in rates]
    )


def load_claims() -> list[Hypothesis]:
    """Propose claims on the demonstration cohort."""
    from sage.run.wiring import load_cohort
    from sage.settings import load

    settings = load()
    return propose_claims(QUESTION, load_cohort("demo", settings).dictionary(), settings)


def run(
    runs: Annotated[int, typer.Option(min=1, help="Null worlds.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first.")] = 700_000,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Results so far, to resume.")] = None,
) -> Report:
    """Run campaigns in null worlds."""
    work = partial(null_campaign, load_claims())
    return summarize(
        run_missing(work, range(seed, seed + runs), Line, lambda line: line.seed, keep=keep,
                    jobs=jobs, title="worlds")
    )  # fmt: skip
