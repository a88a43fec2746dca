"""A plain question answered by a caller that knows nothing but what the server lists.

"Count lymphocytes within 100 µm of tumor in these slides and compare survival of TLS-high and
TLS-low patients." The caller below names no tool: it chooses by words of titles and descriptions,
fills arguments by the names in the schemas, and goes on from returned values.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcp import Client

from mcp_servers.registry import load
from mcp_servers.results_cache import ResultsCache
from mcp_servers.roots import Roots
from mcp_servers.servers.server import ToolServer
from mcp_servers.workers.inline import InlineWorkers

PATIENTS = 12
WORD = re.compile(r"[a-z]+")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated cohort of 40, twelve of them with a painted slide: TLS in every second one."""
    from benchmarks.simulate.scenes import render_scene
    from validation.simulate import write_world

    folder = tmp_path_factory.mktemp("task") / "bladder"
    write_world(folder, seed=5, patients=40)
    (folder / "slides").mkdir(exist_ok=True)
    for number in range(1, PATIENTS + 1):
        aggregates: Any = [(150.0, 150.0, 70.0), (290.0, 280.0, 60.0)] if number % 2 else 0
        path = folder / "slides" / f"SIM-{number:04d}.tiff"
        render_scene(path, seed=number, size_px=832, mpp=0.5, aggregates=aggregates)
    return folder


class Caller:
    """Lists the tools, chooses among them by words, and calls them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.tools: dict[str, dict[str, Any]] = {}

    async def learn(self) -> None:
        """Read what is listed; where only a search is listed, search with no words for all."""
        listed = (await self.client.list_tools()).tools
        names = {tool.name for tool in listed}
        search = next(
            (tool.name for tool in listed if "find tools" in tool.description.lower()), ""
        )
        for tool in listed:
            self.tools[tool.name] = {
                "text": f"{tool.name} {tool.title} {tool.description}",
                "arguments": tool.input_schema,
                "result": (tool.output_schema or {}),
            }
        self.compact = bool(search)
        if not self.compact:
            return
        describe = next(name for name in names if name.startswith("describe"))
        self.call_name = next(name for name in names if name.startswith("call"))
        found = (await self.client.call_tool(search, {})).structured_content
        for row in found["tools"]:
            told = (await self.client.call_tool(describe, {"name": row["name"]})).structured_content
            self.tools[row["name"]] = {
                "text": f"{row['name']} {row['title']} {row['summary']}",
                "arguments": told["arguments"],
                "result": told["result"],
            }

    def choose(self, words: str) -> str:
        """The tool whose text begins with, and holds, most of these words."""
        wanted = WORD.findall(words.lower())

        def fit(name: str) -> tuple[float, int]:
            held = WORD.findall(self.tools[name]["text"].lower())
            early = sum(1 / (1 + held.index(word)) for word in wanted if word in held)
            return sum(word in held for word in wanted) + early, -len(held)

        return max(self.tools, key=fit)

    def argument(self, tool: str, words: str) -> str:
        """The argument whose name and description hold most of these words."""
        properties = self.tools[tool]["arguments"]["properties"]
        wanted = WORD.findall(words.lower())

        def fit(name: str) -> int:
            text = f"{name.replace('_', ' ')} {properties[name].get('description', '')}".lower()
            return sum(word in WORD.findall(text) for word in wanted)

        return max(properties, key=fit)

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; ask for its job until it has ended."""
        name, given = (tool, arguments)
        if self.compact:
            name, given = self.call_name, {"name": tool, "arguments": arguments}
        answer = await self.client.call_tool(name, given)
        assert not answer.is_error, (tool, answer.content[0].text)
        envelope = answer.structured_content
        while envelope["state"] in ("queued", "running"):
            waiting = self.choose("result of a job waits")
            answer = await self.client.call_tool(waiting, {"job": envelope["job"]})
            envelope = answer.structured_content
        assert envelope["state"] == "done"
        return envelope["result"]


async def answer_the_question(caller: Caller) -> dict[str, Any]:
    """Lymphocytes near tumor by slide, and the survival of TLS-high against TLS-low patients."""
    await caller.learn()
    slides = (await caller.call(caller.choose("list slides")))["slides"]
    (cohort,) = [
        row
        for row in (await caller.call(caller.choose("list cohorts")))["cohorts"]
        if row["simulated"]
    ]
    near = caller.choose("density of lymphocytes in tumor and around it")
    band = caller.argument(near, "band outside the border")
    assert band.endswith("_um")
    structures = caller.choose("find tertiary lymphoid structures")
    rows = []
    for slide in slides:
        lymphocytes = await caller.call(near, slide=slide["slide"], **{band: 100.0})
        found = await caller.call(structures, slide=slide["slide"])
        inside, outside = lymphocytes["tumor"], lymphocytes["peritumoral"]
        rows.append(
            {
                "patient": slide["patient"],
                "slide": slide["slide"],
                "lymphocytes": inside["lymphocytes"] + outside["lymphocytes"],
                "mm2": inside["area_mm2"] + outside["area_mm2"],
                "tls": found["count"],
            }
        )
    saved = await caller.call(
        caller.choose("save measurements table patients"),
        name="counted",
        rows=rows,
        units={"lymphocytes": "cells", "mm2": "mm²", "tls": "structures"},
    )
    key = next(variable for variable in saved["variables"] if variable.endswith("_tls"))
    test = await caller.call(
        caller.choose("compare survival of groups log rank"),
        cohort=cohort["cohort"],
        endpoint=cohort["endpoints"][0],
        group=key,
        cut="median",
        tables=[saved["table"]],
    )
    book = await caller.call(
        caller.choose("describe patient cohort variables endpoints"),
        cohort=cohort["cohort"],
        tables=[saved["table"]],
        search="counted",
    )
    return {"rows": rows, "saved": saved, "test": test, "book": book, "cohort": cohort}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "compact"])
def test_lymphocytes_near_tumor_and_survival_by_tls_over_mcp(
    world: Path, tmp_path: Path, mode: str
) -> None:
    registry = load("all")
    registry.cache = ResultsCache(world.parents[1] / "cache")  # slides are read in one mode only
    roots = Roots.resolve([world.parent], tmp_path / "out")
    server = ToolServer("all", roots, InlineWorkers(registry), compact=mode == "compact")
    listed = []

    async def main() -> dict[str, Any]:
        async with Client(server.build(), read_timeout_seconds=120) as client:
            answer = await client.list_tools()
            listed.append(len(answer.model_dump_json(by_alias=True, exclude_none=True)))
            return await answer_the_question(Caller(client))

    found = asyncio.run(main())
    assert (listed[0] < 4000) if mode == "compact" else (listed[0] > 80_000)
    rows = found["rows"]
    assert [row["patient"] for row in rows] == [f"SIM-{n:04d}" for n in range(1, PATIENTS + 1)]
    assert all(row["lymphocytes"] > 0 and row["mm2"] > 0 for row in rows)
    painted = np.array([number % 2 for number in range(1, PATIENTS + 1)])
    counted = np.array([row["tls"] for row in rows])
    assert (counted[painted == 1].mean()) > counted[painted == 0].mean()
    test = found["test"]
    assert {group["group"] for group in test["groups"]} == {"high", "low"}
    assert sum(group["n"] for group in test["groups"]) == PATIENTS
    assert test["p"] == pytest.approx(_logrank(world, rows, found["cohort"]), abs=1e-9)
    units = {row["key"]: row["unit"] for row in found["book"]["variables"]}
    assert units["imaging:counted_lymphocytes"] == "cells"
    assert found["book"]["n_patients"] == 40
    table = (tmp_path / "out" / found["saved"]["table"]).read_text().splitlines()
    assert len(table) == PATIENTS + 1


def _logrank(world: Path, rows: list[dict[str, Any]], cohort: dict[str, Any]) -> float:
    """The same test by lifelines, from the files alone."""
    import tomllib

    import pandas as pd
    from lifelines.statistics import logrank_test

    spec = tomllib.loads((world / "cohort.toml").read_text())["endpoints"][cohort["endpoints"][0]]
    clinical = pd.read_csv(world / "clinical.csv").set_index("patient")
    table = pd.DataFrame(rows).set_index("patient").join(clinical)
    at = float(np.median(table["tls"]))
    if at == table["tls"].max():
        at = float(table["tls"][table["tls"] < at].max())
    high = table["tls"] > at
    event = table[spec["event"]].isin(spec["event_values"])
    time = table[spec["time"]]
    return float(logrank_test(time[high], time[~high], event[high], event[~high]).p_value)
