"""What keeps strangers and floods out of a server, each bound reached through a real process."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from mcp_servers.servers.listener import BoundedListener
from mcp_servers.servers.stdio import request_id
from tests.mcp_servers.slide_tools import environment
from tests.mcp_servers.test_mcp_server import TOKEN, http_server, words
from tests.warm import run_warm

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
BEGIN = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
GOOD = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    (folder / "in").mkdir()
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """Address of a server with the defaults of HTTP, and a name that it may be called by."""
    with http_server(folder, "--allowed-host", "slides.example") as url:
        yield url


class Stdio:
    """A server process over stdio, spoken to line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.stdin, self.stdout = process, process.stdin, process.stdout

    def send(self, message: dict[str, Any]) -> None:
        self.stdin.write(json.dumps(message).encode() + b"\n")
        self.stdin.flush()

    def answer(self) -> Any:
        return json.loads(self.stdout.readline())

    def peak_mib(self) -> float:
        """Most memory that the process ever held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found.group(1)) / 1024

    def begin(self) -> None:
        self.send(BEGIN)
        assert self.answer()["result"]["serverInfo"]["name"] == "sage-oncology"
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})


@contextmanager
def stdio_server(folder: Path) -> Iterator[Stdio]:
    process = subprocess.Popen(
        [sys.executable, *words(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    assert process.stderr is not None
    noise = threading.Thread(target=process.stderr.read, daemon=True)
    noise.start()
    watch = threading.Timer(120, process.kill)  # so that a missing answer fails, not hangs
    watch.start()
    try:
        yield Stdio(process)
    finally:
        watch.cancel()
        assert process.stdin is not None
        process.stdin.close()
        try:
            assert process.wait(30) == 0  # the client hung up: an orderly end
        finally:
            process.kill()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc for peak memory")
def test_an_overlong_line_is_refused_and_never_held(folder: Path) -> None:
    flood = 64
    with stdio_server(folder) as server:
        server.begin()
        before = server.peak_mib()
        server.stdin.write(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"')
        for _ in range(flood):
            server.stdin.write(b"y" * (1 << 20))
        server.stdin.write(b'"}}\n')
        server.stdin.flush()
        refused = server.answer()
        assert refused["id"] == 7
        assert refused["error"]["code"] == -32600
        assert server.peak_mib() - before < flood / 4
        # The server goes on: the next request is answered, a broken line is not fatal.
        server.stdin.write(b"{broken\n")
        server.send({**LIST, "id": 8})
        answered = server.answer()
        assert answered["id"] == 8
        assert answered["result"]["tools"]

        # A line without an end is refused when the client hangs up.
        server.stdin.write(b'{"id":{' + b"z" * (3 << 20))
        server.stdin.flush()
        server.stdin.close()
        assert server.answer()["id"] is None
        assert server.stdout.readline() == b""


@pytest.mark.parametrize(
    ("head", "tail", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":3,"method":"m","params":{"a":"', b'xx"}}\n', 3),
        (b'{"id": "a-1", "method":"m","params": {"a":"', b'xx"}}', "a-1"),
        (b'{"method":"m","params":{"id":9,"a":"', b'xx"}, "jsonrpc": "2.0", "id": 12}\n', 12),
        (b'{"method":"m","params":{"a":"', b'"},"id":4,"jsonrpc":"2.0"}', 4),
        (b'{"method":"m","params":{"id":9,"a":"', b'xx","id":8}}', None),
        (b'{"method":"m","params":{"a":"', b'},\\"id\\":8}"}}', None),
        (b'{"params":{"a":"', b'yyyy"id":8}', None),
        (b"yyyyyyyy", b"yyyyyy", None),
    ],
)
def test_the_id_of_a_refused_request_is_its_own_or_none(
    head: bytes, tail: bytes, expected: Any
) -> None:
    assert request_id(head, tail) == expected


def test_http_refuses_a_large_body_whether_or_not_it_says_its_length(url: str) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(64):
            yield b"y" * (1 << 16)

    given = {**GOOD, "Content-Type": "application/json"}
    assert httpx.post(url, content=parts(), headers=given).status_code == 413
    assert httpx.post(url, json={"x": "y" * (1 << 21)}, headers=given).status_code == 413
    assert httpx.post(url, json=BEGIN, headers=given).status_code == 200


def test_http_listens_on_loopback_alone_by_default(url: str) -> None:
    parts = urlsplit(url)
    assert parts.hostname == "127.0.0.1"
    # 127.0.0.2 is this machine too; a server on all addresses would answer there
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", parts.port or 0), 5):
        pass


def test_http_on_all_addresses_still_needs_the_token(folder: Path) -> None:
    with http_server(folder, "--host", "0.0.0.0") as url:
        port = urlsplit(url).port
        address = f"http://127.0.0.2:{port}/mcp"
        assert httpx.post(address, json=BEGIN).status_code == 401
        assert httpx.post(address, json=BEGIN, headers=GOOD).status_code == 200


def test_an_allowed_host_is_accepted_and_others_are_not(url: str) -> None:
    asked: tuple[tuple[dict[str, str], int], ...] = (
        ({"Host": "slides.example:8443"}, 200),
        ({"Host": "slides.example", "Origin": "https://slides.example"}, 200),
        ({"Host": "slides.example.evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "slides.example", "Origin": "https://evil.example"}, 403),
    )
    for more, code in asked:
        assert httpx.post(url, json=BEGIN, headers={**GOOD, **more}).status_code == code, more


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, signed by itself, and its key."""
    x509 = pytest.importorskip("cryptography.x509", reason="cryptography is not installed")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sage test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    chain, secret = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain, secret


def test_https_with_a_certificate(folder: Path) -> None:
    chain, key = certificate(folder)
    with http_server(folder, "--tls-cert", str(chain), "--tls-key", str(key)) as url:
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=chain)
        assert httpx.post(url, json=BEGIN, headers=GOOD, verify=trusted).status_code == 200
        assert httpx.post(url, json=BEGIN, verify=trusted).status_code == 401
        with pytest.raises(httpx.ConnectError):  # an unknown signer
            httpx.post(url, json=BEGIN, headers=GOOD)
        with pytest.raises(httpx.HTTPError):  # nothing is served in the clear
            httpx.post(url.replace("https", "http"), json=BEGIN, headers=GOOD)


def test_a_certificate_that_cannot_be_used_is_refused(folder: Path) -> None:
    (folder / "no.pem").write_text("no certificate")
    for files, named in (
        (["--tls-cert", "no.pem"], "TLS"),
        (["--tls-cert", "no.pem", "--tls-key", "no.pem"], "no.pem"),
        (["--tls-cert", "gone.pem", "--tls-key", "gone.pem"], "gone.pem"),
    ):
        command = words(folder, "--transport", "http", "--port", "0", *files)[2:]
        done = run_warm(command, cwd=folder, env=environment(), timeout=60)
        assert done.returncode == 2
        assert named in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.anyio
async def test_small_answers_leave_at_once() -> None:
    """Head and body are two writes; held back, the second waits 40 ms for an acknowledgment."""
    option: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held = writer.get_extra_info("socket")
        option.set_result(held.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    bound = BoundedListener(socket.AF_INET, most=4, head_seconds=5, body_seconds=5)
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    async with await asyncio.start_server(connected, sock=bound):
        _, writer = await asyncio.open_connection("127.0.0.1", bound.getsockname()[1])
        assert await asyncio.wait_for(option, 10)
        writer.close()
