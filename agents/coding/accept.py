"""Acceptance of a program: policy check, comparison of numbers, and feedback."""

from __future__ import annotations

from agents.coding import scrub
from sandbox import policy
from sandbox.types import Reason, SandboxResult, Usage
from validation.results.results import Compared, Reproduction

ALLOWED_IMPORTS = policy.ALLOWED_IMPORTS - {"validation"}
"""Modules allowed in a second implementation: public libraries, never SAGE's own analysis."""

ENDINGS = {
    Reason.OK: "",
    Reason.ERROR: "it ended with an error",
    Reason.TIMEOUT: "it exceeded its time limit",
    Reason.MEMORY: "it exceeded its memory limit",
    Reason.PROCESSES: "it exceeded its limit on processes or threads",
    Reason.OUTPUT_LIMIT: "it exceeded its output limit",
    Reason.KILLED: "it was terminated by a signal",
    Reason.POLICY: "it was refused before it ran",
}


def check_policy(code: str, sandbox: str) -> SandboxResult | None:
    """Return a result listing the reasons why a program may not run; None if it may."""
    found = policy.check(code, ALLOWED_IMPORTS)
    if not found:
        return None
    lines = [f"line {violation.line}: {violation.message}" for violation in found[:12]]
    message = "\n".join(lines)
    return SandboxResult(sandbox=sandbox, exit_code=None, reason=Reason.POLICY, message=message)


def strip_result(result: SandboxResult) -> SandboxResult:
    """Strip a result of everything the program could choose: output, file names, exit code."""
    return SandboxResult(
        sandbox=result.sandbox,
        exit_code=None if result.exit_code is None else int(result.exit_code != 0),
        reason=result.reason,
        message=ENDINGS.get(result.reason, ""),
        usage=Usage(wall_seconds=float(round(result.usage.wall_seconds))),
    )


def render_feedback(result: SandboxResult, code: str) -> list[str]:
    """Describe a failed run in lines that may be sent to a model (see `agents.coding.scrub`)."""
    said = scrub.describe_failure(result.stderr_tail, result.stdout_tail, code)
    return [f"the run ended with {result.reason.value}: {ENDINGS.get(result.reason, '')}", *said]


def list_objections(found: Reproduction) -> list[str]:
    """List missing and differing numbers by test, without revealing SAGE's own values."""
    said = []
    if missing := found.with_state("missing"):
        said.append(f"required but missing: {_list_fields(missing)}")
    if differing := found.with_state("differs"):
        said.append(f"outside the tolerance of SAGE's values: {_list_fields(differing)}")
    return said


def _list_fields(numbers: tuple[Compared, ...]) -> str:
    by_test: dict[str, list[str]] = {}
    for number in numbers:
        by_test.setdefault(number.test, []).append(number.field)
    return "; ".join(f"{test} ({', '.join(fields)})" for test, fields in by_test.items())
