"""Two raylets in network namespaces of their own: one is killed while it works, then the other."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
HEAD, NODE = "10.211.7.2", "10.211.7.3"

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("ray", "grpc"))),
        reason="the extra sage-pathology[ray] is missing",
    ),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare"))),
        reason="network namespaces need root, ip (iproute2) and unshare",
    ),
]


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@dataclass
class Cluster:
    """Namespaces: `here` with the bridge and the driver, one for the head, one for the node."""

    folder: Path
    name: str = field(default_factory=lambda: f"sage{secrets.token_hex(3)}")
    environment: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def lay(self) -> None:
        ip("netns", "add", f"{self.name}-here")
        for words in (
            ("link", "add", "br0", "type", "bridge"),
            ("link", "set", "br0", "up"),
            ("link", "set", "lo", "up"),
            ("addr", "add", "10.211.7.1/24", "dev", "br0"),
        ):
            ip("-n", f"{self.name}-here", *words)
        for place, address in (("head", HEAD), ("node", NODE)):
            there = f"{self.name}-{place}"
            ip("netns", "add", there)
            ends = ("link", "add", place, "type", "veth", "peer", "name", "eth0", "netns", there)
            ip("-n", f"{self.name}-here", *ends)
            ip("-n", f"{self.name}-here", "link", "set", place, "master", "br0", "up")
            ip("-n", there, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", there, "link", "set", "eth0", "up")
            ip("-n", there, "link", "set", "lo", "up")

    def start(self, place: str, *command: str, wait_for: str | None = None) -> Any:
        """A process in a namespace; its output goes to a file where a word of it is awaited."""
        log = self.folder / f"{place}.log"
        with log.open("w") as stream:
            process = subprocess.Popen(
                ["ip", "netns", "exec", f"{self.name}-{place}", *command],
                stdin=subprocess.PIPE,
                stdout=stream if wait_for else subprocess.PIPE,
                stderr=subprocess.STDOUT if wait_for else None,
                text=True,
                cwd=ROOT,
                env=os.environ | self.environment,
                start_new_session=True,
            )
        self.started.append(process)
        until = time.monotonic() + 120
        while wait_for and wait_for not in log.read_text():
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        return process

    def raylet(self, place: str, address: str, *options: str, hide: Path | None = None) -> None:
        """`ray start` in a namespace; `hide` is a folder that is empty for it."""
        covered = f"mount -t tmpfs none {hide} && " if hide else ""
        ray = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block")
        common = ("--node-ip-address", address, "--object-store-memory", "80000000")
        shell = ("unshare", "-m", "sh", "-c", f'{covered}exec "$@"', "sh")
        self.start(place, *shell, *ray, *common, *options, wait_for="runtime started")

    def logs(self) -> str:
        """What Ray wrote for its clients."""
        found = sorted(self.folder.glob("ray/session_2*/logs/ray_client_server*"))
        return "\n".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in found)

    def kill(self, place: str) -> None:
        for pid in ip("netns", "pids", f"{self.name}-{place}").split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def clear(self) -> None:
        for place in ("node", "head", "here"):
            with suppress(subprocess.CalledProcessError):
                self.kill(place)
                ip("netns", "del", f"{self.name}-{place}")
        for process in self.started:
            process.wait(10)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="sgr"))  # Ray's sockets need a short path
    made = Cluster(folder)
    made.environment = {
        "RAY_TMPDIR": str(folder),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'plugins'}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "2",
    }
    try:
        try:
            made.lay()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        yield made
    finally:
        made.clear()
        shutil.rmtree(folder, ignore_errors=True)


def test_every_job_of_a_cluster_that_loses_nodes_ends_or_is_refused_with_a_message(
    cluster: Cluster, tmp_path: Path
) -> None:
    slides = tmp_path / "slides"
    slides.mkdir()
    Image.new("RGB", (200, 100), "red").save(slides / "a.png")
    head = ("--head", "--port", "6379", "--ray-client-server-port", "10001", "--num-cpus", "2")
    quiet = ("--include-dashboard", "false")
    cluster.raylet("head", HEAD, *head, "--memory", str(2**30), *quiet)
    large = ("--address", f"{HEAD}:6379", "--num-cpus", "2", "--memory", str(3 * 2**30))
    cluster.raylet("node", NODE, *large, hide=slides)

    script = (sys.executable, str(HERE / "driver.py"))
    work = (str(slides), str(tmp_path / "out"))
    driver = cluster.start("here", *script, f"ray://{HEAD}:10001", *work)
    lines = (json.loads(line) for line in driver.stdout if line.startswith("{"))

    def heard(stage: str) -> dict[str, Any]:
        line: dict[str, Any] | None = next(lines, None)
        assert line and line["stage"] == stage, cluster.logs()
        return line

    assert heard("joined") == {"stage": "joined", "nodes": [HEAD, NODE], "size": 4}
    message = heard("refused")["message"]
    assert "of the cluster's 2 node(s) the largest node may use 3072 MiB" in message

    files = heard("files")
    assert [look["state"] for look in files["looks"]] == ["done"] * 4
    assert [look["attempts"] for look in files["looks"]] == [1] * 4
    assert (
        f'"gone.png" was not found under slides, out on node {HEAD}, node {NODE}; every'
        in (files["nowhere"][0]["error"])
    )

    heard("working")
    cluster.kill("node")
    driver.stdin.write("\n")
    driver.stdin.flush()
    lost = heard("node lost")
    assert [wait["state"] for wait in lost["waits"]] == ["done"] * 3
    assert lost["heavy"][0]["state"] == "failed"
    assert "a node was lost: heavy_wait needs 2048 MiB" in lost["heavy"][0]["error"]
    assert "of the cluster's 1 node(s)" in heard("refused then")["message"]

    heard("working again")
    cluster.kill("head")
    driver.stdin.write("\n")
    driver.stdin.flush()
    gone = heard("head lost")
    assert [job["state"] for job in gone["last"]] == ["failed"] * 3
    assert all("network connection was lost" in j["error"] for j in gone["last"])
    assert gone["seconds"] < 30
    assert "the Ray cluster at ray://" in heard("refused at last")["message"]
    heard("closed")
    assert driver.wait(20) == 0
