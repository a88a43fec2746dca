"""`measure_cohort` over stdio: progress, cancellation, going on, and the table in an analysis."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from tests.mcp_servers.measures.test_over_cohort import simulated, write_all
from tests.mcp_servers.test_mcp_oncology import small_cohort
from tests.mcp_servers.test_mcp_server import data, stdio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "in"
    slides = [simulated(f"p{n:02d}", f"p{n:02d}", n, 100 + 5 * n) for n in range(24)]
    write_all(inside / "maps", slides)
    small_cohort(inside / "c", [(f"p{n:02d}", "ab"[n % 2], 100 + n, n % 2) for n in range(24)])
    return tmp_path


def test_a_cohort_is_measured_and_analyzed(folder: Path) -> None:
    seen: list[float] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async def main() -> dict[str, Any]:
        async with stdio(folder, suite="all") as client:
            given = {"cohort": "c", "maps": "maps", "formulas": ["pooled(density(cells.lymphoid))"]}
            answer = await client.call_tool("measure_cohort", given, progress_callback=heard)
            found = data(answer)["result"]
            files = {file["path"]: file["uri"] for file in data(answer)["files"]}
            for kept in ("table", "validity"):  # rows of patients stay on the server
                with pytest.raises(MCPError, match="is not an output"):
                    await client.read_resource(files[found[kept]])
            text = (await client.read_resource(files[found["columns"]])).contents[0].text
            assert "lymphoid cells per mm²" in text
            assert "p07" not in f"{answer.model_dump_json()}{text}"
            test = await client.call_tool(
                "logrank",
                {"cohort": "c", "endpoint": "OS", "group": found["variables"][0]["key"],
                 "cut": "median", "tables": [found["table"]]},
            )  # fmt: skip
            assert sum(group["n"] for group in data(test)["result"]["groups"]) == 24
            for wrong, said in (
                ({"cohort": "c"}, "give slides or maps"),
                ({"cohort": "c", "maps": "maps", "formulas": ["nothing(cells)"]}, "line 1"),
                ({"cohort": "gbsg2", "maps": "maps"}, "no slide belongs to a patient"),
                ({"cohort": "../x", "maps": "maps"}, "outside the allowed folders"),
                ({"cohort": "c", "maps": "/etc"}, "outside the allowed folders"),
            ):
                refused = await client.call_tool("measure_cohort", wrong)
                assert refused.is_error
                assert said in refused.content[0].text
                assert str(folder) not in refused.content[0].text
            assert (
                len(list((folder / "out" / "measure_cohort").iterdir())) == 1
            )  # none of a refused one
            return found

    found = asyncio.run(main())
    assert (found["patients"], found["slides"], found["measurements"]) == (24, 24, 1)
    assert found["failures"] == {}
    assert found["variables"][0]["unit"] == "1/mm²"
    assert seen == sorted(seen)


def test_a_cancelled_call_is_gone_on_with_by_the_next(folder: Path) -> None:
    formulas = [f"mean(ripley_l(cells.lymphoid, {radius}))" for radius in range(10, 90)]
    given = {"maps": "maps", "formulas": formulas}

    async def main() -> None:
        async with stdio(folder, "--wait", "0.2", suite="all") as client:
            job = data(await client.call_tool("measure_cohort", given))["job"]
            out = folder / "out" / "measure_cohort"
            with anyio.fail_after(60):
                while len(list(out.glob("*/.rows/measure_maps/*/run.json"))) < 3:
                    await anyio.sleep(0.05)
            assert data(await client.call_tool("job_cancel", {"job": job}))["state"] == "cancelled"
            first = {path.parent.name for path in out.glob("*/.rows/measure_maps/*/run.json")}
            again = data(await client.call_tool("measure_cohort", given))["job"]
            with anyio.fail_after(90):
                while (answer := data(await client.call_tool("job_result", {"job": again})))[
                    "state"
                ] != "done":
                    pass
            assert answer["result"]["slides"] == 24
            whole = Path(answer["result"]["table"]).parent
            records = (folder / "out" / whole).glob("measure_maps/*/run.json")
            cached = {
                path.parent.name
                for path in records
                if json.loads(path.read_text())["run"]["provenance"]["cached"]
            }
            assert cached >= first

    asyncio.run(main())
