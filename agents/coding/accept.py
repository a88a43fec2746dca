"""Whether a round is accepted, and what is said about it when it is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agents.coding import scrub
from agents.coding.types import ContractBrief
from agents.coding.validation import API
from sandbox import policy
from sandbox.types import Reason, SandboxResult

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort
    from validation.contract import FrozenContract

COMPARED = ("tests", "numbers", "cuts", "controls", "flow", "tables")


def refused(code: str, sandbox: str) -> SandboxResult | None:
    """A result that says why a program may not run; None when it may."""
    found = policy.check(code)
    if not found:
        return None
    lines = [f"line {one.line}: {one.message}" for one in found[:12]]
    message = "\n".join(lines)
    return SandboxResult(sandbox=sandbox, exit_code=None, reason=Reason.POLICY, message=message)


def objections(
    frozen: FrozenContract, part: str, out: Path, reference: Callable[[], Path] | None
) -> list[str]:
    """Why the results in `out` cannot be accepted; empty when they can.

    Parameters
    ----------
    reference : gives the folder of the compiled program's results on the same inputs, with which
        the results must agree; None for the compiled program itself
    """
    from validation.errors import InputError as Unreadable
    from validation.runner import read_analysis

    try:
        found = read_analysis(out)
    except Unreadable:
        return [
            "the program ended without readable results: call analysis.run(), then "
            "analysis.finish(out), and write nothing else under the name analysis.json"
        ]
    if found.contract_sha256 != frozen.sha256 or found.part != part:
        return ["the results are not those of this contract and these inputs"]
    if reference is None:
        return []
    expected = read_analysis(reference())
    differ = [one for one in COMPARED if getattr(found, one) != getattr(expected, one)]
    if differ:
        return [
            f"the {', '.join(differ)} differ from the registered computation: call "
            "analysis.run() without arguments and change nothing that it returns"
        ]
    return []


def feedback(
    result: SandboxResult, cohort: Cohort, code: str, compiled: str, contract: ContractBrief
) -> list[str]:
    """A failed run in lines that may go to a model (see `agents.coding.scrub`)."""
    known = scrub.vocabulary(compiled, API, contract.model_dump_json())
    withheld = scrub.identifiers([*cohort.pseudonyms, *cohort.pseudonyms.values()])
    said = scrub.describe_failure(result.stderr_tail, result.stdout_tail, code, known, withheld)
    return [f"the run ended with {result.reason.value}: {result.message}", *said]
