"""A question answered over MCP from what the tools return, by a client that knows no tool names.

"Count lymphocytes within 100 µm of tumor in these slides and compare survival of TLS-high and
TLS-low patients."
"""

from __future__ import annotations

import shutil
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines.statistics import logrank_test
from mcp import Client

from benchmarks.simulate.scenes import render_scene
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from mcp_servers.servers.server import ToolServer
from mcp_servers.workers.inline import InlineWorkers
from validation.simulate import write_world

pytestmark = pytest.mark.anyio
PATIENTS = 30


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated cohort of 40, thirty of them with a painted slide: TLS in every second one."""
    folder = tmp_path_factory.mktemp("task") / "bladder"
    write_world(folder, seed=5, patients=40)
    (folder / "slides").mkdir(exist_ok=True)
    for number in range(1, PATIENTS + 1):
        stem = folder / "slides" / f"SIM-{number:04d}"
        if number > 2:  # two pictures serve all patients
            for ending in (".tiff", ".geojson", ".nuclei.csv"):
                shutil.copy(stem.with_name(f"SIM-{2 - number % 2:04d}{ending}"), f"{stem}{ending}")
            continue
        aggregates: Any = [(150.0, 150.0, 70.0), (290.0, 280.0, 60.0)] if number % 2 else 0
        path = stem.with_suffix(".tiff")
        truth = render_scene(path, seed=number, size_px=720, mpp=0.5, aggregates=aggregates)
        truth.write_outlines(stem.with_suffix(".geojson"))
        truth.write_cells(stem.with_name(f"{stem.name}.nuclei.csv"))
    return folder


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool; ask for its job until it has ended."""
    answer = await client.call_tool("call_tool", {"name": tool, "arguments": arguments})
    assert not answer.is_error, (tool, answer.content[0].text)
    while answer.structured_content["state"] in ("queued", "running"):
        job = answer.structured_content["job"]
        answer = await client.call_tool("job_result", {"job": job})
    assert answer.structured_content["state"] == "done"
    return answer.structured_content["result"]


async def answer_the_question(client: Client) -> dict[str, Any]:
    """Lymphocytes near tumor by slide, and the survival of TLS-high against TLS-low patients."""
    ask = partial(call, client)
    slides = (await ask("list_slides"))["slides"]
    (cohort,) = [row for row in (await ask("list_cohorts"))["cohorts"] if row["simulated"]]
    rows = []
    for slide in slides:
        outlines = slide["slide"].replace(".tiff", ".geojson")
        given = {"tumor_regions": outlines, "cells": outlines.replace(".geojson", ".nuclei.csv")}
        zones = await ask("til", slide=slide["slide"], band_um=100.0, **given)
        inside, outside = zones["tumor"], zones["peritumoral"]
        rows.append(
            {
                "patient": slide["patient"],
                "slide": slide["slide"],
                "lymphocytes": inside["lymphocytes"] + outside["lymphocytes"],
                "mm2": inside["area_mm2"] + outside["area_mm2"],
                "tls": (await ask("tls", slide=slide["slide"]))["count"],
            }
        )
    units = {"lymphocytes": "cells", "mm2": "mm²", "tls": "structures"}
    saved = await ask("save_table", name="counted", rows=rows, units=units)
    key = next(variable for variable in saved["variables"] if variable.endswith("_tls"))
    given = {"cohort": cohort["cohort"], "tables": [saved["table"]]}
    endpoint = cohort["endpoints"][0]
    test = await ask("logrank", **given, endpoint=endpoint, group=key, cut="median")
    book = await ask("describe_cohort", **given, search="counted")
    return {"rows": rows, "saved": saved, "test": test, "book": book, "cohort": cohort}


@pytest.mark.slow
async def test_lymphocytes_near_tumor_and_survival_by_tls_over_mcp(
    world: Path, tmp_path: Path
) -> None:
    roots = Roots.resolve([world.parent], tmp_path / "out")
    server = ToolServer("all", roots, InlineWorkers(load("all")))
    async with Client(server.build(), read_timeout_seconds=120) as client:
        listed = (await client.list_tools()).model_dump_json(by_alias=True, exclude_none=True)
        assert len(listed) < 4000
        found = await answer_the_question(client)
    rows = found["rows"]
    assert [row["patient"] for row in rows] == [f"SIM-{n:04d}" for n in range(1, PATIENTS + 1)]
    assert all(row["lymphocytes"] > 0 and row["mm2"] > 0 for row in rows)
    painted = np.array([number % 2 for number in range(1, PATIENTS + 1)])
    counted = np.array([row["tls"] for row in rows])
    assert (counted[painted == 1].mean()) > counted[painted == 0].mean()
    test = found["test"]
    assert {group["group"] for group in test["groups"]} == {"high", "low"}
    assert sum(group["n"] for group in test["groups"]) == PATIENTS
    assert test["p"] == pytest.approx(_logrank(world, rows, found["cohort"]), rel=0.05)
    units = {row["key"]: row["unit"] for row in found["book"]["variables"]}
    assert units["imaging:counted_lymphocytes"] == "cells"
    assert found["book"]["n_patients"] == 40
    table = (tmp_path / "out" / found["saved"]["table"]).read_text().splitlines()
    assert len(table) == PATIENTS + 1


def _logrank(world: Path, rows: list[dict[str, Any]], cohort: dict[str, Any]) -> float:
    """The same test by lifelines, from the files alone."""
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
