"""GraphML is read once; what is read from the cache after is the same graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from kg.fusion.model import FusedEdge, FusedGraph, FusedNode, FusionOptions, Support
from kg.graph import graphml, graphml_read, model
from kg.paths.concepts import check_embedder
from kg.types import EntityType, Evidence, Polarity
from sage.cli.app import app
from sage.run.wiring import demo_graph, make_embedder
from sage.settings import load


def make_graph(nodes: int) -> model.Graph:
    """A ring of genes, one reading per edge."""
    names = [f"gene {n}" for n in range(nodes)]
    text = "A sentence."
    evidence = Evidence(doc_id="d", chunk_id="c", section="Results", start=0, end=len(text),
                        text=text, title="Paper", year=2020)  # fmt: skip
    support = Support(evidence=evidence, confidence=0.9, relation_text="linked")
    return model.Graph.from_fused(
        FusedGraph(
            nodes=tuple(FusedNode(f"Gene:{n}", name, EntityType.GENE, (name,))
                        for n, name in enumerate(names)),
            edges=tuple(
                FusedEdge(n, "affects", (n + 1) % nodes, Polarity.NEUTRAL, False, (support,))
                for n in range(nodes)
            ),
            merges=(), options=FusionOptions(), embedder="hashing-8",
            vectors=np.eye(nodes, 8, dtype=np.float32), dropped={},
        )
    )  # fmt: skip


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small graph as a person has it: one file."""
    monkeypatch.setenv("SAGE_CACHE_DIR", str(tmp_path / "cache"))
    graphml.write(make_graph(60), tmp_path / "own.graphml")
    return tmp_path / "own.graphml"


def nodes(file: Path) -> int:
    options = ["--graph", str(file), "--limit", "100", "--json"]
    ended = CliRunner().invoke(app, ["kg", "communities", *options])
    assert ended.exit_code == 0, ended.output
    return sum(len(community["concepts"]) for community in json.loads(ended.stdout))


def test_a_file_is_parsed_again_only_where_it_or_its_cache_changed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []

    def parse(path: Path) -> Any:
        parsed.append(path)
        return graphml_read.read_graphml(path)

    monkeypatch.setattr(model, "read_graphml", parse)
    assert nodes(file) == nodes(file) == 60
    assert len(parsed) == 1
    (meta,) = file.parent.glob("cache/graphs/*/meta.json")
    meta.write_text("{")
    assert nodes(file) == nodes(file) == 60
    assert len(parsed) == 2
    graphml.write(make_graph(61), file)
    assert nodes(file) == nodes(file) == 61
    assert len(parsed) == 3


def test_a_cache_that_cannot_be_written_costs_time_alone(file: Path) -> None:
    (file.parent / "cache").write_text("a file")
    assert nodes(file) == nodes(file) == 60


def test_the_demonstration_graph_is_embedded_with_the_model_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SAGE_EMBEDDING_MODEL", "hashing-64")
    settings = load()
    check_embedder(model.Graph.load(demo_graph(settings)), make_embedder(settings))
