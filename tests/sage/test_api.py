"""The examples in the docstrings of the Python API run as they stand."""

from __future__ import annotations

import doctest
import shutil
from pathlib import Path

import pytest

import sage
from sage import api
from tests.end_to_end.harness import REPO

EXAMPLES = {
    test.name.rpartition(".")[2]: test
    for test in doctest.DocTestFinder().find(api)
    if test.examples
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Claim", "Cohort", "Run"])
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAGE_LEDGER", str(tmp_path / "ledger.sqlite"))
    claim = REPO / "docs" / "hypotheses" / "gbsg2_progesterone_receptor.json"
    shutil.copy(claim, tmp_path / "hypothesis.json")
    assert doctest.DocTestRunner().run(EXAMPLES[name]).failed == 0


def test_every_class_has_an_example_and_is_exported_lazily() -> None:
    assert set(EXAMPLES) == set(sage.__all__) == set(api.__all__)
    assert sage.Graph is api.Graph
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = sage.Nothing  # type: ignore[attr-defined]
