"""What is committed in docs/reference/ is what the code gives."""

from __future__ import annotations

import runpy

import pytest

from sage.settings import Settings
from tests.docs.examples import ROOT

WRITER = runpy.run_path(str(ROOT / "docs" / "generate.py"))


@pytest.mark.parametrize("name", sorted(WRITER["PAGES"]))
def test_a_reference_is_up_to_date(name: str) -> None:
    committed = (WRITER["REFERENCE"] / name).read_text(encoding="utf-8")
    assert committed == WRITER["PAGES"][name](), "run: python docs/generate.py"


def test_every_setting_has_its_meaning() -> None:
    assert set(WRITER["MEANING"]) == set(Settings.model_fields)
