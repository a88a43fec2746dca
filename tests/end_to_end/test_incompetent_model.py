"""Runs by a model that is of no use: a server of nonsense, and a real language model of 135M.

Its science is nonsense. That is the point: an honest system with an incompetent model ends by
itself and gives an honest report, which names where the model failed and what stood in.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.harness import REPO, die, sage
from tests.openai_server import Answer, serve

PROMPT = "Does CXCL13 expression relate to overall survival in bladder cancer?"
PLACE = Path(os.environ.get("SAGE_TEST_MODEL", "/opt/sage-model"))
SERVER = """
import sys, time
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.port, params.n_ctx, params.n_parallel = (
    sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), 1
)
# Threads that wait for each other on a busy machine take ten times as long as a single one.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
while True:
    time.sleep(60)
"""
CONTEXT = 1280
"""Tokens; longer prompts are not sent, which bounds the time on a small machine."""
ROLES = ("nano", "mini", "high")
REFUSED = "written by the model m, not checked"
"""What a question is refused with that the model takes for none, before its own words."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def _settings(url: str, **more: Any) -> str:
    models = {"name": "m", "max_tokens": 120, "context": CONTEXT, "temperature": 0, **more}
    listed = ", ".join(f"{name} = {json.dumps(value)}" for name, value in models.items())
    roles = "\n".join(f"{role} = {{ {listed} }}" for role in ROLES)
    return f'reasoner = "chat"\nbase_url = "{url}"\nrepairs = 1\n[models]\n{roles}\n'


ASKED = ("run", PROMPT, "--cohort", "demo", "--hypotheses", "1", "--auto-approve")


def _check_report(folder: Path, steps: int) -> None:
    (run,) = (folder / "runs").iterdir()
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["status"] == "finished" and manifest["reasoner"] == "chat"
    report = (run / "report.md").read_text()
    assert "The model failed" in report
    shown = json.loads(sage("show", "last", "--json", cwd=folder).out)["result"]
    assert len(shown["stood_in"]) >= steps
    assert shown["hypotheses"][0]["answer"]["verdict"]


def test_a_run_by_a_server_of_nonsense_ends_in_a_report_that_says_so(tmp_path: Path) -> None:
    """The run is killed before its interpretation, and goes on without asking anything again."""
    with serve(lambda body: Answer('{"because": "I said so"}')) as server:
        (tmp_path / "sage.toml").write_text(_settings(server.url, context=32_768))
        die("start", "interpreter", *ASKED, cwd=tmp_path)
        (spending,) = tmp_path.glob("runs/2*/spending.jsonl")
        paid = spending.read_text()
        done = sage("resume", "last", cwd=tmp_path)
    assert done.code == 0, done.err
    _check_report(tmp_path, steps=5)
    assert spending.read_text().startswith(paid)
    told = spending.read_text().removeprefix(paid).splitlines()
    assert {json.loads(line)["node"] for line in told} == {"interpreter", "summary"}
    # What `sage show` counts is what the server counted, repairs and refused replies included.
    reply = len(json.dumps({"role": "assistant", "content": '{"because": "I said so"}'})) // 4
    served = [len(json.dumps(body["messages"])) // 4 for body in server.requests]
    spent = sage("show", "last", "--json", cwd=tmp_path).json["spending"]
    assert sum(row["prompt_tokens"] for row in spent) == pytest.approx(sum(served), rel=0.03)
    assert sum(row["completion_tokens"] for row in spent) == pytest.approx(
        reply * len(served), rel=0.03
    )


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    if not (PLACE / "model.gguf").is_file():
        pytest.skip(f"there is no language model in {PLACE} (.ci/model puts one there)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    python = PLACE / "venv" / "bin" / "python"
    line = [str(python), "-c", SERVER, str(PLACE / "model.gguf"), str(port), str(CONTEXT)]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(f"{url}/health", timeout=2).close()
                    break
                except (urllib.error.URLError, ConnectionError, TimeoutError):
                    time.sleep(0.2)
            yield f"{url}/v1"
        finally:
            server.kill()


def _check_campaign(folder: Path, steps: int) -> None:
    """A round ended in a finding of SAGE's own, and the notebook names what the model failed at."""
    told = json.loads((folder / "campaign" / "notebook.json").read_text())
    (finding,) = told["findings"]
    assert len(finding["stood_in"]) >= steps
    assert finding["came"] == "dead end" or finding["verdict"]
    page = (folder / "campaign" / "notebook.md").read_text()
    assert finding["came"] == "dead end" or "The model failed" in page
    assert "The model failed" in (folder / "campaign" / "round-1" / "report.md").read_text()


CAMPAIGN = ("campaign", PROMPT, "--cohort", "demo", "--rounds", "1", "--hypotheses", "1",
            "--auto-approve", "--yes", "--out", "campaign", "--json")  # fmt: skip


def test_a_campaign_by_a_server_of_nonsense_says_so_in_its_notebook(tmp_path: Path) -> None:
    with serve(lambda body: Answer('{"because": "I said so"}')) as server:
        (tmp_path / "sage.toml").write_text(_settings(server.url))
        done = sage(*CAMPAIGN, cwd=tmp_path)
    assert done.code == 0, done.err
    _check_campaign(tmp_path, steps=5)


def test_a_campaign_round_by_a_real_model_ends_by_itself_within_its_budget(
    model: str, tmp_path: Path
) -> None:
    priced = {"price_in": 1.0, "price_out": 1.0, "max_tokens": 60}
    (tmp_path / "sage.toml").write_text(_settings(model, **priced))
    begun = time.monotonic()
    done = sage(*CAMPAIGN, "--budget-usd", "0.05", cwd=tmp_path, timeout=800)
    assert done.code == 0, done.err
    assert time.monotonic() - begun < 800
    _check_campaign(tmp_path, steps=1)
    lines = (tmp_path / "campaign" / "round-1" / "spending.jsonl").read_text().splitlines()
    assert 0 < sum(json.loads(line)["usd"] for line in lines) <= 0.05


def test_a_model_without_eyes_reads_no_slide(model: str, tmp_path: Path) -> None:
    from benchmarks.simulate.scenes import render_scene

    (tmp_path / "sage.toml").write_text(f"vision = true\n{_settings(model)}")
    render_scene(tmp_path / "slide.tiff", seed=1, size_px=1024)
    ask = ("reading", "read", "slide.tiff", "Where is the tumor?", "--eyes", "model")
    begun = time.monotonic()
    done = sage(*ask, cwd=tmp_path)
    assert done.code == 2 and "--eyes model" in done.err, done.err
    assert "patches" not in done.out and "Answer" not in done.out
    assert time.monotonic() - begun < 120
    assert not (tmp_path / "slide.reading").exists()


def test_estimate_and_doctor_say_what_a_small_model_can_hold(model: str, tmp_path: Path) -> None:
    """Before anything is paid: whose prompts fit, and no number that cannot come about."""
    (tmp_path / "sage.toml").write_text(_settings(model))
    rows = sage(*ASKED, "--estimate", "--json", cwd=tmp_path).json["agents"]
    fits = {row["agent"]: row["fits"] for row in rows}
    assert fits["scientist"] == "no" and fits["path_generation"] == "whole"
    for row in rows:
        assert row["prompt_tokens"] <= row["prompt_tokens_most"] <= row["room"] * row["calls_most"]
        assert row["completion_tokens"] <= row["completion_tokens_most"] <= 120 * row["calls_most"]
        assert (row["calls_most"] == 0) == (row["fits"] == "no")
    # The server, not sage.toml, says how long a context is.
    roles = "\n".join(f'{role} = {{ name = "m", max_tokens = 120 }}' for role in ROLES)
    (tmp_path / "sage.toml").write_text(
        f'reasoner = "chat"\nbase_url = "{model}"\n[models]\n{roles}\n'
    )
    checks = sage("doctor", "--probe", "--json", cwd=tmp_path).json["checks"]
    (found,) = [check for check in checks if check["what"] == "reasoner"]
    assert found["state"] == "missing"
    said = found["remedy"]
    assert f"{CONTEXT:,}" in said and "scientist" in said and "path_generation" not in said
    assert not (tmp_path / "runs").exists()


def test_a_real_model_reads_a_question(model: str, tmp_path: Path) -> None:
    (tmp_path / "sage.toml").write_text(_settings(model))
    done = sage("ask", PROMPT, "--cohort", "demo", "--json", cwd=tmp_path)
    assert done.code == 0 or (done.code == 2 and REFUSED in done.err), done.err


def test_a_real_model_reads_abstracts_and_adds_nothing_that_they_do_not_say(
    model: str, tmp_path: Path
) -> None:
    """An edge of the graph holds a sentence of its paper, however little the model understood."""
    paper = min((REPO / "data" / "corpus").glob("*.md"), key=lambda it: it.stat().st_size)
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / paper.name).write_text(paper.read_text())
    (tmp_path / "sage.toml").write_text(_settings(model, max_tokens=60))
    build = ("kg", "build", "papers", "--out", "graph", "--extractor", "chat", "--yes", "--json")
    built = sage(*build, cwd=tmp_path)
    assert "Traceback" not in built.err
    report = built.json
    assert report["documents"] == 1
    kept, dropped = report["triples"], sum(report["dropped"].values())
    assert kept + dropped + report["chunks_failed"] > 0 and report["prompt_tokens"] > 0
    text = " ".join(paper.read_text().split())
    for file in (tmp_path / "graph").glob("*.jsonl") if kept else ():
        for line in file.read_text().splitlines():
            for evidence in json.loads(line).get("evidence") or ():
                assert " ".join(evidence["text"].split()) in text
