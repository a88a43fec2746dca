"""The terminal while a run works and after it: progress, watching, opening, widths, completion."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
import typer

from agents.path_generation.agent import PATH_GENERATION, PathRequest
from sage.cli.app import GROUPS, app
from sage.core.llm.messages import ModelChoice
from sage.core.progress import describe_progress, listen, report_progress
from tests.end_to_end.harness import PROMPT, begin, sage
from tests.openai_server import Answer, chat_reasoner, serve
from tests.warm import Warm

GOOD = json.dumps({"sources": ["TLS"], "targets": ["FABP5"], "domain": "bladder cancer"})


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("watched")
    ended = sage("run", PROMPT, "--json", "--yes", cwd=home)
    assert ended.code == 0, ended.err
    return home


def watching(home: Path, *more: str) -> Warm:
    return begin("show", *(more or ("last",)), "--watch", cwd=home)


def test_a_run_is_followed_from_another_terminal_and_left_alone_by_who_stops(
    tmp_path: Path,
) -> None:
    process = begin("run", PROMPT, "--yes", "--json", cwd=tmp_path)
    until = time.monotonic() + 120
    while not list(tmp_path.glob("runs/2*/events.jsonl")) and time.monotonic() < until:
        time.sleep(0.02)
    leaves, stays = watching(tmp_path), watching(tmp_path)
    time.sleep(0.3)
    leaves.send_signal(signal.SIGINT)
    leaves.communicate(timeout=240)
    shown, problem = stays.communicate(timeout=240)
    told, wrong = process.communicate(timeout=240)
    assert process.returncode == 0, wrong
    assert json.loads(told)["status"] == "waiting for review"
    assert shown.index("✓ Reading the question") < shown.index("✓ Proposing hypotheses"), problem
    assert f"sage review {next((tmp_path / 'runs').glob('2*')).name}" in shown


def test_watching_ends_by_itself_where_nobody_works_and_says_what_is_next(waiting: Path) -> None:
    run = next((waiting / "runs").glob("2*"))
    shown, _ = watching(waiting, "last", "--json").communicate(timeout=120)
    assert json.loads(shown.splitlines()[0])["event"] == "run"
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"status": "running"}))
    try:
        shown, _ = watching(waiting).communicate(timeout=120)
        assert "interrupted" in shown and f"sage resume {run.name}" in shown
    finally:
        (run / "manifest.json").write_text(json.dumps(manifest))
    refused = sage("show", "no-such-run", "--watch", cwd=waiting)
    assert refused.code == 2
    assert sage("run", cwd=waiting).code == 2


def test_open_says_where_the_report_is_or_why_there_is_none(waiting: Path) -> None:
    run = next((waiting / "runs").glob("2*"))
    refused = sage("show", "--open", cwd=waiting)
    assert refused.code == 2 and f"sage review {run.name}" in refused.err
    (run / "report.html").write_text("<p>x</p>")
    try:
        for name in ((), ("last",), (run.name[:15],), (str(run),)):
            ended = sage("show", *name, "--open", cwd=waiting, DISPLAY=":0", BROWSER="false")
            assert ended.code == 2 and "report.html" in ended.err, "no step of the run wrote it"
    finally:
        (run / "report.html").unlink()
    assert sage("show", "no-such-run", "--open", cwd=waiting).code == 2


def test_there_is_one_install_completion_and_it_works_in_bash_and_zsh(tmp_path: Path) -> None:
    root = typer.main.get_command(app)
    assert [item.name for item in root.params].count("install_completion") == 1
    context = typer.Context(root, info_name="sage")
    for name in GROUPS:
        group = root.get_command(context, name)  # type: ignore[attr-defined]
        assert "install_completion" not in [item.name for item in group.params], name
    for shell, file in (("bash", ".bashrc"), ("zsh", ".zshrc")):
        home = tmp_path / shell
        home.mkdir()
        # Without the detection of the shell that runs it, the option takes the shell's name.
        named = {
            "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
            "HOME": str(home),
            "FEW_DRAWS": "",
        }
        ended = sage("--install-completion", shell, cwd=tmp_path, cold=True, **named)
        assert ended.code == 0, ended.err
        assert (home / file).is_file()
        asked = sage(cwd=tmp_path, cold=True, _SAGE_COMPLETE=f"complete_{shell}",
                     COMP_WORDS="sage coh", COMP_CWORD="1",
                     _TYPER_COMPLETE_ARGS="sage coh", FEW_DRAWS="")  # fmt: skip
        assert "cohort" in asked.out


def test_a_model_call_says_how_many_tokens_have_come(tmp_path: Path) -> None:
    heard: list[str] = []
    with serve(lambda body: Answer(GOOD)) as server:
        reasoner = chat_reasoner(server.url, tmp_path, model=ModelChoice(name="test-model"))
        with listen(lambda what, done, total: heard.append(describe_progress(what, done, total))):
            reasoner.ask(PATH_GENERATION, PathRequest(prompt="TLS and FABP5"))
        quiet = len(heard)
        report_progress("nobody listens any more")
    assert any("tokens so far" in text for text in heard)
    assert len(heard) == quiet
