"""Exports and the interactive page, looked at in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import networkx as nx
import pytest

from kg.graph.export import export_graph, node_link
from kg.graph.model import Graph
from tests.kg.gr_helpers import D, G, bladder, graph, triple

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def data_of(page: str) -> dict:  # type: ignore[type-arg]
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


def test_in_networkx_it_has_the_degrees_and_components_of_the_arrays() -> None:
    ours = graph(bladder())
    theirs = nx.node_link_graph(node_link(ours), edges="edges")
    simple = nx.Graph((a, b) for a, b, negated in theirs.edges(data="negated") if not negated)
    assert [simple.degree(i) if i in simple else 0 for i in ours.ids] == ours.degree.tolist()
    assert nx.number_weakly_connected_components(theirs) == ours.stats().components


def test_the_page_carries_nodes_colors_and_evidence(tmp_path: Path) -> None:
    done = export_graph(graph(bladder()), tmp_path / "g.html", "html")
    data = data_of((tmp_path / "g.html").read_text())
    assert (done.nodes, done.edges, len(data["nodes"]), len(data["edges"])) == (9, 12, 9, 12)
    assert len(set(data["colors"].values())) == len(data["colors"]) == 6
    assert all(edge["evidence"][0]["text"] for edge in data["edges"])
    assert any(edge["against"] for edge in data["edges"])


def test_text_from_papers_cannot_become_markup(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    export_graph(graph([triple(evil, "b1", text=evil)]), tmp_path / "g.html", "html")
    page = (tmp_path / "g.html").read_text()
    assert "alert(1)</script>" not in page
    assert any(evil in n["name"] for n in data_of(page)["nodes"])


def test_a_large_graph_is_shown_in_part_and_says_so(tmp_path: Path) -> None:
    many = [triple(f"gene {n}", f"disease {n % 7}", types=(G, D)) for n in range(300)]
    done = export_graph(graph(many), tmp_path / "g.html", "html", max_nodes=50)
    assert done.nodes == 50
    assert done.note == "The page shows 50 of 307 nodes."


def dump(page: Path, fragment: str) -> str:
    assert CHROMIUM
    found = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000",
         "--window-size=1400,900", "--dump-dom", f"{page.as_uri()}#{fragment}"],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    return found.stdout


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_in_a_browser_a_click_on_an_edge_shows_its_evidence(tmp_path: Path) -> None:
    g: Graph = graph(bladder())
    export_graph(g, tmp_path / "g.html", "html")
    data = data_of((tmp_path / "g.html").read_text())
    wanted = next(n for n, e in enumerate(data["edges"]) if e["against"])
    shown = dump(tmp_path / "g.html", f"edge-{wanted}")
    panel = shown[shown.index('id="panel"') :]
    assert "Evidence against" in panel
    assert "<blockquote" in panel
    assert "9 of 9 nodes, 12 of 12 edges shown" in shown
    node = dump(tmp_path / "g.html", "Gene:FABP5")
    assert "FABP5 regulates lipid metabolism" in node[node.index('id="panel"') :]
