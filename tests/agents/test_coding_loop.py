"""The E.5 hypothesis through the coding agent: rules, recorded replies, escalation, resume."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agents.coding.controller import carry_out
from agents.coding.store import Store
from agents.coding.types import CodingOutcome
from agents.coding.validation import VALIDATION_AGENT, ProgramInput
from agents.core.base import Agent, I, O, Reply, Resources
from agents.core.rules import RulesReasoner
from kg.lexicon.ontology import Ontology
from sage.core.errors import InputError
from sage.core.llm.turns import Spent
from sandbox.types import Availability, Job, Reason, Sandbox, SandboxResult
from tests.draws import draw_nothing
from tests.sandbox.boxes import BOXES, working
from tests.warm import run_warm
from validation.cohort.cohort import Cohort
from validation.cohort.model import read_spec
from validation.contracts.contract import ControlPlan, FrozenContract, SplitRule, read_hypothesis
from validation.drafting.draft import draft
from validation.drafting.freezing import freeze
from validation.ledger.ledger import Ledger
from validation.simulate.world import write_world

ROOT = Path(__file__).parents[2]
FORGOTTEN = "    print(len(numbers))\n"
FIX = '    (out / "numbers.json").write_text(json.dumps({"numbers": numbers}))\n'
REPLIES = Path(__file__).parent / "replies"


@dataclass
class Bench:
    """A frozen E.5 contract on a simulated cohort, and a place to work."""

    frozen: FrozenContract
    cohort: Cohort
    folder: Path

    def carry_out(
        self, reasoner: Any, sandbox: Sandbox, name: str = "h1", *, by: Any = carry_out
    ) -> CodingOutcome:
        return by(
            self.frozen,
            self.cohort,
            reasoner=reasoner,
            sandbox=sandbox,
            workdir=self.folder / name,
            ledger=Ledger(self.folder / f"{name}.jsonl"),
        )

    def resume(self, reasoner: Any, sandbox: Sandbox, name: str = "h1") -> CodingOutcome:
        return self.carry_out(reasoner, sandbox, name, by=partial(carry_out, mended=True))

    def results(self, name: str = "h1") -> Any:
        return json.loads((self.folder / name / "results.json").read_text())


@dataclass
class Recorded:
    """A reasoner whose programs are the recorded replies of a case; other agents use their rule."""

    case: str
    name: str = "chat"
    skipped: int = 0
    asked: list[ProgramInput] = field(default_factory=list)

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        if agent.name != VALIDATION_AGENT.name:
            return rules().ask(agent, given)
        assert isinstance(given, ProgramInput)
        self.asked.append(given)
        text = (REPLIES / self.case / f"round-{self.skipped + len(self.asked)}.json").read_text()
        output = agent.returns.model_validate_json(text)
        return Reply(output=output, reasoner=self.name, model="recorded", spent=Spent(calls=1))


def rules() -> RulesReasoner:
    return RulesReasoner(Resources(ontology=Ontology((), ())))


@dataclass
class Spy:
    """Runs compiled jobs in forks and notes which parts of the cohort each could read."""

    name: str = "spy"
    parts: list[str] = field(default_factory=list)

    def available(self) -> Availability:
        return Availability(name=self.name, ok=True, detail="")

    def prepare(self) -> None:
        return None

    def run(self, job: Job) -> SandboxResult:
        folder = job.inputs["analysis"]
        task = folder / ("task.json" if folder.name == "second" else "provenance.json")
        self.parts.append(json.loads(task.read_text())["part"])
        assert set(job.inputs) == {"analysis"} and job.compiled_by_sage
        if folder.name == "second":
            assert {path.name for path in folder.iterdir()} == {"task.json", "table.parquet"}
            assert not job.offers_sage
        job.output.mkdir(parents=True, exist_ok=True)
        words = ["-c", job.files["analysis.py"], str(folder), str(job.output)]
        ended = run_warm(words, cwd=job.output.parent, env=os.environ, timeout=300)
        assert ended.returncode == 0, ended.stderr
        return SandboxResult(sandbox=self.name, exit_code=0, reason=Reason.OK)


@pytest.fixture(autouse=True, scope="module")
def _no_figures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        yield


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    folder = tmp_path_factory.mktemp("world") / "cohort"
    write_world(folder, seed=1, patients=160)
    return Cohort(read_spec(folder / "cohort.toml"), folder)


def contract_of(world: Cohort, split: SplitRule | None = None) -> FrozenContract:
    hypothesis = read_hypothesis(ROOT / "docs/hypotheses/e5_fabp5_tls.json")
    hypothesis = hypothesis.model_copy(update={"secondary_endpoints": ("nodes",)})
    controls = ControlPlan(permutations=60, random_features=20)
    found = draft(hypothesis, world.dictionary(), seed=3, controls=controls, split=split)
    return freeze(found, world)


@pytest.fixture(scope="module")
def frozen(world: Cohort) -> FrozenContract:
    return contract_of(world)


@pytest.fixture(scope="module")
def on_the_host(
    frozen: FrozenContract, world: Cohort, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Results of a run on the host."""
    from validation.run.runner import run

    bench = Bench(frozen, world, tmp_path_factory.mktemp("host"))
    ledger = Ledger(bench.folder / "l.jsonl")
    run(frozen, world, bench.folder / "h1", ledger=ledger, figures=False)
    return bench.results()


@pytest.fixture
def begun(never: tuple[Bench, Recorded], tmp_path: Path) -> Bench:
    """SAGE's own computation is done, no program is written."""
    bench = never[0]
    done = Store(bench.folder / "h1").analysis("all")
    shutil.copytree(done, Store(tmp_path / "h1").analysis("all"))
    return Bench(bench.frozen, bench.cohort, tmp_path)


@pytest.fixture
def box() -> Sandbox:
    return working("warm")


@pytest.fixture(scope="module")
def held_back(world: Cohort, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, Spy]:
    """An analysis by the rules, with patients held back to confirm."""
    always = SplitRule(policy="discovery_confirmation", unlock_alpha=1.0)
    spy = Spy()
    bench = Bench(contract_of(world, always), world, tmp_path_factory.mktemp("held-back"))
    assert bench.carry_out(rules(), spy).status == "done"
    return bench, spy


@pytest.fixture(scope="module")
def never(
    frozen: FrozenContract, world: Cohort, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Bench, Recorded]:
    """An analysis whose programs all failed, and the reasoner that wrote them."""
    reasoner = Recorded("never")
    bench = Bench(frozen, world, tmp_path_factory.mktemp("never"))
    outcome = bench.carry_out(reasoner, working("warm"))
    assert outcome.status == "escalated"
    return bench, reasoner


@pytest.fixture
def escalated(never: tuple[Bench, Recorded], tmp_path: Path) -> Bench:
    """A copy of it, to go on with."""
    bench = never[0]
    return Bench(bench.frozen, bench.cohort, Path(shutil.copytree(bench.folder, tmp_path / "it")))


@pytest.mark.parametrize("name", BOXES[:2])
def test_the_rules_path_gives_the_numbers_of_a_run_on_the_host(
    name: str, frozen: FrozenContract, world: Cohort, on_the_host: Any, tmp_path: Path
) -> None:
    bench = Bench(frozen, world, tmp_path)
    box = working(name)
    outcome = bench.carry_out(rules(), box)
    assert outcome.status == "done" and outcome.sandbox == box.name
    assert [attempt.compiled_by_sage for attempt in outcome.attempts] == [True]
    here, host = bench.results(), copy.deepcopy(on_the_host)
    here.pop("versions"), host.pop("versions")
    assert {item["state"] for item in here["reproduction"][0]["compared"]} <= {
        "reproduced", "no second implementation"
    }  # fmt: skip
    for entry in (*here.pop("reproduction"), *host.pop("reproduction")):
        assert entry["by"] == "SAGE"
    assert here == host


@pytest.mark.bubblewrap
def test_a_killed_round_runs_again_unasked_and_its_failure_is_mended_in_the_second(
    begun: Bench, box: Sandbox
) -> None:
    bench = begun
    code = json.loads((REPLIES / "second_try/round-1.json").read_text())["code"]
    Store(bench.folder / "h1").begin(1, code)
    reasoner = Recorded("second_try", skipped=1)

    outcome = bench.carry_out(reasoner, box)

    assert outcome.status == "done"
    assert [attempt.result.reason for attempt in outcome.attempts] == [Reason.ERROR, Reason.OK]
    assert [attempt.compiled_by_sage for attempt in outcome.attempts] == [False, False]
    (asked,) = reasoner.asked
    fed = "\n".join(asked.feedback)
    assert "KeyError" in fed and 'joint_risk(table["FABP5"]' in fed
    assert 'table["FABP5"]' in asked.previous
    (found,) = bench.results()["reproduction"]
    assert found["by"] == "a model" and found["ran"]
    states = {(item["test"], item["field"]): item["state"] for item in found["compared"]}
    assert states["primary", "effect"] == states["primary", "p"] == "reproduced"
    assert not {"differs", "missing"} & set(states.values())


@pytest.mark.bubblewrap
def test_no_patient_reaches_the_model_with_the_feedback(never: tuple[Bench, Recorded]) -> None:
    import pandas as pd

    bench, reasoner = never
    table = pd.read_parquet(bench.folder / "h1/inputs/all/second/table.parquet")
    said = "\n".join(item.model_dump_json() for item in reasoner.asked)
    printed = (bench.folder / "h1/inputs/printed/attempt-1.stderr.txt").read_text()
    assert str(round(table["clinical:age"].iloc[0], 1))[:4] in printed
    said += (bench.folder / "h1/outcome.json").read_text()
    assert not [pseudonym for pseudonym in bench.cohort.pseudonyms if str(pseudonym) in said]
    for value in table.iloc[0].dropna():
        if isinstance(value, float) and value != int(value):
            assert f"{value:.3f}" not in said


@pytest.mark.bubblewrap
def test_a_program_that_never_succeeds_is_escalated_with_everything_kept(escalated: Bench) -> None:
    bench = escalated
    outcome = CodingOutcome.model_validate_json((bench.folder / "h1/outcome.json").read_text())
    assert outcome.status == "escalated"
    reasons = [attempt.result.reason for attempt in outcome.attempts]
    assert reasons == [Reason.ERROR, Reason.POLICY, Reason.OK]
    assert "`socket`" in " ".join(outcome.attempts[1].feedback)
    assert "numbers.json" in " ".join(outcome.attempts[2].feedback)
    assert not (bench.folder / "h1/results.json").exists()
    for number in (1, 2, 3):
        assert (bench.folder / f"h1/attempt-{number}/analysis.py").is_file()
    entries = Ledger(bench.folder / "h1.jsonl").entries
    statuses = {entry.status for entry in entries if entry.role != "assumption"}
    assert statuses == {"ok"}  # SAGE's own computation stands, whatever the program did


@pytest.mark.bubblewrap
def test_a_fix_that_fails_is_escalated_again_and_one_that_works_survives_a_kill(
    escalated: Bench, box: Sandbox
) -> None:
    bench, store = escalated, Store(escalated.folder / "h1")
    fixed = store.program(3).read_text().replace(FORGOTTEN, FIX)
    store.program(3).write_text("raise SystemExit(3)\n")
    outcome = bench.resume(Recorded("nobody is asked"), box)
    assert outcome.status == "escalated" and outcome.rounds == 4
    store.begin(5, fixed)
    store.reopen()

    outcome = bench.resume(Recorded("nobody is asked"), box)

    assert outcome.status == "done"
    assert [attempt.by for attempt in outcome.attempts] == ["chat"] * 3 + ["a person"] * 2
    assert bench.results()["contract_sha256"] == bench.frozen.sha256


@pytest.mark.bubblewrap
def test_numbers_that_differ_are_a_finding_that_changes_no_published_number(
    begun: Bench, box: Sandbox
) -> None:
    bench = begun
    outcome = bench.carry_out(Recorded("forged"), box, by=partial(carry_out, rounds=1))
    assert outcome.status == "done"
    (feedback,) = outcome.attempts[0].feedback
    assert "primary (p)" in feedback
    results = bench.results()
    (found,) = results["reproduction"]
    forged = next(
        item for item in found["compared"] if (item["test"], item["field"]) == ("primary", "p")
    )
    assert forged["state"] == "differs" and forged["second"] == 0.0001
    assert results["numbers"]["primary.p"]["value"] == forged["sage"] != 0.0001
    assert results["verdict"]["verdict"] != "supported"
    assert "not independently reproduced" in results["verdict"]["qualifiers"]


def test_a_folder_of_another_contract_is_refused(
    held_back: tuple[Bench, Spy], world: Cohort
) -> None:
    bench = held_back[0]
    other = freeze(
        bench.frozen.contract.model_copy(update={"seed": bench.frozen.contract.seed + 1}), world
    )
    with pytest.raises(InputError, match="contract"):
        Bench(other, world, bench.folder).carry_out(rules(), Spy())


def test_confirmation_patients_are_not_mounted_before_the_unlock(
    held_back: tuple[Bench, Spy],
) -> None:
    bench, spy = held_back
    assert spy.parts[0] == "discovery" and set(spy.parts) <= {"discovery", "confirmation"}
    unlocked = bool(Ledger(bench.folder / "h1.jsonl").unlocks)
    mounted = (bench.folder / "h1/inputs/confirmation").exists()
    assert ("confirmation" in spy.parts) == unlocked == mounted
