"""Training examples: labeled tiles, scaled, restained, and degraded as by scanners and labs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np

from mcp_servers.slides.arrays import F32, I32, U8, AnyArray
from sage.core.errors import InputError
from sage.core.seeds import generator

SIDE = 256
MEDIAN_AREA_PX = (70.0, 270.0)
"""Range of median nuclear area after scaling: 17 to 67 µm² at 0.5 µm per pixel, as in organs."""
WHITE = 245.0
MIRROR_PX, SEAM_PX = 5.0, 3
"""Distances from a mirrored border and from a seam between cutouts where labels are ignored."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A labeled image: `image` (H, W, 3) RGB and `labels` (H, W), 0 outside nuclei.

    `mpp` is µm per pixel, if known.
    """

    name: str
    image: U8
    labels: I32
    mpp: float | None = None

    def median_area(self) -> float:
        """Median area of the nuclei in pixels; 300 if there are none."""
        areas = np.bincount(self.labels.ravel())[1:]
        areas = areas[areas > 0]
        return float(np.median(areas)) if len(areas) else 300.0


def read_tiles(folder: Path, mpp: float | None = None) -> list[Tile]:
    """Read pairs NAME.png (or .tif) and NAME_labels.png from a folder, sorted by name.

    Raises
    ------
    InputError
        If the folder contains no pair, or the sizes in a pair differ.
    """
    out = []
    for path in sorted(folder.glob("*_labels.png")):
        name = path.name.removesuffix("_labels.png")
        beside = [folder / f"{name}{end}" for end in (".png", ".tif", ".tiff", ".jpg")]
        found = next((image for image in beside if image.is_file()), None)
        if found is None:
            raise InputError(f"{path}: image {name}.png, .tif or .jpg not found in the same folder")
        image, labels = cv2.imread(str(found)), cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        if image is None or labels is None or labels.ndim != 2:
            raise InputError(
                f"{path}: cannot be read as an image with one 16-bit label per nucleus"
            )
        if image.shape[:2] != labels.shape:
            raise InputError(
                f"{path}: the labels are {labels.shape[1]} x {labels.shape[0]} px, but the image "
                f"is {image.shape[1]} x {image.shape[0]} px"
            )
        out.append(
            Tile(name, np.ascontiguousarray(image[:, :, ::-1]), labels.astype(np.int32), mpp)
        )
    if not out:
        raise InputError(
            f"{folder}: no NAME_labels.png found; each tile requires NAME.png and NAME_labels.png, "
            "with 0 outside nuclei and a different number for each nucleus"
        )
    return out


def content_hash(tiles: list[Tile]) -> str:
    """Compute the SHA-256 over the names, pixels, and labels of tiles, in order."""
    digest = hashlib.sha256()
    for tile in tiles:
        digest.update(tile.name.encode())
        digest.update(np.ascontiguousarray(tile.image).tobytes())
        digest.update(np.ascontiguousarray(tile.labels, dtype=np.int32).tobytes())
    return digest.hexdigest()


def targets(labels: I32) -> F32:
    """Build targets (4, H, W): nucleus 0 or 1, depth 0 to 1, and x and y positions -1 to 1."""
    edges = np.zeros(labels.shape, dtype=bool)
    edges[:, 1:] |= labels[:, 1:] != labels[:, :-1]
    edges[1:] |= labels[1:] != labels[:-1]
    # to the middle of the last pixel outside, even if nuclei touch
    free = (labels > 0) & ~edges
    depth = cv2.distanceTransform(free.astype(np.uint8), cv2.DIST_L2, 3) + np.float32(1)
    count = int(labels.max())
    out = np.zeros((4, *labels.shape), dtype=np.float32)
    if count == 0:
        return out
    inside = labels > 0
    numbers = labels[inside]
    rows, columns = np.nonzero(inside)
    deepest = np.zeros(count + 1, dtype=np.float32)
    np.maximum.at(deepest, numbers, depth[inside])
    out[0] = inside
    out[1][inside] = depth[inside] / deepest[numbers]
    sizes = np.maximum(np.bincount(numbers, minlength=count + 1), 1)
    for plane, place in ((2, columns), (3, rows)):
        center = np.bincount(numbers, place, count + 1) / sizes
        offset = place - center[numbers]
        low, high = np.full(count + 1, 0.5), np.full(count + 1, 0.5)
        np.maximum.at(low, numbers, -offset)
        np.maximum.at(high, numbers, offset)
        out[plane][inside] = np.where(offset < 0, offset / low[numbers], offset / high[numbers])
    return out


def unit_vector(values: AnyArray) -> F32:
    """Scale values to length 1."""
    return np.asarray(values / np.linalg.norm(values), dtype=np.float32)


def noise_field(shape: tuple[int, int], rng: np.random.Generator, fibers: bool) -> F32:
    """Draw smooth noise with zero mean and unit spread, stretched in one direction if `fibers`."""
    grain = float(np.exp(rng.uniform(np.log(1.5), np.log(24.0))))
    side = int(np.hypot(*shape)) + 8
    rows = max(3, int(side / (grain * (rng.uniform(3, 8) if fibers else 1))))
    coarse = rng.standard_normal((rows, max(3, int(side / grain)))).astype(np.float32)
    noise = cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC)
    if fibers:
        turn = cv2.getRotationMatrix2D((side / 2, side / 2), rng.uniform(0, 180), 1.0)
        noise = cv2.warpAffine(noise, turn, (side, side), borderMode=cv2.BORDER_REFLECT)
    top, left = (side - shape[0]) // 2, (side - shape[1]) // 2
    part = noise[top : top + shape[0], left : left + shape[1]]
    return np.asarray((part - part.mean()) / (part.std() + 1e-6), dtype=np.float32)


def dyed_anew(image: U8, labels: I32, depth: F32, rng: np.random.Generator) -> F32:
    """Compute a tile's optical densities (H, W, 3) with other dyes, chromatin, and background.

    Density up to the background's level is treated as cytoplasm and fibers and gets an
    eosin-like color; the excess is treated as hematoxylin. Single nuclei become paler, darker
    or vesicular.

    Parameters
    ----------
    image : (H, W, 3) RGB pixels
    labels : (H, W) nuclei, 0 elsewhere
    depth : (H, W) depth within a nucleus, 0 to 1
    rng : generator for colors and changes
    """
    raw = -np.log10(np.maximum(image.astype(np.float32), 1.0) / WHITE).clip(max=0)
    inside = labels > 0
    total = raw.mean(axis=2)
    outside = total[~inside]
    level = float(np.percentile(outside, rng.uniform(50, 80))) if len(outside) else 0.1
    counter = np.minimum(total, level)
    nuclear = total - counter
    count = int(labels.max()) + 1
    factor = np.exp(rng.normal(0, 0.22, count)).astype(np.float32)
    hollow = (rng.uniform(0, 0.75, count) * (rng.random(count) < 0.35)).astype(np.float32)
    factor[0], hollow[0] = 1.0, 0.0
    nuclear = nuclear * factor[labels] * (1 - hollow[labels] * np.minimum(1.0, 1.4 * depth))
    if rng.random() < 0.5:  # nucleoli
        spots = noise_field(labels.shape, rng, fibers=False)
        nuclear += np.where((spots > 2.0) & (hollow[labels] > 0), 0.15, 0.0)
    present = nuclear[inside]
    reach = float(np.percentile(present, 75)) if len(present) > 50 else 0.3
    nuclear = nuclear * (rng.uniform(0.25, 0.75) / max(reach, 0.05))
    # background: level, texture of fibers or grains, gaps of glass
    strength = rng.uniform(0.03, 0.38)
    texture = counter / max(level, 0.02) * strength
    for fibers in (True, False):
        if rng.random() < 0.6:
            texture = texture * np.exp(
                rng.uniform(0.05, 0.45) * noise_field(labels.shape, rng, fibers)
            )
    if rng.random() < 0.35:
        gaps = noise_field(labels.shape, rng, fibers=rng.random() < 0.5) > rng.uniform(0.6, 2.0)
        soft = cv2.GaussianBlur((gaps & ~inside).astype(np.float32), (0, 0), 1.0)
        texture = texture * (1 - 0.9 * soft)
    blue = unit_vector(np.array([0.60, 0.70, 0.33]) + rng.normal(0, 0.07, 3))
    pink = unit_vector(np.array([0.15, 0.90, 0.35]) + rng.normal(0, 0.10, 3))
    if rng.random() < 0.25:  # basophilic background
        pink = unit_vector(rng.uniform(0.2, 0.8) * blue + pink)
    inner = rng.uniform(0.2, 1.0)  # share of the background's color in nuclei
    texture = np.asarray(np.where(inside, texture * inner, texture), dtype=np.float32)
    dyed = nuclear[..., None] * blue + texture[..., None] * pink
    residual = raw - total[..., None] * unit_vector(raw.reshape(-1, 3).mean(0) + 1e-3) * np.sqrt(3)
    out = (dyed * np.sqrt(3) + rng.uniform(0, 0.5) * residual).clip(0)
    return np.asarray(out, dtype=np.float32)


def simulate_scanner(density: F32, rng: np.random.Generator) -> U8:
    """Simulate a scanner's gray values from densities: color, focus, noise, and compression."""
    mix = np.eye(3) + rng.normal(0, 0.04, (3, 3))
    strength = rng.uniform(0.75, 1.3) ** rng.integers(0, 2)
    density = (density @ mix.astype(np.float32)) * np.float32(strength)
    white = rng.uniform(225, 255) * (1 + rng.normal(0, 0.015, 3))
    image: AnyArray = white * 10.0 ** (-density)
    if rng.random() < 0.5:
        image = np.asarray(cv2.GaussianBlur(image, (0, 0), rng.uniform(0.3, 1.1)))
    elif rng.random() < 0.4:
        soft = cv2.GaussianBlur(image, (0, 0), 1.0)
        image = image + rng.uniform(0.2, 0.8) * (image - soft)
    if rng.random() < 0.5:
        image = image + rng.normal(0, rng.uniform(1, 6), image.shape)
    out = np.clip(image, 0, 255).astype(np.uint8)
    if rng.random() < 0.5:
        quality = [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(35, 95))]
        coded = cv2.imencode(".jpg", out, quality)[1]
        return np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), dtype=np.uint8)
    return out


def cut_example(
    tile: Tile, height: int, width: int, rng: np.random.Generator
) -> tuple[U8, I32, F32]:
    """Cut a rotated, scaled patch from a tile; return image, labels, and weight.

    Parameters
    ----------
    tile : image with labels and pixel size, if known
    height, width : size of the cutout, in pixels
    rng : generator for position, angle, and scale
    """
    low, high = np.log(MEDIAN_AREA_PX)
    if tile.mpp is None:
        scale = np.sqrt(np.exp(rng.uniform(low, high)) / tile.median_area())
    else:
        scale = tile.mpp / 0.5 * np.exp(rng.uniform(-0.25, 0.25))
    stretch = np.exp(rng.normal(0, 0.08))
    angle = rng.uniform(0, 360)
    h, w = tile.labels.shape
    place = (rng.uniform(0.15, 0.85) * w, rng.uniform(0.15, 0.85) * h)
    move = cv2.getRotationMatrix2D(place, angle, scale)
    move[0] *= stretch
    if rng.random() < 0.5:
        move[0] = -move[0]
    move[:, 2] += np.array([width / 2, height / 2]) - move @ np.array([*place, 1.0])
    source = tile.image
    if scale < 0.7:  # averaging, as a scanner's pyramid does
        source = np.asarray(cv2.GaussianBlur(source, (0, 0), 0.45 / scale), dtype=np.uint8)
    border = cv2.BORDER_REFLECT_101
    image = cv2.warpAffine(source, move, (width, height), flags=cv2.INTER_LINEAR, borderMode=border)
    # labels are passed as floats with 24 bits; nearest neighbor keeps them intact
    labels = cv2.warpAffine(
        tile.labels.astype(np.float32),
        move,
        (width, height),
        flags=cv2.INTER_NEAREST,
        borderMode=border,
    ).astype(np.int32)
    trust = np.ones((height, width), dtype=np.float32)
    # mirrored copies beyond the border are separate nuclei, and the mirrored part is not trusted
    back = cv2.invertAffineTransform(move)
    columns, rows = np.meshgrid(np.arange(width), np.arange(height))
    copy = np.zeros((height, width), dtype=np.int64)
    for (a, b, c), length in zip(back.astype(np.float32), (w, h), strict=True):
        at = (a * columns + b * rows + c) / length
        whole = np.floor(at).astype(np.int64)
        copy = copy * (int(np.ptp(whole)) + 1) + whole - whole.min()
        trust = trust * (np.abs(at - np.round(at)) * length * scale > MIRROR_PX)
    numbers = np.where(labels > 0, copy * (int(labels.max()) + 1) + labels, 0)
    present = np.bincount(numbers.ravel()) > 0
    present[0] = False
    numbers = np.where(labels > 0, np.cumsum(present)[numbers], 0)
    return np.asarray(image), numbers.astype(np.int32), np.asarray(trust, dtype=np.float32)


def example(tiles: list[Tile], rng: np.random.Generator, side: int = SIDE) -> tuple[U8, F32, F32]:
    """Make an example: image (side, side, 3), targets (4, side, side), and weight (side, side).

    It combines up to four cutouts from different tiles, so that large nuclei, empty areas,
    and crowded areas occur close together.
    """
    image = np.zeros((side, side, 3), dtype=np.float32)
    goal = np.zeros((4, side, side), dtype=np.float32)
    weight = np.ones((side, side), dtype=np.float32)
    cuts = (
        (0, side) if rng.random() < 0.4 else (0, int(rng.integers(side // 3, 2 * side // 3)), side)
    )
    for top, bottom in pairwise(cuts):
        for left, right in pairwise(cuts):
            tile = tiles[int(rng.integers(len(tiles)))]
            part, labels, trust = cut_example(tile, bottom - top, right - left, rng)
            aims = targets(labels)
            if rng.random() < 0.75:
                dense = dyed_anew(part, labels, aims[1], rng)
            else:
                dense = -np.log10(np.maximum(part.astype(np.float32), 1.0) / WHITE).clip(max=0)
            image[top:bottom, left:right] = dense
            goal[:, top:bottom, left:right] = aims
            weight[top:bottom, left:right] = trust
    for cut in cuts[1:-1]:
        weight[cut - SEAM_PX : cut + SEAM_PX] = 0
        weight[:, cut - SEAM_PX : cut + SEAM_PX] = 0
    return simulate_scanner(image, rng), goal, weight


def split_tiles(tiles: list[Tile], seed: int, share: float = 0.2) -> tuple[list[Tile], list[Tile]]:
    """Split tiles into training and held-out sets, keeping clusters of similar tiles together.

    Tiles from one slide look alike, and neighbors of training tiles are not an independent
    test. Clusters are based on median color, its spread, and nuclear size (k-means, one
    cluster per ten tiles, at least five); they are held out in an order set by the seed until
    `share` is reached.
    """
    from scipy.cluster.vq import kmeans2

    if len(tiles) < 5:
        raise InputError(f"only {len(tiles)} tiles; at least 5 are required for a held-out set")
    looks = []
    for tile in tiles:
        pixels = tile.image.reshape(-1, 3)
        size = 3 * np.log(tile.median_area())
        looks.append(np.r_[np.median(pixels, axis=0) / 25, size, pixels.std(axis=0) / 25])
    count = min(len(tiles), max(5, round(len(tiles) / 10)))
    _, cluster = kmeans2(np.array(looks), count, minit="++", iter=50, rng=seed)
    held: set[int] = set()
    for label in generator(seed).permutation(np.unique(cluster)):
        members = np.flatnonzero(cluster == label)
        if len(held) + len(members) <= max(1.25 * share * len(tiles), 1):
            held.update(members.tolist())
        if len(held) >= share * len(tiles):
            break
    held = held or {int(np.flatnonzero(cluster == cluster[0])[0])}
    return (
        [tile for i, tile in enumerate(tiles) if i not in held],
        [tile for i, tile in enumerate(tiles) if i in held],
    )
