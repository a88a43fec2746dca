"""A variable that a cohort lacks is computed on its slides and then serves a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sage.run.wiring import load_cohort
from sage.settings import Settings
from tests.end_to_end.harness import cache_dir, sage


@pytest.mark.slow
def test_a_feature_computed_on_slides_becomes_a_variable_of_the_cohort(tmp_path: Path) -> None:
    wanted = ("imaging:tls_area", "imaging:tls_density", "imaging:nonsense")
    ended = sage(
        "programs", "extract", "demo", *wanted, "--out", "features", "--json", cwd=tmp_path
    )
    assert ended.code == 0, ended.err
    assert ended.json["found"] == ["imaging:tls_density"]
    assert ended.json["missing"] == ["imaging:nonsense"]
    assert ended.json["provenance"][0]["tool"] == "tls"
    tables = [str(tmp_path / "features" / "tls.csv")]
    settings = Settings.model_validate({"cache_dir": cache_dir(), "run": {"features": tables}})
    cohort = load_cohort("demo", settings, features=settings.run.features)
    assert cohort.column("imaging:tls_area").notna().sum() == 4  # patients with slides
