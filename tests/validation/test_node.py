"""Simulated lymph nodes: what is planted, its class, and what is painted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import shapely

from benchmarks.simulate.node import BURDENS, MPP, RADIUS_UM, SIZE_PX, Burden, plant_node
from mcp_servers.slides.slide import Slide
from sage.core.seeds import generator
from validation.simulate.slide import Scene, _ragged, render_slide

BOUNDS_UM = {
    "isolated tumor cells": (0.0, 200.0),
    "micrometastasis": (200.0, 2000.0),
    "macrometastasis": (2000.0, 1e9),
}


@pytest.mark.parametrize("burden", BURDENS)
def test_what_is_planted_is_of_its_class_within_the_node_and_apart(burden: Burden) -> None:
    wide, high = (side * MPP for side in SIZE_PX)
    for seed in range(12):
        node = plant_node(seed, seed // 2, burden)
        assert node == plant_node(seed, seed // 2, burden)
        assert bool(node.deposits) == (burden != "none")
        for x, y, radius in (*node.deposits, *node.follicles):
            away = np.hypot((x - wide / 2) / (wide / 2), (y - high / 2) / (high / 2))
            assert away + radius / (high / 2) < 1.0
        circles = [*node.deposits, *node.follicles]
        for place, (x, y, radius) in enumerate(circles):
            for a, b, other in circles[:place]:
                assert np.hypot(x - a, y - b) > radius + other


@pytest.mark.parametrize("burden", BURDENS[1:])
def test_painted_deposits_keep_to_their_class_by_the_greatest_dimension(burden: Burden) -> None:
    """Borders are ragged; the longest distance within the painted mask decides."""
    mpp = 10.0 if burden != "isolated tumor cells" else 2.0
    low, high = BOUNDS_UM[burden]
    for seed, radius in enumerate(np.linspace(*RADIUS_UM[burden], 12).tolist()):
        side = round(3.0 * radius / mpp)
        spot = (1.5 * radius, 1.5 * radius, radius)
        mask = _ragged((side, side), (spot,), mpp, generator(seed))
        points = np.argwhere(mask) * mpp
        hull = shapely.get_coordinates(shapely.MultiPoint(points).convex_hull)
        longest = max(np.hypot(*(a - b)) for a in hull for b in hull)
        assert low < longest <= high


def test_nodes_of_a_patient_share_their_stain_and_others_do_not() -> None:
    assert plant_node(1, 7).stain == plant_node(2, 7).stain != plant_node(1, 8).stain
    burdens = {plant_node(seed, 0).burden for seed in range(60)}
    assert burdens == set(BURDENS)


def test_a_node_is_packed_with_lymphocytes_but_for_its_deposit_and_hilum(tmp_path: Path) -> None:
    scene = Scene(tumor=((500.0, 400.0, 150.0),), hilum=(900.0, 400.0, 150.0), stain=(1.1, 0.9))
    path = tmp_path / "node.tiff"
    truth = render_slide(
        path, seed=1, size_px=(1200, 800), mpp=1.0, aggregates=[(300.0, 400.0, 90.0)], scene=scene
    )

    def count(points: np.ndarray, x: float, y: float, radius: float) -> int:
        return int((np.hypot(points[:, 0] - x, points[:, 1] - y) < radius).sum())

    assert count(truth.tumor_nuclei, 500, 400, 120) > 100
    assert count(truth.lymphocytes, 500, 400, 100) < 0.1 * count(truth.lymphocytes, 600, 600, 100)
    assert count(truth.lymphocytes, 900, 400, 100) < 0.1 * count(truth.lymphocytes, 600, 600, 100)
    assert np.hypot(truth.tumor_nuclei[:, 0] - 500, truth.tumor_nuclei[:, 1] - 400).max() < 220
    with Slide.open(path) as slide:
        red = slide.thumbnail(1200)[..., 0].astype(float)
    node, hilum = red[280:320, 630:670].mean(), red[380:420, 880:920].mean()
    assert node < hilum, "hematoxylin, which takes red away, is in the lymphocytes"
