"""Detection and segmentation of nuclei in a bright-field image, with their shape and stain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.pathology.compute.tissue import otsu
from mcp_servers.slides.arrays import F32, F64, I32, U8, AnyArray, BoolArray

WORKING_MPP = 0.5
"""Resolution, in µm per pixel, for detecting nuclei; finer images are downsampled to it."""

MIN_AREA_UM2, MAX_AREA_UM2 = 10.0, 450.0
LYMPHOCYTE_AREA_UM2 = (12.0, 62.0)
LYMPHOCYTE_MAX_ECCENTRICITY = 0.84
LYMPHOCYTE_MIN_CIRCULARITY = 0.80
"""Minimum circularity of a lymphocyte-like nucleus.

Nuclear fragments and crowded epithelium have ragged outlines: this limit halves the
number of nuclei classified as lymphocyte-like in necrosis and tumor, at the cost of a
sixth of the real lymphocytes.
"""
REGULAR_CIRCULARITY, REGULAR_MAX_ECCENTRICITY = 0.80, 0.75
"""Limits for a round, smooth outline, regardless of the nucleus's size and stain."""
DENSITY_CAP = 0.6
"""Cap on densities when thresholds are computed.

Without it, a few very dark nuclei (DAB, pyknosis) could lift the threshold above pale nuclei.
"""
GLASS_DENSITY = 0.03
"""Density up to which a pixel is glass or empty lumen and is ignored in thresholds.

A border of glass would lower the thresholds. Raw glass has 0 to 0.02, and the palest
stroma in the scans tested has about 0.05.
"""
STAINED = 0.06
"""Green density at or above which a pixel counts as stained in `nuclear_strength`."""
THRESHOLD_RADIUS_UM = 6.0
SEED_SMOOTHING_UM = 0.65
MIN_CIRCULARITY = 0.35
COLUMNS = (
    "x", "y", "area_um2", "perimeter_um", "major_um", "minor_um", "eccentricity", "circularity",
    "density_mean", "density_sd", "second_mean",
)  # fmt: skip
SURROUNDINGS = ("around_density", "around_second", "rim_density", "grain", "crowding")
"""Additional table columns, measured by `surroundings`."""
AROUND_UM, RIM_UM, GRAIN_UM = 31.0, 3.0, 1.5


@dataclass(frozen=True, slots=True)
class Nuclei:
    """Segmented nuclei: `labels` (H, W), 0 outside nuclei, and `table` (n, len(COLUMNS)).

    Labels are at the working resolution, and row k - 1 of the table describes label k. x and
    y are in pixels of the working image. `contrast` is the difference in optical density
    between the nuclei and their surroundings; `kinds` (n, types) are the probabilities of a
    network's own types, if any.
    """

    labels: I32
    table: F64
    contrast: float
    kinds: F64 | None = None

    def column(self, name: str) -> F64:
        """Return a table column by name."""
        return np.asarray(self.table[:, COLUMNS.index(name)])


_LOG = (-np.log10(np.maximum(np.arange(256), 1) / 245.0)).clip(0).astype(np.float32)


def nuclear_density(image: U8) -> F32:
    """Compute the nuclear stain's optical density: red density minus eosin's small share.

    Hematoxylin absorbs red (0.65 of its density) and eosin almost none (0.07), so the red
    channel works for any balance of the two stains, without fitting stain vectors.
    """
    red = cv2.LUT(np.ascontiguousarray(image[:, :, 0]), _LOG)
    green = cv2.LUT(np.ascontiguousarray(image[:, :, 1]), _LOG)
    return np.asarray(np.maximum(red - np.float32(0.12) * green, 0.0), dtype=np.float32)


def nuclear_strength(images: list[U8]) -> float | None:
    """Measure the nuclear stain strength in tissue images; None without stained pixels.

    It is the 90th percentile of the nuclear stain's density over stained pixels, at 0.5 µm
    per pixel.
    """
    parts = [nuclear_density(image)[green_density(image) > STAINED] for image in images]
    pooled = np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)
    return float(np.percentile(pooled, 90)) if len(pooled) > 50 else None


def agreement(first: I32, second: I32) -> float:
    """Compute the F1 score between two label maps (H, W), matching labels by overlap.

    Labels match if they share over half of their union. The score is 0 if neither map has
    nuclei, which confirms nothing.
    """
    shared, counts = np.unique(
        np.stack([first.ravel(), second.ravel()]), axis=1, return_counts=True
    )
    own, other = np.bincount(first.ravel()), np.bincount(second.ravel())
    union = own[shared[0]] + other[shared[1]] - counts
    matched = int(((shared > 0).all(axis=0) & (2 * counts > union)).sum())
    total = int((own[1:] > 0).sum() + (other[1:] > 0).sum())
    return 2 * matched / total if total else 0.0


def green_density(image: U8) -> F32:
    """Compute the optical density of green, which both H&E stains absorb."""
    return np.asarray(cv2.LUT(np.ascontiguousarray(image[:, :, 1]), _LOG), dtype=np.float32)


def local_threshold(density: AnyArray, radius: int, floor: float, cap: float = DENSITY_CAP) -> F32:
    """Compute a threshold halfway between the local means above and below Otsu's threshold.

    Parameters
    ----------
    density : (height, width) optical density
    radius : radius for the local means, in pixels
    cap : upper limit at which densities are clipped

    Returns
    -------
    (height, width) thresholds.
    """
    from mcp_servers.pathology.compute.kernels import half_way, upper_part

    density = np.minimum(density, np.float32(cap))
    sampled = density[::2, ::2]
    start = max(otsu(sampled[sampled > GLASS_DENSITY], 0.0, cap), floor)
    size = (2 * radius + 1, 2 * radius + 1)
    share, upper = (cv2.blur(part, size) for part in upper_part(density, start))
    return half_way(share, upper, cv2.blur(density, size), start)


def segment(
    image: U8,
    mpp: float,
    *,
    floor: float = 0.10,
    cap: float = DENSITY_CAP,
    within: BoolArray | None = None,
    density: F32 | None = None,
    second: F32 | None = None,
) -> Nuclei:
    """Find nuclei in an image whose pixels are `mpp` µm wide (0.15 to 1.0).

    A local threshold is applied to the nuclear stain's density; touching nuclei are separated
    by flooding from the maxima of the smoothed distance to the background.

    Parameters
    ----------
    image : (H, W, 3) RGB
    floor : minimum optical density of a nucleus
    cap : upper limit at which densities are clipped for thresholds
    within : (H, W) mask; nuclei with centers outside it are dropped
    density, second : maps for finding nuclei and for an additional measurement; nuclear stain
        and green density if None

    Returns
    -------
    Nuclei at the pixel size of the image.
    """
    raw = nuclear_density(image) if density is None else density
    um = 1.0 / mpp
    smooth = cv2.GaussianBlur(raw, (0, 0), max(0.4, 0.5 * um))
    threshold = local_threshold(smooth, max(4, round(THRESHOLD_RADIUS_UM * um)), floor, cap)
    foreground = (smooth > threshold).astype(np.uint8)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
    opened = cv2.morphologyEx(foreground, cv2.MORPH_OPEN, kernel)
    foreground = _without_holes(opened, 12.0 * um * um)
    labels = part_touching(foreground, um)
    second = green_density(image) if second is None else second
    return measure_shapes(labels, raw, smooth, mpp, within, second, MIN_CIRCULARITY)


def part_touching(foreground: U8, um: float) -> I32:
    """Label a mask's nuclei, separating touching nuclei by flooding from maxima of their depth.

    `um` is the number of pixels per µm.
    """
    from mcp_servers.pathology.compute.kernels import grow

    distance = cv2.distanceTransform(foreground, cv2.DIST_L2, 3)
    peaks = cv2.GaussianBlur(distance, (0, 0), max(0.5, SEED_SMOOTHING_UM * um))
    reach = max(3, 2 * round(1.25 * um) + 1)
    window = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach, reach))
    top = (peaks >= cv2.dilate(peaks, window) - 1e-6) & (peaks > 0.9 * um) & (foreground > 0)
    _, labels = cv2.connectedComponents(top.astype(np.uint8), connectivity=8)
    order = np.minimum(peaks * (12.0 / um), 255).astype(np.uint8)
    seeds: I32 = np.ascontiguousarray(labels, dtype=np.int32)
    grow(seeds, foreground, order, 0)
    return seeds


def measure_shapes(
    labels: AnyArray,
    raw: AnyArray,
    smooth: AnyArray,
    mpp: float,
    within: BoolArray | None,
    second: AnyArray,
    circularity: float = 0.0,
) -> Nuclei:
    """Measure labeled nuclei, dropping those with an implausible area or below `circularity`.

    `raw` is the stain's density, `smooth` is the denoised density used for the contrast, and
    `second` is an additional map to be averaged over each nucleus.

    Parameters
    ----------
    labels : (height, width), 0 outside nuclei
    raw, smooth : (height, width) optical density
    mpp : micrometers per pixel
    within : (height, width) mask that must contain a nucleus's center; None for anywhere
    second : (height, width)
    circularity : minimum circularity; 1 for a circle
    """
    from mcp_servers.pathology.compute.kernels import label_sums, renumbered

    labels = np.ascontiguousarray(labels, dtype=np.int32)
    count = int(labels.max()) + 1
    sums = label_sums(labels, raw, second, count - 1)
    table, keep = _describe(sums, mpp)
    area = table[:, 2]
    keep &= (area >= MIN_AREA_UM2) & (area <= MAX_AREA_UM2) & (table[:, 7] > circularity)
    if within is not None and len(table):
        column = np.clip(table[:, 0].round().astype(int), 0, within.shape[1] - 1)
        row = np.clip(table[:, 1].round().astype(int), 0, within.shape[0] - 1)
        keep &= within[row, column]
    number = np.zeros(count, dtype=np.int32)
    number[1:][keep] = np.arange(1, int(keep.sum()) + 1)
    kept, contrast = renumbered(labels, number, smooth)
    return Nuclei(kept, table[keep], contrast)


def surroundings(nuclei: Nuclei, image: U8, mpp: float) -> F64:
    """Measure the surroundings of each nucleus and the coarseness of its chromatin.

    `around_density` and `around_second` are the mean densities of the nuclear stain and of
    green in a square of `AROUND_UM` around the nucleus's pixels, and `crowding` is the share
    of the square covered by nuclei. `rim_density` is the mean nuclear stain within `RIM_UM`
    of the outline, outside all nuclei; `grain` is the mean absolute deviation of the nuclear
    stain from its local mean over about `GRAIN_UM`.

    Parameters
    ----------
    nuclei : n nuclei in the image
    image : (height, width, 3) RGB
    mpp : µm per image pixel

    Returns
    -------
    (n, len(SURROUNDINGS)) values.
    """
    from mcp_servers.pathology.compute.kernels import label_sums

    count = len(nuclei.table)
    if not count:
        return np.zeros((0, len(SURROUNDINGS)))
    labels, density = nuclei.labels, nuclear_density(image)
    side = 2 * round(AROUND_UM / mpp / 2) + 1
    covered = (labels > 0).astype(np.float32)
    around, second, crowding = (
        cv2.blur(values, (side, side)) for values in (density, green_density(image), covered)
    )
    grain = np.abs(density - cv2.GaussianBlur(density, (0, 0), GRAIN_UM / mpp))
    away, nearest = cv2.distanceTransformWithLabels(
        (labels == 0).astype(np.uint8), cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL
    )
    owner = np.zeros(int(nearest.max()) + 1, dtype=np.int32)
    owner[nearest[labels > 0]] = labels[labels > 0]
    rim = np.where((away > 0) & (away <= RIM_UM / mpp), owner[nearest], 0).astype(np.int32)

    def means(where: AnyArray, first: AnyArray, other: AnyArray) -> tuple[F64, F64]:
        sums = label_sums(where, first, other, count)[1:]
        return sums[:, 6] / np.maximum(sums[:, 0], 1), sums[:, 9] / np.maximum(sums[:, 0], 1)

    own = means(labels, around, second)
    inner = means(labels, grain, crowding)
    edge, seen = means(rim, density, np.ones_like(density))
    return np.stack([*own, np.where(seen > 0, edge, own[0]), *inner], axis=1)


def _without_holes(mask: AnyArray, largest: float) -> U8:
    count, labels, stats, _ = cv2.connectedComponentsWithStats(
        (1 - mask).astype(np.uint8), connectivity=4
    )
    fill = stats[:count, cv2.CC_STAT_AREA] <= largest
    fill[0] = False
    return np.asarray(mask | fill[labels], dtype=np.uint8)


def _describe(sums: F64, mpp: float) -> tuple[F64, BoolArray]:
    """Compute shape and stain from the sums in `label_sums`; empty labels are marked False."""
    part = sums[1:]
    n = np.maximum(part[:, 0], 1.0)
    x, y = part[:, 1] / n, part[:, 2] / n
    # 1/12 is the variance of a uniform distribution over a pixel's width
    vx = part[:, 3] / n - x * x + 1 / 12
    vy = part[:, 4] / n - y * y + 1 / 12
    vxy = part[:, 5] / n - x * y
    mean = (vx + vy) / 2
    spread = np.sqrt(((vx - vy) / 2) ** 2 + vxy**2)
    major, minor = mean + spread, np.maximum(mean - spread, 1e-9)
    area = part[:, 0] * mpp * mpp
    # pixel sides overestimate the length of a smooth outline by 4 / pi on average
    perimeter = part[:, 8] * mpp * np.pi / 4
    value = part[:, 6] / n
    table = np.stack(
        [
            x,
            y,
            area,
            perimeter,
            4 * np.sqrt(major) * mpp,
            4 * np.sqrt(minor) * mpp,
            np.sqrt(np.maximum(0.0, 1 - minor / major)),
            np.minimum(1.0, 4 * np.pi * area / np.maximum(perimeter, 1e-9) ** 2),
            value,
            np.sqrt(np.maximum(0.0, part[:, 7] / n - value**2)),
            part[:, 9] / n,
        ],
        axis=1,
    )
    return table, part[:, 0] > 0


def darkness(densities: AnyArray) -> float:
    """Compute the density threshold for a lymphocyte nucleus from the nuclei's mean densities.

    This is 0.85 of their 75th percentile, at most 0.45. On slides with lymphocytes the upper
    quarter contains them, because their chromatin is the densest; on other slides few small
    nuclei are as dark as the rest.
    """
    return float(min(0.85 * np.percentile(densities, 75), 0.45))


def lymphocyte_like(table: F64, dark: float | None = None) -> BoolArray:
    """Select small, round, dark nuclei, typical of lymphocytes and some other cells.

    The area is within `LYMPHOCYTE_AREA_UM2` (diameters of about 4 to 9 µm), the eccentricity
    below `LYMPHOCYTE_MAX_ECCENTRICITY`, the circularity at least
    `LYMPHOCYTE_MIN_CIRCULARITY`, and the mean density at least `dark`, which defaults to the
    `darkness` of the table.
    """
    if not len(table):
        return np.zeros(0, dtype=bool)
    if dark is None:
        dark = darkness(table[:, 8])
    low, high = LYMPHOCYTE_AREA_UM2
    small = (table[:, 2] >= low) & (table[:, 2] <= high)
    round_ = table[:, 6] <= LYMPHOCYTE_MAX_ECCENTRICITY
    round_ &= table[:, 7] >= LYMPHOCYTE_MIN_CIRCULARITY
    return np.asarray(small & round_ & (table[:, 8] >= dark), dtype=bool)


def regular_outline(table: F64) -> BoolArray:
    """Select nuclei with a round, smooth outline by circularity and eccentricity."""
    return np.asarray(
        (table[:, 7] >= REGULAR_CIRCULARITY) & (table[:, 6] <= REGULAR_MAX_ECCENTRICITY), dtype=bool
    )
