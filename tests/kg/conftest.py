"""What the tests of `sage kg` share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def plain_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No user configuration, a model without weights, and a cache of our own."""
    keys = ("SAGE_API_KEY", "OPENAI_API_KEY")
    for name in ("SAGE_CONFIG", "SAGE_BASE_URL", "OPENAI_BASE_URL", *keys):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SAGE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SAGE_EMBEDDING_MODEL", "hashing")
    monkeypatch.setenv("COLUMNS", "200")
