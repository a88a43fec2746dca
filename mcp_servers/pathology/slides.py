"""Tools that list slides, read their properties, and read thumbnails and regions."""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatch
from typing import Literal

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.listing import make_argument, walk_below
from mcp_servers.pathology.common import (
    SUITE,
    Given,
    SlideInput,
    SlideResult,
    of_slide,
    open_slide,
    save_png,
)
from mcp_servers.slides.candidates import count_bytes, list_candidates
from mcp_servers.spec import OutputName, Resources, tool
from mcp_servers.workers.cohort import parse_patient
from sage.core.errors import InputError


class LevelSize(BaseModel):
    """Size and downsampling of a stored resolution level."""

    width_px: int
    height_px: int
    downsample: float


class PropertiesResult(SlideResult):
    """Slide metadata."""

    format: str
    backend: str = Field(
        description="Reader: direct (decoded by SAGE), openslide, or image (held in memory)"
    )
    width_px: int
    height_px: int
    width_um: float | None
    height_um: float | None
    objective_power: float | None
    unlike_stain: str = Field(
        description="Why tools for stained bright-field slides refuse it; empty if they do not"
    )
    levels: list[LevelSize]
    associated_images: list[str]
    size_bytes: int


@tool(
    "slide_properties",
    SUITE,
    "1.0.0",
    "Read a slide's metadata: size, pixel size in µm, levels, format.",
    resources=Resources(memory_mb=128, seconds_per_item=0.05),
    title="Read the properties of a slide",
)
def slide_properties(given: SlideInput, context: ToolContext) -> PropertiesResult:
    """Read a slide's metadata."""
    slide = open_slide(given, context, "nothing")
    warnings = list(slide.warnings)
    if slide.mpp is None:
        stated = "" if slide.mpp_conflict else "the file does not state its pixel size; "
        warnings.append(f"{stated}give mpp to tools that measure")
    return PropertiesResult(
        **of_slide(slide),
        warnings=warnings,
        format=slide.format,
        backend=slide.source.name,
        width_px=slide.width,
        height_px=slide.height,
        width_um=None if slide.mpp is None else slide.width * slide.mpp,
        height_um=None if slide.mpp is None else slide.height * slide.mpp,
        objective_power=slide.objective_power,
        unlike_stain=slide.unlike_stain(),
        levels=[
            LevelSize(width_px=level.width, height_px=level.height, downsample=level.downsample)
            for level in slide.levels
        ],
        associated_images=list(slide.associated),
        size_bytes=count_bytes(slide.path),
    )


class ThumbnailInput(SlideInput):
    """Input for a thumbnail: the slide and the image size."""

    max_px: int = Field(default=1024, ge=16, le=8192, description="Longer side, in pixels")


class ImageResult(SlideResult):
    """An image file written by a tool."""

    image: OutputName
    width_px: int
    height_px: int
    image_mpp: float | None = Field(description="µm per pixel of the image")


@tool(
    "slide_thumbnail",
    SUITE,
    "1.0.0",
    "Write a PNG overview of a slide.",
    resources=Resources(memory_mb=512, seconds_per_item=0.2),
    title="Write a thumbnail of a slide",
)
def slide_thumbnail(given: ThumbnailInput, context: ToolContext) -> ImageResult:
    """Write a thumbnail of a whole slide."""
    slide = open_slide(given, context, "nothing")
    image = slide.thumbnail(given.max_px)
    height, width = image.shape[:2]
    return ImageResult(
        **of_slide(slide),
        warnings=list(slide.warnings),
        image=save_png(context, f"{slide.name}.thumbnail.png", image),
        width_px=width,
        height_px=height,
        image_mpp=None if slide.mpp is None else slide.mpp * slide.width / width,
    )


class RegionInput(SlideInput):
    """A rectangle: its corner in level-0 pixels, its size in µm or level-0 pixels."""

    x: int = Field(description="Left edge, in level-0 pixels")
    y: int = Field(description="Top edge, in level-0 pixels")
    width: float = Field(gt=0, description="Width in the given unit")
    height: float = Field(gt=0, description="Height in the given unit")
    unit: Literal["um", "px"] = Field(default="um", description="Unit of width and height")
    at_mpp: float | None = Field(
        default=None, gt=0, description="µm per pixel of the image; default: level 0"
    )


@tool(
    "read_region",
    SUITE,
    "1.0.0",
    "Write a rectangle of a slide, given in level-0 pixels and µm, as PNG.",
    resources=Resources(memory_mb=512, seconds_per_item=0.1),
    title="Read a region of a slide",
)
def read_region(given: RegionInput, context: ToolContext) -> ImageResult:
    """Read a rectangle at a given resolution."""
    slide = open_slide(given, context, "nothing")
    per_unit = 1 / slide.need_mpp() if given.unit == "um" else 1.0
    width, height = given.width * per_unit, given.height * per_unit
    scale = 1.0 if given.at_mpp is None else given.at_mpp / slide.need_mpp()
    view = slide.scale_to(scale)
    out_width, out_height = round(width / view.scale), round(height / view.scale)
    if out_width < 1 or out_height < 1:
        raise InputError(f"the region is smaller than one pixel at {given.at_mpp} µm per pixel")
    if out_width * out_height > 64_000_000:
        raise InputError(f"the region would be {out_width} x {out_height} px; increase at_mpp")
    if given.x >= slide.width or given.y >= slide.height or given.x + width <= 0:
        raise InputError(
            f"the region at ({given.x}, {given.y}) is outside the slide ({slide.width} x "
            f"{slide.height} px)"
        )
    left, top = round(given.x / view.scale), round(given.y / view.scale)
    image = view.read(left, top, out_width, out_height)
    name = f"{slide.name}.region_{given.x}_{given.y}_{out_width}x{out_height}.png"
    return ImageResult(
        **of_slide(slide),
        warnings=list(slide.warnings),
        image=save_png(context, name, image),
        width_px=out_width,
        height_px=out_height,
        image_mpp=None if slide.mpp is None else slide.mpp * view.scale,
    )


JOB_FOLDER = re.compile(r"(^|/)[a-z_]+/[0-9a-f]{12}/")
"""Pattern of a job's output folder, whose images are not slides."""


class SlidesInput(Given):
    """Folder to search, filters, and pagination."""

    folder: str = Field(
        default="", max_length=1024, description="Only slides in this folder; default: all"
    )
    pattern: str = Field(
        default="*", max_length=200, description='Only files whose name matches, e.g. "*.svs"'
    )
    start: int = Field(default=0, ge=0, description="Number of slides to skip, for the next page")
    limit: int = Field(default=200, ge=1, le=2000)


class SlideRow(BaseModel):
    """A row for a slide or image file."""

    slide: str = Field(description="Pass this as `slide` to the pathology tools")
    patient: str = Field(
        description="TCGA barcode in the file's name, or else the first part of the name"
    )
    mb: float = Field(description="Size of the file, in MB")


class SlidesResult(BaseModel):
    """Slides found, sorted by name."""

    slides: list[SlideRow]
    total: int = Field(description="Total number; repeat with `start` for the rest")
    left_out: dict[str, int] = Field(description="Number of images that are no slides, by reason")
    folders: dict[str, int] = Field(description="Number of slides per folder")


@tool(
    "list_slides",
    SUITE,
    "1.0.0",
    "List the slides and images that can be read: the name to give to other tools, the patient "
    "from the name, and the size. Opens no pixels; masks and tiny images are counted, not listed.",
    Resources(memory_mb=256),
    cacheable=False,
)
def list_slides(given: SlidesInput, context: ToolContext) -> SlidesResult:
    """List slide and image files under the roots, excluding images written by tools."""
    roots = context.roots
    below = roots.input(given.folder, "folder") if given.folder else None
    found: list[SlideRow] = []
    folders: dict[str, int] = {}
    left: Counter[str] = Counter()
    for root, folder, files in walk_below(roots):
        shown = folder.relative_to(root).as_posix()
        inside = below is None or folder.is_relative_to(below)
        if not inside or (below is None and JOB_FOLDER.search(f"{shown}/")):
            continue
        context.check_cancelled()
        paths, reasons = list_candidates(
            [folder / name for name in files] + ([folder] if folder.suffix == ".zarr" else [])
        )
        left.update(reasons)
        for path in paths:
            if not fnmatch(path.name, given.pattern) or not roots.allows(path.resolve()):
                continue
            slide = make_argument(root, path, roots)
            if slide is None:
                continue
            size = round(count_bytes(path) / 1e6, 3)
            found.append(SlideRow(slide=slide, patient=parse_patient(path), mb=size))
            folders[shown] = folders.get(shown, 0) + 1
    found.sort(key=lambda row: row.slide)
    shown_rows = found[given.start : given.start + given.limit]
    return SlidesResult(
        slides=shown_rows,
        total=len(found),
        folders=dict(sorted(folders.items())),
        left_out=dict(left),
    )
