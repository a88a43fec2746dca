"""A question about spatial arrangement: from maps over the gate to a confirmed claim."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mcp_servers.measures.maps import write_maps
from sage.bench.measures import COHORT, TRUTHS, simulate
from tests.end_to_end.harness import sage

QUESTION = "Which spatial arrangement of B cells relates to survival?"
FORMULAS = """mean(ripley_l(cells.b_cell, 30))
mean(hotspot(cells.b_cell, 30))
pooled(density(cells.t_cell, within=regions.tumor))
mean(nearest(cells.b_cell, cells.b_cell, max))
"""
KEY = "imaging:mean_ripley_l_cells_b_cell_30"


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
        write_cohort(tmp_path / name, seed, 110)
    (tmp_path / "formulas.txt").write_text(FORMULAS.replace(", max))", ", p90))"))

    def done(*words: str) -> str:
        ended = sage(*words, cwd=tmp_path)
        assert ended.code == 0, ended.err
        return ended.out

    done("gate", "discovery", "--maps", "discovery/maps", "--define", "formulas.txt")
    assert "mean(ripley_l(cells.b_cell, 30))" in (tmp_path / "gate" / "passed.txt").read_text()
    for name in ("discovery", "confirmation"):
        words = ["--maps", f"{name}/maps", "--define", "gate/passed.txt", "--out", f"m-{name}"]
        done("measure", name, *words, "--jobs", "1")
        description = tmp_path / name / "cohort.toml"
        lines = (tmp_path / f"m-{name}" / "measured.toml").read_text()
        description.write_text(description.read_text() + lines)
        table = (tmp_path / f"m-{name}" / "measured.csv").read_text()
        (tmp_path / name / "measured.csv").write_text(table)
    done("run", QUESTION, "--cohort", "discovery", "--confirm", "confirmation", "--auto-approve")
    (run,) = (tmp_path / "runs").iterdir()
    contract = json.loads((run / "hypotheses" / "h1" / "contract.json").read_text())
    assert f'"{KEY}"' in json.dumps(contract)
    report = (run / "report.md").read_text()
    assert "Formula: mean(ripley" in report, report
    drawn = json.loads((run / "hypotheses" / "h1" / "fields" / "fields.json").read_text())
    assert "90th" in drawn[0]["caption"] and "clustering of B cells" in drawn[0]["caption"]
    html = (run / "report.html").read_text()
    assert html.count("data:image/png;base64,") >= 1
    assert "supported" in report
    again = sage("replay", "last", "--out", "again", cwd=tmp_path)
    assert again.code == 0 and (tmp_path / "again" / "report.md").read_text() == report
