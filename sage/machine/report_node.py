"""The last node: rank the evaluated hypotheses and write the report."""

from __future__ import annotations

from typing import Any

from sage.core.files import write_json
from sage.machine.services import Services
from sage.machine.state import Evaluation, RankIn


def rank(evaluations: list[Evaluation]) -> list[str]:
    """Hypotheses by the mean of novelty (of 10) and feasibility (of 100), both judged beforehand.

    The verdict does not enter: a ranking by outcome would reward chance.
    """

    def score(evaluation: Evaluation) -> float:
        return ((evaluation.novelty or 0.0) / 10 + (evaluation.feasibility or 0.0) / 100) / 2

    return [
        item.hypothesis_id
        for item in sorted(
            evaluations, key=lambda evaluation: (-score(evaluation), evaluation.hypothesis_id)
        )
    ]


def rank_and_report(services: Services, state: RankIn) -> dict[str, Any]:
    """Rank, record the state that the report is built from, and build it."""
    from sage.report.build import write_report
    from sage.report.crate import write_crate

    with services.node("report"):
        evaluations = list(state.get("evaluations", []))
        ranking = rank(evaluations)
        write_json(
            services.folder.output("state"),
            {
                "decisions": [
                    decision.model_dump(mode="json") for decision in state.get("decided", [])
                ],
                "evaluations": [evaluation.model_dump(mode="json") for evaluation in evaluations],
                "ranking": ranking,
            },
        )
        services.folder.record.seal()
        write_report(services.folder)
        write_crate(services.folder.root, services.folder.manifest())
        return {"ranking": ranking}
