"""Shared code for the tools: the job's folder, arguments, and the form of results."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Given, SlideInput, open_slide
from mcp_servers.spec import DEFAULT_RESOURCES, Resources, SlidePath, Validity, tool
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.slides.slide import Slide

SUITE = "nova"
TISSUES, TILES, FEATURES = "tissues", "tissue_tiles", "handcrafted_tissue_tiles"
"""Default store keys for tissue, tiles, and features."""
ELSEWHERE = "; if another call created it, set job_dir to the folder of its files"
"""Remedy reported over MCP, where each call writes to a separate folder."""
KEY = r"^[A-Za-z0-9_.-]{1,120}$"
F = TypeVar("F", bound=Callable[..., BaseModel])


def nova_tool(
    name: str,
    resources: Resources = DEFAULT_RESOURCES,
    *,
    validity: Validity | None = None,
    memory_mb: Callable[[Any], int] | None = None,
) -> Callable[[F], F]:
    """Register a function under NOVA's name; its docstring is the tool's summary.

    Results are not cached, since they also depend on the files in the job's folder.
    """

    def attach(function: F) -> F:
        summary = " ".join((function.__doc__ or "").split())
        return tool(
            name, SUITE, "2.0.0", summary, resources, validity, cacheable=False, memory_mb=memory_mb
        )(function)

    return attach


class JobInput(Given):
    """A job, given by the folder with its tools' files."""

    job_dir: str = Field(
        default="nova", min_length=1, max_length=1024,
        description="Folder of the job: a name in the output folder, or a folder written by an "
        "earlier call",
    )  # fmt: skip


class WsiInput(JobInput):
    """A slide in a job."""

    wsi_path: SlidePath = Field(description="Slide or image file")
    base_mpp: float | None = Field(
        default=None, gt=0, le=100, description="µm per level-0 pixel, overriding the file"
    )

    def open(self, context: ToolContext) -> tuple[Slide, Job]:
        """Open the slide and its job."""
        slide = open_slide(SlideInput(slide=self.wsi_path, mpp=self.base_mpp), context)
        return slide, Job(self.job_dir, context)


class GridInput(JobInput):
    """Options for a patch grid."""

    target_magnification: float = Field(
        default=20, gt=0, le=100, description="Magnification: 10 / µm per pixel"
    )
    patch_size: int = Field(
        default=512, ge=16, le=8192, description="Side of a patch, in pixels at this magnification"
    )
    overlap: int = Field(
        default=0, ge=0, description="Overlap of patches, in pixels at this magnification"
    )
    saveto_folder: str | None = Field(
        default=None,
        max_length=200,
        description="Name of the grid; default: MAGx_SIZEpx_OVERLAPpx_overlap",
    )

    def grid_folder(self) -> str:
        """Return the grid's folder in the job, by default with Trident's name."""
        own = f"{self.target_magnification:g}x_{self.patch_size}px_{self.overlap}px_overlap"
        return self.saveto_folder or own


class NovaResult(BaseModel):
    """A call's log and warnings."""

    operations_log: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


class Job:
    """A job's folder; files are written to the output folder, and read from it or earlier calls.

    `name` is the folder's name within the output folder.
    """

    def __init__(self, job_dir: str, context: ToolContext) -> None:
        """Open a job's folder; raises `InputError` if it is outside the roots."""
        self.context = context
        self.earlier: Path | None = None
        output, given = context.roots.output, Path(job_dir)
        if given.is_absolute() and given.resolve().is_relative_to(output):
            self.name = given.resolve().relative_to(output).as_posix()
        elif given.is_absolute():
            self.earlier = context.roots.input(job_dir, "folder")
            self.name = self.earlier.name
        else:
            self.name = given.as_posix()
            with contextlib.suppress(InputError):
                self.earlier = context.roots.input(job_dir, "folder")
                if not (output / given).is_dir():
                    self.name = self.earlier.name  # so that paths do not grow with each call
        context.roots.write_path(self.out("x"), make=False)

    def out(self, name: str) -> str:
        """Return the job's name for the file `name`, relative to the output folder."""
        return f"{self.name}/{name}" if self.name != "." else name

    def find(self, name: str) -> Path | None:
        """Return the path of a file or folder in the job, or None."""
        for folder in (self.context.roots.output / self.name, self.earlier):
            path = None if folder is None else (folder / name).resolve()
            if path is not None and self.context.roots.allows(path) and path.exists():
                return self.context.input(path)
        return None

    def need(self, name: str, remedy: str) -> Path:
        """Find a file or folder in the job.

        Raises `InputError` with the remedy if it is missing.
        """
        found = self.find(name)
        if found is None:
            raise InputError(f"job {self.name} has no {name}: {remedy}{ELSEWHERE}")
        return found


def write_json_output(context: ToolContext, name: str, value: object) -> str:
    """Write JSON below the output folder and return its name."""
    with context.writing(name) as path:
        path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return name


def check_unique(names: list[str], folder: str) -> None:
    """Raise `InputError` if two files have the same stem, under which results are stored."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f'{folder}: two files are named "{twice}", but results use the file name; rename one '
            "file"
        )


@contextlib.contextmanager
def subfolder(context: ToolContext, folder: str) -> Iterator[ToolContext]:
    """Make a context that writes below `folder` of the output; its files count for the call."""
    part = replace(context, roots=context.roots.below(folder), written=[])
    yield part
    for name in part.written:
        context.output(f"{folder}/{name}")
