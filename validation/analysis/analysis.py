"""Analysis of prepared inputs, which runs unchanged in the sandbox and on the host.

    python -m validation.analysis.analysis INPUTS OUT

Reads `contract.json`, `table.parquet`, `controls.parquet` and `provenance.json`; writes
`analysis.json`, `attempts.jsonl` and figures. Only registered tests run. Each attempt is
recorded before it starts, so that a crash leaves a trace.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd
from pydantic import ValidationError

from sage.core.errors import InputError
from sage.core.files import append_line, write_text
from sage.core.hashes import hash_file
from sage.core.log import logger
from sage.core.printable import join_names
from validation.analysis.e_value import put_e_value
from validation.analysis.flow import group_numbers, patient_flow
from validation.contracts.contract import FrozenContract, TestPlan
from validation.controls import run as controls
from validation.controls.run import control_outcome, ledger_fields
from validation.controls.specification import specification
from validation.figures.plots import draw
from validation.inputs.population import Cut
from validation.inputs.prediction import PredictionModel
from validation.inputs.study import NO_TERM, Study
from validation.methods import run_method
from validation.results.controls import (
    ControlResult,
    Controls,
    ControlStatus,
    KnownPositiveResult,
    Missingness,
    NegativeEndpoint,
    PermutedOutcome,
    RandomFeatures,
    Specifications,
    TimingResult,
)
from validation.results.results import (
    AnalysisResult,
    Book,
    Figure,
    TestOutcome,
    p_text,
    stable_json,
)

if TYPE_CHECKING:
    from validation.controls.curve import SpecificationCurve
    from validation.core.types import Number

log = logger(__name__)

VERSIONS = ("numpy", "scipy", "pandas", "pyarrow", "pydantic", "matplotlib", "sage-pathology")
# Tests repeated in a second cohort, in addition to the primary test.
AGAIN = ("kaplan_meier", "cumulative_incidence", "schoenfeld", "calibration", "slope")
APPLIED = ("confirmation", "replication")
COUNTED = ("primary", "secondary", "adjusted")
"""Roles of tests whose patient and event counts are results that the report may quote."""
C = TypeVar("C", bound=ControlResult)


class Analysis:
    """An open analysis, with inputs read and tests not yet run.

    >>> analysis = Analysis.open(Path("inputs"))
    >>> analysis.run()
    >>> analysis.finish(Path("out"))
    """

    def __init__(
        self,
        frozen: FrozenContract,
        table: pd.DataFrame,
        features: pd.DataFrame | None,
        provenance: dict[str, Any],
    ) -> None:
        self.frozen = frozen
        self.contract = frozen.contract
        self.provenance = provenance
        self.part = provenance["part"]
        self._table = table
        self._features = features
        self._book = Book()
        self._tables: dict[str, Any] = {}
        self._tests: list[TestOutcome] = []
        self._controls: Controls | None = None
        self._study: Study | None = None
        self.curve: SpecificationCurve | None = None
        given = provenance.get("model")
        self.model = None if given is None else PredictionModel.model_validate(given)
        self._attempts: list[dict[str, str]] = []
        self._trace: Path | None = None
        self._progress: Callable[[str], None] | None = None

    @classmethod
    def open(cls, inputs: Path, *, trace: Path | None = None) -> Analysis:
        """Read and verify prepared inputs.

        Raises `InputError` if a file is missing or has changed since it was prepared.
        """
        try:
            provenance = json.loads((inputs / "provenance.json").read_text(encoding="utf-8"))
            frozen = FrozenContract.load(inputs / "contract.json")
        except FileNotFoundError as error:
            raise InputError(
                f"{inputs}: not prepared inputs ({error.filename} is missing)"
            ) from None
        except (json.JSONDecodeError, ValidationError) as error:
            raise InputError(f"{inputs}: inputs are damaged: {error}") from None
        for name, digest in provenance["files"].items():
            if not (inputs / name).is_file() or hash_file(inputs / name) != digest:
                raise InputError(f"{inputs / name}: missing, or changed since it was prepared")
        if provenance["contract_sha256"] != frozen.sha256:
            raise InputError(f"{inputs}: the table was prepared for another contract")
        table = pd.read_parquet(inputs / "table.parquet")
        features = None
        if (inputs / "controls.parquet").is_file():
            features = pd.read_parquet(inputs / "controls.parquet")
        analysis = cls(frozen, table, features, provenance)
        analysis._trace = trace
        return analysis

    @property
    def table(self) -> pd.DataFrame:
        """Return a copy of the analysis-ready table, with one row per pseudonymous patient."""
        return self._table.copy()

    @property
    def tests(self) -> tuple[TestOutcome, ...]:
        """Outcomes of the tests and controls run so far."""
        return tuple(self._tests)

    @property
    def numbers(self) -> dict[str, Number]:
        """Numbers computed so far, by key."""
        return self._book.numbers

    def run(self, tests: list[str] | None = None) -> list[TestOutcome]:
        """Run registered tests (default: all of them), then the claim's controls.

        Raises `InputError` for a test that is not in the contract.
        """
        plans = [self.contract.test(test) for test in tests] if tests else list(self.contract.tests)
        if self.part == "replication":
            wanted = {self.contract.primary, *AGAIN}
            plans = [plan for plan in plans if plan.id in wanted]
        study, refusal = self.study()
        for plan in plans:
            self._attempt(plan, study, refusal)
        if study is not None:
            group_numbers(study, self._book)
            self.model, self._study = study.model, study
            if self.part != "replication" and tests is None:
                self._run_controls(study)
        return list(self._tests)

    def study(self) -> tuple[Study | None, Exception]:
        """Return the study, or None plus the refusal or crash to be recorded for each test."""
        cuts = tuple(Cut.model_validate(cut) for cut in self.provenance["cuts"])
        none = InputError(self.provenance.get("refusal") or "no cut-points could be found")
        if not cuts:
            return None, none
        try:
            return Study.build(self.contract, self._table, cuts, self.model), none
        except Exception as error:  # noqa: BLE001 - raised again inside each test, which records it
            return None, error

    def _attempt(self, plan: TestPlan, study: Study | None, refusal: Exception) -> None:
        def work() -> TestOutcome:
            if study is None:
                raise refusal
            if plan.method == "calibration" and self.part in APPLIED and self.model is None:
                raise InputError("there is no earlier prediction model to apply")
            if self.part != "replication":
                return _without_terms(study, plan, run_method(study, plan, book, tables))
            have = {
                name: tuple(key for key in keys if key in self._table.columns)
                for name, keys in (("covariates", plan.covariates), ("strata", plan.strata))
            }
            found = run_method(study, plan.model_copy(update=have), book, tables)
            absent = [key for key in plan.strata if key not in have["strata"]]
            if absent:
                note = f"not stratified by {', '.join(absent)}, which this cohort does not have"
                found = found.model_copy(update={"notes": (*found.notes, note)})
            return _without_terms(study, plan.model_copy(update=have), found)

        book, tables = Book(), dict[str, Any]()
        outcome = self._run_recorded(
            work,
            TestOutcome(
                id=plan.id,
                role=plan.role,
                method=plan.method,
                endpoint=plan.endpoint,
                status="crashed",
                claim=plan.claim,
            ),
        )
        if outcome.status == "ok":
            if plan.role in ("primary", "adjusted"):
                put_e_value(outcome, book)
            if plan.role in COUNTED or plan.method == "calibration":
                for name, count in (("n", outcome.n), ("events", outcome.events)):
                    if count is not None and f"{plan.id}.{name}" not in book.numbers:
                        book.add(
                            f"{plan.id}.{name}", count, "patients" if name == "n" else "events"
                        )
            self._book.numbers.update(book.numbers)
            self._tables.update(tables)
        self._tests.append(outcome)

    def _run_recorded(self, work: Callable[[], TestOutcome], blank: TestOutcome) -> TestOutcome:
        """Run a test and record a refusal with its message, or a crash as a crash."""
        self._note({"test": blank.id, "state": "started", "part": self.part})
        if self._progress is not None:
            self._progress(blank.id)
        try:
            outcome = work()
        except InputError as error:
            code = str(getattr(error, "code", "input"))
            outcome = blank.model_copy(
                update={"status": "refused", "code": code, "reason": str(error)}
            )
        except Exception as error:  # noqa: BLE001 - any crash of a test is an attempt on record
            log.failed("test crashed", error, test=blank.id)
            # A library's message may quote values; the reason is shown in reports and prompts.
            reason = f"the computation crashed ({type(error).__name__})"
            outcome = blank.model_copy(
                update={"status": "crashed", "code": "crash", "reason": reason}
            )
        part = "all" if self.part == "all" else self.part
        claim = outcome.claim and self.part in ("all", "confirmation")
        outcome = outcome.model_copy(update={"part": part, "claim": claim})
        self._note({"test": outcome.id, "state": outcome.status, "part": self.part})
        return outcome

    def _note(self, line: dict[str, str]) -> None:
        self._attempts.append(line)
        if self._trace is not None:
            append_line(self._trace, json.dumps(line, sort_keys=True), durable=True)

    def _run_controls(self, study: Study) -> None:
        """Run every control requested by the contract; record the rest as switched off."""
        plan, primary = self.contract.controls, self.contract.primary_test
        self._controls = Controls(
            permuted=self._control(
                PermutedOutcome,
                "permuted",
                "permutation",
                partial(controls.permuted_outcome, study),
                plan.permutations > 0,
            ),
            random=tuple(
                self._control(
                    RandomFeatures,
                    f"random.{at + 1}",
                    "random_features",
                    partial(controls.random_features, study, self._features, at),
                    plan.random_features > 0,
                )
                for at, use in enumerate(self.contract.exposures)
                if use in self.contract.redrawn
            ),
            known_positive=self._control(
                KnownPositiveResult,
                "known_positive",
                "cox",
                partial(controls.known_positive, self._table, study),
                plan.known_positive is not None,
            ),
            negative=self._control(
                NegativeEndpoint,
                "negative",
                primary.method,
                partial(controls.negative_endpoint, study, self._book, self._tables),
                plan.negative_endpoint is not None,
            ),
            missingness=self._control(
                Missingness,
                "missingness",
                "logrank",
                partial(controls.missingness, self._table, study),
                plan.missingness and not self.contract.hypothesis.time_dependent,
            ),
            specification=self._control(
                Specifications,
                "specification_curve",
                "specification_curve",
                partial(self._curve, study),
                self.contract.associates,
            ),
            timing=self._control(
                TimingResult,
                "timing",
                "timing",
                partial(controls.timing, self._table, study),
                not self.contract.hypothesis.time_dependent,
            ),
        )
        controls.write_numbers(self._controls, self.contract.model_scale, self._book)

    def _control(
        self, kind: type[C], name: str, method: str, work: Callable[[], C], wanted: bool
    ) -> C:
        """Run a control; return its typed result and record it as a test."""
        if not wanted:
            return kind(status=ControlStatus.OFF, reason="not requested in the contract")
        endpoint = self.contract.primary_test.endpoint
        if kind is NegativeEndpoint:
            endpoint = self.contract.controls.negative_endpoint or endpoint
        primary = next((test for test in self._tests if test.id == self.contract.primary), None)
        if primary is not None and primary.status != "ok" and kind is not KnownPositiveResult:
            return kind(status=ControlStatus.REFUSED, reason="the primary test returned no result")
        ran: list[C] = []

        def attempt() -> TestOutcome:
            ran.append(work())
            return control_outcome(name, method, endpoint, **ledger_fields(ran[0]))

        outcome = self._run_recorded(
            attempt, control_outcome(name, method, endpoint, status="crashed")
        )
        self._tests.append(outcome)
        if outcome.status == "ok":
            return ran[0]
        refused = outcome.status == "refused"
        status = ControlStatus.REFUSED if refused else ControlStatus.CRASHED
        return kind(status=status, reason=outcome.reason or outcome.status)

    def _curve(self, study: Study) -> Specifications:
        primary = next(test.effect for test in self._tests if test.id == self.contract.primary)
        if primary is None:
            raise InputError("the primary test produced no effect estimate")
        found, curve = specification(study, primary)
        self.curve = curve
        self._tables["specification"] = [
            {
                key: str(value)
                if not isinstance(value, float)
                else p_text(value)
                if key == "p"
                else f"{value:.3f}"
                for key, value in row.items()
            }
            for row in curve.table()
        ]
        return found

    def result(
        self, figures: dict[str, Figure] | None = None, notes: Sequence[str] = ()
    ) -> AnalysisResult:
        """Return all results so far, with the figures drawn and notes on those that failed."""
        return AnalysisResult(
            contract_sha256=self.frozen.sha256,
            cohort=self.provenance["cohort"],
            simulated=bool(self.provenance["simulated"]),
            part=self.part,
            cuts=tuple(Cut.model_validate(cut) for cut in self.provenance["cuts"]),
            model=self.model,
            tests=tuple(self._tests),
            numbers=dict(sorted(self._book.numbers.items())),
            figures=figures or {},
            tables={name: tuple(rows) for name, rows in sorted(self._tables.items())},
            controls=self._controls,
            joins=patient_flow(self.contract, self._table, self.provenance["joins"]),
            notes=tuple(notes),
            versions=versions(),
        )

    def finish(self, out: Path, *, figures: bool = True) -> AnalysisResult:
        """Draw the figures, write `analysis.json` and `attempts.jsonl`, and return the result."""
        out.mkdir(parents=True, exist_ok=True)
        study = (self._study or self.study()[0]) if figures else None
        drawn, failed = draw(self, study, out) if study is not None else ({}, [])
        found = self.result(drawn, failed)
        lines = "".join(json.dumps(attempt, sort_keys=True) + "\n" for attempt in self._attempts)
        write_text(out / "attempts.jsonl", lines)
        write_text(out / "analysis.json", stable_json(found.model_dump(mode="json")))
        return found


@cache
def versions() -> dict[str, str]:
    """Return versions of the libraries used in the computation, cached (lookup takes 30 ms)."""
    found = {"python": platform.python_version()}
    for name in VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def execute(
    inputs: Path,
    out: Path,
    *,
    trace: Path | None = None,
    progress: Callable[[str], None] | None = None,
    figures: bool = True,
) -> AnalysisResult:
    """Open, run and finish an analysis; draw no figures if `figures` is False."""
    analysis = Analysis.open(inputs, trace=trace)
    analysis._progress = progress
    analysis.run()
    return analysis.finish(out, figures=figures)


def main(arguments: list[str]) -> int:
    """Run the command `python -m validation.analysis.analysis INPUTS OUT`."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m validation.analysis.analysis INPUTS OUT\n")
        return 2
    try:
        execute(Path(arguments[0]), Path(arguments[1]))
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))


def _without_terms(study: Study, plan: TestPlan, found: TestOutcome) -> TestOutcome:
    """Add the covariates that have no term in the model to the model's outcome record."""
    if found.status != "ok" or found.effect is None or not plan.covariates:
        return found
    keep = study.complete(plan.endpoint, (*plan.covariates, *plan.strata))
    lacking = [key for key in plan.covariates if not study.columns((key,), keep)]
    labels = tuple(use.label for use in study.contract.variables if use.key in lacking)
    if not labels:
        return found
    note = f"no term for {join_names(labels)}: {NO_TERM}"
    return found.model_copy(update={"absent": labels, "notes": (*found.notes, note)})
