"""Cards: each job its own, the one that was asked for, none where none is used. No card is here:
the workers are told of some, and a layer in the place of torch.cuda counts them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from mcp_servers.pathology.common import choose_device
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from mcp_servers.workers import machine
from mcp_servers.workers.jobs import Recipe, State
from mcp_servers.workers.pool import LocalPool
from sage.core.errors import InputError
from tests.mcp_servers.slide_tools import TOOLS


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    """Three workers on four cards, by what they are told."""
    with LocalPool(Recipe(tool_folders=(TOOLS,)), workers=3, memory_mb=8192, gpus=4) as opened:
        yield opened


def test_no_two_running_jobs_have_the_same_card(pool: LocalPool, roots: Roots) -> None:
    jobs = [pool.submit("on_device", {"seconds": 0.3}, roots) for _ in range(5)]
    found = [(job.result(60), job) for job in jobs]
    spans = [
        (run.provenance.device, run.result["started"], run.result["ended"]) for run, _ in found
    ]
    cards = {device for device, *_ in spans}
    # A worker that is slow to start may find nothing left to do.
    assert len(cards) > 1 and cards <= {f"cuda:{n}" for n in range(4)}
    for card in cards:
        own = sorted(span[1:] for span in spans if span[0] == card)
        assert all(first[1] <= second[0] for first, second in pairwise(own))


def test_the_card_that_was_asked_for_is_given(pool: LocalPool, roots: Roots) -> None:
    jobs = [
        pool.submit("on_device", {"seconds": 0.3, "device": device}, roots)
        for device in ("cuda:1", "cuda:1", "cuda:3", "cuda")
    ]
    devices = [job.result(60).provenance.device for job in jobs]
    assert devices[:3] == ["cuda:1", "cuda:1", "cuda:3"]
    assert devices[3].startswith("cuda:")
    with pytest.raises(InputError, match="cuda:4"):
        pool.submit("on_device", {"seconds": 0, "device": "cuda:4"}, roots)


def test_a_job_that_waits_for_its_card_lets_others_pass(pool: LocalPool, roots: Roots) -> None:
    first = pool.submit("on_device", {"seconds": 1.5, "device": "cuda:2"}, roots)
    waits = pool.submit("on_device", {"seconds": 0, "device": "cuda:2"}, roots)
    passes = pool.submit("on_device", {"seconds": 0, "device": "cuda:0"}, roots)
    assert passes.result(60).provenance.device == "cuda:0"
    assert not first.state.final
    assert waits.state is State.QUEUED
    assert waits.result(60).provenance.device == "cuda:2"


def test_all_jobs_of_a_card_go_to_one_worker(pool: LocalPool, roots: Roots) -> None:
    """So that an encoder lies on a card once, whatever else the workers do."""
    jobs = []
    for number in range(8):
        jobs.append(pool.submit("wait", {"seconds": 0.1}, roots))
        card = f"cuda:{number % 2}"
        jobs.append(pool.submit("on_device", {"seconds": 0.1, "device": card}, roots))
    runs = [job.result(60) for job in jobs]
    processes: dict[str, set[int]] = {}
    for run in runs:
        if run.provenance.device != "cpu":
            processes.setdefault(run.provenance.device, set()).add(run.result["pid"])
    assert {card: len(pids) for card, pids in processes.items()} == {"cuda:0": 1, "cuda:1": 1}


def test_a_card_is_taken_only_where_a_network_computes() -> None:
    registry = load("pathology")
    for tool, given, expected in (
        ("nuclei", {}, None),
        ("nuclei", {"weights": "n.pt"}, "optional"),
        ("nuclei", {"weights": "n.pt", "device": "cpu"}, "none"),
        ("nuclei", {"device": "cpu"}, "none"),
        ("tumor", {}, None),
        ("tumor", {"model": "m"}, "optional"),
        ("til", {"model": "m"}, "optional"),
        ("slide_maps", {"model": "m"}, "optional"),
        ("encode_tiles", {"device": "cpu"}, "none"),
        ("tissue_mask", {}, "none"),
    ):
        spec = registry.get(tool)
        needs = spec.needs(spec.parse({"slide": "s.svs", **given}))
        assert needs.gpu == (expected or spec.resources.gpu), (tool, given)
    maker = registry.get("nuclei").resources.gpu
    assert registry.get("slide_maps").resources.gpu == maker


@pytest.mark.parametrize(
    ("asked", "assigned", "cards", "found"),
    [
        ("auto", "cpu", 4, "cpu"),  # no card was given: not on the first one with all others
        ("auto", "cuda:2", 4, "cuda:2"),
        ("cuda", "cuda:2", 4, "cuda:2"),
        ("cuda", "cpu", 4, "cuda"),
        ("cuda:1", "cpu", 4, "cuda:1"),
        ("cpu", "cuda:1", 4, "cpu"),
        ("cuda", "cpu", 0, None),
        ("cuda:4", "cpu", 4, None),
        ("auto", "cuda:1", 1, None),
    ],
)
def test_the_device_of_a_call(
    monkeypatch: pytest.MonkeyPatch, asked: str, assigned: str, cards: int, found: str | None
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cards > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    if found is not None:
        assert choose_device(asked, assigned) == found
        return
    with pytest.raises(InputError):
        choose_device(asked, assigned)


def test_cards_are_counted_as_nvidia_smi_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf 'GPU 0: A\\nGPU 1: B\\nGPU 2: C\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for visible, count in ((None, 3), ("0,2", 2), ("", 0), ("0,1,2,3", 3)):
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert machine.gpus() == count
