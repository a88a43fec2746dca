"""Detection of tissue, pen marks and focus on an overview image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.slides.arrays import F32, F64, U8, AnyArray, BoolArray
from mcp_servers.slides.components import components

BAND, REACH = 512, 6
OTSU_BINS, OTSU_SPAN = 256, (0.0, 1.5)
OD_BOUNDS = (0.06, 0.16)
"""Bounds on the automatic threshold, in optical density of the green channel.

Below the first, glass and dust are included; above the second, pale stroma and fat are lost.
"""
GLASS_SPREAD, GLASS_WINDOW_UM, GLASS_SIDE = 2.0, 14.0, 1024
"""Largest standard deviation of glass in gray levels, over a window, and largest side examined."""
GLASS_OF_BRIGHTEST, GLASS_LEAST, GLASS_TINT = 0.85, 120.0, 0.2
"""Least brightness of glass, of the image's brightest and in gray levels, and largest tint."""
LEAST_GLASS = 0.01
"""Share of an image below which it has no glass, and all of it is tissue."""
COARSE_MPP = 4.0
"""Pixel size from which Otsu's threshold divides glass from tissue; below, it divides nuclei
from stroma, and the lower of `OD_BOUNDS` is used."""
NOISE_BELOW, GRAY_BELOW, GREENER_FROM = 0.2, 4.0, 0.2
"""Limits on medians over fields at 2 µm per pixel, beyond which an image is not H&E.

Correlation of neighboring pixels: H&E had 0.49 or more, noise at most 0.07. Spread of the
three channels: H&E 10 or more, gray images 0 to 3. Share of pixels in which green is
highest: H&E at most 0.12, random color at least 0.3.
"""


@dataclass(frozen=True, slots=True)
class Tissue:
    """Masks on an overview image, all with the image's shape."""

    mask: BoolArray
    pen: BoolArray
    threshold: float
    background: tuple[int, int, int]
    pieces: int


def background_color(image: U8) -> tuple[int, int, int]:
    """Estimate the color of empty glass as the median of bright, colorless pixels.

    Return white if there are none.
    """
    sample = image[:: max(1, image.shape[0] // 512), :: max(1, image.shape[1] // 512)]
    red, green, blue = sample[:, :, 0], sample[:, :, 1], sample[:, :, 2]
    low = np.minimum(np.minimum(red, green), blue)
    high = np.maximum(np.maximum(red, green), blue)
    bright = (low >= 205) & (high - low <= 24)
    if int(bright.sum()) < max(16, bright.size // 500):
        return (255, 255, 255)
    color = np.median(sample[bright], axis=0)
    return int(color[0]), int(color[1]), int(color[2])


def glass_color(image: U8, mpp: float) -> tuple[int, int, int] | None:
    """Estimate the color of empty glass as the median of smooth, bright, hardly colored pixels.

    Return None if there is no glass: pale stroma is as bright as glass under some cameras, but
    is textured. Glass may have a tint.

    Parameters
    ----------
    image : (height, width, 3) RGB
    mpp : µm per pixel
    """
    side = max(image.shape[:2])
    if side > GLASS_SIDE:
        size = [max(1, round(length * GLASS_SIDE / side)) for length in image.shape[1::-1]]
        image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
        mpp *= side / GLASS_SIDE
    window = 2 * max(1, round(GLASS_WINDOW_UM / mpp / 2)) + 1
    values = image.astype(np.float32)
    mean = cv2.blur(values, (window, window))
    spread = (cv2.blur(values * values, (window, window)) - mean * mean).max(axis=2)
    gray, high = mean.mean(axis=2), mean.max(axis=2)
    least = max(GLASS_LEAST, GLASS_OF_BRIGHTEST * float(np.percentile(values.mean(axis=2), 99.5)))
    glass = (spread <= GLASS_SPREAD**2) & (gray >= least)
    glass &= high - mean.min(axis=2) <= GLASS_TINT * high
    if float(glass.mean()) < LEAST_GLASS:
        return None
    color = np.median(image[glass], axis=0)
    return int(color[0]), int(color[1]), int(color[2])


def optical_density(image: U8, background: tuple[int, int, int] = (255, 255, 255)) -> F32:
    """Compute -log10(I / I0) per channel, clipped at 0; I below 1 counts as 1."""
    return np.stack(density_planes(image, background), axis=2)


def density_planes(image: U8, background: tuple[int, int, int]) -> list[F32]:
    """Compute `optical_density`, returning each channel separately."""
    return [_density_plane(np.ascontiguousarray(image[:, :, c]), background[c]) for c in range(3)]


def _density_plane(channel: U8, background: int) -> F32:
    values = np.maximum(np.arange(256, dtype=np.float64), 1)
    table = np.maximum(-np.log10(values / max(1, background)), 0).astype(np.float32)
    return np.asarray(cv2.LUT(channel, table), dtype=np.float32)


def unlike_he(fields: Sequence[U8]) -> str:
    """Explain why these fields cannot be from an H&E section; empty if they can.

    Only images unlike any section are reported: noise, gray images, and images that are
    partly green. Smooth pink and purple images of any kind pass. Fields are RGB at about 2 µm
    per pixel; those with less than a tenth tissue are ignored.
    """
    statistics = []
    for field in fields:
        image = field.astype(np.float32)
        tissue = image[image.min(axis=2) < 235]
        if 10 * len(tissue) < image.shape[0] * image.shape[1]:
            continue
        green = image[:, :, 1] - image[:, :, 1].mean()
        spread = float((green**2).mean())
        alike = float((green[:, :-1] * green[:, 1:]).mean()) / spread if spread > 1.0 else 1.0
        greener = tissue[:, 1] > np.maximum(tissue[:, 0], tissue[:, 2]) + 3
        statistics.append((alike, float(np.ptp(tissue, axis=1).mean()), float(greener.mean())))
    if not statistics:
        return ""
    alike, colorful, green_share = np.median(statistics, axis=0)
    if alike < NOISE_BELOW:
        return f"neighboring pixels are hardly correlated ({alike:.2f}), as in noise"
    if colorful < GRAY_BELOW:
        return "it is grayscale, and these eyes measure color"
    if green_share >= GREENER_FROM:
        return f"{green_share:.0%} of it is greenish, unlike either of the two dyes"
    return ""


def find_pen(red: AnyArray, green: AnyArray, blue: AnyArray) -> BoolArray:
    """Find ink from the ratios of the channels' optical densities.

    Hematoxylin, eosin and DAB absorb green at least as much as red or blue: (0.65, 0.70,
    0.29), (0.07, 0.99, 0.11), (0.27, 0.57, 0.78). Green and blue ink absorb red most; red ink
    absorbs green and blue almost equally and little red; orange and yellow ink absorb blue by
    far the most; black ink absorbs all channels equally and strongly. Purple, pink and brown
    ink have the colors of the stains and cannot be distinguished from tissue this way.
    """
    strong = np.maximum(np.maximum(red, green), blue) > 0.15
    green_ink = (red > 1.25 * green) & (red > 0.35)
    blue_ink = (red > 1.15 * green) & (red > 1.6 * blue) & (red > 0.35)
    blue_ink |= (red > green) & (red > 1.5 * blue) & (red > 0.55)
    warm_ink = (blue > 1.5 * green) & (red < 0.25 * blue) & (blue > 0.35)
    red_ink = (blue > 0.7 * green) & (blue < 1.25 * green) & (red < 0.32 * green) & (green > 0.4)
    low = np.minimum(np.minimum(red, green), blue)
    high = np.maximum(np.maximum(red, green), blue)
    black = (low > 0.6) & (high < 1.35 * low)
    return np.asarray(strong & (green_ink | blue_ink | red_ink | warm_ink | black), dtype=bool)


def otsu(values: AnyArray, low: float = OTSU_SPAN[0], high: float = OTSU_SPAN[1]) -> float:
    """Find the threshold that best separates values into two classes (Otsu 1979)."""
    counts, edges = np.histogram(values, bins=OTSU_BINS, range=(low, high))
    return otsu_of(counts, edges)


def otsu_of(counts: AnyArray, edges: F64) -> float:
    """Find Otsu's threshold for a histogram among its `edges`."""
    weights = counts.astype(np.float64)
    centers = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(weights)
    above = weights.sum() - below
    total = np.cumsum(weights * centers)
    with np.errstate(divide="ignore", invalid="ignore"):
        between = below * above * (total / below - (total[-1] - total) / above) ** 2
    between[~np.isfinite(between)] = 0
    return float(edges[int(np.argmax(between)) + 1])


def find_tissue(
    image: U8,
    mpp: float,
    *,
    min_area_um2: float = 20_000.0,
    fill_holes_um2: float = 10_000.0,
    keep_pen: bool = False,
) -> Tissue:
    """Find the tissue in an overview image.

    Tissue is where the optical density of green, which both H&E stains absorb, smoothed over
    ~2 pixels, exceeds Otsu's threshold kept within `OD_BOUNDS`. Colorless pixels (dust,
    shadows of the coverslip) and ink are removed, small pieces are dropped, and small holes
    are filled. An image without glass (see `glass_color`) is all tissue, except ink.

    Parameters
    ----------
    image : (H, W, 3) RGB
    mpp : µm per image pixel; about 8 for a slide and 2 for a field below 0.1 mm²
    min_area_um2, fill_holes_um2 : areas in µm²
    """
    glass = glass_color(image, mpp)
    background = glass or (255, 255, 255)
    height, width = image.shape[:2]
    pen, colored = np.zeros((height, width), dtype=bool), np.zeros((height, width), dtype=bool)
    green = np.zeros((height, width), dtype=np.float32)
    counts, edges = np.histogram(np.zeros(0, np.float32), OTSU_BINS, OTSU_SPAN)
    for top in range(0, height, BAND):  # with the rows that the blur reaches
        low, bottom = max(0, top - REACH), min(height, top + BAND)
        part = image[low : bottom + REACH]
        own = slice(top - low, bottom - low)
        density = [
            _density_plane(np.ascontiguousarray(part[:, :, c]), background[c]) for c in range(3)
        ]
        if not keep_pen:
            pen[top:bottom] = find_pen(*(plane[own] for plane in density))
        planes = [cv2.GaussianBlur(plane, (0, 0), 1.0)[own] for plane in density]
        strongest = np.maximum(np.maximum(planes[0], planes[1]), planes[2])
        weakest = np.minimum(np.minimum(planes[0], planes[1]), planes[2])
        colored[top:bottom] = (strongest - weakest) > np.maximum(0.02, 0.12 * strongest)
        green[top:bottom] = planes[1]
        counts += np.histogram(planes[1][~pen[top:bottom]], OTSU_BINS, OTSU_SPAN)[0]
    threshold = OD_BOUNDS[0]
    if mpp >= COARSE_MPP:
        threshold = float(np.clip(otsu_of(counts, edges), *OD_BOUNDS))
    if glass is None:
        colored[:], threshold = True, -1.0
    mask = ((green > threshold) & colored & ~pen).astype(np.uint8)
    if pen.any():
        pen8 = cv2.morphologyEx(pen.astype(np.uint8), cv2.MORPH_OPEN, np.ones((2, 2), np.uint8))
        pen = cv2.dilate(pen8, np.ones((3, 3), np.uint8)).astype(bool)
        mask[pen] = 0
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
    for step in (cv2.MORPH_CLOSE, cv2.MORPH_OPEN):
        mask = np.asarray(cv2.morphologyEx(mask, step, kernel), dtype=np.uint8)
    pixel = mpp * mpp
    # the image of a small field cannot contain a large piece
    least = min(min_area_um2 / pixel, 0.05 * mask.size)
    large = _keep_large(mask.view(bool), least)
    filled = ~_keep_large(large, fill_holes_um2 / pixel, value=False)
    filled &= ~pen
    filled |= large
    pieces = components(filled, diagonal=True).count
    return Tissue(filled, pen, threshold, background, pieces)


def _keep_large(mask: BoolArray, min_pixels: float, value: bool = True) -> BoolArray:
    """Return the regions of `value` in a mask with at least `min_pixels` pixels."""
    found = components(mask, diagonal=True, value=value)
    return found.mask(found.areas() >= min_pixels)


def sharpness(image: U8) -> float:
    """Compute the focus of a patch at about 1 µm per pixel (see `focus_sums`); 0 if featureless."""
    sums = focus_sums(image, np.ones(image.shape[:2], dtype=bool), max(image.shape[:2]))
    return float(focus_ratio(sums)[0, 0])


FOCUS_NOISE, FOCUS_SMOOTH = 0.5, 0.7
"""Noise energy of the Laplacian, and standard deviation of the Gaussian applied before it.

The energy (in squared gray levels) comes only from rounding and compression. The Gaussian
is in pixels; without it, JPEG blocks are mistaken for detail.
"""


def focus_sums(image: U8, tissue: BoolArray, cell: int) -> F32:
    """Compute means over cells of `cell` pixels: tissue, gray, gray², Laplacian².

    The result is (4, rows, columns). The last three are means over tissue only, times its share, so
    that cells can be averaged.
    """
    gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)
    weight = tissue.astype(np.float32)
    edges = cv2.Laplacian(cv2.GaussianBlur(gray, (0, 0), FOCUS_SMOOTH), cv2.CV_32F)
    rows, columns = -(-gray.shape[0] // cell), -(-gray.shape[1] // cell)
    spare = ((0, rows * cell - gray.shape[0]), (0, columns * cell - gray.shape[1]))
    layers = (weight, gray * weight, gray * gray * weight, edges * edges * weight)
    size = (columns, rows)
    out = [cv2.resize(np.pad(v, spare), size, interpolation=cv2.INTER_AREA) for v in layers]
    return np.asarray(np.stack(out), dtype=np.float32)


def focus_ratio(sums: F32) -> F32:
    """Compute the Laplacian's energy over the variance of gray per cell; infinite without tissue.

    Both scale with contrast, so that pale and dark tissue are comparable; the ratio is near 0
    out of focus.
    """
    share = np.maximum(sums[0], 1e-6)
    mean, square, energy = (sums[i] / share for i in (1, 2, 3))
    variance = np.maximum(square - mean * mean, 4.0)
    ratio = np.maximum(energy - FOCUS_NOISE, 0.0) / variance
    return np.asarray(np.where(sums[0] > 1e-6, ratio, np.inf), dtype=np.float32)
