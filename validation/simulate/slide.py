"""Small slides painted in stain space: hematoxylin nuclei on eosin tissue, known aggregates.

Optical density is the sum of two stains' concentrations times their color vectors (Ruifrok and
Johnston 2001, Anal Quant Cytol Histol), so that color deconvolution finds what was painted. Sizes
are in micrometers: lymphocyte nuclei about 7 across, tumor nuclei 9 to 14, aggregates 150 to 400.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sage.core.errors import InputError
from sage.core.files import replacing
from sage.core.seeds import generator
from validation.statistics.base import BoolArray, FloatArray, IntArray

Image = npt.NDArray[np.uint8]
HEMATOXYLIN = (0.650, 0.704, 0.286)
EOSIN = (0.072, 0.990, 0.105)
DESCRIPTION = "SIMULATED slide (SAGE planted-truth generator); no patient. mpp = {mpp:g}"


@dataclass(frozen=True)
class Aggregate:
    """A lymphoid aggregate: center and radius in pixels of level 0, and its lymphocytes.

    `core` is the radius of the germinal center in its middle, 0 where there is none.
    """

    x: float
    y: float
    radius: float
    lymphocytes: int
    core: float = 0.0


@dataclass(frozen=True)
class Scene:
    """What a slide shall show beside aggregates: spots as (x, y, radius), points as (x, y), in µm.

    Tumor grows in the spots of `tumor` alone; necrosis is eosinophilic, with ghosts of nuclei and
    nuclear dust; each of `mitoses` is one dark plate with arms in a cleared cell. With a `hilum`
    the tissue is a lymph node: lymphocytes below a capsule, parted by sinuses, around that spot.
    `stain` multiplies hematoxylin and eosin, as laboratories differ.
    """

    tumor: tuple[tuple[float, float, float], ...] = ()
    necrosis: tuple[tuple[float, float, float], ...] = ()
    mitoses: tuple[tuple[float, float], ...] = ()
    hilum: tuple[float, float, float] | None = None
    stain: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class SlideTruth:
    """What was painted on a slide. Positions and sizes in pixels of level 0, areas in mm2."""

    path: str
    seed: int
    width: int
    height: int
    mpp: float
    tissue_mm2: float
    aggregates: tuple[Aggregate, ...]
    tumor_nuclei: IntArray
    stroma_nuclei: IntArray
    lymphocytes: IntArray
    tumor_fraction: float
    simulated: bool = True

    def write(self, path: Path) -> None:
        """Write the truth as JSON beside the slide."""
        record = asdict(self) | {
            "simulated": True,
            "path": Path(self.path).name,
            "tumor_nuclei": self.tumor_nuclei.tolist(),
            "stroma_nuclei": self.stroma_nuclei.tolist(),
            "lymphocytes": self.lymphocytes.tolist(),
        }
        path.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")


def render_slide(
    path: Path,
    *,
    seed: int,
    size_px: int | tuple[int, int] = 2048,
    mpp: float = 0.5,
    aggregates: int | list[tuple[float, float, float]] = 3,
    scattered_per_mm2: float = 150.0,
    levels: int = 3,
    scene: Scene | None = None,
    germinal_centers: int = 0,
) -> SlideTruth:
    """Paint a slide and write it as a tiled pyramidal TIFF (JPEG, 256-pixel tiles).

    Parameters
    ----------
    size_px : width and height of level 0, or one number for both
    mpp : micrometers per pixel of level 0, also written as the TIFF's resolution
    aggregates : how many lymphoid aggregates to place, or their (x, y, radius) in micrometers
    scattered_per_mm2 : lymphocytes outside aggregates
    levels : pyramid levels, each half the size of the one before
    scene : where tumor, necrosis and mitoses are; tumor nests by the seed when None
    germinal_centers : how many of the aggregates, the largest first, get a pale core of half to
        two thirds of their radius, of centrocytes and centroblasts (nuclei about 9.5 across)

    Raises
    ------
    InputError
        Size or resolution with which no tissue can be painted, or aggregates that do not fit.
    """
    width, height = (size_px, size_px) if isinstance(size_px, int) else size_px
    if min(width, height) < 256 or not 0.1 <= mpp <= 4.0:
        raise InputError(
            f"render_slide: size {width} x {height} at {mpp:g} um per pixel: at least 256 pixels"
            " and 0.1 to 4 um per pixel are needed"
        )
    rng = generator(seed)
    node = scene is not None and scene.hilum is not None
    tissue = _tissue(width, height, mpp, rng, 450.0 if node else 90.0)
    placed = _place(aggregates, tissue, mpp, rng)
    necrosis, lymphoid = np.zeros_like(tissue), np.zeros_like(tissue)
    if scene is None:
        tumor = _nests(tissue, placed, mpp, rng)
    else:
        necrosis = tissue & _ragged(tissue.shape, scene.necrosis, mpp, rng)
        tumor = tissue & _ragged(tissue.shape, scene.tumor, mpp, rng) & ~necrosis
        tumor &= ~_discs(tissue.shape, [(x, y, 1.1 * r) for x, y, r in placed])
        if scene.hilum is not None:
            lymphoid = _parenchyma(tissue, scene.hilum, mpp, rng) & ~tumor & ~necrosis
    scene = scene or Scene()
    cores = _cores(placed, germinal_centers, rng)
    truth, image = _paint(
        tissue, tumor, necrosis, lymphoid, scene, placed, cores, mpp, scattered_per_mm2, rng
    )
    write_tiff(path, image, mpp, levels)
    area = float(tissue.sum()) * (mpp / 1000.0) ** 2
    return SlideTruth(
        path=str(path),
        seed=seed,
        width=width,
        height=height,
        mpp=mpp,
        tissue_mm2=area,
        aggregates=truth[0],
        tumor_nuclei=truth[1],
        stroma_nuclei=truth[2],
        lymphocytes=truth[3],
        tumor_fraction=float(tumor.sum() / max(tissue.sum(), 1)),
    )


def _smooth_noise(width: int, height: int, scale_px: float, rng: np.random.Generator) -> FloatArray:
    """Noise with structures of about `scale_px`, mean 0 and sd 1."""
    import cv2

    small = (max(4, round(height / scale_px)), max(4, round(width / scale_px)))
    noise = rng.standard_normal(small).astype(np.float32)
    big = cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.asarray((big - big.mean()) / (big.std() + 1e-6), dtype=np.float64)


def _tissue(
    width: int, height: int, mpp: float, rng: np.random.Generator, border_um: float
) -> BoolArray:
    """A rounded piece of tissue, white glass around it; its border waves over `border_um`."""
    y, x = np.mgrid[0:height, 0:width]
    away = np.hypot((x - width / 2) / (width / 2), (y - height / 2) / (height / 2))
    ragged = 0.05 * _smooth_noise(width, height, max(40.0, border_um / mpp), rng)
    return np.asarray(away + ragged < 0.93, dtype=np.bool_)


def _parenchyma(
    tissue: BoolArray, hilum: tuple[float, float, float], mpp: float, rng: np.random.Generator
) -> BoolArray:
    """Where a lymph node is packed with lymphocytes: not its capsule, sinuses and hilum."""
    import cv2

    height, width = tissue.shape
    depth = cv2.distanceTransform(tissue.astype(np.uint8), cv2.DIST_L2, 5) * mpp
    sinus = (depth > 95.0) & (depth < 125.0)
    trabeculae = np.abs(_smooth_noise(width, height, 420.0 / mpp, rng)) < 0.035
    pale = _ragged(tissue.shape, (hilum,), mpp, rng)
    return np.asarray(tissue & (depth > 45.0) & ~sinus & ~trabeculae & ~pale, dtype=np.bool_)


def _place(
    aggregates: int | list[tuple[float, float, float]],
    tissue: BoolArray,
    mpp: float,
    rng: np.random.Generator,
) -> list[tuple[float, float, float]]:
    """Aggregates as (x, y, radius) in pixels, inside the tissue and apart from one another."""
    import cv2

    if not isinstance(aggregates, int):
        return [(x / mpp, y / mpp, r / mpp) for x, y, r in aggregates]
    depth = cv2.distanceTransform(tissue.astype(np.uint8), cv2.DIST_L2, 5)
    placed: list[tuple[float, float, float]] = []
    for _ in range(aggregates):
        for attempt in range(400):
            radius = float(rng.uniform(75.0, 170.0)) / mpp * (0.996**attempt)
            rows, columns = np.nonzero(depth[::8, ::8] > 1.1 * radius)
            if len(rows) == 0:
                continue
            pick = int(rng.integers(len(rows)))
            x, y = 8.0 * float(columns[pick]), 8.0 * float(rows[pick])
            gap = 60.0 / mpp
            if all(np.hypot(x - a, y - b) > radius + r + gap for a, b, r in placed):
                placed.append((x, y, radius))
                break
        else:
            raise InputError(
                f"render_slide: {aggregates} aggregates do not fit into"
                f" {tissue.shape[1]} x {tissue.shape[0]} pixels at {mpp:g} um per pixel"
            )
    return placed


def _cores(
    placed: list[tuple[float, float, float]], count: int, rng: np.random.Generator
) -> list[float]:
    """Radius of each aggregate's germinal center, 0 for those without one."""
    largest = sorted(range(len(placed)), key=lambda at: -placed[at][2])[:count]
    radii = dict(zip(largest, rng.uniform(0.5, 0.67, len(largest)), strict=True))
    return [placed[at][2] * float(radii.get(at, 0.0)) for at in range(len(placed))]


def _nests(
    tissue: BoolArray,
    placed: list[tuple[float, float, float]],
    mpp: float,
    rng: np.random.Generator,
) -> BoolArray:
    """Where tumor grows: nests in stroma, none within the aggregates."""
    height, width = tissue.shape
    tumor = tissue & (_smooth_noise(width, height, 150.0 / mpp, rng) > -0.1)
    y, x = np.ogrid[0:height, 0:width]
    for a, b, r in placed:
        tumor &= (x - a) ** 2 + (y - b) ** 2 > (1.25 * r) ** 2
    return np.asarray(tumor, dtype=np.bool_)


def _discs(shape: tuple[int, ...], spots: list[tuple[float, float, float]]) -> BoolArray:
    """A mask of discs, given in pixels."""
    y, x = np.ogrid[0 : shape[0], 0 : shape[1]]
    mask = np.zeros(shape, dtype=np.bool_)
    for a, b, r in spots:
        mask |= (x - a) ** 2 + (y - b) ** 2 <= r**2
    return mask


def _ragged(
    shape: tuple[int, ...],
    spots: tuple[tuple[float, float, float], ...],
    mpp: float,
    rng: np.random.Generator,
) -> BoolArray:
    """A mask of spots in µm with an irregular border, moved by about a twelfth of the radius."""
    y, x = np.ogrid[0 : shape[0], 0 : shape[1]]
    mask = np.zeros(shape, dtype=np.bool_)
    for a, b, r in spots:
        border = 1.0 + 0.08 * _smooth_noise(shape[1], shape[0], 70.0 / mpp, rng)
        mask |= np.hypot(x - a / mpp, y - b / mpp) * mpp <= r * border
    return mask


def _scatter(
    where: BoolArray, spacing_px: float, jitter: float, keep: float, rng: np.random.Generator
) -> FloatArray:
    """Points (n, 2) as (x, y) on a jittered hexagonal grid inside a mask."""
    height, width = where.shape
    step = spacing_px * np.sqrt(3.0) / 2.0
    rows = np.arange(0.0, height, step)
    columns = np.arange(0.0, width, spacing_px)
    x, y = np.meshgrid(columns, rows)
    x = x + (np.arange(len(rows)) % 2)[:, None] * spacing_px / 2.0
    points = np.column_stack((x.ravel(), y.ravel()))
    points = points + rng.normal(0.0, jitter * spacing_px, points.shape)
    points = points[rng.random(len(points)) < keep]
    inside = (points >= 0).all(axis=1) & (points[:, 0] < width) & (points[:, 1] < height)
    points = points[inside]
    return np.asarray(
        points[where[points[:, 1].astype(int), points[:, 0].astype(int)]], dtype=np.float64
    )


def _paint(
    tissue: BoolArray,
    tumor: BoolArray,
    necrosis: BoolArray,
    lymphoid: BoolArray,
    scene: Scene,
    placed: list[tuple[float, float, float]],
    cores: list[float],
    mpp: float,
    scattered_per_mm2: float,
    rng: np.random.Generator,
) -> tuple[tuple[tuple[Aggregate, ...], IntArray, IntArray, IntArray], Image]:
    """Draw all nuclei into a hematoxylin map, the rest into an eosin map, and mix the colors."""
    import cv2

    height, width = tissue.shape
    nuclei = np.zeros((height, width), dtype=np.uint8)
    mitoses = scene.mitoses

    def stamp(points: FloatArray, um: tuple[float, float], roundness: float, dark: float) -> None:
        across = rng.normal(um[0], um[1], len(points)).clip(0.6 * um[0], 1.5 * um[0]) / mpp
        ratio = rng.uniform(roundness, 1.0, len(points))
        angle = rng.uniform(0.0, 180.0, len(points))
        level = (255.0 * dark * rng.uniform(0.8, 1.15, len(points))).clip(60, 255)
        for (x, y), a, r, turn, value in zip(points, across, ratio, angle, level, strict=True):
            center = (round(float(x) * 16), round(float(y) * 16))
            axes = (max(16, round(8 * float(a))), max(16, round(8 * float(a * r))))
            cv2.ellipse(
                nuclei, center, axes, float(turn), 0, 360, int(value), -1, cv2.LINE_AA, shift=4
            )

    follicles = _discs(tissue.shape, placed)
    cells = _scatter(tumor, 17.0 / mpp, 0.17, 0.93, rng)
    stroma = tissue & ~tumor & ~follicles & ~necrosis & ~lymphoid
    fibers = _scatter(stroma, 30.0 / mpp, 0.3, 0.7, rng)
    expected = scattered_per_mm2 / 1e6 * (28.0**2 * np.sqrt(3.0) / 2.0)
    strays = _scatter(
        tissue & ~follicles & ~necrosis & ~lymphoid, 28.0 / mpp, 0.35, min(1.0, expected), rng
    )
    pale = _discs(
        tissue.shape, [(a, b, core) for (a, b, _), core in zip(placed, cores, strict=True)]
    )
    dense = _scatter(follicles & tissue & ~pale, 8.4 / mpp, 0.14, 0.96, rng)
    if lymphoid.any():
        packed = _scatter(lymphoid & ~follicles, 9.6 / mpp, 0.2, 0.9, rng)
        dense = np.concatenate((dense, packed))
    stamp(fibers, (13.0, 2.0), 0.25, 0.62)
    stamp(cells, (11.0, 1.5), 0.7, 0.55)
    stamp(np.concatenate((strays, dense)), (7.0, 0.6), 0.85, 0.92)
    if pale.any():
        stamp(_scatter(pale & tissue, 11.5 / mpp, 0.16, 0.93, rng), (9.5, 1.2), 0.75, 0.5)

    if necrosis.any():
        stamp(_scatter(necrosis, 19.0 / mpp, 0.2, 0.6, rng), (10.0, 1.5), 0.7, 0.24)
        stamp(_scatter(necrosis, 13.0 / mpp, 0.35, 0.4, rng), (2.6, 0.6), 0.6, 0.9)
    for x, y in mitoses:
        _mitosis(nuclei, x / mpp, y / mpp, mpp, rng)

    h = cv2.GaussianBlur(nuclei.astype(np.float32) / 255.0, (0, 0), 0.45 / mpp)
    chromatin = 1.0 + 0.16 * _smooth_noise(width, height, max(2.0, 1.6 / mpp), rng)
    h = h * chromatin
    if mitoses:
        dark = np.zeros_like(nuclei)
        for x, y in mitoses:
            cv2.circle(dark, (round(x / mpp), round(y / mpp)), round(7.0 / mpp), 255, -1)
        h = np.where((dark > 0) & (h > 0.45), 1.75 * h, h)
    texture = _smooth_noise(width, height, max(3.0, 9.0 / mpp), rng)
    waves = _smooth_noise(width, height, 60.0 / mpp, rng)
    eosin = np.where(necrosis, 0.78, np.where(tumor, 0.42, 0.58)) + 0.05 * texture + 0.06 * waves
    eosin = np.where(follicles | lymphoid, 0.30 + 0.03 * texture, eosin) * tissue
    haze = (0.10 + 0.02 * texture) * tissue
    smooth = cv2.GaussianBlur(eosin.astype(np.float32), (0, 0), 0.8 / mpp)
    blue, pink = scene.stain
    stain = np.maximum(1.15 * h + haze, 0.0)
    density = stain[..., None] * (blue * np.array(HEMATOXYLIN)) + np.maximum(smooth, 0.0)[
        ..., None
    ] * (pink * np.array(EOSIN))
    grain = rng.normal(0.0, 2.0, density.shape)
    image = np.clip(244.0 * np.exp(-density) + grain, 0, 255).astype(np.uint8)
    found = tuple(
        Aggregate(a, b, r, int((np.hypot(dense[:, 0] - a, dense[:, 1] - b) <= r).sum()), core)
        for (a, b, r), core in zip(placed, cores, strict=True)
    )
    whole = [np.round(p).astype(np.int64) for p in (cells, fibers, np.concatenate((strays, dense)))]
    return (found, whole[0], whole[1], whole[2]), image


def _mitosis(
    nuclei: npt.NDArray[np.uint8], x: float, y: float, mpp: float, rng: np.random.Generator
) -> None:
    """A metaphase plate with short arms, x and y in pixels, in a cell cleared of other nuclei."""
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


def write_tiff(path: Path, image: Image, mpp: float, levels: int) -> None:
    """Write level 0 and its halvings as tiled JPEG pages.

    Parameters
    ----------
    path : of the TIFF
    image : (height, width, 3) level 0
    mpp : µm per pixel of level 0
    levels : how many, each half the one before
    """
    import cv2
    import tifffile

    with replacing(path) as temporary, tifffile.TiffWriter(temporary, bigtiff=False) as tiff:
        for level in range(levels):
            if level:
                half = (max(1, image.shape[1] // 2), max(1, image.shape[0] // 2))
                smaller = cv2.resize(image, half, interpolation=cv2.INTER_AREA)
                image = np.asarray(smaller, dtype=np.uint8)
            here = 1e4 / (mpp * 2**level)
            tiff.write(
                image,
                tile=(256, 256),
                photometric="rgb",
                compression="jpeg",
                compressionargs={"level": 90},
                resolution=(here, here),
                resolutionunit="CENTIMETER",
                subfiletype=1 if level else 0,
                description=DESCRIPTION.format(mpp=mpp) if level == 0 else None,
                software="SAGE simulation",
                metadata=None,
            )
