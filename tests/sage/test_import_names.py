"""SAGE refuses to run where another distribution's package has one of its import names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sage.__main__ import PACKAGES
from tests.end_to_end.harness import REPO


def plant(site: Path, name: str, distribution: str) -> None:
    """Install a package of another distribution into a folder of packages."""
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text("raise RuntimeError('imported')\n")
    info = site / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "top_level.txt").write_text(f"{name}\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n")


def help_with(path: str) -> subprocess.CompletedProcess[str]:
    """`sage --help` with folders of packages."""
    code = "import sys; sys.argv = ['sage', '--help']; from sage.__main__ import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


@pytest.mark.parametrize("name", PACKAGES[:2])
def test_a_package_of_another_distribution_is_refused_in_one_line(
    tmp_path: Path, name: str
) -> None:
    plant(tmp_path, name, "openai-agents")
    ended = help_with(f"{tmp_path}{os.pathsep}{REPO}")
    assert ended.returncode == 2
    (line,) = ended.stderr.strip().splitlines()
    assert f'"{name}"' in line and "openai-agents" in line


def test_an_overwritten_package_is_refused(tmp_path: Path) -> None:
    info = tmp_path / "sage_pathology-9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sage-pathology\nVersion: 9.0\n")
    (info / "RECORD").write_text("kg/__init__.py,sha256=x,123456\n")
    ended = help_with(f"{tmp_path}{os.pathsep}{REPO}")
    assert ended.returncode == 2 and '"kg"' in ended.stderr


def test_its_own_packages_are_accepted() -> None:
    assert help_with(str(REPO)).returncode == 0
