"""Tool that lists slides."""

from __future__ import annotations

import re
from fnmatch import fnmatch

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.listing import make_argument, walk_below
from mcp_servers.pathology.common import SUITE, Given
from mcp_servers.spec import Resources, tool
from mcp_servers.workers.cohort import SLIDE_SUFFIXES, parse_patient

JOB_FOLDER = re.compile(r"(^|/)[a-z_]+/[0-9a-f]{12}/")
"""Output folder of a server's call, whose pictures are not slides."""


class SlidesInput(Given):
    """Folder to search, and filters."""

    folder: str = Field(
        default="", max_length=1024, description="Only slides in this folder; default: all"
    )
    pattern: str = Field(
        default="*", max_length=200, description='Only files whose name matches, e.g. "*.svs"'
    )
    start: int = Field(default=0, ge=0, description="Number of slides to skip, for the next page")
    limit: int = Field(default=200, ge=1, le=2000)


class SlideRow(BaseModel):
    """A slide or image file."""

    slide: str = Field(description="Pass this as `slide` to the pathology tools")
    patient: str = Field(
        description="TCGA barcode in the file's name, or else the first part of the name"
    )
    mb: float = Field(description="Size of the file, in MB")


class SlidesResult(BaseModel):
    """Slides sorted by name."""

    slides: list[SlideRow]
    total: int = Field(description="Total number; repeat with `start` for the rest")
    folders: dict[str, int] = Field(description="Number of slides per folder")


@tool(
    "list_slides",
    SUITE,
    "1.0.0",
    "List the slides and images that can be read: the name to give to other tools, the patient "
    "from the name, and the size. Does not open the files.",
    Resources(memory_mb=256),
    cacheable=False,
)
def list_slides(given: SlidesInput, context: ToolContext) -> SlidesResult:
    """List files with a slide's suffix below the roots, without pictures written by tools."""
    roots = context.roots
    below = roots.input(given.folder, "folder") if given.folder else None
    found: list[SlideRow] = []
    folders: dict[str, int] = {}
    for root, folder, files in walk_below(roots):
        shown = folder.relative_to(root).as_posix()
        inside = below is None or folder.is_relative_to(below)
        if not inside or (below is None and JOB_FOLDER.search(f"{shown}/")):
            continue
        context.check_cancelled()
        for name in files:
            path = folder / name
            if path.suffix.lower() not in SLIDE_SUFFIXES or not fnmatch(name, given.pattern):
                continue
            slide = make_argument(root, path, roots) if roots.allows(path.resolve()) else None
            if slide is None:
                continue
            size = round(path.stat().st_size / 1e6, 3)
            found.append(SlideRow(slide=slide, patient=parse_patient(path), mb=size))
            folders[shown] = folders.get(shown, 0) + 1
    found.sort(key=lambda row: row.slide)
    shown_rows = found[given.start : given.start + given.limit]
    return SlidesResult(slides=shown_rows, total=len(found), folders=dict(sorted(folders.items())))
