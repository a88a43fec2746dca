"""`measure_cohort` over MCP: progress, refusals, and the table in an analysis."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

from tests.mcp_servers.measures.test_over_cohort import simulated, write_all
from tests.mcp_servers.test_mcp_oncology import small_cohort
from tests.mcp_servers.test_mcp_server import connected, data

pytestmark = pytest.mark.anyio


async def test_a_cohort_is_measured_and_analyzed(tmp_path: Path) -> None:
    slides = [simulated(f"p{n:02d}", f"p{n:02d}", n, 100 + 5 * n) for n in range(24)]
    write_all(tmp_path / "in" / "maps", slides)
    rows = [(f"p{n:02d}", "ab"[n % 2], 100 + n, n % 2) for n in range(24)]
    small_cohort(tmp_path / "in" / "c", rows)
    seen: list[float] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with connected(tmp_path) as client:
        given = {"cohort": "c", "maps": "maps", "formulas": ["pooled(density(cells.lymphoid))"]}
        answer = await client.call_tool("measure_cohort", given, progress_callback=heard)
        found = data(answer)["result"]
        files = {file["path"]: file["uri"] for file in data(answer)["files"]}
        for kept in ("table", "validity"):  # rows of patients stay on the server
            with pytest.raises(MCPError):
                await client.read_resource(files[found[kept]])
        text = (await client.read_resource(files[found["columns"]])).contents[0].text
        assert "lymphoid cells per mm²" in text
        assert "p07" not in f"{answer.model_dump_json()}{text}"
        test = await client.call_tool(
            "logrank",
            {"cohort": "c", "endpoint": "OS", "group": found["variables"][0]["key"],
             "cut": "median", "tables": [found["table"]]},
        )  # fmt: skip
        counts = [group["n"] for group in data(test)["result"]["groups"]]
        assert all(n % 5 == 0 for n in counts) and abs(sum(counts) - 24) <= 5
        for wrong, said in (
            ({"cohort": "c"}, "slides or maps"),
            ({"cohort": "c", "maps": "maps", "formulas": ["nothing(cells)"]}, "line 1"),
            ({"cohort": "gbsg2", "maps": "maps"}, "patient"),
            ({"cohort": "../x", "maps": "maps"}, "outside"),
            ({"cohort": "c", "maps": "/etc"}, "outside"),
        ):
            refused = await client.call_tool("measure_cohort", wrong)
            assert refused.is_error
            assert said in refused.content[0].text
            assert str(tmp_path) not in refused.content[0].text
        kept = list((tmp_path / "out" / "measure_cohort").iterdir())
        assert len(kept) == 1  # none of a refused one
    assert (found["patients"], found["slides"], found["measurements"]) == (24, 24, 1)
    assert found["failures"] == {}
    assert found["variables"][0]["unit"] == "1/mm²"
    assert seen == sorted(seen)
