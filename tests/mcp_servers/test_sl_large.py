"""Memory on a slide of 75 x 25 mm, in a process of its own."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from mcp_servers.formats import spool
from mcp_servers.formats.images import write_png_rows
from mcp_servers.pathology.compute import survey as surveys
from mcp_servers.pathology.compute.distance import Border
from mcp_servers.pathology.compute.lymphoid import aggregates
from mcp_servers.pathology.compute.survey import LAYERS, TILE, Survey
from mcp_servers.pathology.compute.tumor import clean_mask, zones
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from mcp_servers.slides import arrays as grids
from mcp_servers.workers.jobs import make_job
from tests.mcp_servers.large_slide import run_apart, tissue_cells, write_large_slide
from tests.mcp_servers.slide_tools import blobs

WIDTH, HEIGHT = 300_000, 100_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.svs"
    painted = np.ascontiguousarray(blobs(1000, 1000)[244:756, 244:756])
    write_large_slide(path, WIDTH, HEIGHT, painted, tissue_cells(WIDTH, HEIGHT, 0.3))
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc for peak memory")
def test_tissue_and_tiles_of_a_large_slide_stay_within_the_memory_they_state(
    large: Path, tmp_path: Path
) -> None:
    got = run_apart(large, tmp_path, {"tissue_mask": {}, "tile_slide": {"at_mpp": 2.0}})
    for name in ("tissue_mask", "tile_slide"):
        assert got["peak_mib"] < load("pathology").get(name).resources.memory_mb
    assert got["tile_slide"]["tiles"] > 1000


def painted_survey(width_um: float, height_um: float, tissue: int) -> Survey:
    """A survey whose first `tissue` columns are tissue with clusters of lymphocytes and nests."""
    survey = Survey.empty(width_um, height_um, 0.2, 0.3, (255, 255, 255))
    rng = np.random.default_rng(4)

    def field(sigma: float) -> NDArray[np.float32]:
        shape = (survey.shape[0], tissue)
        values = cv2.GaussianBlur(rng.standard_normal(shape).astype(np.float32), (0, 0), sigma)
        return np.asarray(values / values.std())

    window = (slice(0, survey.shape[0]), slice(0, tissue))
    ones, immune, nests = np.ones((survey.shape[0], tissue), np.float32), field(9.0), field(12.0)
    crowded = rng.random(immune.shape) < np.where(immune > 1.3, 0.7, 0.02)
    for name, values in (
        ("tissue", ones),
        ("nuclear", 0.1 + 0.5 * crowded),
        ("nuclear_red", 0.05 + 0.3 * crowded),
        ("nuclear_green", 0.05 + 0.2 * crowded),
        ("red", 0.1 + 0.1 * (nests > 0.5) + 0.3 * crowded),
        ("green", 0.3 + 0.2 * crowded),
    ):
        survey.write_layer(name, window, np.asarray(values, dtype=np.float32))
    for name in ("lymphocytes", "nuclei", "regular"):
        survey.count(name, *np.nonzero(crowded))
    return survey


def test_glass_takes_no_memory_in_the_survey() -> None:
    survey = Survey.empty(25_000, 10_000, 0.2, 0.3, (255, 255, 255))
    assert survey.tiles.nbytes == 0
    survey.write_layer("green", np.s_[1000:1128, 2000:2128], np.full((128, 128), 0.5, np.float32))
    survey.count("nuclei", np.array([1000, 1000, 1249]), np.array([2000, 2000, 3124]))
    assert survey.tiles.nbytes <= 6 * len(LAYERS) * TILE**2
    assert survey.layer("green")[999:1129, 1999:2129].sum() == 0.5 * 128**2
    assert survey.layer("green", slice(1100, 1200)).sum() == 0.5 * 28 * 128
    assert survey.layer("nuclei")[1000, 2000] == 2
    assert survey.layer("nuclei")[1249, 3124] == 1
    assert survey.layer("nuclei").sum() == 3


def test_results_depend_neither_on_the_bands_nor_on_the_tiles_that_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for band, held in ((16, 512), (128, 1), (10_000, 3)):
        monkeypatch.setattr(grids, "BAND", band)
        monkeypatch.setattr(surveys, "HELD", held)
        survey = painted_survey(3000, 2500, 300)
        immune = aggregates(survey, min_regular=0.0)
        mask = clean_mask((survey.layer("red") > 0.15) & ~immune.mask, 2000.0)
        places = immune.regions.pieces()
        inside = [(places.box(k), places.cells(k)) for k in range(1, immune.regions.count + 1)]
        far = np.concatenate(Border(mask).measure_places(inside))
        parts = np.stack(list(zones(mask, survey.tissue, 50.0).values()))
        assert parts.any(axis=(1, 2)).all()
        found.append((immune.table, immune.mask, mask, far, parts))
    for other in found[1:]:
        assert len(found[0][0]) > 3
        assert found[0][2].any()
        for one, two in zip(found[0], other, strict=True):
            assert np.array_equal(one, two)


def test_aggregates_and_tumor_take_less_than_six_bytes_a_cell_beside_the_survey() -> None:
    survey = painted_survey(8_000, 8_000, 470)  # a million cells, 47% tissue
    cells = survey.shape[0] * survey.shape[1]
    aggregates(painted_survey(500, 500, 60))  # imports
    tracemalloc.start()
    aggregates(survey)
    mask = clean_mask(survey.tissue, 20_000.0)
    distance = Border(mask)
    for rows in survey.bands():
        distance.distance(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # label images, distances and scores of the whole took four bytes a cell each, several at once
    assert peak < 6 * cells + 12 * 2**20


def test_a_table_too_long_to_hold_comes_back_as_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "CHUNK", 7)
    rows = np.random.default_rng(1).random((40, 3))
    with spool.Spool(tmp_path, 3) as table:
        assert [len(part) for part in table.chunks()] == [0]
        for part in np.array_split(rows, 6):
            table.append(part)
        assert np.array_equal(np.concatenate(list(table.chunks())), rows)
        table.drop(np.array([0, 13, 14, 39]))
        left = np.delete(rows, [0, 13, 14, 39], axis=0)
        assert np.array_equal(np.concatenate(list(table.chunks())), left)
        assert np.array_equal(table.column(2), left[:, 2])
        assert len(table) == 36
    assert list(tmp_path.iterdir()) == []


def test_a_png_written_by_rows_is_the_picture(tmp_path: Path) -> None:
    picture = np.random.default_rng(2).integers(0, 256, (37, 53, 3), dtype=np.uint8)
    parts = [picture[:5], picture[5:6], picture[6:]]
    write_png_rows(tmp_path / "a.png", 53, 37, parts)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "a.png")), picture)
    with pytest.raises(ValueError, match="36 rows"):
        write_png_rows(tmp_path / "b.png", 53, 37, [picture[:36]])


def test_a_job_is_given_the_memory_that_its_encoder_takes() -> None:
    spec = load("pathology").get("encode_tiles")
    roots = Roots((), Path("/nowhere"))
    needed = {
        name: make_job(spec, {"slide": "a.svs", "encoder": name}, roots).resources.memory_mb
        for name in ("handcrafted", "uni2", "h-optimus-0")
    }
    assert needed["handcrafted"] == spec.resources.memory_mb == 1024
    assert needed["h-optimus-0"] > 5 * 1024 > needed["uni2"] > 3.5 * 1024
