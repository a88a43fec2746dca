"""Knowledge tools: the graph's own answers, and runs of SAGE driven as a separate process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from mcp_servers.context import ToolContext
from mcp_servers.knowledge.graphs import load_embedder
from mcp_servers.knowledge.runs import Answer, run_tools
from mcp_servers.registry import Registry, load
from mcp_servers.roots import Roots
from sage.cli.tools_support import sage_command
from sage.core.errors import FaultError, InputError
from tests.kg.gr_helpers import bladder, graph


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    graph(bladder()).save_sidecar(tmp_path / "kg" / "graph.kg")
    return ToolContext(Roots.resolve([tmp_path / "kg"], tmp_path / "out"))


@pytest.fixture
def registry() -> Registry:
    return load("knowledge")


def test_search_finds_an_entity_with_its_neighbors(
    registry: Registry, context: ToolContext
) -> None:
    found = registry.run("graph_search", {"graph": ".", "text": "CXCL13"}, context).result
    assert found["entities"][0]["name"] == "CXCL13"
    assert {"CXCR5", "overall survival"} <= {neighbor["name"] for neighbor in found["neighbors"]}


def test_the_ontology_says_what_names_mean(registry: Registry, context: ToolContext) -> None:
    names = ["complete response", "pathological complete response", "no such thing as this"]
    found = registry.run("ontology_terms", {"names": names}, context).result
    assert [one["meanings"][0]["whole"] for one in found["names"][:2]] == [True, True]
    assert found["names"][0]["meanings"][0]["id"] != found["names"][1]["meanings"][0]["id"]
    assert len(found["between"]) == 1
    assert found["unknown"] == names[2:]
    with pytest.raises(InputError, match="names"):
        registry.run("ontology_terms", {"names": []}, context)


def test_paths_join_two_entities(registry: Registry, context: ToolContext) -> None:
    given = {"graph": ".", "source": "FABP5", "target": "overall survival"}
    assert not registry.run("graph_paths", given, context).result["paths"], "only studied together"
    given["target"] = "lipid metabolism"
    found = registry.run("graph_paths", given, context).result
    assert found["paths"]
    best = found["paths"][0]
    assert best["sentence"].startswith("FABP5")
    assert best["supported"]
    assert 0 <= best["scores"]["total"] <= 1
    assert best["papers"]
    with pytest.raises(InputError, match="target"):
        registry.run("graph_paths", {"graph": ".", "source": "FABP5"}, context)


def test_evidence_shows_passages_for_and_against(registry: Registry, context: ToolContext) -> None:
    given = {"graph": ".", "head": "CXCL13", "tail": "overall survival"}
    found = registry.run("graph_evidence", given, context).result
    assert {relation["relation"] for relation in found["relations"]} >= {"decreases"}
    passage = found["relations"][0]["passages"][0]
    assert "CXCL13" in passage["text"]
    assert passage["paper"].startswith("Title of")
    with pytest.raises(InputError, match="unheard of thing"):
        registry.run("graph_evidence", {**given, "head": "unheard of thing"}, context)


def test_a_graph_outside_the_roots_is_refused(
    registry: Registry, context: ToolContext, tmp_path: Path
) -> None:
    (context.roots.inputs[0] / "graph.kg" / "link").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="outside the allowed folders"):
        registry.run("graph_search", {"graph": ".", "text": "x"}, context)


def test_a_graph_file_does_not_choose_what_model_is_loaded() -> None:
    fake = SimpleNamespace(embedder="someone/evil-model")
    with pytest.raises(InputError):
        load_embedder(fake, ToolContext(Roots((), Path("/"))))  # type: ignore[arg-type]


class Driver:
    """Records what `sage` was asked, and answers."""

    def __init__(self, code: int = 0, stdout: str = "{}", stderr: str = "") -> None:
        self.asked: list[list[str]] = []
        self.answer = Answer(code, stdout, stderr)

    def __call__(self, words: Sequence[str], stop: Callable[[], bool]) -> Answer:
        self.asked.append(list(words))
        return self.answer


def runs(driver: Driver) -> Registry:
    registry = Registry()
    for spec in run_tools(driver):
        registry.add(spec)
    return registry


def test_a_run_is_started_with_a_list_of_arguments(context: ToolContext) -> None:
    waiting = {"run": "r1", "status": "waiting for review", "waiting": []}
    driver = Driver(stdout=json.dumps(waiting))
    given = {"prompt": "--auto-approve; rm -rf $HOME", "graph": "."}
    result = runs(driver).run("start_run", given, context).result
    assert result["run"] == "r1"
    assert result["status"] == "waiting for review"
    words = driver.asked[0]
    assert words[-2:] == ["--", "--auto-approve; rm -rf $HOME"]
    assert words[words.index("--kg") + 1] == str(context.roots.inputs[0])


@pytest.mark.parametrize("cohort", ["../secret", "/etc", "-x"])
def test_a_run_takes_no_cohort_outside_the_roots(context: ToolContext, cohort: str) -> None:
    driver = Driver()
    with pytest.raises(InputError):
        given = {"prompt": "a question of some length", "cohort": cohort}
        runs(driver).run("start_run", given, context)
    assert driver.asked == []


def test_a_review_is_answered(context: ToolContext) -> None:
    driver = Driver(stdout='{"run": "r1", "status": "finished"}')
    registry = runs(driver)
    registry.run("review_run", {"run": "r1", "decision": "approve"}, context)
    registry.run("review_run", {"run": "r1", "decision": "reject", "reason": "--edit=x"}, context)
    changes = {"statement": "other"}
    registry.run("review_run", {"run": "r1", "decision": "edit", "changes": changes}, context)
    assert driver.asked[0] == ["review", "--json", "--approve", "--", "r1"]
    assert driver.asked[1] == ["review", "--json", "--reject=--edit=x", "--", "r1"]
    path = Path(driver.asked[2][2].removeprefix("--edit="))
    assert json.loads(path.read_text()) == changes
    with pytest.raises(InputError, match="reason"):
        registry.run("review_run", {"run": "r1", "decision": "reject"}, context)


@pytest.mark.parametrize("name", ["../r1", "/tmp/r", "--help", "a b", ""])
def test_a_run_is_named_never_pathed(context: ToolContext, name: str) -> None:
    driver = Driver()
    with pytest.raises(InputError):
        runs(driver).run("run_status", {"run": name}, context)
    assert driver.asked == []


def test_what_sage_refuses_is_told(context: ToolContext) -> None:
    for driver, error, said in (
        (Driver(code=2, stderr="noise\nerror: run r9 does not exist\n"), InputError, "run r9"),
        (Driver(code=1, stderr="error: disk\n"), FaultError, "disk"),
        (Driver(stdout="hello"), FaultError, "JSON"),
    ):
        with pytest.raises(error, match=said):
            runs(driver).run("run_status", {"run": "r9"}, context)

    registry = Registry()
    for spec in run_tools(sage_command):
        registry.add(spec)
    with pytest.raises(InputError):
        registry.run("run_status", {"run": "no-such-run"}, context)
