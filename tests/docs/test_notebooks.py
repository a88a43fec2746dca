"""The notebooks run from an empty folder, cell by cell, and are kept without outputs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.docs.examples import ROOT
from tests.warm import run_warm

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def cells(notebook: Path) -> list[dict[str, object]]:
    return [
        cell
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    program = "\n\n".join("".join(cell["source"]) for cell in cells(notebook))  # type: ignore[arg-type]
    done = run_warm(["-c", program], cwd=tmp_path, env=os.environ, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "a notebook that shows nothing"


def test_notebooks_are_kept_without_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    assert all(cell["outputs"] == [] for notebook in NOTEBOOKS for cell in cells(notebook))
