"""What would mislead an analysis of a cohort."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validation.errors import InputError
from validation.types import Finding

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort


def check_cohort(cohort: Cohort) -> list[Finding]:
    """All findings, errors first."""
    findings: list[Finding] = []
    for name in cohort.spec.endpoints:
        try:
            cohort.outcome(name)
        except InputError as error:
            findings.append(
                Finding(
                    severity="error",
                    code="endpoint",
                    where=f"endpoints.{name}",
                    message=str(error),
                )
            )
    return findings
