"""The page of a concept, as the graph page links to it."""

from __future__ import annotations

from pathlib import Path

from kg.corpus.build import build
from tests.kg.in_helpers import FAST, note, ontology
from tests.sage.web.test_slides import client


def test_a_concept_has_a_page_without_scripts_as_of_any_year(tmp_path: Path) -> None:
    papers = tmp_path / "papers"
    note(papers, "a", ["FABP5 promotes invasion of bladder cancer cells."], year=2012)
    note(papers, "b", ["FABP5 inhibits <b>apoptosis</b> of bladder cancer cells."], year=2020)
    build([papers], tmp_path / "graph", FAST, ontology())
    ask = client(tmp_path, tmp_path, tmp_path / "graph")
    page = ask("GET", "/api/graph/concept", params={"node": "FABP5"})
    assert page.status_code == 200 and "text/html" in page.headers["content-type"]
    assert "2012" in page.text and "2020" in page.text and "<b>apoptosis" not in page.text
    assert "script-src" not in page.headers["content-security-policy"]
    assert page.headers["content-security-policy"].startswith("sandbox")
    before = ask("GET", "/api/graph/concept", params={"node": "FABP5", "as_of": 2013})
    assert "2012" in before.text and "2020" not in before.text
    refused = ask("GET", "/api/graph/concept", params={"node": "zorglub"})
    assert refused.status_code == 422
