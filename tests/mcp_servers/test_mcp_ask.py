"""`sage tools ask`: with rules, with a model behind an OpenAI-compatible endpoint, with servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SURVIVAL = {"cohort": "gbsg2", "endpoint": "RFS", "group": "clinical:hormonal_therapy"}
TOKEN = "a-token-of-the-tests-0123456789"


def ask(request: str, cwd: Path, *more: str, **variables: str) -> subprocess.CompletedProcess[str]:
    settings = [word for key, value in SURVIVAL.items() for word in ("--set", f"{key}={value}")]
    words = ["-m", "sage", "tools", "ask", request, *settings, "--workers", "1", "--json", *more]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "SAGE_"))}
    env = {**clean, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=cwd, env=env, timeout=120
    )


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def endpoint(content: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An OpenAI-compatible endpoint on loopback that always says the same."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            message = {"role": "assistant", "content": content}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
            text = json.dumps({**body, "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: Any) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()


def test_rules_carry_out_a_registered_composition(tmp_path: Path) -> None:
    done = answer(ask("compare the survival of treated and untreated", tmp_path))
    assert done["method"] == "composition"
    assert [one["tool"] for one in done["steps"]] == ["kaplan_meier", "logrank"]
    assert (tmp_path / "sage-output" / done["steps"][0]["files"][0]).is_file()


def test_the_plan_alone_runs_nothing(tmp_path: Path) -> None:
    plan = answer(ask("logrank test of the groups", tmp_path, "--plan"))
    assert [one["tool"] for one in plan["steps"]] == ["logrank"]
    assert plan["method"] == "descriptions"


def test_a_model_plans_and_sees_no_patient(tmp_path: Path) -> None:
    plan = {"steps": [{"id": "a", "tool": "logrank", "arguments": SURVIVAL, "why": "the test"}]}
    with endpoint(json.dumps(plan)) as (url, asked):
        variables = {"SAGE_BASE_URL": url, "SAGE_API_KEY": "none"}
        done = answer(ask("is hormone therapy any good?", tmp_path, **variables))
    assert done["method"] == "model"
    assert done["steps"][0]["result"]["df"] == 1
    said = json.dumps(asked)
    assert "Compare the survival of groups by the log-rank test" in said
    assert "P0001" not in said


@pytest.mark.parametrize("token", [TOKEN, "a-wrong-token-0123456789"])
def test_tools_of_another_server_are_used_with_its_token(tmp_path: Path, token: str) -> None:
    (tmp_path / "in").mkdir()
    words = ["-m", "sage", "mcp", "serve", "oncology", "--transport", "http", "--port", "0"]
    words += ["--root", str(tmp_path / "in"), "--out", str(tmp_path / "remote"), "--workers", "1"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SAGE_MCP_TOKEN": TOKEN}
    server = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True, env=env)
    assert server.stderr is not None
    try:
        url = next(filter(None, (re.search(r"http://\S+", line) for line in server.stderr)))[0]
        done = ask(
            "compare survival between the arms", tmp_path, "--server", url, SAGE_MCP_TOKEN=token
        )
    finally:
        server.terminate()
        server.wait(20)
        server.stderr.close()
    if token != TOKEN:
        assert done.returncode == 1
        assert f"MCP server {url} does not answer" in done.stderr
        return
    found = answer(done)
    assert {one["provenance"]["server"] for one in found["steps"]} == {url}
    assert (tmp_path / "remote" / found["steps"][0]["files"][0]).is_file()
