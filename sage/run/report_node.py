"""The last node, which ranks the evaluated hypotheses and writes the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.scientist.rank import RankParts
from sage.core.files import write_json
from sage.run.services import Services
from sage.run.state import Evaluation, RankIn


def rank(evaluations: list[Evaluation], parts: Mapping[str, RankParts]) -> list[str]:
    """Rank hypotheses that answer the question as asked first, then by expected information.

    All criteria were known before any outcome was read. If novelty was judged in the debate, its
    score (out of 10) replaces the count of records. Infeasible hypotheses come last. The verdict is
    not used: a ranking by outcome would reward chance.
    """

    def information(evaluation: Evaluation) -> float:
        known = parts.get(evaluation.hypothesis_id)
        if known is None:
            return 0.0
        fresh = known.understudied if evaluation.novelty is None else evaluation.novelty / 10
        return known.power * known.plausibility * known.relevance * fresh

    def key(evaluation: Evaluation) -> tuple[bool, int, int, float, str]:
        name = evaluation.hypothesis_id
        known = parts.get(name)
        left_out, added = (known.left_out, known.added) if known else (0, 0)
        return evaluation.ended == "infeasible", left_out, added, -information(evaluation), name

    return [evaluation.hypothesis_id for evaluation in sorted(evaluations, key=key)]


def rank_and_report(services: Services, state: RankIn) -> dict[str, Any]:
    """Rank the hypotheses, save the state from which the report is built, and build the report."""
    from sage.report.build import write_report
    from sage.report.candidates import rankings
    from sage.report.crate import write_crate

    with services.node("report"):
        evaluations = list(state.get("evaluations", []))
        parts = {
            item.hypothesis_id: item.parts
            for found in rankings(services.folder)
            for item in found.ranked
            if item.hypothesis_id
        }
        ranking = rank(evaluations, parts)
        write_json(
            services.folder.output("state"),
            {
                "decisions": [entry.model_dump(mode="json") for entry in state.get("decided", [])],
                "evaluations": [evaluation.model_dump(mode="json") for evaluation in evaluations],
                "ranking": ranking,
            },
        )
        for evaluation in evaluations:
            if evaluation.ended == "tested":
                _draw_measured(services, evaluation.hypothesis_id)
        services.folder.record.seal()
        write_report(services.folder)
        write_crate(services.folder.root, services.folder.manifest())
        return {"ranking": ranking}


def _draw_measured(services: Services, name: str) -> None:
    """Draw what was measured on slides, if the cohort states where its maps are."""
    from sage.report.fields import FOLDER, draw_measured
    from validation.contracts.contract import FrozenContract, read_claim

    home = services.folder.hypothesis(name)
    if services.cohort.maps is None or not (home / "contract.json").is_file():
        return
    frozen = read_claim(home / "contract.json")
    if isinstance(frozen, FrozenContract):
        keys = [exposure.key for exposure in frozen.contract.exposures]
        draw_measured(services.cohort, keys, home / FOLDER)
