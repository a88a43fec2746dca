"""Nuclei stay the same nuclei when the image around them changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.spatial import cKDTree

from mcp_servers.pathology.compute import nuclei as classical
from mcp_servers.pathology.compute.nuclei import Nuclei
from mcp_servers.slides.arrays import U8
from mcp_servers.slides.slide import Slide
from validation.simulate.slide import render_slide

MPP = 0.5
MARGIN = 40


Segment = Callable[[U8, float], Nuclei]
LEAST = {"segment": 0.95, "NucleiNetwork.segment": 0.87}
"""Share of the same nuclei after a change. The network halves its input three times, so what it
finds depends a little on where an image begins; the blocks of a slide begin at multiples of 8."""


@pytest.fixture(scope="module", params=["classical", "network"])
def segment(request: pytest.FixtureRequest) -> Segment:
    """The classical method, and the network that ships."""
    if request.param == "classical":
        return classical.segment
    pytest.importorskip("torch")
    from mcp_servers.pathology.nuclei_net.model import NucleiNetwork, shipped_network

    path = shipped_network()
    assert path is not None
    return NucleiNetwork(path).segment


@pytest.fixture(scope="module")
def tissue(tmp_path_factory: pytest.TempPathFactory) -> U8:
    """600 x 600 px of painted tissue without glass."""
    path = tmp_path_factory.mktemp("nuclei") / "s.tif"
    render_slide(path, seed=12, size_px=1600, mpp=MPP, aggregates=2)
    with Slide.open(path) as slide:
        return slide.read(500, 500, 600, 600)


@pytest.fixture(scope="module")
def bare(segment: Segment, tissue: U8) -> Nuclei:
    """What is found in the tissue as it is."""
    return segment(tissue, MPP)


def shared(first: Nuclei, second: Nuclei, moved: tuple[float, float], side: int = 600) -> float:
    """Share of the nuclei of `first` away from the border that `second` has within 1.5 px."""
    here, there = first.table[:, :2], second.table[:, :2] - moved
    inner = here[((here > MARGIN) & (here < side - MARGIN)).all(axis=1)]
    assert len(inner) > 100
    return float(np.mean(cKDTree(there).query(inner)[0] < 1.5))


@pytest.mark.parametrize("glass", [64, 296])
def test_a_border_of_glass_moves_no_nucleus(
    segment: Segment, tissue: U8, bare: Nuclei, glass: int
) -> None:
    around = ((glass, glass), (glass, glass), (0, 0))
    padded = np.pad(tissue, around, constant_values=244)
    found = segment(padded, MPP)
    assert shared(bare, found, (glass, glass)) > LEAST[segment.__qualname__]
    assert abs(len(found.table) - len(bare.table)) < 0.05 * len(bare.table)


def test_turning_and_mirroring_turns_and_mirrors_the_nuclei(
    segment: Segment, tissue: U8, bare: Nuclei
) -> None:
    """A transposed image is one turned and mirrored."""
    turned = segment(np.ascontiguousarray(tissue.swapaxes(0, 1)), MPP)
    turned.table[:, :2] = turned.table[:, 1::-1].copy()
    assert shared(bare, turned, (0, 0)) > LEAST[segment.__qualname__]


def test_a_crop_finds_the_nuclei_of_the_whole(segment: Segment, tissue: U8, bare: Nuclei) -> None:
    crop = segment(np.ascontiguousarray(tissue[100:500, 100:500]), MPP)
    inside = ((bare.table[:, :2] > 140) & (bare.table[:, :2] < 460)).all(axis=1)
    there = crop.table[:, :2] + 100
    assert (
        np.mean(cKDTree(there).query(bare.table[inside, :2])[0] < 1.5) > LEAST[segment.__qualname__]
    )


def test_a_shift_shifts_the_nuclei(segment: Segment, tissue: U8, bare: Nuclei) -> None:
    x, y = 3, 5
    moved = segment(np.ascontiguousarray(tissue[y:, x:]), MPP)
    assert shared(bare, moved, (-x, -y)) > LEAST[segment.__qualname__]


def test_other_blocks_find_the_same_nuclei(segment: Segment, tissue: U8, bare: Nuclei) -> None:
    """Two halves with the overlap of the walk over a slide."""
    left = segment(np.ascontiguousarray(tissue[:, :340]), MPP)
    right = segment(np.ascontiguousarray(tissue[:, 260:]), MPP)
    right.table[:, 0] += 260
    parts = [left.table[left.table[:, 0] < 300], right.table[right.table[:, 0] >= 300]]
    both = Nuclei(bare.labels, np.concatenate(parts), bare.contrast)
    assert shared(bare, both, (0, 0)) > LEAST[segment.__qualname__]
    assert abs(len(both.table) - len(bare.table)) < 0.03 * len(bare.table)
