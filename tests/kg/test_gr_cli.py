"""The graph commands of `sage kg` as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kg.embedding.embed import HashingEmbedder
from kg.fusion.fuse import fuse
from kg.fusion.model import FusionOptions
from kg.graph.model import Graph
from kg.types import ScoredPath
from sage.cli.kg import app
from sage.core.errors import InputError
from tests.kg.gr_helpers import bladder

RUN = CliRunner()
pytestmark = pytest.mark.usefixtures("plain_settings")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A graph folder as a build leaves it."""
    fused = fuse(bladder(), FusionOptions(prune_below=1), HashingEmbedder())
    Graph.from_fused(fused).save_sidecar(tmp_path / "graph.kg")
    return tmp_path / "graph.kg"


def answer(*arguments: str) -> Any:
    result = RUN.invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_domain_changes_relevance_only(folder: Path) -> None:
    pair = ("paths", "FABP5", "overall survival", "-g", str(folder), "--rank", "paper")
    one, other = answer(*pair, "--domain", "bladder cancer"), answer(*pair, "--domain", "B cells")
    scores = [
        {tuple(n["name"] for n in p["nodes"]): p["scores"] for p in x["paths"]}
        for x in (one, other)
    ]
    both = set(scores[0]) & set(scores[1])
    assert both
    for path in both:
        assert scores[0][path]["relevance_raw"] != scores[1][path]["relevance_raw"]
        assert scores[0][path]["novelty_raw"] == scores[1][path]["novelty_raw"]


def test_paths_of_the_past_know_only_the_past(folder: Path) -> None:
    pair = ("paths", "TLS", "overall survival", "-g", str(folder), "--rank", "paper")
    years = {
        e["year"]
        for p in answer(*pair, "--as-of", "2016")["paths"]
        for edge in p["edges"]
        for e in edge["evidence"]
    }
    assert years
    assert max(years) <= 2016


@pytest.mark.parametrize(
    "asked", [["quantum gravity"], ["FABP5", "zorglub"], ["zorglub", "FABP5", "--json"]]
)
def test_a_concept_that_the_graph_lacks_is_refused_with_the_nearest(
    folder: Path, asked: list[str]
) -> None:
    with pytest.raises(InputError, match="does not match any node of the graph"):
        RUN.invoke(app, ["paths", *asked, "-g", str(folder)], catch_exceptions=False)


def test_each_path_is_one_sentence_with_its_weakest_link_and_what_contradicts_it(
    folder: Path,
) -> None:
    asked = ["paths", "FABP5", "overall survival", "-g", str(folder), "--rank", "paper"]
    said = " ".join(RUN.invoke(app, asked).stdout.split())
    found = answer(*asked)["paths"]
    assert found
    for number, path in enumerate(found, 1):
        account = ScoredPath.model_validate(path).account()
        assert f"{number}. {' '.join(account.split())}" in said
        assert "weakest link: " in account
        assert "contradict" in account


def test_a_graph_of_another_model_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGE_EMBEDDING_MODEL", "hashing-64")
    with pytest.raises(InputError, match="64"):
        RUN.invoke(app, ["paths", "FABP5", "TLS", "-g", str(folder)], catch_exceptions=False)


def test_a_graphml_file_serves_as_graph(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.graphml"
    RUN.invoke(app, ["export", "-g", str(folder), "--out", str(out)])
    got = answer("show", "-g", str(out))
    assert got["nodes"] == 9
    assert got["types"]["Gene"] == 4
