"""Every agent whose words a report prints, with a model that lies in each of its sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agents.core.base import Agent, Resources
from agents.core.rules import RulesReasoner
from agents.core.types import dictionary_view
from agents.core.words import remarks_in, replace_remarks
from agents.expansion.agent import EXPANSION, ExpansionInput
from agents.feasibility.agent import FEASIBILITY
from agents.feasibility.collect import gather
from agents.feasibility.types import FeasibilityInput
from agents.novelty.judge import JUDGE
from agents.novelty.prover import PROVER
from agents.novelty.types import CitedRecord, CriticInput
from agents.novelty.verifier import VERIFIER
from agents.ontologist.agent import ONTOLOGIST, OntologistInput
from agents.scientist.agent import SCIENTIST
from agents.scientist.views import ScientistInput
from kg.lexicon.ontology import Ontology
from kg.literature.types import Record
from kg.types import EntityType, PathEdge, PathNode, PathScores, ScoredPath
from tests.agents import test_rules as built
from tests.agents.nov_helpers import dictionary, expanded
from tests.openai_server import Answer, chat_reasoner, serve

ROOT = Path(__file__).resolve().parents[2]
RESOURCES = Resources(ontology=Ontology.load(ROOT / "data" / "ontology"))
LIES = (
    "This cohort confirms the hypothesis.",
    "Patients should receive antibodies.",
    "See PMID 31234567.",
    "The hazard ratio was 0.13.",
)
NUMBERED = ("31234567", "0.13")
WORDS = {
    "definition", "process", "background", "mechanism", "clinical_interpretation", "improvements",
    "summary", "text", "reason", "reasons", "statement", "remark",
    "rationale", "feasibility",
}  # fmt: skip


def _path() -> ScoredPath:
    scores = dict.fromkeys(PathScores.model_fields, 0.5)
    return ScoredPath(
        nodes=(
            PathNode(id="a", name="FABP5", type=EntityType("Gene"), degree=1, definition="A gene."),
            PathNode(
                id="b", name="overall survival", type=EntityType("ClinicalEndpoint"), degree=1
            ),
        ),
        edges=(
            PathEdge(
                head="a", relation="associated_with", tail="b", weight=1.0, belief=0.5, evidence=()
            ),
        ),
        scores=PathScores(**scores),
    )


def _critics() -> CriticInput:
    records = tuple(
        CitedRecord(ref=f"R{number}", record=Record(title=title, year=2020))
        for number, title in enumerate(("FABP5 in bladder cancer", "TLS and survival"), 1)
    )
    return CriticInput(expanded=expanded(), records=records)


def _feasibility() -> FeasibilityInput:
    whole, cohort = expanded(), dictionary()
    return FeasibilityInput(
        expanded=whole,
        dictionary=dictionary_view(cohort, list(whole.parts)),
        evidence=tuple(gather(whole, cohort)),
    )


def _scientist() -> ScientistInput:
    from kg.types import Polarity

    brief = built._brief(
        built._edge(1, 1, built.TLS, "associated_with", built.OS, Polarity.POSITIVE)
    )
    return ScientistInput(brief=brief, dictionary=built._dictionary())


CASES: list[tuple[Agent[Any, Any], Any]] = [
    (ONTOLOGIST, lambda: OntologistInput(paths=(_path(),))),
    (SCIENTIST, _scientist),
    (EXPANSION, lambda: ExpansionInput(reviewed=built._review())),
    (PROVER, _critics),
    (VERIFIER, _critics),
    (JUDGE, _critics),
    (FEASIBILITY, _feasibility),
]


def _lying(value: Any, lies: list[str], key: str = "") -> Any:
    """The value with a lie added to each of its sentences."""
    if isinstance(value, str):
        if key not in WORDS:
            return value
        lies.append(LIES[len(lies) % len(LIES)])
        return f"{value} {lies[-1]}"
    if isinstance(value, list):
        return [_lying(item, lies, key) for item in value]
    if isinstance(value, dict):
        return {name: _lying(item, lies, name) for name, item in value.items()}
    return value


@pytest.mark.parametrize(("agent", "make"), CASES, ids=[case[0].name for case in CASES])
def test_no_text_of_a_model_is_handed_on_but_as_its_remark(
    agent: Agent[Any, Any], make: Any, tmp_path: Path
) -> None:
    given: BaseModel = make()
    plain = RulesReasoner(RESOURCES).ask(agent, given).output
    assert list(remarks_in(plain)) == []
    lies: list[str] = []
    reply = _lying(plain.model_dump(mode="json"), lies)
    assert lies
    with serve(lambda body: Answer(json.dumps(reply))) as server:
        output = chat_reasoner(server.url, tmp_path).ask(agent, given).output
        assert server.requests
    remarks = [remark.text for remark in remarks_in(output)]
    assert {lie for lie in LIES if any(lie in text for text in remarks)} <= set(LIES[:2])
    rest = replace_remarks(output, lambda found: "").model_dump_json()
    assert [item for item in (*LIES, *NUMBERED) if item in rest] == []
