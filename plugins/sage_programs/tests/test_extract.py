"""A variable that a cohort lacks is computed on its slides and then serves a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.harness import PROMPT, sage


@pytest.mark.slow
def test_a_feature_computed_on_slides_becomes_a_variable_of_the_run(tmp_path: Path) -> None:
    wanted = ("imaging:tls_area", "imaging:tls_density", "imaging:nonsense")
    ended = sage(
        "programs", "extract", "demo", *wanted, "--out", "features", "--json", cwd=tmp_path
    )
    assert ended.code == 0, ended.err
    assert ended.json["found"] == ["imaging:tls_density"]
    assert ended.json["missing"] == ["imaging:nonsense"]
    assert ended.json["provenance"][0]["tool"] == "tls"
    table = tmp_path / "features" / "tls.csv"
    run = tmp_path / "run"
    features = json.dumps([str(table)])
    begun = sage("run", PROMPT, "--json", "--out", str(run), cwd=tmp_path,
                 SAGE_RUN__FEATURES=features)  # fmt: skip
    assert begun.code == 0, begun.err
    changes = tmp_path / "changes.json"
    exposure = {"variable": "imaging:tls_area", "label": "TLS area", "level": "low"}
    changes.write_text(
        json.dumps({"exposures": [exposure], "comparison": "exposed_vs_rest", "untested": []})
    )
    ended = sage("review", str(run), "--edit", str(changes), "--json", cwd=tmp_path)
    assert ended.code == 0, ended.err
    # Four patients have slides: another design waits for review, and nothing was computed.
    assert ended.json["status"] == "waiting for review"
    redesign = json.loads((run / "outputs" / "redesign-h2.json").read_text())
    assert redesign["of"] == "h1" and "measured in 4 of 400 patients" in redesign["reason"]
    assert not (run / "hypotheses" / "h1" / "results").exists()
