"""Labeled training tiles, from outlines on slides or from images sorted into folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcp_servers.slides.arrays import F32, F64, I64
from sage.core.errors import InputError
from sage.core.seeds import generator
from sage_training.patches.files import IMAGES, bare, pair

if TYPE_CHECKING:
    from mcp_servers.context import ToolContext
    from mcp_servers.slides.geometry import Polygon
    from mcp_servers.slides.slide import Slide
    from sage_training.patches.inputs import PatchTrainInput

IGNORED = ("", "ignore", "ignore*")


@dataclass
class Patches:
    """Tiles with features, label, slide, and corner, and the files that yielded none."""

    features: F32
    labels: list[str]
    slides: list[str]
    corners: I64
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Labelled:
    """A slide with its classified outlines, or an image with a single class."""

    path: Path
    source: list[Polygon] | str

    @property
    def labels(self) -> set[str]:
        """Return the classes of the outlines or image."""
        return {self.source} if isinstance(self.source, str) else {p.label for p in self.source}

    @property
    def name(self) -> str:
        """Return the slide's name (see `Slide.name`), or the image's name with its class."""
        if isinstance(self.source, str):
            return f"{self.source}/{self.path.name}"
        return self.path.name.removesuffix(self.path.suffix).removesuffix(".ome")

    def patient(self, known: dict[str, str]) -> str | None:
        """Look up the patient in a table by slide (`read_patients`); None if missing."""
        named = (bare(self.name), bare(self.path.name), self.name)
        return next((known[name] for name in named if known.get(name)), None)


def gather_labels(given: PatchTrainInput, context: ToolContext, notes: list[str]) -> list[Labelled]:
    """Find the training files, adding notes about omissions to `notes`.

    Raises `InputError` if none exist or they cannot be paired.
    """
    return (
        gather_outlines(given, context, notes)
        if given.regions is not None
        else gather_folders(given, context)
    )


def gather(jobs: list[Labelled], given: PatchTrainInput, context: ToolContext) -> Patches:
    """Encode labeled tiles from all files; raises `InputError` if there are none."""
    from mcp_servers.slides.slide import Slide
    from sage_foundation.patches import encode_corners

    features: list[F32] = []
    labels, names, corners = [], [], []
    empty: list[str] = []
    rng = generator(given.seed)
    for number, job in enumerate(jobs):
        path, source = job.path, job.source
        context.check_cancelled()
        with Slide.open(path, mpp=given.mpp, threads=max(2, context.threads)) as slide:
            at, own, grid = _tiles(slide, source, given)
            keep = sample_per_label(own, given.max_patches, rng)
            at, own = at[keep], [own[i] for i in keep]
            if not len(at):
                empty.append(job.name)
                continue
            slide.need_stain()
            span = (0.9 * number / len(jobs), 0.9 * (number + 1) / len(jobs))
            features += encode_corners(
                slide, at, grid, given.encoder, given.weights, given.device, context, span
            )
            labels += own
            names += [job.name] * len(at)
            corners.append(at)
    if not features:
        raise InputError(
            f"{given.regions or given.slides}: no tile of {given.tile_px} px at {given.at_mpp:g} "
            "µm per pixel fits inside a classified outline or image; draw larger "
            "outlines or use smaller tiles"
        )
    warnings = []
    if empty:
        place = "its classified outlines" if given.regions is not None else "it"
        warnings.append(
            f"{len(empty)} of {len(jobs)} files were not used for training, starting with "
            f"{empty[0]}: no tile of {given.tile_px} px at {given.at_mpp:g} µm per pixel fits "
            f"into {place}"
        )
    return Patches(np.concatenate(features), labels, names, np.concatenate(corners), warnings)


def gather_outlines(
    given: PatchTrainInput, context: ToolContext, notes: list[str]
) -> list[Labelled]:
    """Pair slides with the classified outlines in the GeoJSON file with the same name.

    Notes about features that cannot be used are added to `notes`.
    """
    from mcp_servers.formats.geojson import read_polygons

    regions, slides = context.input(given.regions or ""), context.input(given.slides)
    files = sorted(regions.glob("*.geojson")) if regions.is_dir() else [regions]
    files = [context.input(file, "file") for file in files]
    if slides.is_dir():
        pairs = pair(files, slides.iterdir(), given.slides)
    elif len(files) == 1:
        pairs = {files[0]: slides}
    else:
        raise InputError(
            f"{given.regions}: {len(files)} outline files for one slide; provide only one"
        )
    out = []
    for file, found in pairs.items():
        drawn, left = read_polygons(file)
        notes += left
        polygons = [p for p in drawn if p.label.lower() not in IGNORED]
        if polygons:
            out.append(Labelled(context.input(found, "file"), polygons))
    if not out:
        raise InputError(f"{given.regions}: no outline has a class; assign classes in QuPath")
    return out


def gather_folders(given: PatchTrainInput, context: ToolContext) -> list[Labelled]:
    """Pair images with the names of their folders."""
    folder = context.input(given.slides, "folder")
    out = [
        Labelled(context.input(file, "file"), sub.name)
        for sub in sorted(folder.iterdir())
        if sub.is_dir() and not sub.name.startswith(".")
        for file in sorted(sub.iterdir())
        if file.suffix.lower() in IMAGES
    ]
    if not out:
        raise InputError(
            f"{given.slides}: without regions, the folder must contain one subfolder of images "
            "per class"
        )
    return out


def _tiles(
    slide: Slide, source: list[Polygon] | str, given: PatchTrainInput
) -> tuple[I64, list[str], Any]:
    """Cut tiles inside outlines, or from a whole image; return corners, labels, and the grid."""
    from mcp_servers.pathology.tiles import TilesInput, every_tile

    tiles = TilesInput(slide=str(slide.path), tile_px=given.tile_px, at_mpp=given.at_mpp)
    corners, grid = every_tile(slide, tiles)
    if isinstance(source, str):
        return corners, [source] * len(corners), grid
    scale = max(1.0, 2.0 / slide.need_mpp())
    classes = sorted({p.label for p in source})
    cover = np.zeros((len(classes), len(corners)))
    for own, name in zip(cover, classes, strict=True):  # only one mask at a time is in memory
        outlines = [p for p in source if p.label == name]
        own[:] = _share(outlines, corners, grid.patch_size_level0, scale, slide)
    # no label if two classes overlap
    keep = (cover >= given.min_in_region).sum(axis=0) == 1
    which = cover.argmax(axis=0)
    return corners[keep], [classes[i] for i in which[keep]], grid


def _share(polygons: list[Polygon], corners: I64, size: int, scale: float, slide: Slide) -> F64:
    """Compute the (n,) fraction of each square covered by the polygons.

    Only the polygons' bounding box is masked. The mask's cells match those of a mask of the
    whole slide: its corner is at an even cell, so rounding to cells gives the same result.
    """
    from mcp_servers.slides.geometry import Polygon, measure_coverage, rasterize

    points = np.concatenate([p.exterior for p in polygons])
    end = np.array([slide.width, slide.height])
    low = np.clip(points.min(axis=0), 0, end)
    high = np.clip(points.max(axis=0), 0, end)
    first = np.maximum(np.floor(low / scale / 2).astype(np.int64) * 2 - 2, 0)
    last = np.minimum(np.ceil(high / scale) + 2, (end / scale).astype(np.int64) + 1)
    origin = first * scale
    columns, rows = (int(v) for v in last - first)
    moved = [Polygon(p.exterior - origin, tuple(h - origin for h in p.holes)) for p in polygons]
    mask = rasterize(moved, scale, (rows, columns))
    out = np.zeros(len(corners))
    near = ((corners < high + scale) & (corners + size > low - scale)).all(axis=1)
    out[near] = measure_coverage(mask, corners[near] - origin, size, scale)
    return out


def sample_per_label(labels: list[str], most: int, rng: Any) -> list[int]:
    """Sample at most `most` items per label at random, keeping their order."""
    out: list[int] = []
    for name in sorted(set(labels)):
        own = np.flatnonzero([label == name for label in labels])
        out += (rng.choice(own, most, replace=False) if len(own) > most else own).tolist()
    return sorted(out)
