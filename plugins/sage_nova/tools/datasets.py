"""Slide folders: their files, and checks for tissue, coordinates, and features."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, create_model

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Given
from mcp_servers.slides.candidates import SLIDE_SUFFIXES
from mcp_servers.spec import Resources, SlidePath
from sage.core.errors import InputError
from sage_nova.tools.common import GridInput, Job, JobInput, NovaResult, nova_tool

SMALL = Resources(memory_mb=256)
NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_ .,+=@()-]{0,200}$")


class SourceInput(Given):
    """A folder with slides."""

    wsi_source: SlidePath = Field(description="Folder of slides")
    search_nested: bool = Field(default=False, description="Also search subfolders")
    extensions: list[str] | None = Field(
        default=None, description='Only these suffixes, e.g. [".svs"]; default: all known suffixes'
    )


class PathsResult(NovaResult):
    """Slide paths by name."""

    slide_paths: list[str] = Field(description="Paths, sorted by name")
    slide_names: list[str] = Field(description="Names without folder and suffix, in the same order")
    total: int


@nova_tool("dataset_of_wsi_get_valid_slide_paths_tool", SMALL)
def slide_paths(given: SourceInput, context: ToolContext) -> PathsResult:
    """Get valid WSI file paths from a directory with optional extension filtering."""
    found = list_slides(context, given.wsi_source, given.search_nested, given.extensions)
    names = [path.stem for path in found]
    return PathsResult(slide_paths=list(map(str, found)), slide_names=names, total=len(found))


def list_slides(
    context: ToolContext, source: str, nested: bool, extensions: list[str] | None = None
) -> list[Path]:
    """List a folder's slides by name, excluding links that lead out of the roots."""
    folder = context.roots.input(source, "folder")
    wanted = SLIDE_SUFFIXES
    if extensions is not None:
        wanted = frozenset("." + word.lower().lstrip(".") for word in extensions)
        if unknown := sorted(wanted - SLIDE_SUFFIXES):
            known = ", ".join(sorted(SLIDE_SUFFIXES))
            raise InputError(f"unknown slide file suffix {unknown[0]}; known suffixes: {known}")
    return sorted(
        path
        for path in (folder.rglob("*") if nested else folder.glob("*"))
        if path.suffix.lower() in wanted
        and not path.name.startswith(".")
        and path.is_file()
        and context.roots.allows(path.resolve())
    )


class NamesInput(JobInput):
    """A job and slide names."""

    wsis: list[str] = Field(
        min_length=1, max_length=100_000, description="Names of the slides, without suffix"
    )
    skip_wsi_to_check: list[str] = Field(default_factory=list)

    def names(self) -> list[str]:
        """Return the names to check; raises `InputError` if any is not a valid file name."""
        for name in self.wsis:
            if not NAME.match(name):
                raise InputError(
                    f"wsis: {name[:80]!r} must be a slide name without the file suffix"
                )
        return [name for name in self.wsis if name not in set(self.skip_wsi_to_check)]


class SegmentationState(BaseModel):
    """Tissue files of a slide."""

    geojson_path: str
    geojson_exists: bool
    thumbnail_path: str
    thumbnail_exists: bool
    contour_path: str
    contour_exists: bool


class SegmentationResult(NovaResult):
    """Tissue files for each slide."""

    slides: dict[str, SegmentationState]
    skipped: list[str]
    all_exist: bool


@nova_tool("dataset_of_wsi_check_tissue_segmentation_exists_tool", SMALL)
def check_segmentation(given: NamesInput, context: ToolContext) -> SegmentationResult:
    """Check if tissue segmentation files exist for a dataset of WSIs."""
    job, slides = Job(given.job_dir, context), {}
    places = {"geojson": ("contours_geojson", "geojson"), "thumbnail": ("thumbnails", "jpg"),
              "contour": ("contours", "jpg")}  # fmt: skip
    for name in given.names():
        state: dict[str, Any] = {}
        for kind, (folder, ending) in places.items():
            path = f"{folder}/{name}.{ending}"
            state |= {f"{kind}_path": path, f"{kind}_exists": job.find(path) is not None}
        slides[name] = SegmentationState(**state)
    every = all(state.geojson_exists for state in slides.values())
    return SegmentationResult(slides=slides, skipped=given.skip_wsi_to_check, all_exist=every)


class FileState(BaseModel):
    """State of a file in the job."""

    path: str = Field(description="Path in the job's folder")
    path_exists: bool = False
    file_schema_ok: bool = False
    rows: int | None = None
    dimension: int | None = None
    problem: str = ""


class FilesResult(NovaResult):
    """Existence and format of each slide's file."""

    slides: dict[str, FileState]
    skipped: list[str]
    all_ok: bool


def _check_file(path: Path, key: str, axes: int, state: FileState) -> None:
    from sage_foundation.features import dataset, open_hdf5

    state.path_exists = True
    try:
        with open_hdf5(path) as held:
            shape = dataset(held, key, path).shape
    except InputError as error:
        state.problem = str(error)
        return
    if len(shape) != axes or (key == "coords" and shape[1] != 2):
        state.problem = f"{key} has shape {shape}"
        return
    state.file_schema_ok = True
    state.rows, state.dimension = int(shape[0]) if axes == 2 else 1, int(shape[-1])


def _make_check(
    kind: str, content: str, form: str, key: str, axes: int, fields: dict[str, Any],
    find_file: Callable[[Any, str], str],
) -> object:  # fmt: skip
    model = create_model(f"{kind}_input", __base__=(NamesInput, GridInput), **fields)

    def check(given: Any, context: ToolContext) -> FilesResult:
        job, slides = Job(given.job_dir, context), {}
        for name in given.names():
            state = FileState(path=f"{given.grid_folder()}/{find_file(given, name)}")
            if (path := job.find(state.path)) is not None:
                _check_file(path, key, axes, state)
            slides[name] = state
        good = all(state.file_schema_ok for state in slides.values())
        return FilesResult(slides=slides, skipped=given.skip_wsi_to_check, all_ok=good)

    check.__annotations__["given"] = model
    check.__doc__ = (
        f"Check if {content} files exist and validate their schema for a dataset of WSIs: {form}."
    )
    return nova_tool(f"dataset_of_wsi_check_{kind}_and_schema_tool", SMALL)(check)


def _encoder(default: str) -> Any:
    return (str, Field(default, max_length=60))


FOLDER: Any = (str | None, Field(None, max_length=200))
check_coordinates = _make_check(
    "patch_coordinates_exist", "patch coordinate",
    "GRID/patches/NAME_patches.h5, dataset coords of (n, 2)", "coords", 2, {},
    lambda given, name: f"patches/{name}_patches.h5",
)  # fmt: skip
check_patch_features = _make_check(
    "patch_features_exist", "patch feature",
    "GRID/features_ENCODER/NAME.h5, dataset features of (n, d)", "features", 2,
    {"patch_encoder_name": _encoder("uni_v1"), "patch_feats_save_folder": FOLDER},
    lambda given, name: f"{patch_folder(given)}/{name}.h5",
)  # fmt: skip
check_slide_features = _make_check(
    "slide_features_exist", "slide-level feature",
    "GRID/slide_features_ENCODER/NAME.h5, dataset features of (d,)", "features", 1,
    {"slide_encoder_name": _encoder("titan"), "slide_feats_save_folder": FOLDER},
    lambda given, name: f"{slide_folder(given)}/{name}.h5",
)  # fmt: skip


def patch_folder(given: Any) -> str:
    """Return the folder for patch features within the grid's folder."""
    return given.patch_feats_save_folder or f"features_{given.patch_encoder_name}"


def slide_folder(given: Any) -> str:
    """Return the folder for slide features within the grid's folder."""
    return given.slide_feats_save_folder or f"slide_features_{given.slide_encoder_name}"
