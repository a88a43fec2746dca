"""Nuclei scores on labeled tiles, per organ, next to the simplest method."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mcp_servers.pathology.compute.nuclei import segment
from mcp_servers.slides.arrays import U8, AnyArray
from sage_training.nuclei.examples import Tile
from sage_training.nuclei.scores import Scores, otsu_watershed, score

MPP = 0.5
MEDIAN_AREA_UM2 = 40.0
"""Median nuclear area assumed for a tile without a pixel size."""
BASELINE, CLASSICAL = "otsu_watershed", "classical"
FIGURES = ("f1", "dice", "aji", "pq")
Method = Callable[[U8], AnyArray]
TCGA_SITES = {
    "lung": ("05", "18", "21", "38", "44", "49", "50", "55"),
    "breast": ("A1", "A2", "A7", "AC", "AN", "AO", "AR", "BH", "E2", "S3"),
    "kidney": ("B0", "B9", "CJ", "HE", "UZ"),
    "prostate": ("CH", "G9", "HC", "YL"),
    "bladder": ("BL", "BT", "CU", "DK", "G2", "XF", "ZF"),
    "colon": ("A6", "AA", "AY", "NH"),
    "stomach": ("BR", "KB", "RD", "VQ"),
    "head and neck": ("CR", "CV"),
}
"""Organ by the tissue source site in a TCGA barcode, for sites in common test sets."""


@dataclass(frozen=True, slots=True)
class TileScores:
    """Each method's scores on a tile, and the tile's organ."""

    name: str
    organ: str
    methods: Mapping[str, Scores]


def organ(name: str) -> str:
    """Look up a tile's organ by the site code in its TCGA barcode, or return unknown."""
    parts = name.split("-")
    if len(parts) < 3 or parts[0] != "TCGA":
        return "unknown"
    return next((o for o, sites in TCGA_SITES.items() if parts[1] in sites), "unknown")


def at_working_size(tile: Tile) -> U8:
    """Resample the image to 0.5 µm per pixel, or to usual nuclear size without a pixel size."""
    import cv2

    if tile.mpp is not None:
        factor = tile.mpp / MPP
    else:
        factor = float(np.sqrt(MEDIAN_AREA_UM2 / MPP**2 / tile.median_area()))
    if abs(factor - 1) < 0.02:
        return tile.image
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(tile.image, None, fx=factor, fy=factor, interpolation=how))


def own_methods() -> dict[str, Method]:
    """Return the Otsu + watershed and classical segmenters, for images at 0.5 µm per pixel."""
    return {
        BASELINE: lambda image: otsu_watershed(image, MPP),
        CLASSICAL: lambda image: segment(image, MPP).labels,
    }


def score_tiles(tiles: list[Tile], methods: Mapping[str, Method]) -> list[TileScores]:
    """Score each tile; labels found at 0.5 µm per pixel are compared at the tile's own size."""
    import cv2

    out = []
    for tile in tiles:
        image = at_working_size(tile)
        size = tile.labels.shape[::-1]
        found = {}
        for name, method in methods.items():
            labels = method(image).astype(np.float32)
            fitted = cv2.resize(labels, size, interpolation=cv2.INTER_NEAREST)
            found[name] = score(tile.labels, fitted.astype(np.int32))
        out.append(TileScores(tile.name, organ(tile.name), found))
    return out


def means(scored: list[TileScores], method: str) -> dict[str, float]:
    """Average each of a method's metrics over tiles."""
    own = [tile.methods[method] for tile in scored]
    return {name: round(float(np.mean([getattr(s, name) for s in own])), 4) for name in FIGURES}


def below_baseline(scored: list[TileScores], method: str) -> list[str]:
    """List the tiles on which a method's F1 is below that of Otsu + watershed."""
    return [t.name for t in scored if t.methods[method].f1 < t.methods[BASELINE].f1]


def megapixels_per_cpu_second(method: Method, tiles: list[Tile]) -> float:
    """Compute megapixels at 0.5 µm per pixel, divided by processor seconds across all threads."""
    images = [at_working_size(tile) for tile in tiles]
    method(images[0])  # compiled and loaded
    began = time.process_time()
    for image in images:
        method(image)
    pixels = sum(image.shape[0] * image.shape[1] for image in images)
    return float(pixels) / 1e6 / max(time.process_time() - began, 1e-9)


def by_organ(scored: list[TileScores]) -> dict[str, list[TileScores]]:
    """Group tiles by organ, sorted by name, with the group of all tiles last."""
    organs = sorted({tile.organ for tile in scored})
    groups = {name: [tile for tile in scored if tile.organ == name] for name in organs}
    return groups | {"all": scored} if len(organs) > 1 else {"all": scored}
