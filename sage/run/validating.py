"""Contract, analysis and verdict for a hypothesis, in its folder within the run."""

from __future__ import annotations

import base64
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agents.core.base import Agent, I, O, Reply
from agents.core.words import KEYED
from agents.interpreter.agent import ContractView, KeyedNumber, ResultsView
from sage.core.errors import FaultError
from sage.core.files import write_json
from sage.core.progress import report_progress
from sage.run.contracts import statements
from sage.run.services import Services
from validation.contracts.contract import Contract, FrozenContract, Online
from validation.disclosure import MIN_COUNT, suppressed_counts

if TYPE_CHECKING:
    from validation.core.hypothesis import Hypothesis
    from validation.ledger.ledger import Ledger
    from validation.results.results import Results


EVENTS = {
    "compute": "the analysis runs in the sandbox",
    "attempt": "a program of the second implementation ended",
    "escalated": "no program could be read; a person must look at it",
    "done": "the analysis is complete",
    "feature": "slides measured",
}
"""Sentences that describe the analysis events."""


def freeze_contract(services: Services, hypothesis: Hypothesis) -> str:
    """Draft the contract, freeze it to the cohort's data and save it; return its SHA-256.

    In a campaign, the contract takes the next place in the online error control; an
    interrupted step reuses the place it took before.
    """
    from validation.drafting.freezing import freeze

    contract = drafted_contract(services, hypothesis)
    ledger = open_run_ledger(services)
    with services.freezing:
        if services.manifest.campaign:
            frozen = _place_contract(services, contract, ledger)
        else:
            frozen = freeze(contract, services.cohort)
        ledger.register(frozen, services.cohort)
    frozen.save(services.folder.hypothesis(hypothesis.id) / "contract.json")
    services.folder.event("frozen", hypothesis=hypothesis.id, sha256=frozen.sha256)
    return frozen.sha256


def drafted_contract(services: Services, hypothesis: Hypothesis) -> Contract:
    """Draft the contract that the run would freeze for a hypothesis."""
    from validation.drafting.freezing import draft_on

    spec = services.spec
    return draft_on(hypothesis, services.cohort, seed=spec.seed, split=spec.split_rule)


def _place_contract(services: Services, contract: Contract, ledger: Ledger) -> FrozenContract:
    """Freeze the contract with its place in its confirmation patients' online error control."""
    from validation.drafting.freezing import freeze
    from validation.statistics.online import level

    def freeze_at(place: int) -> FrozenContract:
        online = Online(
            campaign=services.manifest.campaign,
            place=place,
            level=level(place, contract.rules.alpha),
        )
        placed = contract.model_copy(update={"online": online})
        return freeze(Contract.model_validate(placed.model_dump()), services.cohort)

    for place in ledger.places():
        taken = freeze_at(place)
        if ledger.registration(taken.sha256) is not None:
            return taken
    ledger.follow(services.cohort)
    if services.spec.confirms and services.second_cohort is not None:
        ledger.follow(services.second_cohort)
    return freeze_at(ledger.next_place())


def open_run_ledger(services: Services) -> Ledger:
    """Open the run's ledger, backed by the store that tracks patients across runs."""
    from sage.run.wiring import open_ledger

    return open_ledger(services.folder.root / "ledger.jsonl", services.settings)


def load_frozen(services: Services, name: str, sha256: str) -> FrozenContract:
    """Load a hypothesis's frozen contract and check that it matches the given hash.

    Raises
    ------
    FaultError
        If the file is not the contract that the run froze.
    """
    frozen = FrozenContract.load(services.folder.hypothesis(name) / "contract.json")
    if frozen.sha256 != sha256:
        raise FaultError(
            f"{name}: contract.json was replaced after it was frozen ({frozen.sha256[:12]}, not "
            f"{sha256[:12]}); restore it from version control or a backup"
        )
    return frozen


class Recording:
    """The run's reasoner as used by the coding agent, saving each answer as an agent output."""

    def __init__(self, services: Services, hypothesis: str) -> None:
        self.services = services
        self.hypothesis = hypothesis
        self.name = services.reasoner.name
        self._asked: dict[str, int] = {}

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        """Ask the run's reasoner and save the answer."""
        count = self._asked[agent.name] = self._asked.get(agent.name, 0) + 1
        again = f"-r{count - 1}" if count > 1 else ""
        return self.services.ask(agent, given, f"{agent.name}-{self.hypothesis}{again}")


def analyze(
    services: Services, name: str, sha256: str, *, mended: bool
) -> Literal["done", "escalated"]:
    """Execute the contract in the sandbox, in at most the configured number of rounds.

    Parameters
    ----------
    mended : whether to continue after an escalation, with the last program as fixed by a
        person

    Returns
    -------
    "done" with results in the hypothesis's folder, or "escalated" if no round produced
    readable numbers, so that a person has to fix the last program.

    Raises
    ------
    FaultError
        If the contract in the folder is not the frozen contract.
    InputError
        If the cohort's data changed after the contract was frozen, or if `mended` is set but
        no program was escalated or the program was not changed.
    """
    from agents.coding import controller

    frozen = load_frozen(services, name, sha256)
    home = services.folder.hypothesis(name)
    reasoner = Recording(services, name)
    outcome = controller.carry_out(
        frozen,
        services.cohort,
        reasoner=reasoner,
        sandbox=services.sandbox,
        workdir=home / "results",
        ledger=open_run_ledger(services),
        replicate=services.second_cohort,
        rounds=services.settings.coding_rounds,
        min_count=services.settings.min_count,
        on_event=partial(_report_event, services, name),
        mended=mended,
    )
    write_json(
        services.folder.output(f"coding-{name}"),
        {
            "agent": "coding",
            "output": {
                "sandbox": outcome.sandbox,
                "attempts": outcome.rounds,
                "compiled": all(attempt.compiled_by_sage for attempt in outcome.attempts),
                "message": outcome.message,
                "results": [attempt.model_dump(mode="json") for attempt in outcome.attempts],
            },
        },
    )
    return outcome.status


def _report_event(services: Services, name: str, kind: str, fields: dict[str, Any]) -> None:
    """Save and display an event reported by the analysis."""
    services.folder.event(kind, hypothesis=name, **fields)
    report_progress(EVENTS.get(kind, kind), int(fields.get("done", 0)), int(fields.get("total", 0)))


def finalize_verdicts(services: Services, contracts: dict[str, str]) -> None:
    """Reevaluate every tested hypothesis using the complete ledger.

    A verdict reached when the ledger was shorter may not survive the claims added later.
    """
    from validation.run.runner import finalize

    frozen = [
        (load_frozen(services, name, sha256), services.folder.hypothesis(name) / "results")
        for name, sha256 in sorted(contracts.items())
    ]
    ledger = open_run_ledger(services)
    ledger.follow(services.cohort)
    finalize(frozen, ledger)


def contract_view(frozen: FrozenContract) -> ContractView:
    """Build the interpreter's view of the contract."""
    return ContractView(sha256=frozen.sha256, statements=statements(frozen))


def pictures(home: Path) -> tuple[str, ...]:
    """Load the main figures for the part that determines the verdict, as base64-encoded PNG."""
    from validation.figures.plots import SEEN

    for part in ("confirmation", "all", "discovery"):
        folder = home / "results" / "analysis" / part
        found = [folder / f"{name}.png" for name in SEEN]
        if folder.is_dir():
            return tuple(
                base64.b64encode(path.read_bytes()).decode() for path in found if path.is_file()
            )
    return ()


COUNTED = ("patients", "events")


def results_view(home: Path, min_count: int = MIN_COUNT) -> ResultsView:
    """Build the interpreter's view of the results: verdict, statements and the numbers they quote.

    Counts below `min_count` are suppressed, as are shares whose text states such a count.
    """
    from agents.findings.hold import hold
    from validation.results.results import Results

    results: Results = Results.load(home / "results" / "results.json")
    counts = {
        key: int(number.value)
        for key, number in results.numbers.items()
        if number.unit in COUNTED and isinstance(number.value, int)
    }
    hidden = suppressed_counts(counts, min_count)
    hidden |= {
        key
        for key in results.numbers
        if key.endswith(".share") and f"{key.removesuffix('.share')}.events" in hidden
    }
    held = hold(results, FrozenContract.load(home / "contract.json").contract)
    quoted = {key for item in held for key in KEYED.findall(item.sentence)}
    return ResultsView(
        verdict=results.verdict.verdict,
        badge=results.verdict.badge,
        held=held,
        reasons=tuple(reason.text for reason in results.verdict.reasons),
        limits=results.verdict.limits,
        numbers=tuple(
            KeyedNumber(
                key=key,
                text=f"suppressed (a count under {min_count})"
                if key in hidden
                else results.numbers[key].text,
                label=results.numbers[key].unit,
            )
            for key in sorted(quoted & results.numbers.keys())
        ),
        figures=tuple(figure.title for figure in results.figures.values()),
        simulated=results.simulated,
    )
