"""One contract under way: its rounds, its later parts, its escalation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.base import Reasoner
from agents.coding.accept import feedback, objections, refused
from agents.coding.brief import brief
from agents.coding.data import DATA_AGENT, DataInput
from agents.coding.store import PROGRAM, Store, sha256
from agents.coding.task import TASK_AGENT, TaskInput
from agents.coding.types import (
    Attempt,
    CodingOutcome,
    ContractBrief,
    DataProvenance,
    ExecutionPlan,
    Part,
)
from agents.coding.validation import VALIDATION_AGENT, ProgramInput
from agents.errors import InputError
from sandbox import policy
from sandbox.types import Job, Limits, Reason, Sandbox, SandboxResult

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort
    from validation.contract import FrozenContract
    from validation.ledger import Ledger

Event = Callable[[str, dict[str, Any]], None]
COMMAND = ("python", "-P", "-s", PROGRAM, "/inputs/analysis", "/output")
LIMITS = Limits(seconds=900, memory_mb=4096, cpus=2, pids=128, output_mb=128, log_kb=256)


@dataclass
class Carrying:
    """One contract under way."""

    frozen: FrozenContract
    cohort: Cohort
    reasoner: Reasoner
    sandbox: Sandbox
    store: Store
    ledger: Ledger
    tasks: tuple[str, ...]
    tools: dict[str, str]
    replicate: Cohort | None
    rounds: int
    limits: Limits
    tell: Event
    mended: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    provenance: list[DataProvenance] = field(default_factory=list)

    def to_the_end(self) -> CodingOutcome:
        """Plan, run every part, judge; or escalate."""
        from validation.compile import code

        done = self.store.outcome()
        if done is not None:
            self.require_same(done.contract_sha256)
            return done
        self.brief: ContractBrief = brief(self.frozen)
        self.compiled = code(self.frozen)
        self.plan = self._plan()
        self._resolve_data()
        self.attempts = self.store.attempts()
        split = self.frozen.contract.split.policy != "none"
        first: Part = "discovery" if split else "all"
        accepted = self._first_part(first)
        if accepted is None:
            return self._escalate(first)
        return self._later_parts(accepted, first)

    def require_same(self, contract: str) -> None:
        """The folder must belong to this contract."""
        if contract != self.frozen.sha256:
            raise InputError(
                f"{self.store.folder} belongs to contract {contract[:12]}, not to "
                f"{self.frozen.sha256[:12]}; give a folder of its own to each contract"
            )

    def _plan(self) -> ExecutionPlan:
        plan = self.store.plan()
        if plan is None:
            given = TaskInput(contract=self.brief, tasks=self.tasks)
            plan = self.reasoner.ask(TASK_AGENT, given).output
            self.store.keep_plan(plan)
        self.require_same(plan.contract_sha256)
        self.tell("plan", {"steps": len(plan.steps)})
        return plan

    def _resolve_data(self) -> None:
        """Let the data agent account for every variable; a frozen contract lacks none."""
        if self.store.data() is None:
            wanted = tuple(dict.fromkeys(one.key for one in self.brief.columns))
            dictionary = self.cohort.dictionary()
            given = DataInput(
                cohort=self.cohort.id,
                wanted=wanted,
                present=tuple(key for key in wanted if dictionary.has(key)),
            )
            self.store.keep_data(self.reasoner.ask(DATA_AGENT, given).output)
        found = self.store.data()
        if found is not None and found.missing:
            raise InputError(
                f'cohort "{self.cohort.id}" lacks {", ".join(found.missing)}; extract the features '
                "first, then freeze a new contract"
            )

    def _first_part(self, part: Part) -> Attempt | None:
        """Rounds of program and feedback until one is accepted; None when none was."""
        from validation.compile import require_variables
        from validation.overlap import require_other_patients

        known = self.ledger.registration(self.frozen.sha256)
        self.ledger.register(self.frozen, self.cohort, fresh=known is None or known.frozen)
        if self.replicate is not None:
            require_other_patients(self.frozen, self.replicate, self.cohort)
            require_variables(self.frozen, self.replicate)
        inputs, cohort = self._prepare(part, self.cohort), self.cohort
        for one in self.attempts:
            if one.part == part and one.accepted:
                return one
        if self.mended:
            one = self._round(part, inputs, cohort, self.mended, "a person")
            return one if one.accepted else None
        while len(self.attempts) < self.rounds:
            number = len(self.attempts) + 1
            code = self.store.unfinished(number)
            by = self.reasoner.name
            if code is None:
                code = self._ask(number)
            one = self._round(part, inputs, cohort, code, by)
            if one.accepted:
                return one
            if one.compiled_by_sage and self.reasoner.name == "rules":
                return None  # the same program would fail in the same way again
        return None

    def _ask(self, number: int) -> str:
        last = self.attempts[-1] if self.attempts else None
        previous = self.store.program(last.number).read_text(encoding="utf-8") if last else ""
        given = ProgramInput(
            contract=self.brief,
            plan=self.plan,
            allowed_imports=tuple(sorted(policy.ALLOWED_IMPORTS)),
            compiled=self.compiled,
            round=number,
            rounds=self.rounds,
            previous=previous,
            feedback=last.feedback if last else (),
        )
        return self.reasoner.ask(VALIDATION_AGENT, given).output.code

    def _later_parts(self, accepted: Attempt, first: Part) -> CodingOutcome:
        """The same program, unchanged, on patients it has not seen."""
        from validation.runner import collect, read_analysis, record_tests, unlocks

        code = self.store.program(accepted.number).read_text(encoding="utf-8")
        by, folder = accepted.by, self.store.folder
        main = self.store.accept(accepted.number, first)
        discovery, locked = None, False
        found = read_analysis(main)
        record_tests(self.frozen, found, self.ledger)
        if first == "discovery":
            if unlocks(self.frozen, found):
                from validation.compile import confirmation_key

                self.ledger.unlock(confirmation_key(self.frozen), self.frozen)
                handed = {"cuts": found.cuts, "model": found.model}
                ended = self._again("confirmation", self.cohort, code, by, handed)
                if not ended.accepted:
                    return self._escalate("confirmation")
                main, discovery = self.store.accept(ended.number, "confirmation"), found
                record_tests(self.frozen, read_analysis(main), self.ledger)
            else:
                locked = True
        second = None
        if self.replicate is not None:
            developed = read_analysis(main) if discovery is None else discovery
            handed = {"model": developed.model}
            ended = self._again("replication", self.replicate, code, by, handed)
            if not ended.accepted:
                return self._escalate("replication")
            second = self.store.accept(ended.number, "replication")
        results = collect(
            self.frozen, main, folder,
            ledger=self.ledger, replicate=second, discovery=discovery, locked=locked,
        )  # fmt: skip
        outcome = self._outcome(
            "done",
            results="results.json",
            figures=tuple(sorted(one.file for one in results.figures.values())),
            verdict=results.verdict.verdict,
        )
        self.tell("done", {"verdict": results.verdict.badge, "rounds": outcome.rounds})
        return outcome

    def _again(
        self, part: Part, cohort: Cohort, code: str, by: str, handed: dict[str, Any]
    ) -> Attempt:
        inputs = self._prepare(part, cohort, handed)
        for one in self.attempts:
            if one.part == part and one.accepted:
                return one
        if self.mended:
            code, by = self.mended, "a person"
        return self._round(part, inputs, cohort, code, by)

    def _prepare(self, part: Part, cohort: Cohort, handed: dict[str, Any] | None = None) -> Path:
        """Analysis-ready tables of a part; only their description is kept here.

        `handed` are the cut-points and the model found in earlier patients.
        """
        from validation.compile import prepare

        folder = self.store.folder / "inputs" / part
        said = prepare(self.frozen, cohort, folder, part=part, ledger=self.ledger, **(handed or {}))
        losses = tuple(
            f"{one['step']}: {one['before']} to {one['after']} ({one['reason']})"
            for one in said["joins"]
            if one["before"] != one["after"]
        )
        self.provenance.append(
            DataProvenance(
                part=part,
                cohort=said["cohort"],
                simulated=said["simulated"],
                patients_in_cohort=said["patients"]["cohort"],
                patients_in_table=said["patients"]["written"],
                columns=said["columns"],
                data_hashes=said["data_hashes"],
                files=said["files"],
                losses=losses,
                tools=self.tools,
            )
        )
        return folder

    def _round(self, part: Part, inputs: Path, cohort: Cohort, code: str, by: str) -> Attempt:
        """Check, run, read and compare one program."""
        number = len(self.attempts) + 1
        out = self.store.begin(number, code)
        compiled = code == self.compiled
        self.tell("attempt", {"number": number, "part": part, "by": by})
        result = refused(code, self.sandbox.name) or self._execute(inputs, out, code, compiled)
        self.store.keep_log(number, result)
        problems: list[str] = []
        if result.ok:
            problems = objections(
                self.frozen,
                part,
                out,
                None if compiled else lambda: self._reference(inputs, out.with_name("reference")),
            )
        elif result.reason is Reason.POLICY:
            problems = result.message.splitlines()
        elif result.reason is Reason.UNAVAILABLE:
            raise InputError(f"the {self.sandbox.name} sandbox did not run: {result.message}")
        else:
            problems = feedback(result, cohort, code, self.compiled, self.brief)
        attempt = Attempt(
            number=number,
            part=part,
            by=by,
            code_path=f"attempt-{number}/{PROGRAM}",
            code_sha256=sha256(code),
            compiled_by_sage=compiled,
            result=result.model_copy(update={"stdout_tail": "", "stderr_tail": ""}),
            feedback=tuple(problems),
            accepted=result.ok and not problems,
        )
        self.store.end(attempt)
        self.attempts.append(attempt)
        self.tell("attempt_ended", {"number": number, "reason": result.reason.value})
        return attempt

    def _execute(self, inputs: Path, out: Path, code: str, compiled: bool) -> SandboxResult:
        return self.sandbox.run(
            Job(
                files={PROGRAM: code},
                command=COMMAND,
                inputs={"analysis": inputs},
                output=out,
                limits=self.limits,
                compiled_by_sage=compiled,
                label=self.frozen.sha256[:12],
            )
        )

    def _reference(self, inputs: Path, out: Path) -> Path:
        """The compiled program's own results on the same inputs."""
        if not out.exists():
            ended = self._execute(inputs, out, self.compiled, True)
            if not ended.ok:
                raise InputError(
                    f"the compiled analysis ended with {ended.reason.value}: {ended.message}"
                )
        return out

    def _escalate(self, part: Part) -> CodingOutcome:
        from validation.runner import record_crash

        last = self.attempts[-1]
        record_crash(self.frozen, self.ledger, f"{part}: {last.result.reason.value}", part)
        outcome = self._outcome(
            "escalated",
            message=f"{len(self.attempts)} programs failed on part {part}. Mend "
            f"{self.store.program(last.number)} and resume; the last one: "
            + "; ".join(last.feedback[:3]),
        )
        self.tell("escalated", {"rounds": outcome.rounds, "part": part})
        return outcome

    def _outcome(self, status: Any, **more: Any) -> CodingOutcome:
        outcome = CodingOutcome(
            status=status,
            contract_sha256=self.frozen.sha256,
            sandbox=self.sandbox.name,
            reasoner=self.reasoner.name,
            plan=self.plan,
            provenance=tuple(self.provenance),
            attempts=tuple(self.attempts),
            **more,
        )
        self.store.keep_outcome(outcome)
        return outcome
