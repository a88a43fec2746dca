"""The gate: what is unstable, missing, repeated or confounded is found, and no outcome is seen."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely

from mcp_servers import measures
from mcp_servers.measures.edit import drop, half_of, jitter
from mcp_servers.measures.formula import parse
from mcp_servers.measures.gate import GateLimits, GateReport, gate, icc, spearman, write_gate
from mcp_servers.measures.maps import CellMap, SlideMaps, multipolygon
from mcp_servers.measures.table import measure_patients
from tests.mcp_servers.measures.test_patterns import a_slide


def patients(count: int = 24, slides: int = 1, seed: int = 0) -> list[SlideMaps]:
    """Patients whose density of b, clustering of a and tissue differ, by design, independently."""
    rng = np.random.default_rng(seed)
    found = []
    for patient in range(count):
        side = rng.uniform(800, 1600)
        spread, b_density = rng.uniform(15, 120), rng.uniform(5e-5, 9e-4)
        for slide in range(slides):
            centers = rng.uniform(0, side, (8, 2))
            a = centers[rng.integers(0, 8, 240)] + rng.normal(0, spread, (240, 2))
            b = rng.uniform(0, side, (rng.poisson(b_density * side**2), 2))
            xy = np.concatenate([a, b])
            codes = np.repeat([0, 1], [len(a), len(b)])
            window = multipolygon([shapely.box(0, 0, side, side)])
            cells = CellMap(xy[:, 0], xy[:, 1], ("a", "b", "c"), codes)
            found.append(SlideMaps(f"S{patient}-{slide}", f"P{patient:02}", window, cells))
    return found


def test_each_fault_is_found_and_what_has_none_passes(tmp_path: Path) -> None:
    formulas = [
        "pooled(density(cells.b))",
        "mean(density(cells.b))",
        "mean(ripley_l(cells.a, 60))",
        "mean(pair_correlation(cells.b, 1.5, 0.5))",
        "mean(count(cells.c))",
        "mean(nearest(cells.a, cells.c, mean))",
        "pooled(area(tissue))",
    ]
    report, measured = gate([parse(formula) for formula in formulas], patients())
    passed = {g.formula for g in report.measurements if g.passed}
    # slide and pooled densities of one slide are the same: one of them stays
    assert len(passed & set(formulas[:2])) == 1 and formulas[2] in passed
    reasons = {g.formula: " ".join(g.reasons) for g in report.measurements}
    assert "redundant with" in reasons[formulas[0]] + reasons[formulas[1]]
    assert "after jitter" in reasons[formulas[3]] or "no value" in reasons[formulas[3]]
    assert "the same value" in reasons[formulas[4]]
    assert "no value in 100%" in reasons[formulas[5]] and "no c cells" in reasons[formulas[5]]
    assert "half of the tissue" in reasons[formulas[6]]
    area = next(g for g in report.measurements if g.formula == formulas[6])
    assert (
        area.with_area == pytest.approx(1)
        and "adjust for imaging:pooled_area_tissue" in area.notes[0]
    )
    assert [n.split()[0] for n in report.not_assessed] == ["resolution", "stain", "scanner"]
    assert measured.table.shape == (24, 7)
    write_gate(report, tmp_path)
    assert GateReport.model_validate_json((tmp_path / "gate.json").read_bytes()) == report
    text = (tmp_path / "gate.txt").read_text()
    assert "No outcome was read" in text and text.index("pass  ") < text.index("FAIL  ")


def test_a_shift_that_was_made_is_judged() -> None:
    slides = patients()
    rng = np.random.default_rng(1)
    other = [drop(maps, rng.uniform(0.0, 0.95), rng) for maps in slides]
    formula = parse("mean(density(cells.b))")
    report, _ = gate([formula], slides, shifted={"stain": other, "scanner": slides})
    (gated,) = report.measurements
    assert not gated.passed and gated.stability["scanner"].icc == pytest.approx(1)
    assert "after stain" in " ".join(gated.reasons)
    assert [note.split()[0] for note in report.not_assessed] == ["resolution"]


def test_values_outside_the_card_and_known_variables_fail() -> None:
    slides = [
        replace(maps, outside_card=("stain",)) if i % 2 else maps
        for i, maps in enumerate(patients())
    ]
    formula = parse("mean(density(cells.b))")
    known = measure_patients([formula], slides)
    column = dict(zip(known.patients, known.table[:, 0], strict=True))
    report, _ = gate([formula], slides, known={"imaging:b_density": column})
    (gated,) = report.measurements
    assert gated.outside_card == 0.5 and gated.known_as == "imaging:b_density"
    assert "outside a tool's card" in gated.reasons[0] and "repeats imaging" in gated.reasons[1]


def test_few_patients_pass_nothing() -> None:
    report, _ = gate([parse("mean(density(cells.b))")], patients(6))
    assert not report.passed and "could not be assessed: only 6 patients" in str(
        report.measurements[0]
    )


def test_half_of_the_tissue_is_not_assessed_where_it_is_unknown() -> None:
    slides = [replace(maps, window=None) for maps in patients()]
    report, _ = gate([parse("mean(count(cells.b))")], slides)
    assert "half of the tissue" in report.not_assessed[-1]
    assert report.measurements[0].passed
    several = [replace(maps, window=None) for maps in patients(6, slides=4)]
    mixed = [*several, *(replace(m, patient=f"Q{m.patient}") for m in slides)]
    report, _ = gate([parse("mean(count(cells.b))")], mixed)
    assert "half of the tissue" in report.not_assessed[-1] and report.measurements[0].passed


def test_the_same_seed_gives_the_same_report() -> None:
    formulas = [parse("mean(ripley_l(cells.a, 60))"), parse("mean(density(cells.b))")]
    limits = GateLimits(jitter_um=5)
    one, other = (gate(formulas, patients(), limits=limits, seed=4)[0] for _ in range(2))
    assert one == other != gate(formulas, patients(), limits=limits, seed=5)[0]


def test_jitter_moves_objects_whole_and_loss_takes_its_share() -> None:
    rng = np.random.default_rng(0)
    assert len(half_of(patients(1, slides=5), rng)) == 3  # slides of a patient are halved whole
    (half,) = half_of([a_slide(1)], rng)
    assert half.area_um2 == pytest.approx((a_slide(1).area_um2 or 0) / 2, rel=1e-6)
    maps = a_slide(1, cells=4000)
    moved = jitter(maps, 3.0, 10.0, rng)
    assert maps.cells and moved.cells and maps.objects and moved.objects
    steps = moved.cells.points - maps.cells.points
    assert steps.std() == pytest.approx(3.0, rel=0.05)
    np.testing.assert_allclose(
        shapely.area(moved.objects.shapes), shapely.area(maps.objects.shapes)
    )
    lost = drop(maps, 0.25, rng)
    assert lost.cells and len(lost.cells) == pytest.approx(3000, abs=120)


def test_agreement_is_that_of_the_literature() -> None:
    # Shrout and Fleiss 1979, table 2, their first two judges
    one, other = np.array([9, 6, 8, 7, 10, 6.0]), np.array([2, 1, 4, 1, 5, 2.0])
    rows = np.column_stack([one, other])
    n, k = rows.shape
    total = ((rows - rows.mean()) ** 2).sum()
    between = k * ((rows.mean(1) - rows.mean()) ** 2).sum()
    judges = n * ((rows.mean(0) - rows.mean()) ** 2).sum()
    msr, msc, mse = between / (n - 1), judges, (total - between - judges) / (n - 1)
    assert icc(one, other) == pytest.approx((msr - mse) / (msr + mse + k * (msc - mse) / n))
    assert icc(one, one) == pytest.approx(1) and icc(np.ones(5), np.ones(5)) is None
    assert spearman(np.arange(12.0), np.arange(12.0) ** 3) == pytest.approx(1)
    assert spearman(np.arange(9.0), np.arange(9.0)) is None


def test_the_gate_cannot_reach_an_outcome() -> None:
    """What the gate imports, and what that imports, knows no cohort and no test of outcomes."""
    seen, left = set(), ["mcp_servers.measures.gate"]
    while left:
        name = left.pop()
        seen.add(name)
        path = Path(measures.__path__[0], *name.split(".")[2:]).with_suffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            found = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                found = [f"{node.module}", *(f"{node.module}.{a.name}" for a in node.names)]
            assert not any(module.split(".")[0] in ("validation", "agents") for module in found)
            assert not any(module.startswith("mcp_servers.oncology") for module in found)
            ours = [m for m in found if m.startswith("mcp_servers.measures.") and m.count(".") == 2]
            left += [m for m in ours if m not in seen]
    assert len(seen) > 6
