"""Small slides painted in stain space: hematoxylin nuclei on eosin tissue, known aggregates.

Optical density is the sum over two stains of concentration times color vector (Ruifrok
and Johnston 2001, Anal Quant Cytol Histol), so that color deconvolution recovers the
painted stains. Sizes are in micrometers: lymphocyte nuclei about 7 across, tumor nuclei 9
to 14, aggregates 150 to 400.
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
LEVELS = 3
"""Number of pyramid levels, each half the size of the previous level."""
DESCRIPTION = "SIMULATED slide (SAGE planted-truth generator); no patient. mpp = {mpp:g}"


@dataclass(frozen=True)
class Aggregate:
    """A lymphoid aggregate: center and radius in level-0 pixels, and its lymphocytes.

    `core` is the radius of the germinal center in its middle, or 0 if it has none.
    """

    x: float
    y: float
    radius: float
    lymphocytes: int
    core: float = 0.0


@dataclass(frozen=True)
class SlideTruth:
    """True content of a slide. Positions and sizes are in level-0 pixels, areas in mm2."""

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
    tumor_rings: tuple[IntArray, ...]
    """Closed outlines of the tumor, each of shape (points, 2)."""
    simulated: bool = True

    def write(self, path: Path) -> None:
        """Write the truth as JSON next to the slide."""
        record = asdict(self) | {
            "simulated": True,
            "path": Path(self.path).name,
            "tumor_nuclei": self.tumor_nuclei.tolist(),
            "stroma_nuclei": self.stroma_nuclei.tolist(),
            "lymphocytes": self.lymphocytes.tolist(),
            "tumor_rings": [ring.tolist() for ring in self.tumor_rings],
        }
        path.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")

    def write_cells(self, path: Path) -> Path:
        """Write the cells as CSV with their types, as a network with types would find them."""
        groups = {
            "neoplastic": self.tumor_nuclei,
            "stromal": self.stroma_nuclei,
            "lymphocyte": self.lymphocytes,
        }
        rows = [f"{x},{y},{kind}" for kind, group in groups.items() for x, y in group.tolist()]
        path.write_text("\n".join(("x,y,type", *rows)) + "\n", encoding="utf-8")
        return path

    def write_outlines(self, path: Path) -> Path:
        """Write the tumor as GeoJSON outlines, as a pathologist would draw them in QuPath."""
        features = [
            {
                "type": "Feature",
                "geometry": {"type": "Polygon", "coordinates": [ring.tolist()]},
                "properties": {"objectType": "annotation", "classification": {"name": "Tumor"}},
            }
            for ring in self.tumor_rings
        ]
        drawn = {"type": "FeatureCollection", "features": features}
        path.write_text(json.dumps(drawn) + "\n", encoding="utf-8")
        return path


def render_slide(
    path: Path, *, seed: int, size_px: int = 2048, mpp: float = 0.5, aggregates: int = 3
) -> SlideTruth:
    """Paint a slide and write it as a tiled pyramidal TIFF (JPEG, 256-pixel tiles).

    Parameters
    ----------
    size_px : width and height of level 0
    mpp : micrometers per pixel of level 0, also written as the TIFF's resolution
    aggregates : lymphoid aggregates to place

    Raises
    ------
    InputError
        If no tissue can be painted at this size or resolution, or the aggregates do not fit.
    """
    painter = Painter(size_px, size_px, mpp, generator(seed))
    painter.placed = place_aggregates(aggregates, painter.tissue, mpp, painter.rng)
    painter.tumor = painter.grow_nests()
    return painter.write(path, seed)


class Painter:
    """A piece of tissue being painted: level-0 masks, nuclei and stains.

    `placed` lists aggregates as (x, y, radius) in pixels, `tumor` is the tumor mask, `apart`
    the mask of tissue that is neither tumor nor stroma, and `cores` the radius of each
    aggregate's germinal center.
    """

    border_um = 90.0
    scattered_per_mm2 = 150.0
    """Density of lymphocytes outside aggregates, per mm2."""
    stain = (1.0, 1.0)
    """Factors that scale hematoxylin and eosin."""

    def __init__(self, width: int, height: int, mpp: float, rng: np.random.Generator) -> None:
        if min(width, height) < 256 or not 0.1 <= mpp <= 4.0:
            raise InputError(
                f"render_slide: size {width} x {height} at {mpp:g} um per pixel: at least 256 "
                "pixels and 0.1 to 4 um per pixel are required"
            )
        self.width, self.height, self.mpp, self.rng = width, height, mpp, rng
        self.tissue = _tissue(width, height, mpp, rng, self.border_um)
        self.placed: list[tuple[float, float, float]] = []
        self.cores: list[float] = []
        self.tumor = np.zeros_like(self.tissue)
        self.apart = np.zeros_like(self.tissue)
        self.nuclei = np.zeros(self.tissue.shape, dtype=np.uint8)

    def grow_nests(self) -> BoolArray:
        """Return the tumor mask: nests in stroma, none inside the aggregates."""
        return _nests(self.tissue, self.placed, self.mpp, self.rng)

    def stamp(
        self, points: FloatArray, um: tuple[float, float], roundness: float, dark: float
    ) -> None:
        """Draw nuclei at the given points, with diameters from `um` (mean, standard deviation)."""
        import cv2

        rng, mpp = self.rng, self.mpp
        across = rng.normal(um[0], um[1], len(points)).clip(0.6 * um[0], 1.5 * um[0]) / mpp
        ratio = rng.uniform(roundness, 1.0, len(points))
        angle = rng.uniform(0.0, 180.0, len(points))
        level = (255.0 * dark * rng.uniform(0.8, 1.15, len(points))).clip(60, 255)
        for (x, y), a, r, turn, value in zip(points, across, ratio, angle, level, strict=True):
            center = (round(float(x) * 16), round(float(y) * 16))
            axes = (max(16, round(8 * float(a))), max(16, round(8 * float(a * r))))
            cv2.ellipse(
                self.nuclei, center, axes, float(turn), 0, 360, int(value), -1, cv2.LINE_AA,
                shift=4,
            )  # fmt: skip

    def find_cores(self) -> BoolArray:
        """Return the mask of the aggregates' germinal centers."""
        cores = zip(self.placed, self.cores or [0.0] * len(self.placed), strict=True)
        return draw_discs(self.tissue.shape, [(a, b, core) for (a, b, _), core in cores])

    def pack_lymphocytes(self, follicles: BoolArray) -> FloatArray:
        """Place the lymphocytes in aggregates and return their points."""
        mantles = follicles & self.tissue & ~self.find_cores()
        return scatter_points(mantles, 8.4 / self.mpp, 0.14, 0.96, self.rng)

    def add_nuclei(self) -> None:
        """Draw the pale nuclei of the germinal centers over those of the tissue."""
        cores = self.find_cores()
        if cores.any():
            points = scatter_points(cores & self.tissue, 11.5 / self.mpp, 0.16, 0.93, self.rng)
            self.stamp(points, (9.5, 1.2), 0.75, 0.5)

    def darken(self, density: FloatArray) -> FloatArray:
        """Change the hematoxylin density."""
        return density

    def color_eosin(self) -> FloatArray:
        """Return the eosin density outside aggregates."""
        return np.where(self.tumor, 0.42, 0.58)

    def find_pale(self, follicles: BoolArray) -> BoolArray:
        """Return the mask of tissue packed with lymphocytes, where eosin is pale."""
        return follicles

    def write(self, path: Path, seed: int) -> SlideTruth:
        """Render nuclei in hematoxylin and the rest in eosin, mix colors, and write the slide."""
        import cv2

        mpp, rng, tissue, apart = self.mpp, self.rng, self.tissue, self.apart
        follicles = draw_discs(tissue.shape, self.placed)
        cells = scatter_points(self.tumor, 17.0 / mpp, 0.17, 0.93, rng)
        stroma = tissue & ~self.tumor & ~follicles & ~apart
        fibers = scatter_points(stroma, 30.0 / mpp, 0.3, 0.7, rng)
        expected = self.scattered_per_mm2 / 1e6 * (28.0**2 * np.sqrt(3.0) / 2.0)
        outside = tissue & ~follicles & ~apart
        strays = scatter_points(outside, 28.0 / mpp, 0.35, min(1.0, expected), rng)
        dense = self.pack_lymphocytes(follicles)
        self.stamp(fibers, (13.0, 2.0), 0.25, 0.62)
        self.stamp(cells, (11.0, 1.5), 0.7, 0.55)
        self.stamp(np.concatenate((strays, dense)), (7.0, 0.6), 0.85, 0.92)
        self.add_nuclei()

        h = cv2.GaussianBlur(self.nuclei.astype(np.float32) / 255.0, (0, 0), 0.45 / mpp)
        size = (self.width, self.height)
        h = self.darken(h * (1.0 + 0.16 * smooth_noise(*size, max(2.0, 1.6 / mpp), rng)))
        texture = smooth_noise(*size, max(3.0, 9.0 / mpp), rng)
        waves = smooth_noise(*size, 60.0 / mpp, rng)
        eosin = self.color_eosin() + 0.05 * texture + 0.06 * waves
        eosin = np.where(self.find_pale(follicles), 0.30 + 0.03 * texture, eosin) * tissue
        haze = (0.10 + 0.02 * texture) * tissue
        smooth = cv2.GaussianBlur(eosin.astype(np.float32), (0, 0), 0.8 / mpp)
        blue, pink = self.stain
        stain = np.maximum(1.15 * h + haze, 0.0)
        density = stain[..., None] * (blue * np.array(HEMATOXYLIN)) + np.maximum(smooth, 0.0)[
            ..., None
        ] * (pink * np.array(EOSIN))
        grain = rng.normal(0.0, 2.0, density.shape)
        image = np.clip(244.0 * np.exp(-density) + grain, 0, 255).astype(np.uint8)
        write_tiff(path, image, mpp, LEVELS)
        cores = self.cores or [0.0] * len(self.placed)
        found = tuple(
            Aggregate(a, b, r, int((np.hypot(dense[:, 0] - a, dense[:, 1] - b) <= r).sum()), core)
            for (a, b, r), core in zip(self.placed, cores, strict=True)
        )
        return SlideTruth(
            path=str(path),
            seed=seed,
            width=self.width,
            height=self.height,
            mpp=mpp,
            tissue_mm2=float(tissue.sum()) * (mpp / 1000.0) ** 2,
            aggregates=found,
            tumor_nuclei=np.round(cells).astype(np.int64),
            stroma_nuclei=np.round(fibers).astype(np.int64),
            lymphocytes=np.round(np.concatenate((strays, dense))).astype(np.int64),
            tumor_fraction=float(self.tumor.sum() / max(tissue.sum(), 1)),
            tumor_rings=_rings(self.tumor),
        )


def _rings(mask: BoolArray) -> tuple[IntArray, ...]:
    """Return the closed outer outlines of a mask's regions, each of shape (points, 2)."""
    import cv2

    found, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    rings = (np.concatenate((ring, ring[:1]))[:, 0] for ring in found if len(ring) >= 3)
    return tuple(ring.astype(np.int64) for ring in rings)


def smooth_noise(width: int, height: int, scale_px: float, rng: np.random.Generator) -> FloatArray:
    """Generate noise with structures of about `scale_px`, mean 0 and SD 1."""
    import cv2

    small = (max(4, round(height / scale_px)), max(4, round(width / scale_px)))
    noise = rng.standard_normal(small).astype(np.float32)
    big = cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.asarray((big - big.mean()) / (big.std() + 1e-6), dtype=np.float64)


def _tissue(
    width: int, height: int, mpp: float, rng: np.random.Generator, border_um: float
) -> BoolArray:
    """Return a rounded piece of tissue on white glass, with a border wavy over `border_um`."""
    y, x = np.mgrid[0:height, 0:width]
    away = np.hypot((x - width / 2) / (width / 2), (y - height / 2) / (height / 2))
    ragged = 0.05 * smooth_noise(width, height, max(40.0, border_um / mpp), rng)
    return np.asarray(away + ragged < 0.93, dtype=np.bool_)


def place_aggregates(
    aggregates: int,
    tissue: BoolArray,
    mpp: float,
    rng: np.random.Generator,
) -> list[tuple[float, float, float]]:
    """Place aggregates inside the tissue, apart from one another, as (x, y, radius) in pixels."""
    import cv2

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


def _nests(
    tissue: BoolArray,
    placed: list[tuple[float, float, float]],
    mpp: float,
    rng: np.random.Generator,
) -> BoolArray:
    """Return the mask of tumor nests in stroma, with none inside the aggregates."""
    height, width = tissue.shape
    tumor = tissue & (smooth_noise(width, height, 150.0 / mpp, rng) > -0.1)
    y, x = np.ogrid[0:height, 0:width]
    for a, b, r in placed:
        tumor &= (x - a) ** 2 + (y - b) ** 2 > (1.25 * r) ** 2
    return np.asarray(tumor, dtype=np.bool_)


def draw_discs(shape: tuple[int, ...], spots: list[tuple[float, float, float]]) -> BoolArray:
    """Return a mask with the given discs, in pixels."""
    y, x = np.ogrid[0 : shape[0], 0 : shape[1]]
    mask = np.zeros(shape, dtype=np.bool_)
    for a, b, r in spots:
        mask |= (x - a) ** 2 + (y - b) ** 2 <= r**2
    return mask


def scatter_points(
    where: BoolArray, spacing_px: float, jitter: float, keep: float, rng: np.random.Generator
) -> FloatArray:
    """Scatter points (n, 2) as (x, y) on a jittered hexagonal grid inside a mask."""
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


def write_tiff(path: Path, image: Image, mpp: float, levels: int) -> None:
    """Write level 0 and its successive halvings as tiled JPEG pages.

    Parameters
    ----------
    path : path of the TIFF
    image : (height, width, 3) level 0
    mpp : µm per pixel of level 0
    levels : number of levels, each half the size of the previous level
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
