"""SAGE without its extras: what works, and what an absent extra is answered with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.harness import PROMPT, core_only, sage

HYPOTHESIS = {
    "id": "tls",
    "statement": "A low density of TLS goes with shorter overall survival.",
    "population": {"description": "all patients"},
    "exposures": [{"variable": "imaging:tls_density", "label": "TLS density", "level": "low"}],
    "comparison": "exposed_vs_rest",
    "endpoint": "OS",
    "direction": "higher_risk",
}
RESAMPLED = ("calibration.", "concordance.", "control.", "decision_curve.")
GRAPH = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<graph edgedefault="directed"><node id="a"/><node id="b"/><edge source="a" target="b"/></graph>
</graphml>
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return core_only(tmp_path_factory.mktemp("core"))


def test_the_core_says_what_each_extra_adds(core: dict[str, str], tmp_path: Path) -> None:
    ended = sage("doctor", "--json", cwd=tmp_path, **core)
    checks = {check["what"]: check for check in ended.json["checks"]}
    assert checks["libraries"]["state"] == checks["packages"]["state"] == "ok"
    for name, added in (("literature", "whole runs"), ("slides", "nuclei"), ("models", "chat")):
        extra = checks[f"extra: {name}"]
        assert extra["state"] == "missing"
        assert added in extra["remedy"]
        assert f'pip install "sage-pathology[{name}]"' in extra["remedy"]


def test_the_core_validates_on_the_demonstration_cohort(
    core: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "h.json"
    path.write_text(json.dumps(HYPOTHESIS))
    found = []
    for name, variables in (("core", core), ("all", {})):
        ended = sage(
            "validate", "run", str(path), "--cohort", "demo", "--out", str(tmp_path / name),
            "--json", cwd=tmp_path, SAGE_LEDGER=str(tmp_path / f"{name}.sqlite"), **variables,
        )  # fmt: skip
        assert ended.code == 0, ended.err
        found.append(ended.json[0])
    assert found[0]["verdict"]["verdict"] == "supported"
    core_numbers, numbers = found[0]["numbers"], found[1]["numbers"]
    assert core_numbers.keys() == numbers.keys()
    # Without slides the cohort has other hashes, and so the resamples other seeds.
    assert {key for key in numbers if core_numbers[key] != numbers[key]} <= {
        key for key in numbers if key.startswith(RESAMPLED)
    }


@pytest.mark.parametrize(
    ("words", "needs", "extra"),
    [
        (("run", PROMPT, "--auto-approve"), "a run requires", "literature"),
        (("kg", "paths", "a", "b", "--graph", "g.graphml"), "numba", "literature"),
        (
            ("tools", "run", "tissue_mask", "--input", "a.png", "--set", "mpp=1"),
            "this feature requires",
            "slides",
        ),
    ],
)
def test_an_absent_extra_is_one_line_with_its_command(
    core: dict[str, str], tmp_path: Path, words: tuple[str, ...], needs: str, extra: str
) -> None:
    from PIL import Image

    Image.new("RGB", (64, 64), "pink").save(tmp_path / "a.png")
    (tmp_path / "g.graphml").write_text(GRAPH)
    before = {path.name for path in tmp_path.iterdir()}
    ended = sage(*words, cwd=tmp_path, **core)
    assert ended.code == 2, ended.err
    assert needs in ended.err and len(ended.err.strip().splitlines()) == 1
    assert f'pip install "sage-pathology[{extra}]"' in ended.err
    assert {path.name for path in tmp_path.iterdir()} - before <= {"sage-output"}
