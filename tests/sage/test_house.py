"""The six packages of the house name no plugin and no benchmark, and have at most 14 commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sage.cli.app import app
from sage.core.plugins import find_plugins

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted(path.parent.name for path in (ROOT / "plugins").glob("*/__init__.py"))


@pytest.mark.parametrize(
    "package", ["sage", "agents", "kg", "validation", "mcp_servers", "sandbox"]
)
def test_no_plugin_and_no_benchmark_is_named(package: str) -> None:
    assert len(PLUGINS) >= 6
    named = re.compile(rf"\b({'|'.join(PLUGINS)}|benchmarks\.\w+|(from|import) benchmarks)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if named.search(line)
    ]
    assert found == []


def test_the_house_has_at_most_fourteen_commands() -> None:
    from typer.main import get_command

    names = set(get_command(app).list_commands(None))  # type: ignore[attr-defined]
    assert len(names - set(find_plugins("sage.commands"))) <= 14
