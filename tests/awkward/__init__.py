"""Inputs that people bring: files of neighboring tools and of their public bug reports.

Each table's rows name the report or the program that the input is rebuilt from, and the right
reading. Files below ../shared/data/awkward are read where they are present.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def shared(*parts: str) -> Path:
    """A file of the shared awkward inputs; skips the test where it is absent."""
    root = Path(os.environ.get("SAGE_SHARED", ROOT.parent / "shared"))
    path = root.joinpath("data", "awkward", *parts)
    if not path.exists():
        pytest.skip(f"shared data are absent: {path}")
    return path
