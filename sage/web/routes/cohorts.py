"""Routes for cohorts: their content, gaps, and potential problems for an analysis."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from validation.cohort.findings import check_cohort
from validation.contracts.timing import known_text
from validation.disclosure import count_text, shown_endpoint, shown_finding, shown_variable

router = APIRouter(prefix="/cohorts")


@router.get("/{name}")
def dictionary(name: str, request: Request) -> dict[str, Any]:
    """Return the data dictionary, without any patient-level rows."""
    found = request.app.state.site.cohort(name).dictionary()
    return {
        **found.model_dump(
            mode="json",
            include={"title", "simulated", "n_patients", "notes", "license",
                     "expression_unit", "expression_n"},
        ),
        "genes": len(found.expression),
        "endpoints": [
            shown_endpoint(endpoint, found.n_patients).model_dump(mode="json")
            for endpoint in found.endpoints
        ],
        "joins": [
            {"step": join.step, "lost": count_text(join.before - join.after), "reason": join.reason}
            for join in found.joins
            if join.before != join.after
        ],
        "variables": [
            {
                **shown_variable(variable, found.n_patients).model_dump(mode="json"),
                "known_at": known_text(variable.known_at),
            }
            for variable in found.variables
        ],
    }  # fmt: skip


@router.get("/{name}/findings")
def findings(name: str, request: Request) -> list[dict[str, Any]]:
    """Return the findings of `sage cohort check`, errors first, each with its remedy."""
    found = check_cohort(request.app.state.site.cohort(name))
    return [shown_finding(finding).model_dump(mode="json") for finding in found]
