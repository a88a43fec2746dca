"""A question about spatial arrangement: from maps over the gate to a confirmed claim."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.adapters.measures import COHORT, TRUTHS, simulate
from mcp_servers.measures.maps import write_maps
from tests.end_to_end.harness import sage

QUESTION = "Which spatial arrangement of B cells relates to survival?"
ARRANGED = re.compile(r'"key": ?"imaging:defined1_\w*b_cell\w*"')


def write_cohort(folder: Path, seed: int, patients: int) -> None:
    """Slides whose clustering of B cells sets the hazard, as maps; outcomes and age beside them."""
    rng = np.random.default_rng(seed)
    slides, planted = simulate(seed, patients)
    age = rng.normal(65, 9, patients)
    times = rng.exponential(1000 * np.exp(-0.02 * (age - 65) - 0.7 * planted[TRUTHS[0]]))
    ends = rng.uniform(500, 3000, patients)
    rows = ["patient,age,days,dead"]
    for i, maps in enumerate(slides):
        write_maps(maps, folder / "maps" / maps.slide)
        who = f"{maps.patient},{age[i]:.0f},{np.ceil(min(times[i], ends[i])):.0f}"
        rows.append(f"{who},{int(times[i] <= ends[i])}")
    (folder / "clinical.csv").write_text("\n".join(rows) + "\n")
    text = COHORT.replace('"simulated-slides"', f'"slides-{seed}"')
    text = text.replace("simulated = true", 'simulated = true\nmaps = "maps"')
    (folder / "cohort.toml").write_text(text)


@pytest.mark.slow
def test_a_question_about_arrangement_is_answered_and_shown(tmp_path: Path) -> None:
    for name, seed in (("discovery", 31), ("confirmation", 32)):
        write_cohort(tmp_path / name, seed, 60)

    def done(*words: str, **variables: str) -> str:
        ended = sage(*words, cwd=tmp_path, **variables)
        assert ended.code == 0, ended.err
        return ended.out

    two = ["--cohort", "discovery", "--confirm", "confirmation"]
    done("run", QUESTION, *two, "--auto-approve", SAGE_RUN__MEASURE="true", NO_FIGURES="")
    (run,) = (tmp_path / "runs").iterdir()
    gate = json.loads((run / "outputs" / "defined" / "gate.json").read_text())
    passed = {gated["name"] for gated in gate["measurements"] if gated["passed"]}
    assert 5 < len(passed) < len(gate["measurements"]) and gate["patients"] == 60
    contract = (run / "hypotheses" / "h1" / "contract.json").read_text()
    (key,) = set(ARRANGED.findall(contract))
    assert key.split("defined1_")[1].strip('"') in passed
    report = (run / "report.md").read_text()
    assert re.search(r"Formula: \w+\(.*cells.b_cell", report)
    drawn = json.loads((run / "hypotheses" / "h1" / "fields" / "fields.json").read_text())
    assert "90th" in drawn[0]["caption"] and "B cell" in drawn[0]["caption"]
    html = (run / "report.html").read_text()
    assert html.count("data:image/png;base64,") >= 1


def test_without_maps_there_is_nothing_to_measure(tmp_path: Path) -> None:
    write_cohort(tmp_path / "c", 33, 12)
    text = (tmp_path / "c" / "cohort.toml").read_text()
    (tmp_path / "c" / "cohort.toml").write_text(text.replace('maps = "maps"', ""))
    ended = sage("run", QUESTION, "--cohort", "c", "--auto-approve", cwd=tmp_path,
                 SAGE_RUN__MEASURE="true")  # fmt: skip
    assert ended.code == 2 and "has no maps" in ended.err
    assert not (tmp_path / "runs").exists()
