"""What the tools share: the job's folder, the slide's argument, the form of a result."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Given, SlideInput, open_slide
from mcp_servers.spec import InputPath, tool
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.slides.slide import Slide

SUITE = "nova"
TISSUES, TILES, FEATURES = "tissues", "tissue_tiles", "handcrafted_tissue_tiles"
"""Keys under which a store holds tissue, tiles and features when a call names none."""
ELSEWHERE = "; if it ran in a call of its own, give the folder of its files as job_dir"
"""Over MCP each call writes into a folder of its own."""
KEY = r"^[A-Za-z0-9_.-]{1,120}$"

# What lies in the job's folder decides too, so that no result is kept by its arguments alone.
nova_tool = functools.partial(tool, suite=SUITE, cacheable=False)
"""The decorator of these tools."""


class JobInput(Given):
    """The job: a folder that holds what its tools wrote."""

    job_dir: str = Field(
        default="nova",
        min_length=1,
        max_length=1024,
        description="Folder of the job: a name below the output folder, or a folder that an "
        "earlier call wrote",
    )


class WsiInput(JobInput):
    """One slide of a job."""

    wsi_path: InputPath = Field(description="Slide or image file")
    base_mpp: float | None = Field(
        default=None, gt=0, le=100, description="µm per level-0 pixel, to override the file"
    )


class NovaResult(BaseModel):
    """What was done, in words, and what to know before believing it."""

    operations_log: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


class Job:
    """A job's folder: written below the output folder, read there or where an earlier call wrote.

    `name` is its name below the output folder.
    """

    def __init__(self, job_dir: str, context: ToolContext) -> None:
        """Raise `InputError` for a folder outside the roots."""
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
                    self.name = self.earlier.name  # no path that grows from call to call
        context.roots.write_path(self.out("x"), make=False)

    def out(self, name: str) -> str:
        """The name below the output folder of the job's file `name`."""
        return f"{self.name}/{name}" if self.name != "." else name

    def find(self, name: str) -> Path | None:
        """The job's file or folder `name`, or None."""
        for folder in (self.context.roots.output / self.name, self.earlier):
            path = None if folder is None else (folder / name).resolve()
            if path is not None and self.context.roots.allows(path) and path.exists():
                return self.context.input(path)
        return None

    def need(self, name: str, remedy: str) -> Path:
        """As `find`; raises `InputError` with the remedy where it is absent."""
        found = self.find(name)
        if found is None:
            raise InputError(f"the job {self.name} has no {name}: {remedy}{ELSEWHERE}")
        return found


def one_each(names: list[str], folder: str) -> None:
    """Raise `InputError` where two files have one name without ending: results would be mixed."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f'{folder}: two files are called "{twice}"; results go by that name')


def slide_of(given: WsiInput, context: ToolContext) -> Slide:
    """The slide of the arguments, open."""
    return open_slide(SlideInput(slide=given.wsi_path, mpp=given.base_mpp), context)


@contextlib.contextmanager
def inside(context: ToolContext, folder: str) -> Iterator[ToolContext]:
    """A context that writes below `folder` of the output; what it writes counts for the call."""
    part = replace(context, roots=context.roots.below(folder), written=[])
    yield part
    for name in part.written:
        context.output(f"{folder}/{name}")


def folder_name(magnification: float, patch_px: int, overlap_px: int) -> str:
    """Trident's name for the folder of a grid."""
    return f"{magnification:g}x_{patch_px}px_{overlap_px}px_overlap"
