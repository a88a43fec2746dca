"""Lymph nodes with planted deposits: isolated tumor cells, micro- and macrometastases, or none.

Classes by the greatest dimension, as the AJCC staging manual draws them: isolated tumor cells up
to 0.2 mm, micrometastasis above 0.2 and up to 2 mm, macrometastasis above 2 mm. Follicles with
pale germinal centers, sinuses and a hilum are what a reader could mistake for a deposit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from sage.core.seeds import generator
from validation.simulate.slide import Scene, SlideTruth, render_slide

Burden = Literal["none", "isolated tumor cells", "micrometastasis", "macrometastasis"]
BURDENS: tuple[Burden, ...] = (
    "none", "isolated tumor cells", "micrometastasis", "macrometastasis",
)  # fmt: skip
RADIUS_UM: dict[Burden, tuple[float, float]] = {
    "isolated tumor cells": (45.0, 80.0),
    "micrometastasis": (130.0, 380.0),
    "macrometastasis": (1080.0, 1130.0),
}
"""Radii that stay within the class although borders are ragged."""
SIZE_PX = (5600, 4200)
MPP = 0.65
NODE_PURPOSE = 21


@dataclass(frozen=True)
class Node:
    """A lymph node as it is to be painted; places and radii in µm."""

    seed: int
    patient: int
    burden: Burden
    deposits: tuple[tuple[float, float, float], ...]
    follicles: tuple[tuple[float, float, float], ...]
    germinal_centers: int
    hilum: tuple[float, float, float]
    stain: tuple[float, float]

    @property
    def name(self) -> str:
        """Name of the slide: patient, then the number of its node."""
        return f"node-p{self.patient:03d}-{self.seed:05d}"


def plant_node(seed: int, patient: int, burden: Burden | None = None) -> Node:
    """A node by its seed; stain and how many follicles there are go with the patient.

    Parameters
    ----------
    seed : of the node
    patient : whose nodes share stain and reactivity
    burden : what to plant; by the seed when None, half of the nodes without a deposit
    """
    own = generator(patient, NODE_PURPOSE)
    stain = (float(own.uniform(0.85, 1.15)), float(own.uniform(0.85, 1.2)))
    reactive = int(own.integers(3, 9))
    rng = generator(seed, NODE_PURPOSE, 1)
    drawn: Burden = BURDENS[int(rng.choice(4, p=(0.5, 0.15, 0.2, 0.15)))]
    burden = burden or drawn
    middle = np.array(SIZE_PX) * MPP / 2
    away = rng.uniform(0, 2 * np.pi)
    mouth = middle + 0.8 * middle * np.array([np.cos(away), np.sin(away)])
    hilum = (float(mouth[0]), float(mouth[1]), float(rng.uniform(350.0, 550.0)))
    taken: list[tuple[float, float, float]] = []

    def free(radius: float, gap: float) -> bool:
        """Take a place within the node, clear of what is there; False where none is found."""
        reach = max(0.02, 0.9 - (radius + 150.0) / float(middle.min()))
        for _ in range(200):
            way, far = rng.uniform(0, 2 * np.pi), np.sqrt(rng.uniform(0, 1)) * reach
            x, y = (middle + middle * far * np.array([np.cos(way), np.sin(way)])).tolist()
            others = taken if radius > 1000.0 else [*taken, hilum]
            if all(np.hypot(x - a, y - b) > radius + r + gap for a, b, r in others):
                taken.append((float(x), float(y), radius))
                return True
        return False

    if burden != "none":
        low, high = RADIUS_UM[burden]
        free(float(rng.uniform(low, high)), 0.0)
        for _ in range(0 if burden == "macrometastasis" else int(rng.integers(0, 3))):
            free(float(rng.uniform(low, min(high, 200.0))), 250.0)
    deposits = tuple(taken)
    for _ in range(reactive + int(rng.integers(0, 3))):
        free(float(rng.uniform(110.0, 240.0)), 60.0)
    follicles = tuple(taken[len(deposits) :])
    return Node(
        seed=seed,
        patient=patient,
        burden=burden,
        deposits=deposits,
        follicles=follicles,
        germinal_centers=int(rng.integers(0, len(follicles) + 1)),
        hilum=hilum,
        stain=stain,
    )


def render_node(path: Path, node: Node, mpp: float = MPP) -> SlideTruth:
    """Paint a node as a tiled pyramidal TIFF of 3.6 x 2.7 mm.

    Coarser than about 0.7 µm per pixel nuclei can no longer be told apart, but the overview is the
    same, and much sooner painted.
    """
    width, height = (round(side * MPP / mpp) for side in SIZE_PX)
    return render_slide(
        path,
        seed=node.seed,
        size_px=(width, height),
        mpp=mpp,
        aggregates=list(node.follicles),
        scattered_per_mm2=250.0,
        levels=4,
        germinal_centers=node.germinal_centers,
        scene=Scene(tumor=node.deposits, hilum=node.hilum, stain=node.stain),
    )
