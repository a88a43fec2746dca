"""The whole path of a program: sandbox, comparison, verdict, prompts, report, crate, replay.

One run on a hostile cohort of canaries is made per session, with rules. An attack takes a copy of
it, puts its own program in the place of the second implementation, and goes from there through the
same code as a run does, to everything that a person or a model reads.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.coding.validation import VALIDATION_AGENT
from agents.core.base import Agent, I, O, Reply
from agents.core.disclosure import require_disclosable
from agents.core.prompting import render
from agents.core.rules import RulesReasoner
from agents.core.types import ExpandedHypothesis
from agents.interpreter.agent import INTERPRETER, InterpreterInput
from sage.core.llm.turns import Spent
from sage.report.build import summarize_run, write_report
from sage.report.crate import write_crate
from sage.run import validating
from sage.run.folder import RunFolder
from sage.run.integrity import PAGES
from sage.run.services import Services
from sage.settings import Settings
from tests.adversary.hostile import hostile_run
from validation.contracts.contract import FrozenContract
from validation.results.results import Results

ROWS = ("inputs", "checkpoints.sqlite")
"""What of a run folder may hold rows: prepared inputs, and the program's own checkpoints."""


@dataclass
class Scripted:
    """A reasoner whose programs are given; every other agent answers by its rule.

    What a model would have been sent is kept as `prompts`, past the same gate.
    """

    programs: list[str]
    services: Services
    name: str = "chat"
    prompts: list[str] = field(default_factory=list)

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        system, user = render(agent.prompt, given)
        require_disclosable(agent.name, given, user, self.services.patient_identifiers)
        self.prompts.append(f"{system}\n{user}")
        if agent.name != VALIDATION_AGENT.name:
            return RulesReasoner(self.services.resources).ask(agent, given)
        code = self.programs.pop(0)
        output = agent.returns.model_validate({"code": code, "note": "as asked"})
        return Reply(output=output, reasoner=self.name, model="scripted", spent=Spent(calls=1))


@dataclass
class Attacked:
    """What an attack led to."""

    run: Path
    status: str
    prompts: list[str]

    @property
    def home(self) -> Path:
        """The hypothesis' folder of results."""
        return self.run / "hypotheses" / "h1" / "results"

    @property
    def results(self) -> Results:
        """The published results."""
        return Results.load(self.home / "results.json")

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """The rounds of the second implementation, as the run keeps them."""
        text = (self.run / "outputs" / "coding-h1.json").read_text()
        found: list[dict[str, Any]] = json.loads(text)["output"]["results"]
        return found

    @property
    def html(self) -> str:
        """The report."""
        return (self.run / "report.html").read_text(encoding="utf-8")

    @property
    def states(self) -> dict[tuple[str, str], str]:
        """How each registered number compares."""
        (found,) = self.results.reproduction
        return {(item.test, item.field): item.state for item in found.compared}

    def read_by_people(self) -> dict[str, str]:
        """Everything outside the inputs, by name, with the files' names."""
        found: dict[str, str] = {}
        for path in sorted(self.run.rglob("*")):
            parts = path.relative_to(self.run).parts
            if not path.is_file() or any(part in ROWS for part in parts):
                continue
            name = "/".join(parts)
            found[name] = f"{name}\n{path.read_bytes().decode('utf-8', 'replace')}"
        found["brief"] = json.dumps(summarize_run(RunFolder(self.run)))
        return found


def published(run: Path) -> dict[str, Any]:
    """What is published of a hypothesis, without verdict and reproduction."""
    text = (run / "hypotheses/h1/results/results.json").read_text()
    found: dict[str, Any] = json.loads(text)
    for name in ("verdict", "reproduction"):
        found.pop(name)
    return found


def attack(
    place: Path, *programs: str, sandbox: str = "bubblewrap", reasoner: Any = None
) -> Attacked:
    """Run programs in the place of the second implementation, and build all that follows.

    SAGE's own computation is the finished run's (it is the same on the same inputs).
    """
    run = place / "run"
    shutil.copytree(hostile_run(), run, symlinks=True)
    home = run / "hypotheses" / "h1" / "results"
    for path in home.iterdir():
        if path.name not in ("inputs", "analysis"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in ("replies", "replayed"):
        shutil.rmtree(run / name, ignore_errors=True)
    (run / "ledger.jsonl").unlink()
    folder = RunFolder(run)
    for old in run.glob("outputs/*_agent-h1*.json"):
        old.unlink()
    settings = Settings(
        sandbox=sandbox, cache_dir=place / "cache", coding_rounds=max(1, len(programs))
    )
    services = Services(folder, folder.manifest(), settings)
    scripted = reasoner(services) if reasoner else Scripted(list(programs), services)
    services.__dict__["reasoner"] = scripted
    frozen = FrozenContract.load(run / "hypotheses/h1/contract.json")
    status = validating.analyze(services, "h1", frozen.sha256, mended=False)
    prompts = getattr(scripted, "prompts", [])
    if status == "done":
        validating.finalize_verdicts(services, {"h1": frozen.sha256})
        expanded = max(run.glob("outputs/expanded-h1*.json"), key=lambda path: path.name)
        given = InterpreterInput(
            expanded=ExpandedHypothesis.model_validate(json.loads(expanded.read_text())),
            contract=validating.contract_view(frozen),
            results=validating.results_view(run / "hypotheses" / "h1"),
        )
        scripted.ask(INTERPRETER, given)
        services.ask(INTERPRETER, given, "interpreter-h1")
        record_anew(folder)
        before = folder.record.begin("report")
        write_report(folder)
        write_crate(run, folder.manifest())
        folder.record.end("report", before)
        write_report(folder, run / "replayed")
    else:
        write_crate(run, folder.manifest())
    return Attacked(run, status, prompts)


def record_anew(folder: RunFolder) -> None:
    """The folder's record as if its nodes, not this test, had written what lies there now."""
    for page in PAGES:
        (folder.root / page).unlink(missing_ok=True)
    folder.record.path.unlink()
    folder.record.seal()
    folder.record.seal_manifest()
    folder.update(sealed=folder.record.head())


def honest_numbers(run: Path) -> dict[str, Any]:
    """The numbers that a faultless second implementation writes."""
    found = json.loads((run / "hypotheses/h1/results/results.json").read_text())["reproduction"][0]
    numbers: dict[str, Any] = {}
    for item in found["compared"]:
        if item["state"] == "reproduced":
            value = item["second"]
            counted = item["field"] in ("n", "events")
            numbers.setdefault(item["test"], {})[item["field"]] = int(value) if counted else value
    return numbers


def program(*lines: str, numbers: str = "NUMBERS") -> str:
    """A program that writes honest numbers (given as a literal), and runs the attack's `lines`.

    `numbers` is the expression that is written.
    """
    body = "\n".join(f"    {line}" for line in "\n".join(lines).splitlines()) or "    pass"
    return f"""\
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

NUMBERS = json.loads({json.dumps(honest_numbers(hostile_run()))!r})


def main(inputs, out):
    (out / "numbers.json").write_text(json.dumps({{"numbers": {numbers}}}))
    table = pd.read_parquet(inputs / "table.parquet")
{body}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def quarantined(html: str) -> str:
    """The part of a report that is marked as exploratory."""
    from agents.coding.appendix import TITLE

    _, found, rest = html.partition(TITLE)
    return rest.partition("<h3>Next steps")[0] if found else ""
