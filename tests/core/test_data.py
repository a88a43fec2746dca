"""One finder of the shipped data, with one order of precedence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sage.core.data as data

CASES = [  # what lies there, what is found
    (("sage/_data", "data"), "sage/_data"),
    (("data",), "data"),
]


def house(folder: Path, *roots: str) -> Path:
    """A made-up installation with the finder and these data folders."""
    core = folder / "sage" / "core"
    core.mkdir(parents=True)
    for name in ("__init__.py", "data.py", "errors.py", "printable.py"):
        (core / name).write_bytes((Path(data.__file__).parent / name).read_bytes())
    for root in roots:
        (folder / root / "ontology").mkdir(parents=True)
    return folder


def found(folder: Path, call: str = "data_root()") -> str:
    code = f"from sage.core.data import *; print({call})"
    told = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True,
    )  # fmt: skip
    return told.stdout.strip() or told.stderr


@pytest.mark.parametrize(("roots", "expected"), CASES)
def test_the_installed_data_come_before_a_neighbor_of_that_name(
    tmp_path: Path, roots: tuple[str, ...], expected: str
) -> None:
    assert found(house(tmp_path, *roots)) == str(tmp_path / expected)


def test_a_strangers_data_folder_is_not_taken(tmp_path: Path) -> None:
    folder = house(tmp_path)
    (folder / "data").mkdir()
    assert "reinstall SAGE" in found(folder)
