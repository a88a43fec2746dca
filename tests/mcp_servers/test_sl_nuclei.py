"""Nuclei stay the same nuclei when the image around them changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy.spatial import cKDTree

from mcp_servers.pathology.compute import nuclei as classical
from mcp_servers.pathology.compute.nuclei import Nuclei
from mcp_servers.pathology.nuclei_net.model import NucleiNetwork, shipped_network
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


def shared(first: Nuclei, second: Nuclei, low: int = MARGIN, high: int = 600 - MARGIN) -> float:
    """Share of the nuclei of `first` between two limits that `second` has within 1.5 px."""
    here, there = first.table[:, :2], second.table[:, :2]
    inner = here[((here > low) & (here < high)).all(axis=1)]
    assert len(inner) > 100
    return float(np.mean(cKDTree(there).query(inner)[0] < 1.5))


def in_glass(find: Segment, tissue: U8, width: int) -> Nuclei:
    """A border of glass around the tissue."""
    padded = np.pad(tissue, ((width, width), (width, width), (0, 0)), constant_values=244)
    return moved(find(padded, MPP), -width, -width)


def turned(find: Segment, tissue: U8) -> Nuclei:
    """A transposed image is one turned and mirrored."""
    found = find(np.ascontiguousarray(tissue.swapaxes(0, 1)), MPP)
    found.table[:, :2] = found.table[:, 1::-1].copy()
    return found


def shifted(find: Segment, tissue: U8) -> Nuclei:
    return moved(find(np.ascontiguousarray(tissue[5:, 3:]), MPP), 3, 5)


def halves(find: Segment, tissue: U8) -> Nuclei:
    """Two halves with the overlap of the walk over a slide."""
    left = find(np.ascontiguousarray(tissue[:, :340]), MPP)
    right = moved(find(np.ascontiguousarray(tissue[:, 260:]), MPP), 260, 0)
    parts = [left.table[left.table[:, 0] < 300], right.table[right.table[:, 0] >= 300]]
    return Nuclei(left.labels, np.concatenate(parts), left.contrast)


def moved(found: Nuclei, x: int, y: int) -> Nuclei:
    found.table[:, :2] += (x, y)
    return found


CHANGES: dict[str, tuple[Callable[[Segment, U8], Nuclei], float]] = {
    "glass of 64": (partial(in_glass, width=64), 0.05),
    "glass of 296": (partial(in_glass, width=296), 0.05),
    "turned": (turned, 1.0),
    "shifted": (shifted, 1.0),
    "halves": (halves, 0.03),
}
"""How the image is changed, and the relative change in the number of nuclei that is allowed."""


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_nuclei_are_found(segment: Segment, tissue: U8, bare: Nuclei, change: str) -> None:
    make, least = CHANGES[change]
    found = make(segment, tissue)
    assert shared(bare, found) > LEAST[segment.__qualname__]
    assert abs(len(found.table) - len(bare.table)) < least * len(bare.table)


def test_a_crop_finds_the_nuclei_of_the_whole(segment: Segment, tissue: U8, bare: Nuclei) -> None:
    crop = moved(segment(np.ascontiguousarray(tissue[100:500, 100:500]), MPP), 100, 100)
    assert shared(bare, crop, 140, 460) > LEAST[segment.__qualname__]
