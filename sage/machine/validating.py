"""Contract, analysis and verdict of one hypothesis, in its folder of the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agents.interpreter import ContractView, KeyedNumber, ResultsView
from sage.errors import FaultError
from sage.files import write_json
from sage.machine.contracts import statements
from sage.machine.services import Services
from validation.contract import FrozenContract

if TYPE_CHECKING:
    from agents.coding_instructions import CodingInstructions
    from validation.hypothesis import Hypothesis
    from validation.results import Results


def freeze_contract(services: Services, hypothesis: Hypothesis, answer: CodingInstructions) -> str:
    """Draft the contract, freeze it to the cohort's data, keep it; return its SHA-256."""
    from validation.contract import draft, freeze

    contract = draft(hypothesis, services.dictionary, seed=services.manifest.seed)
    if answer.negative_control_endpoint:
        controls = contract.controls.model_copy(
            update={"negative_endpoint": answer.negative_control_endpoint}
        )
        contract = contract.model_copy(update={"controls": controls})
    frozen = freeze(contract, services.cohort)
    frozen.write(services.folder.hypothesis(hypothesis.id) / "contract.json")
    services.folder.event("frozen", hypothesis=hypothesis.id, sha256=frozen.sha256)
    return frozen.sha256


def load_frozen(services: Services, name: str, sha256: str) -> FrozenContract:
    """The frozen contract of a hypothesis.

    Raises
    ------
    FaultError
        If the file is not the contract that the run froze.
    """
    frozen = FrozenContract.read(services.folder.hypothesis(name) / "contract.json")
    if frozen.sha256 != sha256:
        raise FaultError(
            f"{name}: contract.json was exchanged after it was frozen"
            f" ({frozen.sha256[:12]}, not {sha256[:12]}); restore it from version control or backup"
        )
    return frozen


def carry_out(services: Services, name: str, sha256: str) -> Literal["done", "escalated"]:
    """Run the contract's analysis in the sandbox and take its results into the ledger."""
    from sage.wiring import make_sandbox
    from sandbox.types import Job, Limits
    from validation.compile import code, prepare
    from validation.ledger import Ledger
    from validation.runner import collect, record_crash

    frozen = load_frozen(services, name, sha256)
    home = services.folder.hypothesis(name)
    ledger = Ledger(services.folder.root / "ledger.jsonl")
    inputs = home / "results" / "inputs" / "all"
    prepare(frozen, services.cohort, inputs, part="all", ledger=ledger)
    program = code(frozen)
    out = home / "results" / "analysis" / "all"
    out.mkdir(parents=True, exist_ok=True)
    sandbox = make_sandbox(services.settings, compiled_by_sage=True)
    result = sandbox.run(
        Job(
            files={"analysis.py": program},
            command=("python", "-I", "analysis.py", "/inputs/data", "/output"),
            inputs={"data": inputs},
            output=out,
            limits=Limits(),
            compiled_by_sage=True,
            label=f"{services.folder.id}-{name}",
        )
    )
    write_json(
        services.folder.output(f"coding-{name}"),
        {
            "agent": "coding",
            "output": {
                "sandbox": result.sandbox,
                "attempts": 1,
                "compiled": True,
                "result": result.model_dump(mode="json"),
            },
        },
    )
    if not result.ok:
        record_crash(frozen, ledger, result.message or result.reason.value)
        return "escalated"
    collect(frozen, out, home / "results", ledger=ledger)
    return "done"


def finalize_verdicts(services: Services, contracts: dict[str, str]) -> None:
    """Judge every tested hypothesis again over the complete ledger.

    A verdict given while the ledger was short may not survive the claims that came later.
    """
    from validation.ledger import Ledger
    from validation.runner import finalize

    frozen = [
        (load_frozen(services, name, sha256), services.folder.hypothesis(name) / "results")
        for name, sha256 in sorted(contracts.items())
    ]
    finalize(frozen, Ledger(services.folder.root / "ledger.jsonl"))


def contract_view(frozen: FrozenContract) -> ContractView:
    """The contract as the interpreter sees it."""
    return ContractView(sha256=frozen.sha256, statements=statements(frozen))


QUOTED = ("primary.", "adjusted", "groups.", "power.", "control", "replicate.", "secondary")


def results_view(home: Path) -> ResultsView:
    """The results as the interpreter sees them: aggregated numbers by key, verdict, reasons."""
    from validation.results import Results

    results: Results = Results.read(home / "results" / "results.json")
    return ResultsView(
        verdict=results.verdict.verdict,
        reasons=tuple(one.text for one in results.verdict.reasons),
        limits=results.verdict.limits,
        numbers=tuple(
            KeyedNumber(key=key, text=number.text, label=number.unit)
            for key, number in results.numbers.items()
        ),
        figures=tuple(f"{one.title}: {one.caption}" for one in results.figures.values()),
        simulated=results.simulated,
    )
