"""A person's review of a program, stored next to it and required for measuring a cohort."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from sage.core import clock
from sage.core.errors import InputError
from sage.core.files import write_json
from sage.core.hashes import hash_file
from sage.core.models import Strict
from sage_programs.contract import Program, read_program

SUFFIX = ".review.json"


class Review(Strict):
    """A person's review of a program and its gate report."""

    format: Literal[1] = 1
    program: str = Field(pattern=r"^[0-9a-f]{64}$")
    gate: str = Field(pattern=r"^[0-9a-f]{64}$")
    approved_by: str = Field(min_length=2, max_length=200)
    approved_at: str = Field(max_length=40)


def review_path(path: Path) -> Path:
    """Return the path of the review for a program file."""
    return path.with_name(path.name + SUFFIX)


def approve(path: Path, gate_report: Path, person: str) -> Path:
    """Record that a person approves a program that passed the gate; return the record's path.

    Raises
    ------
    InputError
        If the gate did not check this exact program, or the program did not pass.
    """
    from mcp_servers.measures.gate import GateReport

    program = read_program(path)
    try:
        report = GateReport.model_validate_json(gate_report.read_bytes())
    except (OSError, ValidationError):
        raise InputError(
            f"{gate_report}: gate report not found; run sage programs gate --define {path.name} "
            "first"
        ) from None
    formula = program.measurement.formula
    gated = [row for row in report.measurements if row.formula == formula]
    if not gated:
        raise InputError(
            f"{gate_report}: the gate report is for another version of {path.name}; run sage "
            "programs gate again"
        )
    if not gated[0].passed:
        raise InputError(f"{path.name} did not pass the gate: {'; '.join(gated[0].reasons)}")
    if not person.strip() or not person.isprintable():
        raise InputError("--by must be the name of the person who read the program")
    record = Review(
        program=program.digest,
        gate=hash_file(gate_report),
        approved_by=person.strip(),
        approved_at=clock.now().isoformat(timespec="seconds"),
    )
    write_json(review_path(path), record)
    return review_path(path)


def approved_program(path: Path) -> Program:
    """Return the program in a file if a person approved its current version.

    Raises
    ------
    InputError
        If there is no review, or the program was changed after the review.
    """
    program = read_program(path)
    gate = f"sage programs gate COHORT --maps DIR --define {path.name}"
    remedy = f"read it, run {gate}, then sage programs approve {path.name} --by NAME"
    try:
        review = Review.model_validate_json(review_path(path).read_bytes())
    except OSError:
        raise InputError(f"{path}: nobody has approved this program; {remedy}") from None
    except ValidationError:
        raise InputError(f"{review_path(path)}: not a valid review; {remedy}") from None
    if review.program != program.digest:
        raise InputError(f"{path}: changed since it was approved; {remedy}")
    return program
