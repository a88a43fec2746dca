"""Nuclei stay the same nuclei when the image around them changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest
from scipy.spatial import cKDTree

from mcp_servers.pathology.compute import nuclei as classical
from mcp_servers.pathology.compute.nuclei import Nuclei
from mcp_servers.pathology.nuclei_net.model import NucleiNetwork, shipped_network
from mcp_servers.slides.arrays import F64, U8
from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError
from tests.mcp_servers.slide_tools import context, png, run
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
    "glass": (partial(in_glass, width=296), 0.05),
    "turned": (turned, 1.0),
    "halves": (halves, 0.03),
}
"""How the image is changed, and the relative change in the number of nuclei that is allowed."""


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_nuclei_are_found(segment: Segment, tissue: U8, bare: Nuclei, change: str) -> None:
    make, least = CHANGES[change]
    found = make(segment, tissue)
    assert shared(bare, found) > LEAST[segment.__qualname__]
    assert abs(len(found.table) - len(bare.table)) < least * len(bare.table)


def dye(image: U8, hematoxylin: float, eosin: float | None = None) -> U8:
    """The same tissue with more or less of each dye (vectors of Ruifrok and Johnston)."""
    vectors = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11]])
    density = -np.log10(np.maximum(image, 1) / 245.0)
    amounts = np.maximum(density @ np.linalg.pinv(vectors), 0)
    change = np.array([hematoxylin, hematoxylin if eosin is None else eosin]) - 1
    density += (amounts * change) @ vectors
    return np.clip(np.round(245 * 10**-density), 0, 255).astype(np.uint8)


def compress(image: U8) -> U8:
    """The image as a JPEG of quality 50."""
    coded = cv2.imencode(".jpg", image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 50])[1]
    decoded = np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), dtype=np.uint8)
    return np.ascontiguousarray(decoded[:, :, ::-1])


def centers(folder: Path, image: U8, **given: Any) -> tuple[dict[str, Any], F64]:
    """What the tool answers, and the nuclei's centers in pixels."""
    png(folder / "s.png", image)
    answer = run(context(folder), "nuclei", slide="s.png", mpp=MPP, outlines=False, **given)
    table = pd.read_csv(folder / "out" / answer["table"])
    return answer, table[["x", "y"]].to_numpy()


def pair(first: F64, second: F64, reach: float = 3.0) -> float:
    """F1 of two sets of centers, each used once."""
    near = cKDTree(second).query(first)[1]
    back = cKDTree(first).query(second)[1]
    distance = np.linalg.norm(first - second[near], axis=1)
    matched = (back[near] == np.arange(len(first))) & (distance <= reach)
    return float(2 * matched.sum() / (len(first) + len(second)))


STAINS: dict[str, tuple[Callable[[U8], U8], float]] = {
    "less hematoxylin": (partial(dye, hematoxylin=0.6, eosin=1.0), 0.92),
    "more hematoxylin": (partial(dye, hematoxylin=1.5, eosin=1.0), 0.92),
    "three times the dye": (partial(dye, hematoxylin=3.0), 0.92),
    "JPEG": (compress, 0.90),
}


@pytest.mark.parametrize("change", STAINS)
def test_the_default_finds_the_same_nuclei_under_another_stain(
    tmp_path: Path, tissue: U8, change: str
) -> None:
    make, least = STAINS[change]
    (tmp_path / "plain").mkdir()
    _, before = centers(tmp_path / "plain", tissue)
    _, after = centers(tmp_path, make(tissue))
    assert pair(before, after) >= least


def test_a_slide_too_pale_for_the_network_has_no_value(tmp_path: Path, tissue: U8) -> None:
    usual, dark, pale = (centers(tmp_path, dye(tissue, k))[0] for k in (1.0, 3.0, 0.34))
    assert dark["strength"] > 2 * usual["strength"] > 4 * pale["strength"]
    with pytest.raises(InputError, match="no value"):
        centers(tmp_path, dye(tissue, 0.3))
    assert centers(tmp_path, dye(tissue, 0.3), method="learned")[0]["method"] == "learned"


def test_agreement_of_labels_by_hand() -> None:
    first = np.zeros((6, 12), np.int32)
    first[:3, :4], first[:3, 6:10] = 1, 2
    second = first.copy()
    second[0, :4] = 0  # 8 of 12 pixels: still the same
    second[:, 6:8] = 0  # 6 of 12 pixels: not more than half
    assert classical.agreement(first, second) == pytest.approx(0.5)
    assert classical.agreement(first * 0, second * 0) == 0
