"""Memory on a slide of 75 x 25 mm, by the benchmark's own slide and measurement."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.large_slide import run_apart, tissue_cells, write_large_slide
from mcp_servers.pathology.compute.survey import LAYERS, Survey
from mcp_servers.registry import load
from mcp_servers.slides.slide import Slide
from tests.mcp_servers.slide_tools import blobs

WIDTH, HEIGHT = 300_000, 100_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.svs"
    painted = np.ascontiguousarray(blobs(6000, 6000)[2000:4048, 2000:4048])
    write_large_slide(path, WIDTH, HEIGHT, painted, tissue_cells(WIDTH, HEIGHT, 0.3))
    return path


def test_the_large_slide_is_a_slide(large: Path) -> None:
    assert large.stat().st_size < 40 * 2**20
    with Slide.open(large) as slide, Slide.open(large, backend="openslide") as reference:
        assert (slide.width, slide.height, slide.mpp) == (WIDTH, HEIGHT, 0.25)
        assert len(slide.levels) == 4
        for x, y in ((0, 0), (WIDTH // 2, HEIGHT // 2)):
            ours = slide.read(x, y, 300, 300, level=1)
            assert np.array_equal(ours, reference.read(x, y, 300, 300, level=1))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc for peak memory")
def test_tissue_and_tiles_of_a_large_slide_stay_within_the_memory_they_state(
    large: Path, tmp_path: Path
) -> None:
    for name, settings in (("tissue_mask", {}), ("tile_slide", {"at_mpp": 2.0})):
        got = run_apart(name, large, tmp_path, settings)
        assert got["peak_mib"] < load("pathology").get(name).resources.memory_mb
    assert got["result"]["tiles"] > 1000


def test_the_grid_of_a_large_slide_leaves_half_of_a_gibibyte(large: Path) -> None:
    survey = Survey.empty(75_000, 25_000, 0.2, (255, 255, 255))
    assert len(survey.stored) == len(LAYERS)
    assert sum(one.nbytes for one in survey.stored.values()) < 512 * 2**20
