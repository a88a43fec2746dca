"""From a topic to paths, and a graph that follows its literature, through the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.core.types import Citation
from sage.run.folder import Manifest, RunFolder
from sage.run.spec import RunSpec
from sage_literature.tests.catalogs import Catalogs, Paper, corpus, running
from tests.end_to_end.harness import sage

TOPIC = "tertiary lymphoid structures in bladder cancer"
QUESTION = "tertiary lymphoid structures and genes in bladder cancer"


@pytest.fixture(scope="module")
def world() -> Iterator[Catalogs]:
    with running(corpus(156, open_every=10)) as catalogs:
        catalogs.pages = 100
        yield catalogs


@pytest.fixture(scope="module")
def place(world: Catalogs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus gathered from the services, and its graph."""
    place = tmp_path_factory.mktemp("living")
    for line in (
        ["literature", "gather", TOPIC, "--relevance", "0", "--out", "corpus"],
        ["kg", "build", "corpus", "--out", "graph"],
    ):
        ended = call(world, place, *line)
        assert ended.code == 0, ended.err
    return place


def call(world: Catalogs, place: Path, *line: str) -> Any:
    return sage(*line, cwd=place, SAGE_EMBEDDING_MODEL="hashing", **world.variables())


def run_of(path: dict[str, Any], folder: Path) -> None:
    """A run whose one hypothesis rests on a path, each step quoted."""
    run = RunFolder(folder)
    run.save(Manifest(id=folder.name, run_id="r", spec=RunSpec(prompt="q"),
                      created="2026-01-01T00:00:00", reasoner="rules"))  # fmt: skip
    evidence = [e for edge in path["edges"] for e in edge["evidence"]]
    cited = [
        Citation(title=e["title"], year=e["year"], doi=e["doi"], pmid=e["pmid"], quote=e["text"])
        for e in evidence
    ]
    draft = {
        "hypothesis": {"statement": "Low CXCL13 marks shorter survival."},
        "citations": [citation.model_dump() for citation in cited],
        "concepts": [node["name"] for node in path["nodes"]],
    }
    outputs = folder / "outputs"
    outputs.mkdir()
    (outputs / "draft-h1.json").write_text(json.dumps(draft))
    (outputs / "paths.json").write_text(json.dumps({"paths": [path]}))


def test_a_topic_becomes_paths_and_an_update_tells_what_it_touches(
    world: Catalogs, place: Path
) -> None:
    found = call(world, place, "kg", "paths", QUESTION, "--graph", "graph", "--json").json
    path = next(
        path
        for path in found["paths"]
        if all(len({e["doi"] for e in edge["evidence"]}) == 1 for edge in path["edges"])
    )
    run_of(path, place / "runs" / "first")
    (place / "runs" / "broken" / "outputs").mkdir(parents=True)
    (place / "runs" / "broken" / "manifest.json").write_text("{}")
    (place / "runs" / "broken" / "outputs" / "draft-h1.json").write_text('{"citations": 3')
    (step, *_) = path["edges"]
    paper = step["evidence"][0]
    names = {node["id"]: node["name"] for node in path["nodes"]}
    head, tail = names[step["head"]], names[step["tail"]]
    world.change(paper["doi"].lower(), retracted=True)
    first, last = path["nodes"][0]["name"], path["nodes"][-1]["name"]
    world.papers.append(
        Paper(
            title="A new study of both in bladder cancer",
            abstract=f"In bladder cancer, {first} promotes {last}.",
            year=2026,
            doi="10.5555/new",
            pmid="99500001",
        )
    )
    texts = len(world.services.to("/epmc/PMC"))
    ended = call(
        world, place, "literature", "update", "--graph", "graph", "--runs", "runs", "--json"
    )
    assert ended.code == 0, ended.err
    report = ended.json
    assert len(world.services.to("/epmc/PMC")) == texts
    assert [(p["what"], p["title"]) for p in report["papers"]] == [
        ("retracted", paper["title"]),
        ("new", "A new study of both in bladder cancer"),
    ]
    gone = [e for e in report["edges"] if not e["after"]]
    assert (head, step["relation"], tail) in [(e["head"], e["relation"], e["tail"]) for e in gone]
    assert all(paper["title"] in lost for e in gone for lost in e["lost"])
    touched = {(t["run"], t["hypothesis"], t["kind"]) for t in report["hypotheses"]}
    assert {("first", "h1", "retracted"), ("first", "h1", "gone")} <= touched
    assert ("first", "h1", "linked") in touched, report["edges"]
    assert all(paper["doi"] in t["what"] for t in report["hypotheses"] if t["kind"] == "gone")
    assert [line.split(":")[0] for line in report["runs_not_read"]] == ["broken"]
    assert json.loads((place / "graph" / "updates.jsonl").read_text()) == {
        key: value for key, value in report.items() if key not in ("nodes", "statements")
    }


def test_the_updated_graph_is_that_of_a_full_build(world: Catalogs, place: Path) -> None:
    world.papers.append(
        Paper("FABP5 once more", "FABP5 promotes bladder cancer.", 2026, "10.5555/m", "99500009")
    )
    assert call(world, place, "literature", "update", "--graph", "graph").code == 0
    assert call(world, place, "kg", "build", "corpus", "--out", "whole").code == 0
    one, whole = (place / name / "graph.graphml" for name in ("graph", "whole"))
    assert one.read_bytes() == whole.read_bytes()
    assert "FABP5 once more" in one.read_text()
    ended = call(
        world, place, "literature", "update", "--graph", "graph/graph.graphml", "--runs", "runz"
    )
    assert ended.code == 2 and "--runs" in ended.err
    (place / "corpus").rename(place / "elsewhere")
    ended = call(world, place, "literature", "update", "--graph", "graph")
    assert ended.code == 2 and f"({place / 'corpus'})" in ended.err


def test_a_graph_of_other_papers_or_of_an_earlier_version_has_nothing_to_repeat(
    world: Catalogs, place: Path, tmp_path: Path
) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "a.txt").write_text("FABP5 promotes bladder cancer.\n")
    assert call(world, tmp_path, "kg", "build", "papers", "--out", "g").code == 0
    ended = call(world, tmp_path, "literature", "update", "--graph", "g")
    assert ended.code == 2 and "none of its sources was gathered" in ended.err
    (tmp_path / "g" / "recipe.json").unlink()
    ended = call(world, tmp_path, "literature", "update", "--graph", "g")
    assert ended.code == 2 and "recipe.json not found" in ended.err


def test_without_a_contact_address_nobody_is_called(world: Catalogs, tmp_path: Path) -> None:
    before = len(world.services.seen)
    variables = {k: v for k, v in world.variables().items() if "EMAIL" not in k}
    ended = sage("literature", "gather", "x y", "--out", "c", cwd=tmp_path, **variables)
    assert ended.code == 2 and "contact_email" in ended.err
    assert len(world.services.seen) == before and not (tmp_path / "c").exists()
