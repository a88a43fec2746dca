"""Sandboxes that work here; a test of one that does not is skipped with the reason."""

from __future__ import annotations

import pytest

from sandbox.bubblewrap import Bubblewrap
from sandbox.docker_engine import DockerSandbox
from sandbox.types import Sandbox

BOXES = [
    pytest.param("docker", marks=pytest.mark.docker),
    pytest.param("bubblewrap", marks=pytest.mark.bubblewrap),
    pytest.param("warm", marks=pytest.mark.bubblewrap),
]


def working(name: str) -> Sandbox:
    """The sandbox `name`, or a skip that says why it does not work here."""
    chosen: Sandbox = DockerSandbox() if name == "docker" else Bubblewrap()
    state = chosen.available()
    if not state.ok:
        pytest.skip(f"{name}: {state.detail}; {state.remedy}")
    if name == "warm":
        assert isinstance(chosen, Bubblewrap)
        chosen.prepare()
        assert chosen.warm and chosen.warm.ready()
    return chosen
