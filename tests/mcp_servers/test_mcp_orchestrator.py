"""The orchestrator: from words to tools, with and without a model, here and on other servers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client.stdio import StdioServerParameters

from mcp_servers.orchestrator import Orchestrator, Plan, Step, ToolCard
from mcp_servers.orchestrator_hosts import McpHost, WorkersHost
from mcp_servers.orchestrator_select import COMPOSITIONS, by_composition, by_descriptions
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from mcp_servers.workers.inline import InlineWorkers
from sage.core.errors import FaultError, InputError

ROOT = Path(__file__).resolve().parents[2]
TOOLS = str(Path(__file__).parent / "tools")
SURVIVAL = {"cohort": "gbsg2", "endpoint": "RFS", "group": "clinical:hormonal_therapy"}


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    (tmp_path / "in").mkdir()
    return Roots.of([tmp_path / "in"], tmp_path / "out")


@pytest.fixture
def host(roots: Roots) -> Iterator[WorkersHost]:
    with InlineWorkers(load("all", tool_folders=[TOOLS])) as workers:
        yield WorkersHost(workers, roots)


def cards(host: WorkersHost) -> dict[str, ToolCard]:
    return {one.name: one for one in host.cards()}


def pathology() -> dict[str, ToolCard]:
    """Cards of a pathology suite, whether or not it is installed."""
    slide: dict[str, Any] = {"properties": {"slide": {}, "tumor_regions": {}}}
    slide["required"] = ["slide"]
    summaries = {
        "tumor": "Segment tumor-like epithelium on a slide: binary mask, area, outlines.",
        "region_patches": "Extract patches labelled tumor, peritumoral band or rest.",
        "tls": "Detect TLS-like lymphoid aggregates: count, area, density.",
        "nuclei": "Detect and outline nuclei, with shape and stain of each.",
        "tissue_mask": "Find the tissue of a slide, without pen marks, dust and glass.",
        "slide_thumbnail": "Write a PNG overview of a slide.",
    }
    return {
        name: ToolCard(
            name=name, suite="pathology", summary=text, description=text, input_schema=slide
        )
        for name, text in summaries.items()
    }


@pytest.mark.parametrize(
    ("request_", "tools"),
    [
        ("detect the tumor, then patches by region", ["tumor", "region_patches"]),
        ("Tumour region-aware patch extraction please", ["tumor", "region_patches"]),
        ("find TLS inside and around the tumor", ["tumor", "tls"]),
    ],
)
def test_registered_compositions_are_found_by_their_words(request_: str, tools: list[str]) -> None:
    plan = by_composition(request_, pathology(), {"slide": "a.svs"})
    assert plan is not None
    assert [step.tool for step in plan.steps] == tools
    assert plan.steps[1].uses["tumor_regions"].field == "geojson"
    assert plan.steps[0].arguments == {"slide": "a.svs"}


@pytest.mark.parametrize(
    ("request_", "tools"),
    [
        ("segment the nuclei", ["nuclei"]),
        ("count TLS", ["tls"]),
        ("make a thumbnail and find the tissue", ["slide_thumbnail", "tissue_mask"]),
    ],
)
def test_other_requests_find_tools_by_their_descriptions(request_: str, tools: list[str]) -> None:
    plan = by_descriptions(request_, pathology(), {"slide": "a.svs"})
    assert [step.tool for step in plan.steps] == tools
    assert plan.method == "descriptions"


def test_what_no_tool_covers_is_refused_or_noted() -> None:
    with pytest.raises(InputError, match="no tool covers"):
        by_descriptions("bake a cake", pathology(), {})
    with pytest.raises(InputError) as refused:
        by_descriptions("bake cake", pathology(), {})
    assert "nearest" not in str(refused.value)  # none is near: the first of a list are not
    with pytest.raises(InputError, match=r"the nearest are: tumor, region_patches"):
        by_descriptions("weigh apples near a tumor border and pears", pathology(), {})
    plan = by_descriptions("segment nuclei; bake a cake", pathology(), {"slide": "a.svs"})
    assert plan.notes == ['no tool covers "bake a cake"']


def test_every_composition_names_tools_that_exist_and_fields_they_return() -> None:
    pytest.importorskip("mcp_servers.pathology")
    registry = load("all")
    for one in COMPOSITIONS:
        for tool, _, uses in one.steps:
            spec = registry.get(tool)
            for argument, (source, field) in uses.items():
                assert argument in spec.given.model_fields
                assert field in registry.get(source).returns.model_fields


def test_a_composition_runs_with_results_and_provenance(host: WorkersHost, roots: Roots) -> None:
    said: list[str] = []
    done = Orchestrator([host]).run(
        "compare the survival between treated and untreated",
        SURVIVAL,
        lambda fraction, words: said.append(words),
    )
    assert done.method == "composition"
    assert [one.tool for one in done.steps] == ["kaplan_meier", "logrank"]
    assert done.steps[1].result["p"] == pytest.approx(0.00343, abs=1e-4)
    assert (roots.output / done.steps[0].files[0]).is_file()
    assert done.steps[0].result["figure"] == done.steps[0].files[0]
    assert done.steps[0].provenance["version"] == "1.0.0"
    assert any("kaplan_meier" in one for one in said)


def test_an_absent_input_is_asked_for(host: WorkersHost) -> None:
    with pytest.raises(InputError, match="needs group; give it as an input"):
        Orchestrator([host]).plan("logrank test", {"cohort": "gbsg2", "endpoint": "RFS"})


def test_a_model_plans_and_mends_its_plan(host: WorkersHost) -> None:
    asked: list[str] = []
    wrong = {"steps": [{"id": "a", "tool": "logrank", "arguments": {"cohort": "gbsg2"}}]}
    right = {"steps": [{"id": "a", "tool": "logrank", "arguments": SURVIVAL, "why": "test"}]}
    replies = ["I cannot.", json.dumps(wrong), f"Here: {json.dumps(right)}"]

    def complete(system: str, user: str) -> str:
        asked.append(user)
        return replies[len(asked) - 1]

    done = Orchestrator([host], complete).run("is hormone therapy any good", SURVIVAL)
    assert done.method == "model"
    assert done.steps[0].tool == "logrank"
    assert "the reply holds no JSON object" in asked[1]
    assert "logrank needs endpoint, group" in asked[2]
    assert "686" not in "".join(asked)


def test_a_model_cannot_call_what_is_not_there_or_leave_the_roots(host: WorkersHost) -> None:
    def bad(system: str, user: str) -> str:
        return '{"steps": [{"id": "a", "tool": "shell", "arguments": {"command": "id"}}]}'

    with pytest.raises(InputError, match='no tool is called "shell"'):
        Orchestrator([host], bad).run("anything at all", {})

    def outside(system: str, user: str) -> str:
        step = {"id": "a", "tool": "preview", "arguments": {"slide": "/etc/passwd"}}
        return json.dumps({"steps": [step]})

    with pytest.raises(InputError, match="outside the allowed folders"):
        Orchestrator([host], outside).run("anything at all", {})


def test_a_plan_that_refers_forward_is_refused(host: WorkersHost) -> None:
    plan = Plan.model_validate(
        {
            "steps": [
                {
                    "id": "one",
                    "tool": "preview",
                    "uses": {"slide": {"step": "two", "field": "image"}},
                }
            ]
        }
    )
    assert "no earlier step two" in str(Orchestrator([host]).problem(plan))


def test_one_step_feeds_the_next(host: WorkersHost, roots: Roots) -> None:
    from PIL import Image

    Image.new("RGB", (200, 100), "red").save(roots.inputs[0] / "a.png")
    first = Step(id="one", tool="preview", arguments={"slide": "a.png"})
    second = {"id": "two", "tool": "preview", "uses": {"slide": {"step": "one", "field": "image"}}}
    plan = Plan(steps=[first, Step.model_validate(second)])
    done = Orchestrator([host]).carry_out(plan)
    assert done.steps[1].result["width"] == 64
    assert list(done.steps[1].provenance["inputs"]) == [
        str(roots.output / done.steps[0].result["image"])
    ]


def test_it_composes_mcp_servers(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    serve = [
        "-m", "sage", "mcp", "serve", "oncology", "--root", str(tmp_path / "in"),
        "--out", str(tmp_path / "out"), "--workers", "1",
    ]  # fmt: skip
    command = StdioServerParameters(
        command=sys.executable, args=serve, env=environment, cwd=str(tmp_path)
    )
    with McpHost(command, "oncology server") as host:
        done = Orchestrator([host]).run("compare survival between the arms", SURVIVAL)
        with pytest.raises(InputError, match='has no endpoint "OS"'):
            Orchestrator([host]).run("compare survival by arm", {**SURVIVAL, "endpoint": "OS"})
    assert [one.tool for one in done.steps] == ["kaplan_meier", "logrank"]
    assert done.steps[0].provenance["server"] == "oncology server"
    assert (tmp_path / "out" / done.steps[0].files[0]).is_file()


def test_a_server_that_does_not_answer_is_a_fault() -> None:
    broken = StdioServerParameters(command=sys.executable, args=["-c", "raise SystemExit(1)"])
    with pytest.raises(FaultError, match="broken does not answer"), McpHost(broken, "broken"):
        raise AssertionError
