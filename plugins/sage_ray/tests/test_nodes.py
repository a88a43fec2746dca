"""What a cluster is asked to hold is checked against its nodes, each by itself; no Ray needed."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace

import pytest

from mcp_servers.spec import Resources
from sage_ray.nodes import Node, explain_refusal, find_hosts, parse_nodes
from sage_ray.tasks import BEAT, Board
from sage_ray.workers import TRIES, RayWorkers, call_within

SMALL = Node("a", "10.0.0.2", 8, 4096)
LARGE = Node("b", "10.0.0.3", 2, 65536)
CARD = Node("c", "10.0.0.4", 4, 8192, 1)


def test_only_living_nodes_count_and_memory_is_in_mib() -> None:
    has = {"CPU": 4.0, "memory": 2.0**31, "GPU": 1.0, "node:10.0.0.2": 1.0}
    listed = [
        {"NodeID": name, "Alive": alive, "NodeManagerAddress": "10.0.0.2", "Resources": has}
        for name, alive in (("a", True), ("b", False))
    ]
    assert parse_nodes(listed) == [Node("a", "10.0.0.2", 4, 2048, 1)]


@pytest.mark.parametrize(
    ("need", "nodes", "says"),
    [
        (Resources(cpu=8, memory_mb=4096), [SMALL, LARGE], None),
        (Resources(cpu=2, memory_mb=65536), [SMALL, LARGE], None),
        (Resources(cpu=1, memory_mb=65537), [SMALL, LARGE], "65537 MiB.*largest.*65536 MiB"),
        (Resources(cpu=9, memory_mb=64), [SMALL, LARGE], "9 processors.*largest node has 8"),
        (Resources(cpu=8, memory_mb=65536), [SMALL, LARGE], "no single node has"),
        (Resources(gpu="required"), [SMALL, LARGE], "needs a GPU, and the cluster has none"),
        (Resources(cpu=8, memory_mb=64, gpu="required"), [SMALL, CARD], "no single node has all"),
        (Resources(cpu=8, memory_mb=64, gpu="optional"), [SMALL, CARD], None),
        (Resources(), [], "the cluster has no"),
    ],
)
def test_a_demand_that_no_single_node_holds_is_refused_in_words(
    need: Resources, nodes: list[Node], says: str | None
) -> None:
    words = explain_refusal("tool", need, nodes, need.cpu)
    assert words is None if says is None else re.search(says, words or "")


def test_a_job_that_can_use_a_gpu_goes_where_one_is_that_holds_it() -> None:
    nodes = [SMALL, LARGE, CARD]
    assert find_hosts(Resources(cpu=2, memory_mb=64, gpu="optional"), nodes, 2) == ([CARD], 1)
    assert find_hosts(Resources(cpu=2, memory_mb=9000, gpu="optional"), nodes, 2) == ([LARGE], 0)
    assert find_hosts(Resources(cpu=2, memory_mb=64), nodes, 2) == (nodes, 0)


def test_the_board_tells_who_lives_once_and_who_is_to_stop() -> None:
    board = Board()
    assert board.beat("j.1", "node", 0.5, "half") == (False, BEAT)
    assert board.take(["j.1"], 4000) == {"j.1": ("node", 0.5, "half")}
    assert board.take(["j.1"], 4000) == {}
    assert board.beat("j.1", "node", 0.6, "") == (True, 2.0)  # many jobs come less often


@pytest.mark.parametrize("deaths", [TRIES - 1, TRIES])
def test_a_cluster_is_joined_again_where_the_server_of_a_client_died_at_its_start(
    deaths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[bool] = []

    def init(**options: object) -> None:
        joined.append(len(joined) >= deaths)
        if not joined[-1]:
            raise ConnectionAbortedError("Initialization failure from server")

    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    workers = object.__new__(RayWorkers)
    workers._ray = SimpleNamespace(init=init)
    if deaths < TRIES:
        workers._join({})
    else:
        with pytest.raises(ConnectionAbortedError):
            workers._join({})
    assert joined == [False] * (TRIES - 1) + [deaths < TRIES]


def test_a_call_that_does_not_return_is_given_up() -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.1 s"):
        call_within(0.1, lambda: time.sleep(5))
    assert time.monotonic() - started < 3
    with pytest.raises(ZeroDivisionError):
        call_within(5, lambda: 1 / 0)
    assert call_within(5, lambda: 7) == 7
