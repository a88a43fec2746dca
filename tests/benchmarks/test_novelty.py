"""The calibration sets and the command that runs them."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from benchmarks.adapters import novelty as c
from benchmarks.novelty_sets import Proposal, load_literature
from benchmarks.runner import load_lines
from kg.literature.local import LocalIndex
from kg.literature.types import Query, Record, SearchAnswer
from sage.core.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data" / "novelty"


def shared(*parts: str) -> Path:
    root = Path(os.environ.get("SAGE_SHARED", ROOT.parent / "shared"))
    path = root.joinpath("data", *parts)
    if not path.exists():
        pytest.skip(f"shared data absent: {path}")
    return path


def test_the_set_that_ships_has_six_cases_per_tier_with_their_dates() -> None:
    proposals = load_lines(DATA / "proposals.jsonl", Proposal, given=True)
    assert len(proposals) == 30
    assert {
        tier: sum(proposal.tier == tier for proposal in proposals) for tier in "ABCDE"
    } == dict.fromkeys("ABCDE", 6)
    assert all(proposal.reference and len(proposal.parts) >= 4 for proposal in proposals)


def test_no_shipped_evidence_is_the_proposals_own_paper_or_from_its_future() -> None:
    proposals = load_lines(DATA / "proposals.jsonl", Proposal, given=True)
    index = LocalIndex(load_literature(DATA / "literature.jsonl"))
    for proposal in proposals:
        search = c.hide_paper(c.retrieve_locally(index, 12, proposal.as_of), proposal.own_title)
        (answer,) = search({"x": [Query(text=proposal.statement)]}).values()
        assert all(record.known_by(proposal.as_of) for record in answer.records)
        assert all(record.title != proposal.own_title for record in answer.records)


@pytest.mark.shared
def test_every_shipped_identifier_is_a_verified_one() -> None:
    known = shared("literature", "identifiers.tsv").read_text().lower()
    dois = [
        proposal.doi
        for proposal in load_lines(DATA / "proposals.jsonl", Proposal, given=True)
        if proposal.doi
    ]
    dois += [
        citation.doi for citation in load_literature(DATA / "literature.jsonl") if citation.doi
    ]
    assert dois
    assert [doi for doi in dois if f"\t{doi.lower()}\t" not in known] == []


def test_the_own_paper_is_hidden_whatever_its_punctuation() -> None:
    def all_of(wanted):
        return {
            name: SearchAnswer(records=(Record(title="The Paper: Itself."), Record(title="B")))
            for name in wanted
        }

    (answer,) = c.hide_paper(all_of, "the paper - itself")({"x": []}).values()
    assert [record.title for record in answer.records] == ["B"]


def test_a_retraction_is_seen_only_after_its_day() -> None:
    index = LocalIndex(load_literature(DATA / "literature.jsonl"))
    query = {"x": [Query(text="STAP acid stress pluripotent")]}
    before = c.retrieve_locally(index, 5, date(2014, 6, 1))(query)["x"].records
    after = c.retrieve_locally(index, 5, date(2014, 8, 1))(query)["x"].records
    assert not any(item.retracted for item in before if "pluripotency" in item.title)
    assert any(item.retracted for item in after if "pluripotency" in item.title)


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text('{"id": "1"}')
    with pytest.raises(InputError, match=r"line 1: tier: Field required"):
        load_lines(path, Proposal, given=True)


def test_debate_separates_refuted_from_new_better_than_averaging() -> None:
    report = c.run(DATA / "proposals.jsonl")
    rows = [c.Scored.model_validate(item) for item in report.data]
    assert len(rows) == 30 and len(report.rows) == len(c.CONFIGURATIONS)
    assert c.measure_gap(rows, "full") > c.measure_gap(rows, "three without debate")  # SAGE, 4.4
    assert c.correlate_tiers(rows, "full") > 0.5
    tiers = c.summarize_tiers(rows)
    assert tiers["E"]["contradictions"] > tiers["A"]["contradictions"]
