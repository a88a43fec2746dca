"""Runner from a frozen contract to results: prepare, analyze, control errors and judge.

Errors are controlled over the ledger. The analysis step is the same whether it runs here
or in the sandbox; `collect` reads the files that it wrote.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from sage.core.errors import InputError
from sage.core.files import write_bytes
from validation.analysis.analysis import execute
from validation.contracts.contract import DIFFERENCES, FrozenContract
from validation.contracts.timing import timing_limits
from validation.core.types import Number
from validation.ledger.error_control import Adjusted
from validation.ledger.ledger import Ledger
from validation.ledger.lines import Entry, entry_of
from validation.ledger.rules import ledger_objections, ledger_qualifiers
from validation.reproduction.compare import Weighed, read_reproductions, reproduce_here, weigh
from validation.results.results import AnalysisResult, Book, Computed, Results, Verdict
from validation.run import protocol
from validation.run.prepare import Part, prepare
from validation.verdict.verdict import Evidence, judge

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort

Progress = Callable[[str], None]


def run(
    frozen: FrozenContract,
    cohort: Cohort,
    out: Path,
    *,
    ledger: Ledger,
    replicate: Cohort | None = None,
    progress: Progress | None = None,
    figures: bool = True,
    reproduce: bool = True,
) -> Results:
    """Run a frozen contract on its cohort and write `results.json` and figures.

    Files from an earlier run of the same contract in `out` are replaced, including its parts;
    results of another contract are kept in a folder named by its hash. Each part's tests are
    in the ledger before the next part is read.

    Parameters
    ----------
    figures : if False, draw none, which halves the time; no number or verdict depends on them
    reproduce : if False, run no second implementation and leave its rule out of the verdict;
        for studies that evaluate the other rules over many worlds

    Raises
    ------
    InputError
        If the data changed since the contract was frozen, the second cohort contains the same
        patients, or the confirmation patients were opened for another contract of the same
        hypothesis. In the last two cases, earlier results are kept unchanged.
    """
    say = progress or _silent
    protocol.register(frozen, cohort, ledger, replicate)
    set_aside(out, frozen)
    clear(out)
    out.mkdir(parents=True, exist_ok=True)
    frozen.save(out / "contract.json")
    trace = out / "attempts.jsonl"
    trace.unlink(missing_ok=True)

    def compute(part: Part, cohort: Cohort, handed: protocol.Handed) -> AnalysisResult:
        say(f"prepare {part}")
        inputs = out / "inputs" / part
        prepare(frozen, cohort, inputs, part=part, ledger=ledger, **handed)
        folder = out / "analysis" / part
        found = execute(inputs, folder, trace=trace, progress=say, figures=figures)
        record_tests(frozen, found, ledger)
        if reproduce:
            say(f"second implementation {part}")
            reproduce_here(inputs, found, out)
        return found

    parts = protocol.carry_out(frozen, cohort, compute, ledger, replicate)
    say("judge")
    return collect(
        frozen,
        parts.main,
        out,
        ledger=ledger,
        replicate=parts.replication,
        discovery=parts.discovery,
        locked=parts.locked,
        reproduce=reproduce,
    )


def _silent(_: str) -> None:
    return None


def set_aside(out: Path, frozen: FrozenContract) -> None:
    """Move results of another contract from `out` into a separate folder in the same place."""
    try:
        earlier = FrozenContract.load(out / "contract.json").sha256
    except InputError:
        return
    if earlier != frozen.sha256:
        kept = out.with_name(f"{out.name}.{earlier[:12]}")
        shutil.rmtree(kept, ignore_errors=True)
        out.rename(kept)


def clear(out: Path) -> None:
    """Remove the parts, figures and results that an earlier run left in `out`.

    `finalize` judges the files in `out`, and leftovers with another seed, split or
    replication must not affect a verdict. The ledger is kept, since earlier attempts count.
    """
    (out / "results.json").unlink(missing_ok=True)
    for part in get_args(Part):
        for folder in ("inputs", "analysis"):
            shutil.rmtree(out / folder / part, ignore_errors=True)
    shutil.rmtree(out / "reproduction", ignore_errors=True)
    for suffix in ("svg", "png"):
        for figure in (out / "figures").glob(f"*.{suffix}"):
            figure.unlink()


def read_analysis(folder: Path) -> AnalysisResult:
    """Read the analysis result in `folder`.

    Raises `InputError` if there is no readable result.
    """
    return AnalysisResult.load(folder / "analysis.json")


def record_tests(frozen: FrozenContract, analysis: AnalysisResult, ledger: Ledger) -> None:
    """Record a part's tests in the ledger; tests already recorded add nothing."""
    roles = ["replication" if test.part == "replication" else test.role for test in analysis.tests]
    ledger.record(
        *(
            entry_of(frozen, outcome.model_copy(update={"role": role}))
            for outcome, role in zip(analysis.tests, roles, strict=True)
        )
    )


def record_crash(frozen: FrozenContract, ledger: Ledger, reason: str, part: Part = "all") -> None:
    """Record that an analysis crashed before writing results, so its claims count as attempts."""
    again = part == "replication"
    ledger.record(
        *(
            Entry(
                contract=frozen.sha256,
                hypothesis=frozen.contract.hypothesis.id,
                cohort=frozen.contract.cohort,
                test=plan.id,
                role="replication" if again else plan.role,
                part=part,
                claim=plan.claim and not again,
                status="crashed",
                code="analysis",
                reason=reason,
            )
            for plan in frozen.contract.tests
        )
    )


def collect(
    frozen: FrozenContract,
    analysis: AnalysisResult | Path,
    out: Path,
    *,
    ledger: Ledger,
    replicate: AnalysisResult | Path | None = None,
    discovery: AnalysisResult | None = None,
    locked: bool = False,
    reproduce: bool = True,
) -> Results:
    """Record a finished analysis in the ledger, judge it, and write `results.json`.

    Parameters
    ----------
    reproduce : if False, leave the rule about the second implementation out of the verdict

    Raises
    ------
    InputError
        If the analysis belongs to another contract, or reports a test that is not registered.
    """
    folder = analysis if isinstance(analysis, Path) else None
    main = read_analysis(analysis) if isinstance(analysis, Path) else analysis
    second = read_analysis(replicate) if isinstance(replicate, Path) else replicate
    for item in (main, second, discovery):
        if item is not None:
            _verify(frozen, item)
    seen = ledger.seen_before(frozen)
    for entry in (discovery, main, second):
        if entry is not None:
            record_tests(frozen, entry, ledger)
    alpha = frozen.contract.rules.alpha
    adjusted = _mine(frozen, main.part, ledger.adjust("primary", of=frozen.sha256))
    reproductions = tuple(
        reproduction
        for reproduction in read_reproductions(out)
        if reproduction.contract_sha256 == frozen.sha256
    )
    weighed = weigh(frozen.contract, main, reproductions) if reproduce else Weighed()
    state = ledger.state
    verdict = judge(
        Evidence(
            contract=frozen.contract,
            analysis=main,
            q=adjusted.q if adjusted is not None else None,
            q_adjusted=_q_instead(frozen, main, ledger, "adjusted"),
            q_of=_of_the_hierarchy(frozen, main, ledger),
            family=adjusted.family if adjusted is not None else 1,
            questions=adjusted.questions if adjusted is not None else None,
            replicate=second,
            discovery=discovery,
            locked=locked,
            seen=seen,
            objections=(
                *ledger_objections(
                    state,
                    registered=ledger.is_registered(frozen),
                    screened=ledger.find_screened(frozen),
                    taken=ledger.place_taken(frozen),
                ),
                *weighed.objections,
            ),
            qualifiers=(*ledger_qualifiers(state, alpha), *weighed.qualifiers),
        )
    )
    said = tuple(reason for reason in weighed.reasons if reason not in verdict.reasons)
    beside = (*verdict.limits, *timing_limits(frozen.contract))
    verdict = verdict.model_copy(update={"limits": beside, "reasons": (*verdict.reasons, *said)})
    if folder is None:
        folder = out / "analysis" / main.part
    found = _results(frozen, main, second, discovery, verdict, adjusted, ledger)
    found = found.model_copy(update={"reproduction": reproductions})
    _copy_figures(folder, out, found)
    found.save(out / "results.json")
    return found


def _of_the_hierarchy(
    frozen: FrozenContract, main: AnalysisResult, ledger: Ledger
) -> dict[str, float]:
    """Control later endpoints' p-values over the ledger, each in place of the primary test's."""
    claim = frozen.contract.hypothesis
    keys = claim.secondary_endpoints if claim.hierarchy else ()
    found = {key: _q_instead(frozen, main, ledger, f"{key}.secondary") for key in keys}
    return {key: q for key, q in found.items() if q is not None}


def _q_instead(
    frozen: FrozenContract, main: AnalysisResult, ledger: Ledger, test: str
) -> float | None:
    """Control another test's p-value over the ledger, in place of the primary test's."""
    found = main.test(test)
    if found is None or found.p is None:
        return None
    instead = {frozen.sha256: found.p}
    mine = _mine(frozen, main.part, ledger.adjust("primary", instead, of=frozen.sha256))
    return mine.q if mine is not None else None


def finalize(
    results: list[tuple[FrozenContract, Path]], ledger: Ledger, *, reproduce: bool = True
) -> list[Results]:
    """Reevaluate all hypotheses in a run, now that the ledger contains every claim.

    A verdict reached when the ledger was short may not survive the claims added later.
    `reproduce` has the same meaning as in `collect`.
    """
    final = []
    for frozen, out in results:
        part = "confirmation" if (out / "analysis" / "confirmation").is_dir() else None
        folders = [out / "analysis" / name for name in (part, "all", "discovery") if name]
        main = next((folder for folder in folders if (folder / "analysis.json").is_file()), None)
        if main is None:
            raise InputError(f"{out}: no analysis to evaluate")
        second = out / "analysis" / "replication"
        split = frozen.contract.split.policy != "none"
        final.append(
            collect(
                frozen,
                main,
                out,
                ledger=ledger,
                replicate=second if (second / "analysis.json").is_file() else None,
                discovery=read_analysis(out / "analysis" / "discovery") if part else None,
                locked=split and part is None,
                reproduce=reproduce,
            )
        )
    return final


def _verify(frozen: FrozenContract, analysis: AnalysisResult) -> None:
    if analysis.contract_sha256 != frozen.sha256:
        raise InputError("the analysis was run under another contract, so its results are rejected")
    registered = {plan.id: plan for plan in frozen.contract.tests}
    for outcome in analysis.tests:
        if outcome.id.startswith("control."):
            continue
        plan = registered.get(outcome.id)
        if plan is None:
            raise InputError(
                f'the analysis reports test "{outcome.id}", which is not registered in the contract'
            )
        if (plan.method, plan.endpoint, plan.role) != (
            outcome.method,
            outcome.endpoint,
            outcome.role,
        ):
            raise InputError(f'test "{outcome.id}" was not run as registered in the contract')


def _mine(frozen: FrozenContract, part: str, adjusted: list[Adjusted]) -> Adjusted | None:
    wanted = (frozen.sha256, frozen.contract.primary, part)
    return next(
        (item for item in adjusted if (item.contract, item.test, item.part) == wanted), None
    )


def _results(
    frozen: FrozenContract,
    main: AnalysisResult,
    second: AnalysisResult | None,
    discovery: AnalysisResult | None,
    verdict: Verdict,
    adjusted: Adjusted | None,
    ledger: Ledger,
) -> Results:
    contract = frozen.contract
    book = Book()
    power = contract.power
    if power.events is not None:
        book.add("power.events", power.events, "events", f"{power.events:.0f}")
    if power.minimum_detectable is not None:
        book.add("power.minimum_detectable", power.minimum_detectable, contract.scale)
    if power.required_events is not None:
        book.add("power.required_events", power.required_events, "events")
    book.add("power.n", power.n, "patients")
    book.add("rules.alpha", contract.rules.alpha, "level")
    relevant = contract.relevant_effect
    if contract.scale not in DIFFERENCES:
        relevant = math.exp(relevant)
    if contract.associates:
        book.add("rules.relevant", relevant, contract.scale)
    if adjusted is not None:
        book.add("primary.q", adjusted.q, "q-value")
        beside = _q_instead(frozen, main, ledger, "adjusted")
        if beside is not None:
            book.add("adjusted.q", beside, "q-value")
        book.add("ledger.claims", adjusted.family, "claims")
    for status, count in sorted(ledger.counts().items()):
        book.add(f"ledger.{status}", count, "tests")
    numbers: dict[str, Number] = main.numbers | book.numbers
    for prefix, other in (("replicate", second), ("discovery", discovery)):
        for key, number in (other.numbers if other is not None else {}).items():
            numbers[f"{prefix}.{key}"] = number
    tests = [test for item in (main, second, discovery) if item for test in item.tests]
    computed = {name: getattr(main, name) for name in Computed.model_fields} | {
        "tests": tests,
        "numbers": dict(sorted(numbers.items())),
        "figures": {
            name: figure.model_copy(update={"file": f"figures/{figure.file}"})
            for name, figure in main.figures.items()
        },
        "notes": (*contract.notes, *main.notes, *ledger.notes),
    }
    return Results(
        **computed,
        hypothesis=contract.hypothesis.id,
        verdict=verdict,
        replicate=second.cohort if second is not None else None,
    )


def _copy_figures(folder: Path, out: Path, found: Results) -> None:
    for figure in found.figures.values():
        source = folder / Path(figure.file).name
        target = out / figure.file
        if source.is_file():
            write_bytes(target, source.read_bytes())
