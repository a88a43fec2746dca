"""What commands contact under hostile variables: the socket layer records every attempt."""

from __future__ import annotations

import json
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from mcp_servers.roots import Roots
from mcp_servers.workers.jobs import Recipe
from mcp_servers.workers.pool import LocalPool
from sage.core import egress
from sage.core.errors import InputError
from sage.settings import load
from tests.end_to_end.harness import PROMPT, begin

RECORDER = """
import json, os, socket, sys
seen = []
def record(event, given):
    if event in ("socket.connect", "socket.sendto") and isinstance(given[-1], tuple):
        seen.append([event, str(given[-1][0]), given[-1][1]])
    elif event == "socket.getaddrinfo":
        seen.append([event, str(given[0]), given[1]])
sys.addaudithook(record)
from sage.__main__ import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["sage", *words]
    try:
        main()
    except SystemExit as ended:
        print("ended", words[0], ended.code, file=sys.stderr)
open("seen.json", "w").write(json.dumps(seen))
os._exit(0)
"""


@pytest.fixture
def trap() -> Any:
    """A port of this machine that answers nothing, and counts who came."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        yield listening


def hostile(port: int) -> dict[str, str]:
    url = f"http://127.0.0.1:{port}"
    places = (
        "LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT", "OPENAI_BASE_URL", "OPENAI_API_BASE",
        "OPENAI_PROXY", "AZURE_OPENAI_ENDPOINT", "MLFLOW_TRACKING_URI", "HF_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT", "WANDB_BASE_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
        "http_proxy", "https_proxy", "PIP_INDEX_URL",
    )  # fmt: skip
    keys = {"OPENAI_API_KEY": "sk-x", "LANGSMITH_API_KEY": "x", "LANGCHAIN_API_KEY": "x"}
    on = {"LANGSMITH_TRACING": "true", "LANGCHAIN_TRACING_V2": "true", "HF_HUB_OFFLINE": "0",
          "SENTRY_DSN": f"http://k@127.0.0.1:{port}/1", "DOCKER_HOST": f"tcp://127.0.0.1:{port}",
          "RAY_USAGE_STATS_ENABLED": "1", "RAY_ADDRESS": f"127.0.0.1:{port}",
          "PGHOSTADDR": "127.0.0.1"}  # fmt: skip
    return dict.fromkeys(places, url) | keys | on


def test_commands_contact_nothing_whatever_the_environment_says(
    trap: socket.socket, tmp_path: Path
) -> None:
    commands = [
        ["doctor"], ["admin", "config", "--json"], ["tools", "list"], ["cohort", "check", "demo"],
        ["run", PROMPT, "--auto-approve", "--hypotheses", "1", "--json"], ["show", "last"],
    ]  # fmt: skip
    given = hostile(trap.getsockname()[1])
    begin("-c", RECORDER, json.dumps(commands), cwd=tmp_path, **given).wait(240)
    assert json.loads((tmp_path / "seen.json").read_text()) == []
    with pytest.raises(TimeoutError):
        trap.accept()
    assert next((tmp_path / "runs").glob("*/report.html")).is_file()
    assert (
        json.loads(next((tmp_path / "runs").glob("*/manifest.json")).read_text())["reasoner"]
        == "rules"
    )


def test_a_confined_process_connects_only_where_a_client_of_ours_was_sent(
    trap: socket.socket, tmp_path: Path
) -> None:
    given = hostile(trap.getsockname()[1])
    program = f"""
import json, os, socket, urllib.request
from sage.core import egress
egress.confine()
ended = [not ({set(given)} & set(os.environ)) - set(egress.OFF)]
for name in ("127.0.0.1", "localhost", "10.9.8.7", "169.254.169.254"):
    for how in (
        lambda: socket.create_connection((name, {trap.getsockname()[1]}), 1),
        lambda: urllib.request.urlopen(f"http://{{name}}:{trap.getsockname()[1]}", timeout=1),
        lambda: socket.socket().connect((name, 1)),
        lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", (name, 1)),
        lambda: socket.socket(type=socket.SOCK_DGRAM).sendmsg([b"x"], (), 0, (name, 1)),
    ):
        try:
            how()
        except OSError as error:
            ended.append("may contact" in str(error))
egress.permit("http://localhost:1/v1")
socket.create_connection(("localhost", {trap.getsockname()[1]}), 1)
open("ended.json", "w").write(json.dumps(ended))
"""
    begin("-c", program, cwd=tmp_path, **given).wait(60)
    assert json.loads((tmp_path / "ended.json").read_text()) == [True] * 21


TOOL = """
import socket
from pydantic import BaseModel
from mcp_servers.spec import Resources, tool

class Place(BaseModel):
    port: int

class Ended(BaseModel):
    how: str

@tool("dial", "test", "1", "Connect.", Resources(memory_mb=64), cacheable=False)
def dial(given: Place, context: object) -> Ended:
    try:
        socket.create_connection(("127.0.0.1", given.port), 1)
    except OSError as error:
        return Ended(how=str(error))
    return Ended(how="connected")
"""


def test_a_worker_is_confined_like_the_command(trap: socket.socket, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "dial.py").write_text(TOOL)
    recipe = Recipe(tool_folders=(str(tmp_path / "tools"),))
    with LocalPool(recipe, workers=1, memory_mb=1024, gpus=0) as pool:
        roots = Roots.resolve([tmp_path], tmp_path / "out")
        ended = pool.submit("dial", {"port": trap.getsockname()[1]}, roots).result(60)
    assert "may contact" in ended.result["how"]


PRECEDENCE = [  # command line, SAGE_*, sage.toml, foreign; then address, reasoner and who chose it
    ({}, {}, "", {"OPENAI_API_KEY": "k"}, None, "rules", None),
    ({}, {}, "", {"OPENAI_BASE_URL": "http://f/v1"}, None, "rules", None),
    ({}, {"SAGE_API_KEY": "k"}, "", {}, None, "rules", None),
    ({}, {}, "allow_foreign_env = true", {"OPENAI_API_KEY": "k"}, None, "rules", None),
    ({}, {}, "allow_foreign_env = true", {"OPENAI_BASE_URL": "http://f/v1"}, "http://f/v1",
     "chat", "OPENAI_BASE_URL"),
    ({}, {}, 'allow_foreign_env = true\nbase_url = "http://t/v1"',
     {"OPENAI_BASE_URL": "http://f/v1", "OPENAI_API_KEY": "k"}, "http://t/v1", "chat", "toml"),
    ({}, {"SAGE_BASE_URL": "http://s/v1"}, 'base_url = "http://t/v1"', {}, "http://s/v1", "chat",
     "SAGE_BASE_URL"),
    ({"base_url": "http://c/v1"}, {"SAGE_BASE_URL": "http://s/v1"}, "", {}, "http://c/v1", "chat",
     None),
    ({"reasoner": "chat"}, {}, "", {"OPENAI_BASE_URL": "http://f/v1"}, None, "chat",
     "command line"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "own", "file", "others", "url", "reasoner", "chosen"), PRECEDENCE)
def test_our_own_settings_choose_where_text_goes(
    line: dict[str, Any], own: dict[str, str], file: str, others: dict[str, str], url: str | None,
    reasoner: str, chosen: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "sage.toml").write_text(file)
    monkeypatch.chdir(tmp_path)
    for name in ("SAGE_BASE_URL", "SAGE_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (own | others).items():
        monkeypatch.setenv(name, value)
    settings = load(**line)
    egress.allow_foreign(settings.allow_foreign_env)
    key = settings.api_key.get_secret_value() if settings.api_key else None
    assert (settings.base_url, settings.effective_reasoner) == (url, reasoner)
    assert settings.endpoint.address == (url or egress.OPENAI)
    if reasoner == "chat":
        assert settings.endpoint.address in settings.destination
        assert (chosen or "") in settings.destination
        with nullcontext() if url or key else pytest.raises(InputError, match="SAGE_BASE_URL"):
            settings.require_model()
    if url == "http://t/v1":
        assert key is None, "a key of another program went to our endpoint"


SECRET = "hunter2-canary"


@pytest.mark.parametrize(
    "url", [f"http://ann:{SECRET}@h/v1", f"http://{SECRET}@h/v1", f"http://h/v1?key={SECRET}",
            f"ann:{SECRET}@h/v1", f"http://h/v1#{SECRET}"]
)  # fmt: skip
@pytest.mark.parametrize("place", ["file", "variable"])
def test_a_secret_in_an_address_is_refused_and_never_repeated(
    url: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if place == "file":
        (tmp_path / "sage.toml").write_text(f'base_url = "{url}"')
    else:
        monkeypatch.setenv("SAGE_BASE_URL", url)
    with pytest.raises(InputError) as refused:
        load()
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
