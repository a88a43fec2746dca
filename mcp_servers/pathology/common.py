"""Shared parts of the pathology tools: slide argument, result header, and opening of slides."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.formats.geojson import write_geojson
from mcp_servers.formats.images import write_png
from mcp_servers.slides.arrays import U8, BoolArray
from mcp_servers.slides.geometry import Polygon
from mcp_servers.slides.slide import Slide
from mcp_servers.slides.view import View
from mcp_servers.spec import SlidePath
from sage.core.errors import InputError
from sage.core.models import Strict

Method = Literal["classical", "learned"]
Call = Literal["lymphoid", "doubtful", "rejected"]
"""Class of a dense region of lymphocyte-like nuclei; rejected regions are not counted."""
Needs = Literal["color", "bright field", "nothing"]
"""A tool's image requirements: color, transmitted light only, or none for display tools."""
SUITE = "pathology"
Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]
"""Device for running a network; "auto" uses a GPU if there is one."""
Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""Seed for random draws; the generators take 32 bits."""
SMALL_REGION = 25.0
"""Region size, in tissue-mask cells, below which the area has an error of about a fifth."""


class Given(Strict):
    """Arguments of a tool; unknown names are rejected."""


class SlideInput(Given):
    """A slide, with an optional pixel size."""

    slide: SlidePath = Field(description="Slide or image file: SVS, TIFF, OME-TIFF, PNG, JPEG ...")
    mpp: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="µm per level-0 pixel, overriding the file; recorded as an override",
    )


class SlideResult(BaseModel):
    """The slide that was read, its pixel size, and the reader."""

    slide: str = Field(description="Name of the slide, without its suffix")
    mpp: float | None = Field(description="µm per level-0 pixel")
    mpp_source: Literal["file", "override", "none"]
    method: Method = Field(
        default="classical", description="Method; classical means without learned weights"
    )
    warnings: list[str] = Field(default_factory=list)


def of_slide(slide: Slide) -> dict[str, Any]:
    """Return the fields of a `SlideResult` that identify the slide."""
    return {"slide": slide.name, "mpp": slide.mpp, "mpp_source": slide.mpp_source}


def open_slide(given: SlideInput, context: ToolContext, needs: Needs = "color") -> Slide:
    """Open the slide named in the arguments; it stays open between calls to the same worker.

    Raises `InputError` if it is not a bright-field image, or has no color where that is
    needed.
    """
    path = context.input(given.slide)
    stat = path.stat()
    key = ("slide", str(path), stat.st_mtime_ns, stat.st_size, given.mpp)
    slide = context.share_handle(
        key, lambda: Slide.open(path, mpp=given.mpp, threads=max(2, context.threads))
    )
    if needs != "nothing":
        slide.need_stain(gray=needs == "bright field")
    return slide


def find_own(slide: Slide, place: Path, ending: str) -> Path | None:
    """Return `place` if it is a file, else the slide's file in that folder; None without one.

    It is named NAME or NAME.svs and `ending`, in the folder or in its folder NAME.
    """
    if place.is_file():
        return place
    names = [f"{name}{ending}" for name in (slide.name, slide.path.name)]
    found = (folder / name for folder in (place, place / slide.name) for name in names)
    return next((path for path in found if path.is_file()), None)


def save_png(context: ToolContext, name: str, image: U8 | BoolArray) -> str:
    """Write an image or a mask as an output with this name, and return the name."""
    with context.writing(name) as path:
        write_png(path, image)
    return name


def save_geojson(context: ToolContext, name: str, features: Iterable[dict[str, Any]]) -> str:
    """Write a FeatureCollection as an output with this name, and return the name."""
    with context.writing(name) as path:
        write_geojson(path, features)
    return name


def region_warnings(polygons: list[Polygon], view: View) -> list[str]:
    """Warn about regions that are small on the tissue mask, a grid of the view's pixels."""
    least = min(polygon.area for polygon in polygons) / view.scale**2
    if least >= SMALL_REGION:
        return []
    return [
        f"a region spans only {least:.2g} cells of the tissue mask (of {view.mpp:.2g} µm), so "
        "its contents and area are imprecise"
    ]


def choose_device(device: str, assigned: str = "cpu") -> str:
    """Choose the device to use; `assigned` is the device assigned to this call by the workers.

    `auto` is the assigned device, so that concurrent calls do not all use the first card;
    `cuda` is the assigned card, or else the first; `cuda:N` is that card. Raises `InputError`
    if a GPU is requested but not available.
    """
    if device == "cpu" or (device == "auto" and assigned == "cpu"):
        return "cpu"
    import torch

    wanted = assigned if device == "auto" or (device == "cuda" and assigned != "cpu") else device
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = int(wanted.partition(":")[2] or 0)
    if number >= seen:
        raise InputError(
            f"device {wanted} was requested, but PyTorch finds {seen} GPU(s); use device=cpu"
        )
    return wanted
