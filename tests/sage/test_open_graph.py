"""GraphML is read once; what is read from the cache after is the same graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.kg_graph import synthetic
from kg.graph import graphml, graphml_read, model
from kg.paths.concepts import check_embedder
from sage.cli.app import app
from sage.run.wiring import demo_graph, make_embedder
from sage.settings import load


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small graph as a person has it: one file."""
    monkeypatch.setenv("SAGE_CACHE_DIR", str(tmp_path / "cache"))
    graphml.write(synthetic(60, 90), tmp_path / "own.graphml")
    return tmp_path / "own.graphml"


def nodes(file: Path) -> int:
    ended = CliRunner().invoke(app, ["kg", "stats", "--graph", str(file), "--json"])
    assert ended.exit_code == 0, ended.output
    found: int = json.loads(ended.stdout)["nodes"]
    return found


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
    graphml.write(synthetic(61, 90), file)
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
