"""A folder of slides: which there are, and whether tissue, coordinates, features exist and fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Given
from mcp_servers.spec import InputPath, Resources
from mcp_servers.workers.cohort import SLIDE_SUFFIXES
from sage.core.errors import InputError
from sage_nova.tools.common import Job, JobInput, NovaResult, folder_name, nova_tool

SMALL = Resources(memory_mb=256)
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_ .,+=@()-]{0,200}$"


class SourceInput(Given):
    """A folder of slides."""

    wsi_source: InputPath = Field(description="Folder of slides")
    search_nested: bool = Field(default=False, description="Look into folders below it too")
    extensions: list[str] | None = Field(
        default=None, description='Only these endings, e.g. [".svs"]; all known ones when absent'
    )


class PathsResult(NovaResult):
    """Slides by name."""

    slide_paths: list[str] = Field(description="In order of name")
    slide_names: list[str] = Field(description="The same without folder and ending")
    total: int


@nova_tool(
    "dataset_of_wsi_get_valid_slide_paths_tool",
    version="1.0.0",
    summary="Get valid WSI file paths from a directory with optional extension filtering.",
    resources=SMALL,
)
def slide_paths(given: SourceInput, context: ToolContext) -> PathsResult:
    """Files with the ending of a slide or image; none is opened."""
    found = slides_in(context, given.wsi_source, given.search_nested, given.extensions)
    paths = [str(path) for path in found]
    return PathsResult(slide_paths=paths, slide_names=[p.stem for p in found], total=len(found))


def slides_in(
    context: ToolContext, source: str, nested: bool, extensions: list[str] | None = None
) -> list[Path]:
    """Slides of a folder in order of name; links that leave the roots are left out.

    Parameters
    ----------
    context : roots
    source : the folder
    nested : folders below it too
    extensions : endings to take
    """
    folder = context.roots.input(source, "folder")
    wanted = SLIDE_SUFFIXES
    if extensions is not None:
        wanted = frozenset("." + word.lower().lstrip(".") for word in extensions)
        if unknown := sorted(wanted - SLIDE_SUFFIXES):
            raise InputError(
                f"{unknown[0]} is no ending of a slide; known: {', '.join(sorted(SLIDE_SUFFIXES))}"
            )
    files = folder.rglob("*") if nested else folder.glob("*")
    return sorted(
        path
        for path in files
        if path.suffix.lower() in wanted
        and not path.name.startswith(".")
        and path.is_file()
        and context.roots.allows(path.resolve())
    )


class NamesInput(JobInput):
    """A job and slides by name."""

    wsis: list[str] = Field(min_length=1, max_length=100_000, description="Names without ending")
    skip_wsi_to_check: list[str] = Field(default_factory=list)


class GridInput(NamesInput):
    """Of which grid."""

    target_magnification: float = Field(default=20, gt=0, le=100)
    patch_size: int = Field(default=512, ge=16, le=8192)
    overlap: int = Field(default=0, ge=0)
    saveto_folder: str | None = Field(
        default=None, max_length=200, description="MAGx_SIZEpx_OVERLAPpx_overlap when absent"
    )

    def grid_folder(self) -> str:
        """The folder of the grid in the job."""
        made = folder_name(self.target_magnification, self.patch_size, self.overlap)
        return self.saveto_folder or made


class FileState(BaseModel):
    """One file of the job."""

    path: str = Field(description="Below the job's folder")
    path_exists: bool
    file_schema_ok: bool
    rows: int | None = None
    dimension: int | None = None
    problem: str = ""


class SegmentationState(BaseModel):
    """Files of one slide's tissue."""

    geojson_path: str
    geojson_exists: bool
    thumbnail_path: str
    thumbnail_exists: bool
    contour_path: str
    contour_exists: bool


class SegmentationResult(NovaResult):
    """Per slide, which files there are."""

    slides: dict[str, SegmentationState]
    skipped: list[str]
    all_exist: bool


class FilesResult(NovaResult):
    """Per slide, whether its file is there and has the form it should have."""

    slides: dict[str, FileState]
    skipped: list[str]
    all_ok: bool


@nova_tool(
    "dataset_of_wsi_check_tissue_segmentation_exists_tool",
    version="1.0.0",
    summary="Check if tissue segmentation files exist for a dataset of WSIs.",
    resources=SMALL,
)
def check_segmentation(given: NamesInput, context: ToolContext) -> SegmentationResult:
    """contours_geojson/NAME.geojson, thumbnails/NAME.jpg, contours/NAME.jpg."""
    job = Job(given.job_dir, context)
    slides = {}
    for name in checked(given):
        files = [f"contours_geojson/{name}.geojson", f"thumbnails/{name}.jpg",
                 f"contours/{name}.jpg"]  # fmt: skip
        there = [job.find(file) is not None for file in files]
        slides[name] = SegmentationState(
            geojson_path=files[0],
            geojson_exists=there[0],
            thumbnail_path=files[1],
            thumbnail_exists=there[1],
            contour_path=files[2],
            contour_exists=there[2],
        )
    every = all(state.geojson_exists for state in slides.values())
    return SegmentationResult(slides=slides, skipped=given.skip_wsi_to_check, all_exist=every)


def checked(given: NamesInput) -> list[str]:
    """The names to look for; raises `InputError` for one that is no name of a file."""
    import re

    for name in given.wsis:
        if not re.match(NAME, name):
            raise InputError(f"wsis: {name[:80]!r} is no name of a slide (no folder, no ending)")
    return [name for name in given.wsis if name not in set(given.skip_wsi_to_check)]


def _files(
    given: NamesInput, context: ToolContext, file: Callable[[str], str], key: str, axes: int
) -> FilesResult:
    """State of the HDF5 file of each slide: the dataset `key` must have `axes` axes."""
    from mcp_servers.formats.hdf5 import dataset, open_hdf5

    job = Job(given.job_dir, context)
    slides = {}
    for name in checked(given):
        at = file(name)
        state = FileState(path=at, path_exists=False, file_schema_ok=False)
        if (path := job.find(at)) is not None:
            state.path_exists = True
            try:
                with open_hdf5(path) as held:
                    shape = dataset(held, key, path).shape
                    if len(shape) != axes or (key == "coords" and shape[1] != 2):
                        state.problem = f"{key} has shape {shape}"
                    else:
                        state.file_schema_ok = True
                        state.rows = int(shape[0]) if axes == 2 else 1
                        state.dimension = int(shape[-1])
            except InputError as error:
                state.problem = str(error)
        slides[name] = state
    good = all(state.file_schema_ok for state in slides.values())
    return FilesResult(slides=slides, skipped=given.skip_wsi_to_check, all_ok=good)


@nova_tool(
    "dataset_of_wsi_check_patch_coordinates_exist_and_schema_tool",
    version="1.0.0",
    summary="Check if patch coordinate files exist and validate their schema for a dataset of "
    "WSIs: GRID/patches/NAME_patches.h5, dataset coords of (n, 2).",
    resources=SMALL,
)
def check_coordinates(given: GridInput, context: ToolContext) -> FilesResult:
    """Coordinates of a grid."""
    folder = given.grid_folder()
    return _files(given, context, lambda name: f"{folder}/patches/{name}_patches.h5", "coords", 2)


class PatchFeaturesInput(GridInput):
    """Of which encoder."""

    patch_encoder_name: str = Field(default="uni_v1", max_length=60)
    patch_feats_save_folder: str | None = Field(default=None, max_length=200)


class SlideFeaturesInput(GridInput):
    """Of which slide encoder."""

    slide_encoder_name: str = Field(default="titan", max_length=60)
    slide_feats_save_folder: str | None = Field(default=None, max_length=200)


@nova_tool(
    "dataset_of_wsi_check_patch_features_exist_and_schema_tool",
    version="1.0.0",
    summary="Check if patch feature files exist and validate their schema for a dataset of WSIs: "
    "GRID/features_ENCODER/NAME.h5, dataset features of (n, d).",
    resources=SMALL,
)
def check_patch_features(given: PatchFeaturesInput, context: ToolContext) -> FilesResult:
    """Features of a grid."""
    own = given.patch_feats_save_folder or f"features_{given.patch_encoder_name}"
    folder = given.grid_folder()
    return _files(given, context, lambda name: f"{folder}/{own}/{name}.h5", "features", 2)


@nova_tool(
    "dataset_of_wsi_check_slide_features_exist_and_schema_tool",
    version="1.0.0",
    summary="Check if slide-level feature files exist and validate their schema for a dataset of "
    "WSIs: GRID/slide_features_ENCODER/NAME.h5, dataset features of (d,).",
    resources=SMALL,
)
def check_slide_features(given: SlideFeaturesInput, context: ToolContext) -> FilesResult:
    """Vectors of slides."""
    own = given.slide_feats_save_folder or f"slide_features_{given.slide_encoder_name}"
    folder = given.grid_folder()
    return _files(given, context, lambda name: f"{folder}/{own}/{name}.h5", "features", 1)
