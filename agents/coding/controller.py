"""The coding controller: SAGE's own computation, a second implementation, and the verdict.

Each part of the contract is computed by SAGE. Published results and the inputs for later
parts come only from that computation. A second implementation, written by a model or
compiled by SAGE, recomputes the registered numbers and is compared with the first. It
runs at the same time if its program is known beforehand; neither sees the other's output.

Source: SAGE, 3.3.1 (control flow, bounded feedback, escalation).
"""

from __future__ import annotations

import contextvars
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agents.coding.accept import (
    ALLOWED_IMPORTS,
    check_policy,
    list_objections,
    render_feedback,
    strip_result,
)
from agents.coding.appendix import read_appendix
from agents.coding.store import PROGRAM, Store
from agents.coding.types import (
    Attempt,
    CodingOutcome,
    ContractBrief,
    DataProvenance,
    brief_of,
)
from agents.coding.validation import VALIDATION_AGENT, ProgramInput
from agents.core.base import Reasoner
from sage.core.errors import InputError
from sage.core.hashes import hash_text
from sandbox.types import Job, Limits, Reason, Sandbox, SandboxResult
from validation.disclosure import MIN_COUNT
from validation.reproduction.compare import (
    NUMBERS,
    TABLE,
    Task,
    compare,
    prepare_second,
    read_numbers,
    second_program,
    write_reproduction,
)
from validation.results.results import AnalysisResult, Part, Reproduction
from validation.run import protocol

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort
    from validation.contracts.contract import FrozenContract
    from validation.ledger.ledger import Ledger

Event = Callable[[str, dict[str, Any]], None]
COMMAND = ("python", "-P", "-s", PROGRAM, "/inputs/analysis", "/output")
LIMITS = Limits(seconds=900, memory_mb=4096, cpus=2, pids=128, output_mb=128, log_kb=256)


class NothingReadableError(Exception):
    """Raised if no round of the second implementation produced readable numbers."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self.part = part


@dataclass(frozen=True)
class Beside:
    """A second implementation that runs while SAGE computes the same part."""

    inputs: Path
    code: str
    out: Path
    ended: Future[SandboxResult]


@dataclass
class Carrying:
    """State of a contract during execution."""

    frozen: FrozenContract
    cohort: Cohort
    reasoner: Reasoner
    sandbox: Sandbox
    store: Store
    ledger: Ledger
    replicate: Cohort | None
    rounds: int
    limits: Limits
    report: Event
    min_count: int = MIN_COUNT
    mended: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    provenance: list[DataProvenance] = field(default_factory=list)
    beside: Beside | None = None

    def finish(self) -> CodingOutcome:
        """Compute and reproduce every part, then reach a verdict or escalate."""
        done = self.store.outcome()
        if done is not None:
            self.require_same(done.contract_sha256)
            return done
        self.brief: ContractBrief = brief_of(self.frozen)
        self.compiled = second_program()
        self._require_variables()
        self.attempts = self.store.attempts()
        protocol.register(self.frozen, self.cohort, self.ledger, self.replicate)
        self._code = ""
        try:
            parts = protocol.carry_out(
                self.frozen, self.cohort, self._part, self.ledger, self.replicate
            )
        except NothingReadableError as unread:
            return self._escalate(unread.part)
        return self._judge(parts)

    def _part(self, part: Part, cohort: Cohort, handed: protocol.Handed) -> AnalysisResult:
        """Carry out a part: SAGE's own computation, and the second implementation.

        The program accepted for the first part is run unchanged on later parts.
        """
        inputs = self._prepare(part, cohort, handed)
        task = prepare_second(inputs, inputs / "second")
        if task is not None:
            self._start_second(part, inputs)
        found = self._compute(part, inputs)
        if task is None:
            return found  # the analysis itself was refused: there is nothing to reproduce
        if part in ("all", "discovery"):
            code = self._reproduce(part, task, inputs, found)
            if code is None:
                raise NothingReadableError(part)
            self._code = code
        elif self._code:
            self._rerun(part, task, inputs, found, self._code)
        return found

    def _start_second(self, part: Part, inputs: Path) -> None:
        """Run the second implementation beside SAGE's computation, if its program is known."""
        code = self._code or (self.compiled if self.reasoner.name == "rules" else "")
        tried = self.mended or any(attempt.part == part for attempt in self.attempts)
        if tried or not code or check_policy(code, self.sandbox.name):
            return
        out = self.store.folder / "inputs" / "left" / f"{part}-second"
        shutil.rmtree(out, ignore_errors=True)
        ended: Future[SandboxResult] = Future()

        def run() -> None:
            try:
                ended.set_result(self._execute_second(inputs, out, code))
            except BaseException as error:  # noqa: BLE001 - raised where the result is read
                ended.set_exception(error)

        self.beside = Beside(inputs, code, out, ended)
        # A daemon, so that an interrupted command does not wait for it; the sandbox ends with SAGE.
        threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()

    def require_same(self, contract: str) -> None:
        """Raise an error if the folder belongs to another contract."""
        if contract != self.frozen.sha256:
            raise InputError(
                f"{self.store.folder} belongs to contract {contract[:12]}, not to "
                f"{self.frozen.sha256[:12]}; use a separate folder for each contract"
            )

    def _require_variables(self) -> None:
        """Raise an error if the cohort lacks a variable used in the contract."""
        known = self.cohort.dictionary()
        keys = dict.fromkeys(column.key for column in self.brief.columns)
        missing = [key for key in keys if not known.has_variable(key)]
        if missing:
            raise InputError(
                f'cohort "{self.cohort.id}" lacks {", ".join(missing)}; extract the features '
                "first, then freeze a new contract"
            )

    def _compute(self, part: Part, inputs: Path) -> AnalysisResult:
        """Run SAGE's own computation of a part and record its results.

        The program compiled from the contract is run in the sandbox. A part that was computed
        before an interruption is reused.
        """
        from validation.run.prepare import render_program
        from validation.run.runner import read_analysis, record_crash, record_tests

        folder = self.store.analysis(part)
        if not (folder / "analysis.json").is_file():
            self.report("compute", {"part": part})
            left = self.store.folder / "inputs" / "left" / part
            shutil.rmtree(left, ignore_errors=True)
            ended = self._execute(
                inputs, left, render_program(self.frozen), compiled=True, offers_sage=True
            )
            if ended.reason is Reason.UNAVAILABLE:
                raise InputError(f"the {self.sandbox.name} sandbox could not run: {ended.message}")
            if not ended.ok:
                record_crash(self.frozen, self.ledger, f"{part}: {ended.reason.value}", part)
                raise InputError(
                    f"the compiled analysis ended with {ended.reason.value}: {ended.message}"
                )
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            left.rename(folder)
        found = read_analysis(folder)
        if found.contract_sha256 != self.frozen.sha256 or found.part != part:
            raise InputError(
                f"{folder} contains results for another contract or part; remove "
                f"{self.store.folder} to start over"
            )
        record_tests(self.frozen, found, self.ledger)
        return found

    def _reproduce(
        self, part: Part, task: Task, inputs: Path, reference: AnalysisResult
    ) -> str | None:
        """Run rounds of a second implementation until numbers agree; return the last program.

        Returns None if no round produced readable numbers, so that a person has to be asked. If
        the rounds are used up and numbers are missing or differ, the last numbers are the
        finding.
        """
        mended = self.mended
        while not any(attempt.part == part and attempt.accepted for attempt in self.attempts):
            number = len(self.attempts) + 1
            written = self.store.unfinished(number)
            if mended:
                self._round(part, task, inputs, reference, mended, "a person")
                break
            tried = any(
                attempt.part == part and attempt.compiled_by_sage for attempt in self.attempts
            )
            if number > self.rounds or (tried and self.reasoner.name == "rules"):
                break  # the same program would end the same way again
            code = written if written is not None else self._ask(number, task)
            self._round(part, task, inputs, reference, code, self.reasoner.name)
        ended = [
            attempt for attempt in self.attempts if attempt.part == part and attempt.reproduction
        ]
        if not ended:
            return None
        counts = next((attempt for attempt in ended if attempt.accepted), ended[-1])
        assert counts.reproduction is not None
        write_reproduction(counts.reproduction, self.store.folder)
        return self.store.program(counts.number).read_text(encoding="utf-8")

    def _ask(self, number: int, task: Task) -> str:
        last = self.attempts[-1] if self.attempts else None
        previous = self.store.program(last.number).read_text(encoding="utf-8") if last else ""
        given = ProgramInput(
            contract=self.brief,
            task=task,
            allowed_imports=tuple(sorted(ALLOWED_IMPORTS)),
            round=number,
            rounds=self.rounds,
            previous=previous,
            feedback=last.feedback if last else (),
        )
        return self.reasoner.ask(VALIDATION_AGENT, given).output.code

    def _judge(self, parts: protocol.Parts) -> CodingOutcome:
        """Return the verdict over all parts and the outcome of the coding rounds."""
        from validation.run.runner import collect

        results = collect(
            self.frozen,
            self.store.analysis(parts.main.part),
            self.store.folder,
            ledger=self.ledger,
            replicate=None if parts.replication is None else self.store.analysis("replication"),
            discovery=parts.discovery,
            locked=parts.locked,
        )
        outcome = self._outcome(
            "done",
            results="results.json",
            figures=tuple(sorted(figure.file for figure in results.figures.values())),
            verdict=results.verdict.verdict,
        )
        self.report("done", {"verdict": results.verdict.badge, "rounds": outcome.rounds})
        return outcome

    def _rerun(
        self, part: Part, task: Task, inputs: Path, reference: AnalysisResult, code: str
    ) -> None:
        """Run the final second implementation on a later part and record its numbers."""
        mine = next((attempt for attempt in self.attempts if attempt.part == part), None)
        if mine is None:
            by = next(
                attempt.by for attempt in self.attempts if attempt.code_sha256 == hash_text(code)
            )
            mine = self._round(part, task, inputs, reference, code, by)
        found = mine.reproduction or compare(task, reference, None, _author(mine), mine.code_sha256)
        write_reproduction(found, self.store.folder)

    def _prepare(self, part: Part, cohort: Cohort, handed: protocol.Handed) -> Path:
        """Prepare a part's analysis-ready tables, and keep only their description here.

        `handed` contains the cut-points and the model estimated in earlier patients.
        """
        from validation.run.prepare import prepare

        folder = self.store.folder / "inputs" / part
        said = prepare(self.frozen, cohort, folder, part=part, ledger=self.ledger, **handed)
        losses = tuple(
            f"{join['step']}: {join['before']} to {join['after']} ({join['reason']})"
            for join in said["joins"]
            if join["before"] != join["after"]
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
            )
        )
        return folder

    def _round(
        self, part: Part, task: Task, inputs: Path, reference: AnalysisResult, code: str, by: str
    ) -> Attempt:
        """Check and run a second implementation, read its output, and compare its numbers."""
        number = len(self.attempts) + 1
        out = self.store.begin(number, code)
        digest = hash_text(code)
        self.report("attempt", {"number": number, "part": part, "by": by})
        beside, self.beside = self.beside, None
        if beside and (beside.inputs, beside.code) == (inputs, code):
            result = beside.ended.result()
            if beside.out.is_dir():
                beside.out.rename(out)
        else:
            result = check_policy(code, self.sandbox.name) or self._execute_second(
                inputs, out, code
            )
        self.store.keep_log(number, result)
        attempt = Attempt(
            number=number,
            part=part,
            by=by,
            code_path=f"attempt-{number}/{PROGRAM}",
            code_sha256=digest,
            compiled_by_sage=code == self.compiled,
            result=strip_result(result),
        )
        problems: list[str] = []
        found: Reproduction | None = None
        if result.ok:
            try:
                answered = read_numbers(out / NUMBERS, task)
                found = compare(task, reference, answered, _author(attempt), digest)
                problems = list_objections(found)
                table = inputs / "second" / TABLE
                added = read_appendix(out, code, table, self.min_count)
                self.store.keep_appendix(part, digest, added)
            except InputError as error:
                problems = [str(error)]
        elif result.reason is Reason.POLICY:
            problems = result.message.splitlines()
        elif result.reason is Reason.UNAVAILABLE:
            raise InputError(f"the {self.sandbox.name} sandbox could not run: {result.message}")
        else:
            problems = render_feedback(result, code)
        shutil.rmtree(out, ignore_errors=True)
        attempt = attempt.model_copy(
            update={
                "feedback": tuple(problems),
                "reproduction": found,
                "accepted": result.ok and not problems,
            }
        )
        self.store.end(attempt)
        self.attempts.append(attempt)
        self.report("attempt_ended", {"number": number, "reason": result.reason.value})
        return attempt

    def _execute_second(self, inputs: Path, out: Path, code: str) -> SandboxResult:
        compiled = code == self.compiled
        return self._execute(inputs / "second", out, code, compiled=compiled, offers_sage=False)

    def _execute(
        self, inputs: Path, out: Path, code: str, *, compiled: bool, offers_sage: bool
    ) -> SandboxResult:
        return self.sandbox.run(
            Job(
                files={PROGRAM: code},
                command=COMMAND,
                inputs={"analysis": inputs},
                output=out,
                limits=self.limits,
                compiled_by_sage=compiled,
                offers_sage=offers_sage,
                label=self.frozen.sha256[:12],
            )
        )

    def _escalate(self, part: Part) -> CodingOutcome:
        last = self.attempts[-1]
        outcome = self._outcome(
            "escalated",
            message=f"{len(self.attempts)} second implementations produced no numbers for part "
            f"{part}. Correct {self.store.program(last.number)} and resume; the last round: "
            + "; ".join(last.feedback[:3]),
        )
        self.report("escalated", {"rounds": outcome.rounds, "part": part})
        return outcome

    def _outcome(self, status: Any, **more: Any) -> CodingOutcome:
        outcome = CodingOutcome(
            status=status,
            contract_sha256=self.frozen.sha256,
            sandbox=self.sandbox.name,
            reasoner=self.reasoner.name,
            provenance=tuple(self.provenance),
            attempts=tuple(self.attempts),
            **more,
        )
        self.store.save(outcome)
        return outcome


def _author(attempt: Attempt) -> Literal["SAGE", "a model", "a person"]:
    if attempt.compiled_by_sage:
        return "SAGE"
    return "a person" if attempt.by == "a person" else "a model"


def carry_out(
    frozen: FrozenContract,
    cohort: Cohort,
    *,
    reasoner: Reasoner,
    sandbox: Sandbox,
    workdir: Path,
    ledger: Ledger,
    replicate: Cohort | None = None,
    rounds: int = 3,
    limits: Limits = LIMITS,
    min_count: int = MIN_COUNT,
    on_event: Event = lambda *_: None,
    mended: bool = False,
) -> CodingOutcome:
    """Carry out a frozen contract, and write `results.json` and figures to `workdir`.

    A finished work folder is returned unchanged. An interrupted folder is resumed without
    asking the reasoner again for a program that it has already written.

    Parameters
    ----------
    min_count : smallest patient count that a program's appendix may show
    mended : resume after an escalation: the `analysis.py` from the last round, as corrected
        by a person, is run as a new round attributed to "a person"; if it also fails, the
        folder is escalated again

    Raises
    ------
    InputError
        If the folder belongs to another contract, or the data have changed since the contract
        was frozen; with `mended`, also if the folder was never escalated or the program was
        not changed.
    """
    store = Store(workdir)
    code = store.read_corrected() if mended else ""
    run = Carrying(
        frozen, cohort, reasoner, sandbox, store, ledger,
        replicate, rounds, limits, on_event, min_count, code,
    )  # fmt: skip
    if code:
        outcome = store.outcome()
        if outcome is not None:
            run.require_same(outcome.contract_sha256)
        # Store it as the next round before reopening, so that a kill in between loses nothing.
        store.begin(len(store.attempts()) + 1, code)
        store.reopen()
    return run.finish()
