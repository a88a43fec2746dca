"""Nuclei stay the same nuclei when the image around them changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import cKDTree

from mcp_servers.pathology.compute.nuclei import Nuclei, segment
from mcp_servers.slides.arrays import U8
from mcp_servers.slides.slide import Slide
from validation.simulate.slide import render_slide

MPP = 0.5
MARGIN = 40


@pytest.fixture(scope="module")
def tissue(tmp_path_factory: pytest.TempPathFactory) -> U8:
    """600 x 600 px of painted tissue without glass."""
    path = tmp_path_factory.mktemp("nuclei") / "s.tif"
    render_slide(path, seed=12, size_px=1600, mpp=MPP, aggregates=2)
    with Slide.open(path) as slide:
        return slide.read(500, 500, 600, 600)


def shared(first: Nuclei, second: Nuclei, moved: tuple[float, float], side: int = 600) -> float:
    """Share of the nuclei of `first` away from the border that `second` has within 1.5 px."""
    here, there = first.table[:, :2], second.table[:, :2] - moved
    inner = here[((here > MARGIN) & (here < side - MARGIN)).all(axis=1)]
    assert len(inner) > 100
    return float(np.mean(cKDTree(there).query(inner)[0] < 1.5))


@pytest.mark.parametrize("glass", [64, 128, 774])
def test_a_border_of_glass_moves_no_nucleus(tissue: U8, glass: int) -> None:
    around = ((glass, glass), (glass, glass), (0, 0))
    padded = np.pad(tissue, around, constant_values=244)
    found, bare = segment(padded, MPP), segment(tissue, MPP)
    assert shared(bare, found, (glass, glass)) > 0.98
    assert abs(len(found.table) - len(bare.table)) < 0.05 * len(bare.table)


def test_turning_and_mirroring_turns_and_mirrors_the_nuclei(tissue: U8) -> None:
    bare = segment(tissue, MPP)
    turned = segment(np.ascontiguousarray(np.rot90(tissue)), MPP)
    back = np.stack([599 - turned.table[:, 1], turned.table[:, 0]], axis=1)
    turned.table[:, :2] = back
    assert shared(bare, turned, (0, 0)) > 0.97
    mirrored = segment(np.ascontiguousarray(tissue[:, ::-1]), MPP)
    mirrored.table[:, 0] = 599 - mirrored.table[:, 0]
    assert shared(bare, mirrored, (0, 0)) > 0.97


def test_a_crop_finds_the_nuclei_of_the_whole(tissue: U8, tmp_path: Path) -> None:
    bare = segment(tissue, MPP)
    crop = segment(np.ascontiguousarray(tissue[100:500, 100:500]), MPP)
    inside = ((bare.table[:, :2] > 140) & (bare.table[:, :2] < 460)).all(axis=1)
    there = crop.table[:, :2] + 100
    assert np.mean(cKDTree(there).query(bare.table[inside, :2])[0] < 1.5) > 0.95
