"""Fixtures shared by the tests of tools, servers and workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_servers.context import ToolContext
from mcp_servers.roots import Roots


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    (tmp_path / "in").mkdir()
    return Roots.resolve([tmp_path / "in"], tmp_path / "out")


@pytest.fixture
def context(roots: Roots) -> ToolContext:
    return ToolContext(roots)
