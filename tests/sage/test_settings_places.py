"""Where the cache lies: the setting, else the user's cache folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from sage import settings


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"XDG_CACHE_HOME": "/x/cache"}, "/x/cache/sage"),
        ({"XDG_CACHE_HOME": "/x/cache", "SAGE_CACHE_DIR": "/mine"}, "/mine"),
        ({"XDG_CACHE_HOME": ""}, "/x/home/.cache/sage"),
    ],
)
def test_the_cache_lies_in_the_users_cache_folder_unless_set(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], place: str
) -> None:
    monkeypatch.delenv("SAGE_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", "/x/home")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert settings.load().cache_dir == Path(place)
