"""Slides painted from a scene with tumor, necrosis, mitoses, lymph nodes, germinal centers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sage.core.seeds import generator
from validation.simulate.slide import (
    Painter,
    SlideTruth,
    draw_discs,
    place_aggregates,
    scatter_points,
    smooth_noise,
)
from validation.statistics.base import BoolArray, FloatArray


@dataclass(frozen=True)
class Scene:
    """Content of a slide besides aggregates: spots as (x, y, radius), points as (x, y), in µm.

    Tumor grows only in the spots of `tumor`; necrosis is eosinophilic, with ghosts of nuclei
    and nuclear dust; each of `mitoses` is a dark plate with arms in a cleared cell. With a
    `hilum`, the tissue is a lymph node: lymphocytes around that spot, below a capsule and
    divided by sinuses. `stain` scales hematoxylin and eosin, to imitate differences between
    laboratories.
    """

    tumor: tuple[tuple[float, float, float], ...] = ()
    necrosis: tuple[tuple[float, float, float], ...] = ()
    mitoses: tuple[tuple[float, float], ...] = ()
    hilum: tuple[float, float, float] | None = None
    stain: tuple[float, float] = (1.0, 1.0)


def render_scene(
    path: Path,
    *,
    seed: int,
    size_px: int | tuple[int, int] = 2048,
    mpp: float = 0.5,
    aggregates: int | list[tuple[float, float, float]] = 3,
    scattered_per_mm2: float = 150.0,
    scene: Scene | None = None,
    germinal_centers: int = 0,
) -> SlideTruth:
    """Paint a slide like `render_slide`, but according to a scene.

    Parameters
    ----------
    size_px : width and height of level 0, or a single number for both
    aggregates : number of lymphoid aggregates to place, or their (x, y, radius) in
        micrometers
    scattered_per_mm2 : lymphocytes outside aggregates
    scene : positions of tumor, necrosis and mitoses; if None, tumor nests drawn from the seed
    germinal_centers : number of aggregates, largest first, with a pale core of half to two
        thirds of their radius, made of centrocytes and centroblasts (nuclei about 9.5 across)

    Raises
    ------
    InputError
        Under the same conditions as in `render_slide`.
    """
    width, height = (size_px, size_px) if isinstance(size_px, int) else size_px
    painter = ScenePainter(width, height, mpp, generator(seed), scene or Scene())
    painter.scattered_per_mm2 = scattered_per_mm2
    if isinstance(aggregates, int):
        painter.placed = place_aggregates(aggregates, painter.tissue, mpp, painter.rng)
    else:
        painter.placed = [(x / mpp, y / mpp, r / mpp) for x, y, r in aggregates]
    if scene is None:
        painter.tumor = painter.grow_nests()
    else:
        painter.lay_out()
    painter.cores = _cores(painter.placed, germinal_centers, painter.rng)
    return painter.write(path, seed)


class ScenePainter(Painter):
    """Painter of a scene."""

    def __init__(
        self, width: int, height: int, mpp: float, rng: np.random.Generator, scene: Scene
    ) -> None:
        self.border_um = 450.0 if scene.hilum is not None else 90.0
        super().__init__(width, height, mpp, rng)
        self.scene, self.stain = scene, scene.stain
        self.necrosis, self.lymphoid = np.zeros_like(self.tissue), np.zeros_like(self.tissue)

    def lay_out(self) -> None:
        """Set the masks of tumor, necrosis and the lymph node's parenchyma."""
        tissue, mpp, rng = self.tissue, self.mpp, self.rng
        self.necrosis = tissue & _draw_ragged(tissue.shape, self.scene.necrosis, mpp, rng)
        tumor = tissue & _draw_ragged(tissue.shape, self.scene.tumor, mpp, rng) & ~self.necrosis
        self.tumor = tumor & ~draw_discs(tissue.shape, [(x, y, 1.1 * r) for x, y, r in self.placed])
        if self.scene.hilum is not None:
            node = _parenchyma(tissue, self.scene.hilum, mpp, rng)
            self.lymphoid = node & ~self.tumor & ~self.necrosis
        self.apart = self.necrosis | self.lymphoid

    def pack_lymphocytes(self, follicles: BoolArray) -> FloatArray:
        """Place lymphocytes in the mantles of aggregates and in a lymph node's parenchyma."""
        dense = super().pack_lymphocytes(follicles)
        if self.lymphoid.any():
            node = self.lymphoid & ~follicles
            packed = scatter_points(node, 9.6 / self.mpp, 0.2, 0.9, self.rng)
            dense = np.concatenate((dense, packed))
        return dense

    def add_nuclei(self) -> None:
        """Draw the cells of germinal centers, the ghosts and dust of necrosis, and mitoses."""
        super().add_nuclei()
        mpp, rng = self.mpp, self.rng
        if self.necrosis.any():
            ghosts = scatter_points(self.necrosis, 19.0 / mpp, 0.2, 0.6, rng)
            self.stamp(ghosts, (10.0, 1.5), 0.7, 0.24)
            dust = scatter_points(self.necrosis, 13.0 / mpp, 0.35, 0.4, rng)
            self.stamp(dust, (2.6, 0.6), 0.6, 0.9)
        for x, y in self.scene.mitoses:
            _mitosis(self.nuclei, x / mpp, y / mpp, mpp, rng)

    def darken(self, density: FloatArray) -> FloatArray:
        """Darken the metaphase plates of mitoses."""
        import cv2

        if not self.scene.mitoses:
            return density
        dark = np.zeros_like(self.nuclei)
        for x, y in self.scene.mitoses:
            center = (round(x / self.mpp), round(y / self.mpp))
            cv2.circle(dark, center, round(7.0 / self.mpp), 255, -1)
        return np.where((dark > 0) & (density > 0.45), 1.75 * density, density)

    def color_eosin(self) -> FloatArray:
        """Return the eosin density outside aggregates; necrosis is eosinophilic."""
        return np.where(self.necrosis, 0.78, super().color_eosin())

    def find_pale(self, follicles: BoolArray) -> BoolArray:
        """Return the mask of aggregates and a lymph node's parenchyma."""
        return follicles | self.lymphoid


def _parenchyma(
    tissue: BoolArray, hilum: tuple[float, float, float], mpp: float, rng: np.random.Generator
) -> BoolArray:
    """Return the mask of a lymph node's parenchyma, without capsule, sinuses and hilum."""
    import cv2

    height, width = tissue.shape
    depth = cv2.distanceTransform(tissue.astype(np.uint8), cv2.DIST_L2, 5) * mpp
    sinus = (depth > 95.0) & (depth < 125.0)
    trabeculae = np.abs(smooth_noise(width, height, 420.0 / mpp, rng)) < 0.035
    pale = _draw_ragged(tissue.shape, (hilum,), mpp, rng)
    return np.asarray(tissue & (depth > 45.0) & ~sinus & ~trabeculae & ~pale, dtype=np.bool_)


def _draw_ragged(
    shape: tuple[int, ...],
    spots: tuple[tuple[float, float, float], ...],
    mpp: float,
    rng: np.random.Generator,
) -> BoolArray:
    """Draw spots in µm with an irregular border that varies by about a twelfth of the radius."""
    y, x = np.ogrid[0 : shape[0], 0 : shape[1]]
    mask = np.zeros(shape, dtype=np.bool_)
    for a, b, r in spots:
        border = 1.0 + 0.08 * smooth_noise(shape[1], shape[0], 70.0 / mpp, rng)
        mask |= np.hypot(x - a / mpp, y - b / mpp) * mpp <= r * border
    return mask


def _cores(
    placed: list[tuple[float, float, float]], count: int, rng: np.random.Generator
) -> list[float]:
    """Draw the radius of each aggregate's germinal center; 0 for aggregates without one."""
    largest = sorted(range(len(placed)), key=lambda at: -placed[at][2])[:count]
    radii = dict(zip(largest, rng.uniform(0.5, 0.67, len(largest)), strict=True))
    return [placed[at][2] * float(radii.get(at, 0.0)) for at in range(len(placed))]


def _mitosis(
    nuclei: npt.NDArray[np.uint8], x: float, y: float, mpp: float, rng: np.random.Generator
) -> None:
    """Draw a metaphase plate with short arms in a cleared cell at x, y in pixels."""
    import cv2

    center = (round(16 * x), round(16 * y))
    cv2.circle(nuclei, center, round(16 * 9.5 / mpp), 0, -1, cv2.LINE_AA, shift=4)
    turn = float(rng.uniform(0, 180))
    axes = (round(16 * 5.2 / mpp), round(16 * 2.1 / mpp))
    cv2.ellipse(nuclei, center, axes, turn, 0, 360, 255, -1, cv2.LINE_AA, shift=4)
    for along in rng.uniform(-4.0, 4.0, 3):
        angle = np.deg2rad(turn)
        arm = (x + along * np.cos(angle) / mpp, y + along * np.sin(angle) / mpp)
        place = (round(16 * arm[0]), round(16 * arm[1]))
        own = (round(16 * 1.1 / mpp), round(16 * 3.4 / mpp))
        tilt = turn + float(rng.uniform(-30, 30))
        cv2.ellipse(nuclei, place, own, tilt, 0, 360, 255, -1, cv2.LINE_AA, shift=4)
