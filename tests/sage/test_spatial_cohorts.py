"""The two real data sets as cohorts with maps: units, who is left out, what is known."""

from __future__ import annotations

import csv
import math
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.spatial_cohorts import TYPES, cell_cohort, tls_cohort
from mcp_servers.measures.compute import compute, compute_patient
from mcp_servers.measures.formula import parse
from mcp_servers.measures.maps import MapsOnDisk
from validation.cohort import load

PLACE = os.environ.get("SAGE_SHARED", Path(__file__).parents[2].parent / "shared")
SHARED = Path(PLACE) / "data"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not (SHARED / "spatial").is_dir(), reason="no shared data"),
]


@pytest.mark.slow
def test_cells_of_lung_cancers(tmp_path: Path) -> None:
    cell_cohort(SHARED, tmp_path)
    names = ("nsclc-discovery", "nsclc-confirmation")
    cohorts = [load(tmp_path / name) for name in names]
    patients = [set(cohort.patients) for cohort in cohorts]
    assert [len(who) for who in patients] == [34, 16] and not patients[0] & patients[1]
    slides = [maps for name in names for maps in MapsOnDisk(tmp_path / name / "maps")]
    assert len(slides) == 247 and sum(len(maps.cells or ()) for maps in slides) == 285_412
    counts = Counter(TYPES[code] for maps in slides if maps.cells for code in maps.cells.codes)
    assert counts["b_cell"] > 5000 and counts["neoplastic"] > 100_000
    # µm: nuclei of one tissue lie about a cell's width apart, within a field of the scanner
    near = parse("mean(nearest(cells, cells, median))")
    widths = [compute(near, maps).value for maps in slides if len(maps.cells or ()) > 300]
    assert 5 < np.median([width for width in widths if width is not None]) < 15
    assert max(maps.cells.x_um.max() for maps in slides if maps.cells) < 680
    first = [maps for maps in slides if maps.patient == slides[0].patient]
    assert compute_patient(parse("pooled(share(cells.b_cell))"), first).value is not None


def test_tls_of_bladder_cancers(tmp_path: Path) -> None:
    tls_cohort(SHARED, "BLCA", tmp_path)
    cohort = load(tmp_path)
    slides = list(MapsOnDisk(tmp_path / "maps"))
    with (SHARED / "tcga_blca" / "Quantitative_pathology_data.csv").open() as stream:
        trained = {r["hooknet_id"] for r in csv.DictReader(stream) if r["Slide_set"] == "train"}
    assert not trained & {maps.slide for maps in slides} and len(slides) == 252
    count = parse("pooled(count(objects.tls))")
    found = [compute(count, maps).value for maps in slides]
    assert found.count(0.0) > 20 and max(value or 0 for value in found) < 200
    assert compute(parse("pooled(density(objects.tls))"), slides[0]).value is None
    # at 0.5 µm a slide's objects fit on a glass of 75 x 26 mm
    points = np.concatenate([maps.objects.points for maps in slides if maps.objects is not None])
    assert 20_000 < points[:, 0].max() < 75_000 and points[:, 1].max() < 26_000
    assert len(cohort.patients) == 224 and math.isclose(
        cohort.dictionary().endpoints[0].events, 107
    )
