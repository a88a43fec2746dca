"""The calibration sets and the command that runs them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from benchmarks.adapters import novelty as c
from benchmarks.novelty_sets import (
    read_ideas,
    read_literature,
    read_proposals,
    reviewer_agreement,
)
from kg.literature.local import LocalIndex
from kg.literature.types import Query, Record, SearchAnswer
from sage.core.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data" / "novelty"


def sage(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sage", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
        timeout=120,
    )


def shared(*parts: str) -> Path:
    root = Path(os.environ.get("SAGE_SHARED", ROOT.parent / "shared"))
    path = root.joinpath("data", *parts)
    if not path.exists():
        pytest.skip(f"shared data absent: {path}")
    return path


def row(id: str, tier: str, score: float, **change: object) -> c.Scored:
    fields: dict[str, object] = {
        "id": id,
        "tier": tier,
        "scores": dict.fromkeys(c.CONFIGURATIONS, score),
        "initial_sigma": 0.0,
        "debated": False,
        "rounds": 0,
        "retrieved": 3,
        "cited": 1,
        "contradictions": 0,
        "specious": False,
        "seconds": 0.0,
        "usd": 0.0,
        "tokens": 0,
    }
    return c.Scored.model_validate(fields | change)


def test_the_set_that_ships_has_six_cases_per_tier_with_their_dates() -> None:
    proposals = read_proposals(DATA / "proposals.jsonl")
    assert len(proposals) == 30
    assert {
        tier: sum(proposal.tier == tier for proposal in proposals) for tier in "ABCDE"
    } == dict.fromkeys("ABCDE", 6)
    assert all(proposal.reference and len(proposal.parts) >= 4 for proposal in proposals)


def test_no_shipped_evidence_is_the_proposals_own_paper_or_from_its_future() -> None:
    proposals = read_proposals(DATA / "proposals.jsonl")
    index = LocalIndex(read_literature(DATA / "literature.jsonl"))
    for proposal in proposals:
        search = c.without_own(c.local_retriever(index, 12, proposal.as_of), proposal.own_title)
        (answer,) = search({"x": [Query(text=proposal.statement)]}).values()
        assert all(record.known_by(proposal.as_of) for record in answer.records)
        assert all(record.title != proposal.own_title for record in answer.records)


@pytest.mark.shared
def test_every_shipped_identifier_is_a_verified_one() -> None:
    known = shared("literature", "identifiers.tsv").read_text().lower()
    dois = [proposal.doi for proposal in read_proposals(DATA / "proposals.jsonl") if proposal.doi]
    dois += [
        citation.doi for citation in read_literature(DATA / "literature.jsonl") if citation.doi
    ]
    assert dois
    assert [doi for doi in dois if f"\t{doi.lower()}\t" not in known] == []


def test_accuracy_counts_scores_inside_their_tiers_range() -> None:
    rows = [row("1", "A", 9.0), row("2", "A", 8.4), row("3", "E", 3.5), row("4", "C", 5.0)]
    assert c.accuracy(rows, "full") == 0.75
    assert c.gap(rows, "full") == pytest.approx(8.7 - 3.5)


def test_tier_correlation_and_separation_are_those_of_the_textbook() -> None:
    means = {"A": 9, "B": 7, "C": 6, "D": 4, "E": 2}
    rows = [row(tier, tier, score) for tier, score in means.items()]
    assert c.tier_correlation(rows, "full") == pytest.approx(1.0)
    assert c.separation([1, 1, 0, 0], [0.9, 0.4, 0.4, 0.1]) == pytest.approx(3.5 / 4)


def test_rounds_are_averaged_over_debated_proposals_only() -> None:
    rows = [row("1", "A", 9, debated=True, rounds=3), row("2", "A", 9)]
    stats = c.tier_statistics(rows)["A"]
    assert stats["debated"] == 0.5 and stats["rounds"] == 3


def test_the_own_paper_is_hidden_whatever_its_punctuation() -> None:
    def all_of(wanted):
        return {
            name: SearchAnswer(records=(Record(title="The Paper: Itself."), Record(title="B")))
            for name in wanted
        }

    (answer,) = c.without_own(all_of, "the paper - itself")({"x": []}).values()
    assert [record.title for record in answer.records] == ["B"]


def test_a_retraction_is_seen_only_after_its_day() -> None:
    index = LocalIndex(read_literature(DATA / "literature.jsonl"))
    query = {"x": [Query(text="STAP acid stress pluripotent")]}
    before = c.local_retriever(index, 5, date(2014, 6, 1))(query)["x"].records
    after = c.local_retriever(index, 5, date(2014, 8, 1))(query)["x"].records
    assert not any(item.retracted for item in before if "pluripotency" in item.title)
    assert any(item.retracted for item in after if "pluripotency" in item.title)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "1"}', r":1: tier: Field required"),
        ("not json", ":1: "),
        ("", "no proposal"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(line)
    with pytest.raises(InputError, match=message):
        read_proposals(path)


def test_an_idea_set_is_read_with_its_papers_and_label(tmp_path: Path) -> None:
    path = tmp_path / "ideas.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["idea", "class", "paper0_title", "paper0_abstract"])
        writer.writeheader()
        writer.writerow(
            {
                "idea": "Do **one thing** with **another\n thing**.",
                "class": "not novel",
                "paper0_title": "T",
                "paper0_abstract": "A",
            }
        )
    (idea,) = read_ideas(path)
    assert idea.parts == ("one thing", "another thing")
    assert idea.label == 0.0 and idea.papers[0].abstract == "A"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="no column class, idea"):
        read_ideas(path)


def test_reviewers_of_one_idea_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "reviews.json"
    path.write_text(
        json.dumps({"novelty_score": ["3 (low)", "5", "8", "8"], "idea_id": ["a", "a", "b", "b"]})
    )
    result = reviewer_agreement(path)
    assert result["reviews"] == 4 and result["ideas_with_two_or_more"] == 2
    assert result["mean_absolute_difference"] == pytest.approx(1.0)
    path.write_text("{}")
    with pytest.raises(InputError, match="needs novelty_score"):
        reviewer_agreement(path)


def test_the_command_reports_four_configurations_as_json() -> None:
    done = sage("bench", "novelty", str(DATA / "proposals.jsonl"), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    full, without = (result["configurations"][name] for name in ("full", "three without debate"))
    assert list(result["configurations"]) == list(c.CONFIGURATIONS)
    # The debate has to separate refuted from new better than averaging does (SAGE, 4.4).
    assert full["gap"] > without["gap"]
    assert full["spearman"] > 0.5
    assert result["tiers"]["E"]["contradictions"] > result["tiers"]["A"]["contradictions"]
    assert len(result["proposals"]) == 30


def test_the_command_says_that_rules_are_a_proxy() -> None:
    done = sage("bench", "novelty", str(DATA / "proposals.jsonl"), "--limit", "2")
    assert done.returncode == 0, done.stderr
    assert "proxy" in done.stdout and "local index" in done.stdout


@pytest.mark.slow
def test_the_command_can_rank_by_embedding() -> None:
    words = ("bench", "novelty", str(DATA / "proposals.jsonl"), "--limit", "1", "--json")
    done = sage(*words, "--embed")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["proposals"]) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [("set.txt", "give proposals as .jsonl"), ("none.jsonl", "no such file")],
)
def test_a_wrong_dataset_is_bad_input(tmp_path: Path, name: str, message: str) -> None:
    done = sage("bench", "novelty", str(tmp_path / name))
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.shared
def test_the_labeled_ideas_run_through_the_rules() -> None:
    path = shared("novelty", "idea_novelty_checker", "train.csv")
    done = sage("bench", "novelty", str(path), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ideas"] == 35 and result["novel"] == 20
    assert 0.0 <= result["area_under_curve"] <= 1.0
