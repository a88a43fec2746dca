"""Candidates and their rank, from the command line to what a person reads."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from sage.core.llm.trace import read_trace
from tests.end_to_end.harness import PROMPT, sage


def test_the_candidates_and_the_parts_of_their_rank_stand_in_the_report(finished: Path) -> None:
    ranking = json.loads((finished / "outputs/candidates-h1.json").read_text())
    page = (finished / "report.html").read_text()
    numbers = json.loads((finished / "results.json").read_text())
    assert ranking["wanted"] == 12 and ranking["drafted"] > 4
    assert [one["hypothesis_id"] for one in ranking["ranked"]].count("") >= 2
    assert "Candidates, ranked before anything was tested" in page
    for candidate in ranking["ranked"]:
        parts, place = candidate["parts"], f"candidates1.place{candidate['place']}"
        product = 1.0
        for name in ("power", "plausibility", "understudied", "relevance"):
            product *= parts[name]
            assert f"{place}.{name}" in numbers and f'value="{place}.{name}"' in page
        assert parts["expected_information"] == pytest.approx(product, abs=0.001)
        assert candidate["statement"] in html.unescape(page)


def test_the_scientists_looks_are_in_the_trace(finished: Path) -> None:
    lines = [line for line in read_trace(finished / "trace.jsonl") if line.agent == "scientist"]
    looks = [line.tool for line in lines if line.kind == "tool"]
    assert {"literature_search", "cohort_describe", "design_power"} <= set(looks)
    assert "cohort_describe" in (lines[0].tools or ())


def test_each_source_of_the_debate_stands_beside_its_identifier(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    transcript = page[page.index("<summary>Novelty debate") : page.index("<summary>Feasibility")]
    cited = len(re.findall(r'href="#r\d+"', transcript))
    assert cited > 2
    named = re.findall(r'#r\d+">\[\d+\]</a></sup> <span class="soft">([^<]+)<', transcript)
    assert len(named) == cited
    assert all(one.startswith(("doi:10.", "PMID ", "no identifier")) for one in named)


def test_a_tournament_orders_the_candidates_and_replays(tmp_path: Path) -> None:
    ended = sage(
        "run", PROMPT, "--json", "--out", str(tmp_path / "run"), cwd=tmp_path, SAGE_DRAFTS="5",
        SAGE_TOURNAMENT="true",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    ranking = json.loads((tmp_path / "run/outputs/candidates-h1.json").read_text())
    assert "Elo" in ranking["order"]
    ratings = [(one["parts"]["left_out"], -one["rating"]) for one in ranking["ranked"]]
    assert ratings == sorted(ratings) and len({rating for _, rating in ratings}) > 1
    played = list((tmp_path / "run/outputs").glob("tournament-h1-r*.json"))
    assert len(played) >= 4
