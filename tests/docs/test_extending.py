"""The package of docs/extending.md, built from its blocks, installed, and used."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.end_to_end.harness import REPO, Done, environment, sage
from tests.sage.web.pages import Served, browser_marks, looking, serving

BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PYTHONPATH with the example package."""
    folder = tmp_path_factory.mktemp("example")
    text = (REPO / "docs" / "extending.md").read_text(encoding="utf-8")
    for name, block in BLOCK.findall(text):
        file = folder / "source" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation",
         "--no-index", "--target", str(folder / "target"), str(folder / "source")],
        check=True,
    )  # fmt: skip
    return os.pathsep.join([str(folder / "target"), str(REPO), str(REPO / "plugins")])


def run(installed: str, cwd: Path, *words: str) -> Done:
    done = sage(*words, cwd=cwd, PYTHONPATH=installed)
    assert done.code == 0, done.err
    return done


def test_tool_and_command_from_the_command_line(installed: str, tmp_path: Path) -> None:
    counted = run(installed, tmp_path, "tools", "run", "cell_ratio", "--set", "first=3", "--set",
                  "second=4", "--json")  # fmt: skip
    assert '"ratio": 0.75' in counted.out
    assert run(installed, tmp_path, "cell-ratio", "show", "3", "4").out.strip() == "0.75"


@pytest.mark.parametrize(
    ("suite", "tool", "given", "expected"),
    [
        ("cell-ratio", "cell_ratio", {"first": 3, "second": 4}, {"ratio": 0.75}),
        ("agents", "titler", {"text": "Dense stroma. Few."}, {"title": "Dense stroma"}),
    ],
)
def test_tool_and_agent_over_mcp(
    installed: str, tmp_path: Path, suite: str, tool: str, given: Any, expected: Any
) -> None:
    words = ["-m", "sage", "tools", "serve", suite, "--root", str(tmp_path),
             "--out", str(tmp_path / "out"), "--workers", "1", "--full"]  # fmt: skip
    parameters = StdioServerParameters(
        command=sys.executable, args=words, env=environment(PYTHONPATH=installed)
    )

    async def call() -> Any:
        async with Client(parameters) as client:
            assert tool in {listed.name for listed in (await client.list_tools()).tools}
            return await client.call_tool(tool, given)

    answer = asyncio.run(call())
    assert not answer.is_error
    found = json.loads(answer.content[0].text)
    assert expected.items() <= found.items() or expected.items() <= found["result"].items()


@pytest.fixture(scope="module")
def served(installed: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served"), PYTHONPATH=installed) as server:
        yield server


def test_page_over_http(served: Served) -> None:
    token = served.address.partition("token=")[2]
    with httpx.Client(base_url=served.origin, headers={"authorization": f"Bearer {token}"}) as http:
        pages = {page["path"]: page for page in http.get("/api/here").json()["pages"]}
        script = http.get(pages["/cell-ratio"]["script"])
        assert script.status_code == 200 and "CellRatio" in script.text
        assert script.headers["content-type"].startswith("text/javascript")
        assert "script-src 'self'" in script.headers["content-security-policy"]
        assert http.get("/static/plugins/cell-ratio/page.py").status_code == 422
        assert http.get("/static/plugins/cell-ratio/../app.js").status_code in (404, 422)
        assert http.get("/static/plugins/unknown/page.js").status_code == 422
        found = http.get("/api/cell-ratio", params={"first": 3, "second": 4})
        assert found.json() == {"ratio": 0.75}


class TestInABrowser:
    """The page is linked, loaded and drawn."""

    pytestmark = browser_marks

    def test_page_in_a_browser(self, served: Served) -> None:
        with looking() as page:
            page.goto(served.address)
            page.click("nav a[href='/cell-ratio']")
            page.wait_for_selector("#ratio:has-text('0.75')")
            assert page.title() == "Cell ratio · SAGE"
