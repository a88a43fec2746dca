"""Strangers at the MCP server's door: connections left open, forged names, what errors tell."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from mcp_servers.roots import Roots, hide_folders
from mcp_servers.servers.gate import Gate, pass_on
from mcp_servers.servers.listener import BoundedListener
from mcp_servers.servers.options import HttpOptions
from mcp_servers.servers.serve import serve_http
from mcp_servers.servers.start import open_server
from tests.mcp_servers.test_mcp_hardening import BEGIN, GOOD, certificate
from tests.mcp_servers.test_mcp_server import TOKEN, TOOLS, http_server

FILES, FLOOD = 300, 330
"""Files that a server may open, and connections that strangers open."""
HEAD = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"
ADMITTED = HEAD + f"Authorization: Bearer {TOKEN}\r\n".encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server process, with the usual bounds."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "in").mkdir()
    with files_limited_to(FILES), http_server(folder) as url:
        yield url


@contextlib.contextmanager
def files_limited_to(wanted: int) -> Iterator[None]:
    """Let this process, and what it starts, open so many files, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def flood(url: str, first_bytes: bytes) -> Iterator[None]:
    """Open connections, say `first_bytes` on each, and then nothing more."""
    parts = urlsplit(url)
    with files_limited_to(FLOOD + 500), contextlib.ExitStack() as stack:
        for _ in range(FLOOD):
            connection = socket.create_connection((parts.hostname, parts.port), 10)
            stack.callback(connection.close)
            with contextlib.suppress(OSError):  # it may have had to make room already
                connection.send(first_bytes)
        yield


@pytest.mark.parametrize(
    "first_bytes",
    [
        b"",
        HEAD,
        HEAD + b"Authorization: Bearer wrong-wrong-wrong-wrong\r\nContent-Length: 9\r\n\r\n{",
    ],
    ids=["silent", "half a head", "wrong token"],
)
def test_a_flood_without_the_token_does_not_lock_out_its_holder(
    server: str, first_bytes: bytes
) -> None:
    with flood(server, first_bytes):
        for _ in range(2):
            answer = httpx.post(server, json=BEGIN, headers=GOOD, timeout=20)
            assert answer.status_code == 200
            assert answer.elapsed.total_seconds() < 5


def test_a_flood_of_unfinished_handshakes_does_not_lock_out_either(folder: Path) -> None:
    chain, key = certificate(folder)
    with (
        files_limited_to(FILES),
        http_server(folder, "--tls-cert", str(chain), "--tls-key", str(key)) as url,
        flood(url, b"\x16\x03\x01"),
    ):
        trusted = ssl.create_default_context(cafile=chain)
        answer = httpx.post(url, json=BEGIN, headers=GOOD, verify=trusted, timeout=20)
        assert answer.status_code == 200


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A real server in a thread whose deadlines are short: half a second each."""
    folder = tmp_path_factory.mktemp("impatient")
    (folder / "in").mkdir()
    ready: list[str] = []
    told = threading.Event()
    options = HttpOptions(port=0, token=TOKEN, connections=4, head_seconds=0.5, body_seconds=0.5)

    def tell(url: str) -> None:
        ready.append(url)
        told.set()

    def serve() -> None:
        roots = Roots.resolve([folder / "in"], folder / "out")
        with open_server("oncology", roots, workers="1", tool_folders=(TOOLS,)) as server:
            serve_http(server, options, tell)

    threading.Thread(target=serve, daemon=True).start()
    assert told.wait(60)
    parts = urlsplit(ready[0])
    assert parts.hostname and parts.port
    yield parts.hostname, parts.port


def seconds_until_closed(connection: socket.socket, trickle: bytes) -> float:
    """Send one byte of `trickle` every 50 ms until the server hangs up, at most 10 s."""
    started = time.monotonic()
    connection.settimeout(0.05)
    for byte in trickle * 200:
        if time.monotonic() - started > 10:
            break
        try:
            connection.send(bytes([byte]))
            while connection.recv(4096):
                pass
            break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - started


TRICKLES = {
    "line": (b"", b"POST /mcp HTTP/1.1\r\n"),
    "headers": (HEAD, b"X-Slow: y\r\n"),
    "body without token": (HEAD + b"Content-Length: 900000\r\n\r\n", b" "),
    "body with token": (ADMITTED + b"Content-Length: 900000\r\n\r\n", b" "),
    "after the refusal": (HEAD + b"Content-Length: 0\r\n\r\n", b"G"),
}


def test_a_connection_that_trickles_is_closed_by_its_deadline(impatient: tuple[str, int]) -> None:
    for name, (first_bytes, trickle) in TRICKLES.items():
        with socket.create_connection(impatient, 5) as connection:
            connection.send(first_bytes)
            assert seconds_until_closed(connection, trickle) < 5, name


def test_an_answer_may_take_longer_than_the_deadlines(impatient: tuple[str, int]) -> None:
    call = {
        "jsonrpc": "2.0",
        "id": 5,
        "method": "tools/call",
        "params": {"name": "wait", "arguments": {"seconds": 1}},
    }
    with httpx.Client(base_url="http://{}:{}".format(*impatient), headers=GOOD) as client:
        began = client.post("/mcp", json=BEGIN, timeout=20)
        assert began.status_code == 200
        session = {"mcp-session-id": began.headers.get("mcp-session-id", "")}
        client.post(
            "/mcp", headers=session, json={"jsonrpc": "2.0", "method": "notifications/initialized"}
        )
        answer = client.post("/mcp", json=call, headers=session, timeout=30)
        assert answer.status_code == 200
        assert '"state": "done"' in answer.text or '\\"state\\": \\"done\\"' in answer.text


def test_known_connections_are_the_last_to_make_room(impatient: tuple[str, int]) -> None:
    """Four places: a holder's waiting connection stays while strangers push each other out."""
    holder = http.client.HTTPConnection(*impatient, timeout=5)
    holder.request("POST", "/mcp", json.dumps(BEGIN), GOOD | {"Content-Type": "application/json"})
    assert holder.getresponse().read()
    place = holder.sock
    strangers = [socket.create_connection(impatient, 5) for _ in range(12)]
    time.sleep(0.1)
    holder.request("GET", "/nothing", headers=GOOD)
    assert holder.getresponse().status == 404
    assert holder.sock is place, "the connection had to be opened anew"
    for connection in (holder, *strangers):
        connection.close()


# --- Host and Origin ---


def verdict(options: HttpOptions, **headers: str | list[str]) -> int:
    """The status with which a request with these headers is refused, 200 when it may pass."""
    given: list[tuple[bytes, bytes]] = []
    for name, values in headers.items():
        for value in [values] if isinstance(values, str) else values:
            given.append((name.lower().encode(), value.encode("latin-1")))
    refused = Gate(None, options).refusal(given)
    return 200 if refused is None else refused[0]


LOCAL = HttpOptions()
NAMED = HttpOptions(token=TOKEN, allowed_hosts=("slides.example", "lab.example:8443"))


def test_a_host_that_only_looks_like_this_machine_is_refused() -> None:
    for host in (
        "", "evil.example", "localhost.evil.example", "localhost:80.evil.example",
        "localhost:evil.example", "localhost:8765@evil.example", "localhost:", "localhost:0",
        "localhost:99999", "localhost:8765:8765", "localhost.", "127.0.0.1.evil.example",
        "127.0.0.1:8765/", "127.0.0.1, evil.example", "[::1", "::1", "[::1]evil", "[::1%25eth0]",
        "[::1]:x", "0x7f000001", "127.1", "2130706433", "localhost\t", " localhost", "LOCALHOST#",
        "evil.example:localhost", "localhosts", "local\xadhost",
    ):  # fmt: skip
        assert verdict(LOCAL, Host=host) == 421, host
    for host in (
        "localhost", "LocalHost:9", "127.0.0.1", "127.0.0.1:8765", "[::1]", "[0:0::1]:8765"
    ):  # fmt: skip
        assert verdict(LOCAL, Host=host) == 200, host


def test_two_hosts_or_none_are_refused() -> None:
    assert verdict(LOCAL) == 421
    assert verdict(LOCAL, Host=["localhost", "localhost"]) == 421
    assert verdict(LOCAL, Host=["localhost", "evil.example"]) == 421


def test_a_page_from_elsewhere_is_refused() -> None:
    for origin in (
        "null", "", "http://evil.example", "http://localhost.evil.example", "localhost:8765",
        "http://localhost:8765.evil.example", "http://localhost:8765@evil.example",
        "http://user@localhost:8765", "file://", "http://localhost:3000", "http://localhost",
        "https://localhost", "http://localhost:8765/path", "javascript://localhost:8765",
        "http://127.0.0.1:8765", "http://localhost:8765 http://evil.example",
        "HTTP//localhost:8765",
    ):  # fmt: skip
        assert verdict(LOCAL, Host="localhost:8765", Origin=origin) == 403, origin


def test_a_page_of_the_same_host_and_port_may_call() -> None:
    assert verdict(LOCAL, Host="localhost:8765", Origin="http://localhost:8765") == 200
    assert verdict(LOCAL, Host="[::1]:8765", Origin="http://[0::1]:8765") == 200
    assert verdict(LOCAL, Host="localhost", Origin="http://localhost:80") == 200
    two = ["http://localhost:8765", "http://evil.example"]
    assert verdict(LOCAL, Host="localhost:8765", Origin=two) == 403


def test_named_hosts_are_compared_with_host_and_port() -> None:
    """401 means that host and origin passed, and the token is asked for."""
    for host, origin, status in (
        ("slides.example", "https://slides.example", 401),
        ("slides.example:444", "https://slides.example:444", 401),
        ("lab.example:8443", "https://lab.example:8443", 401),
        ("lab.example", "", 421),
        ("lab.example:8444", "", 421),
        ("lab.example:84430", "", 421),
        ("slides.example.evil.example", "", 421),
        ("xslides.example", "", 421),
        ("slides.example:443@evil.example", "", 421),
        ("slides.example", "https://slides.example:443.evil.example", 403),
        ("slides.example", "https://xslides.example", 403),
        ("slides.example", "https://lab.example:8443", 401),
        ("slides.example", "https://lab.example:8444", 403),
    ):
        more = {"Origin": origin} if origin else {}
        assert verdict(NAMED, Host=host, **more) == status, (host, origin)


def test_an_allowed_host_that_is_none_is_refused_at_the_start() -> None:
    for name in ("a b", "http://x", "x:0", "x:y", "[::g]", "x/y", "@x", "*"):
        with pytest.raises(ValueError, match=re.escape(name)):
            HttpOptions(allowed_hosts=(name,)).check()


# --- paths ---


def call(client: httpx.Client, url: str, name: str, arguments: dict[str, Any]) -> str:
    """The whole answer of a tool call, as text."""
    body = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }  # fmt: skip
    answer = client.post(url, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_no_answer_tells_where_the_roots_lie_and_nothing_is_made_for_nothing(folder: Path) -> None:
    (folder / "in" / "broken.csv").write_text("a,b\n1,2,3\n")
    (folder / "in" / "no.png").write_text("no image")
    (folder / "in" / "torn").mkdir()
    (folder / "in" / "torn" / "cohort.toml").write_text("[")
    (folder / "out" / "held").mkdir(parents=True)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("preview", {"slide": "no.png"}),
        ("preview", {"slide": "../secret"}),
        ("preview", {"slide": "gone.png"}),
        ("preview", {"slide": "/etc/passwd"}),
        ("describe_cohort", {"cohort": "torn"}),
        ("describe_cohort", {"cohort": "gbsg2"}),
        ("describe_cohort", {"cohort": "no-such-cohort"}),
        ("kaplan_meier", {"cohort": "gbsg2", "endpoint": "OS"}),
    ]
    own = {".cache", ".jobs"}  # of the server: what it keeps, and what is under way
    before = {path for path in (folder / "out").rglob("*") if own.isdisjoint(path.parts)}
    with http_server(folder) as url, httpx.Client(headers=GOOD) as client:
        began = client.post(url, json=BEGIN)
        client.headers["mcp-session-id"] = began.headers.get("mcp-session-id", "")
        client.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        for name, arguments in calls:
            assert str(folder) not in call(client, url, name, arguments)
    after = {path for path in (folder / "out").rglob("*") if own.isdisjoint(path.parts)}
    assert after == before
    assert not list((folder / "out" / ".jobs").glob("*"))


def test_paths_are_shortened_to_the_names_of_their_folders(tmp_path: Path) -> None:
    data, longer = tmp_path / "data", tmp_path / "data-more"
    said = f"{data}/a.csv: no; {longer}/b.csv, '{data}', {data}. {{{data}: 1}} x{data}/c {data}.d/e"
    hidden = hide_folders({"k": [said, 3, None]}, [data])["k"][0]
    assert hidden == (
        f"data/a.csv: no; {longer}/b.csv, 'data', data. {{data: 1}} x{data}/c {data}.d/e"
    )


@contextlib.contextmanager
def plain_server(most: int) -> Iterator[tuple[str, int]]:
    """A listener of `most` places with an application of streams (GET) and short answers (POST)."""
    import uvicorn

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        while scope["method"] == "POST" and (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        body = {"type": "http.response.body", "body": b"x" * 8, "more_body": True}
        await send(body)
        while scope["method"] == "GET" and (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        person = dict(scope["headers"])[b"x-user"].decode()
        await pass_on(answer, bound, scope | {"state": {"person": person}}, receive, send)

    bound = BoundedListener(socket.AF_INET, most=most, head_seconds=30, body_seconds=1)
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="critical", loop="asyncio", lifespan="off")
    )
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    try:
        yield bound.getsockname()
    finally:
        server.force_exit = server.should_exit = True
        thread.join(10)
        bound.close()


def begin(place: tuple[str, int], who: str, method: str = "GET", more: str = "") -> socket.socket:
    """Send the head of a request, or with an empty name nothing at all."""
    link = socket.create_connection(place, timeout=10)
    if who:
        link.sendall(f"{method} / HTTP/1.1\r\nHost: x\r\nX-User: {who}\r\n{more}\r\n".encode())
    return link


FLOODS: dict[str, tuple[int, tuple[str, ...]]] = {
    "streams": (300, ("ann",)),
    "half-open": (1000, ("",)),
    "trickling bodies": (300, ("ann", "POST", "Content-Length: 999\r\n")),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_one_person_takes_no_place_of_another(flood: str) -> None:
    """Bob's stream stays open throughout, and what he sends is answered at once."""
    count, request = FLOODS[flood]
    with files_limited_to(8192), plain_server(256) as place, contextlib.ExitStack() as kept:
        stream = kept.enter_context(begin(place, "bob"))
        assert b"200" in stream.recv(1000)
        links = []
        for _ in range(count):
            links.append(kept.enter_context(begin(place, *request)))
            if "POST" in request:
                links[-1].sendall(b"x")
        for _ in range(5):
            began = time.monotonic()
            with begin(place, "bob", "POST", "Content-Length: 0\r\nConnection: close\r\n") as link:
                assert b"200" in link.recv(1000)
            assert time.monotonic() - began < 2
        stream.settimeout(0.1)
        with contextlib.suppress(TimeoutError):
            while part := stream.recv(1000):
                assert part
            pytest.fail("bob's stream was closed")
        if "POST" in request:  # whoever trickles is ended though a byte comes now and then
            deadline = time.monotonic() + 5
            links[-1].settimeout(0.3)
            ended = False
            while not ended and time.monotonic() < deadline:
                try:
                    links[-1].sendall(b"x")
                    ended = links[-1].recv(10) == b""
                except TimeoutError:
                    continue
                except OSError:
                    ended = True
            assert ended
