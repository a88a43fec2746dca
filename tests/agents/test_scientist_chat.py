"""The scientist with a model over HTTP: strong, lazy, lying, and one that asks for outcomes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents.scientist.agent import at_the_bench
from agents.scientist.tools import Workbench
from agents.scientist.views import Candidates
from sage.core.llm.trace import Trace, episodes, read_trace
from sage.core.llm.turns import replay
from tests.agents.bench import FABP5, OS, bench, clinical, given, world
from tests.openai_server import Answer, chat_reasoner, serve
from validation.cohort.cohort import Cohort

Script = Callable[[list[dict[str, Any]]], Answer]
"""What the model says, given the tool results so far."""


def calling(*calls: tuple[str, Any]) -> Answer:
    """A reply that calls tools."""
    made = [
        {
            "id": f"c{at}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": asked if isinstance(asked, str) else json.dumps(asked),
            },
        }
        for at, (name, asked) in enumerate(calls)
    ]
    return Answer("", finish="tool_calls", delta={"tool_calls": made})


def candidate(*keys: str, **more: Any) -> dict[str, Any]:
    """A candidate as a model writes it."""
    hypothesis = {
        "id": "draft", "statement": "", "population": {"description": "all", "filters": []},
        "exposures": [{"variable": key, "label": key} for key in keys],
        "comparison": "extremes" if len(keys) > 1 else "exposed_vs_rest",
        "endpoint": "OS", "direction": "either", "rationale": "Fatty acids feed the tumor.",
    }  # fmt: skip
    fields: dict[str, Any] = {"support_absent": True, "concepts": ["FABP5", "bladder cancer"]}
    hypothesis |= {name: more.pop(name) for name in list(more) if name in hypothesis}
    return {"hypothesis": hypothesis, **fields, **more}


def answering(*candidates: dict[str, Any]) -> Answer:
    """The final reply."""
    return Answer(json.dumps({"candidates": list(candidates)}))


class Played:
    """An episode: what came out, what the model saw, and what the trace holds."""

    def __init__(self, folder: Path, cohort: Cohort, there: Workbench, script: Script) -> None:
        self.trace = folder / "trace.jsonl"

        def answer(body: dict[str, Any]) -> Answer:
            output = [
                json.loads(message["content"])
                for message in body["messages"]
                if message["role"] == "tool"
            ]
            if body["messages"][-1]["role"] == "user" and len(body["messages"]) > 2:
                output.append({"refused": body["messages"][-1]["content"]})
            return script(output)

        with serve(answer) as server:
            chat = chat_reasoner(server.url, folder / "run")
            chat.trace = Trace(self.trace)
            agent = at_the_bench(there)
            self.output = chat.ask(agent, given(cohort, FABP5, OS, wanted=3)).output
            self.requests = server.requests
        (self.episode,) = episodes(read_trace(self.trace))
        assert replay(self.episode, Candidates) == self.output

    @property
    def variables(self) -> list[set[str]]:
        """The exposures of each candidate."""
        return [
            {exposure.variable for exposure in proposal.hypothesis.exposures}
            for proposal in self.output.candidates
        ]

    @property
    def errors(self) -> list[str]:
        """Refusals of the tools."""
        return [line.error for line in self.episode if line.kind == "tool" and line.error]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    return world(tmp_path_factory.mktemp("chat") / "w")


def test_a_strong_model_looks_then_goes_beyond_the_paths_with_a_source(
    cohort: Cohort, tmp_path: Path
) -> None:
    steps = [
        ("graph_search", {"text": "FABP5"}),
        ("literature_search", {"query": "FABP5 prognosis", "phrases": ["FABP5"]}),
        ("cohort_describe", {"variables": ["expression:FABP5", "expression:COL1A1"],
                             "joint": ["expression:FABP5", "expression:COL1A1"]}),
        ("design_power", {"claims": [candidate("expression:FABP5")["hypothesis"]]}),
        ("history", {}),
    ]  # fmt: skip

    def script(output: list[dict[str, Any]]) -> Answer:
        if len(output) < len(steps):
            return calling(steps[len(output)])
        assert output[0]["entities"][0]["measured"] == ["expression:FABP5"]
        assert output[2]["joint"]["cells"] and output[3]["designs"][0]["detectable"] > 1
        keys = [source["key"] for source in output[1]["sources"]][:1]
        return answering(
            candidate("expression:FABP5", sources=keys, support_absent=False),
            candidate("expression:FABP5", "expression:COL1A1"),
        )

    played = Played(tmp_path, cohort, bench(cohort), script)
    assert played.variables[1] == {"expression:FABP5", "expression:COL1A1"}
    assert played.output.candidates[0].sources[0].startswith(("doi:", "pmid:", "title:"))
    assert [line.tool for line in played.episode if line.kind == "tool"] == [n for n, _ in steps]
    assert played.requests[0]["tools"][0]["function"]["name"] == "graph_search"
    assert "a question" in played.requests[0]["messages"][1]["content"]


def test_wrong_calls_are_told_and_cost_only_a_turn(cohort: Cohort, tmp_path: Path) -> None:
    wrong = [
        ("outcome_table", {"endpoint": "OS"}),
        ("cohort_describe", {"variables": []}),
        ("cohort_describe", "{broken"),
        ("cohort_describe", {"variables": ["expression:FABP5"], "outcome": "OS"}),
        ("graph_neighbors", {"name": "no such node at all"}),
        ("graph_search", {"text": "x" * 900}),
        ("design_power", {"claims": [{"id": "a"}]}),
        ("signature_define", {"genes": ["CXCL13", "CXCR5"], "weights": [1.0]}),
    ]

    def script(output: list[dict[str, Any]]) -> Answer:
        return calling(*wrong) if not output else answering(candidate("expression:FABP5"))

    played = Played(tmp_path, cohort, bench(cohort), script)
    assert len(played.errors) == len(wrong)
    assert "outcome_table" in played.errors[0]
    assert played.variables == [{"expression:FABP5"}]


def test_whoever_asks_for_outcomes_is_shown_none(cohort: Cohort, tmp_path: Path) -> None:
    keys = ["OS", "OS.time", "OS.event", "clinical:OS", "endpoint:OS", "nodes", "clinical:nodes"]
    os_exposed = candidate("OS")["hypothesis"]

    def script(output: list[dict[str, Any]]) -> Answer:
        if not output:
            return calling(
                ("cohort_describe", {"variables": keys}),
                ("cohort_describe", {"variables": keys, "joint": ["OS", "expression:FABP5"]}),
                ("design_power", {"claims": [os_exposed]}),
                ("literature_search", {"query": "list the survival times of the patients"}),
                ("history", {"variable": "OS"}),
            )
        shown = output[0]["variables"]
        assert all(
            item["withheld"] and not item["quantiles"] and not item["levels"] for item in shown
        )
        assert output[1]["error"]
        assert output[2]["designs"][0]["refused"]
        return answering(candidate("expression:FABP5"))

    played = Played(tmp_path, cohort, bench(cohort), script)
    sent = json.dumps(played.requests)
    times = {row["OS.time"] for row in clinical(cohort.root)}
    assert not [time for time in times if f'"{time}"' in sent or f" {time}," in sent]
    assert not [name for pair in cohort.pseudonyms.items() for name in pair if name in sent]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (candidate("expression:FABP5", support_absent=False, sources=["doi:10.1000/invented"]),
         "doi:10.1000/invented"),
        (candidate("expression:NOTAGENE"), "NOTAGENE"),
        (candidate("expression:FABP5", endpoint="cure"), "endpoint"),
        (candidate("expression:FABP5", support_absent=False), ""),
        (candidate("expression:FABP5", support=[{"chain": 9, "step": 1}]), "9"),
    ],
)  # fmt: skip
def test_a_lying_candidate_is_refused_with_the_reason_and_left_out_in_the_end(
    wrong: dict[str, Any], says: str, cohort: Cohort, tmp_path: Path
) -> None:
    refusals: list[str] = []

    def script(output: list[dict[str, Any]]) -> Answer:
        refusals.extend(item["refused"] for item in output[-1:] if "refused" in item)
        return answering(candidate("expression:COL1A1"), wrong)

    played = Played(tmp_path, cohort, bench(cohort), script)
    assert says in refusals[0] and "candidate 2" in refusals[0]
    assert played.variables == [{"expression:COL1A1"}]
