"""Tool that exports a slide's results as a SpatialData store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SUITE, SlideInput, SlideResult, of_slide, open_slide
from mcp_servers.spec import InputPath, OutputName, Resources, Validity, tool
from sage.core.errors import InputError
from sage.core.extras import require_extra

if TYPE_CHECKING:
    from mcp_servers.slides.slide import Slide

SUFFIXES = (".geojson", ".csv", ".h5")
Kind = Literal["shapes", "points", "table", "image"]


class SpatialInput(SlideInput):
    """Files to include in the store."""

    results: InputPath | None = Field(
        default=None,
        description="Folder with results of other tools: every SLIDE.NAME.geojson, .csv with x "
        "and y, and .h5 of this slide in it or its subfolders is included",
    )
    files: list[InputPath] = Field(
        default_factory=list,
        max_length=64,
        description="Additional files: GeoJSON (including QuPath's), CSV with x and y in level-0 "
        "pixels, HDF5 with coords and features (Trident, CLAM)",
    )
    image_mpp: float | None = Field(
        default=None,
        gt=0,
        le=200,
        description="Include an image of the slide, with this µm per pixel at its finest level",
    )
    replace: bool = Field(default=False, description="Replace an existing store")


class SpatialElement(BaseModel):
    """An element in the store."""

    name: str
    kind: Kind
    count: int = Field(
        description="Number of shapes, points or table rows, or of levels of an image"
    )
    columns: int = Field(description="Columns besides the geometry; features of a table")
    file: str = Field(description="Name of the source file")


class SpatialResult(SlideResult):
    """Contents of the exported store."""

    store: OutputName = Field(description="Folder that spatialdata.read_zarr can open")
    elements: list[SpatialElement]
    shapes: int
    points: int
    tables: int
    images: int
    coordinate_systems: list[str] = Field(
        description="global is in level-0 pixels; um is in µm, if the pixel size is known"
    )
    spatialdata: str = Field(description="Version of the package that wrote the store")


@tool(
    "spatialdata_export",
    SUITE,
    "1.0.2",
    "Export a slide's outlines, points, tiles, features and image as a SpatialData zarr store.",
    resources=Resources(memory_mb=3072, seconds_per_item=10.0),
    validity=Validity(stain="any", organ="any"),
    cacheable=False,  # the content of `results` matters too, and the output is a folder
    title="Export to SpatialData",
)
def spatialdata_export(given: SpatialInput, context: ToolContext) -> SpatialResult:
    """Export a slide's results to a SpatialData store."""
    from importlib.metadata import version

    from mcp_servers.formats import spatial
    from sage_exchange.spatial.elements import make_image

    require_extra("spatialdata", "a SpatialData store")
    slide = open_slide(given, context, "nothing")
    view = slide.view(given.image_mpp) if given.image_mpp is not None else None
    store = f"{slide.name}.zarr"
    context.progress(0.0, "reading")
    warnings = list(slide.warnings)
    chosen = name_elements(_files(slide, given, context), slide.name)
    logging.getLogger("spatialdata").setLevel(logging.WARNING)
    with ExitStack() as open_files, context.writing_folder(store, given.replace) as path:
        elements: dict[str, Any] = {}
        sources: dict[str, Path] = {}
        for stem, source in chosen:
            made = _elements(stem, source, slide, warnings, open_files)
            if not made:
                warnings.append(f"{source.name} is empty, so it has no element")
            elements |= made
            sources |= dict.fromkeys(made, source)
            context.progress(0.3 * len(sources) / (2 * len(chosen)), source.name)
        if view is not None:
            elements["slide"] = make_image(
                view, slide.mpp, lambda share: context.progress(0.3 + 0.6 * share, "image")
            )
            sources["slide"] = slide.path
        if not elements and chosen:
            raise InputError(
                f"{', '.join((str(source) for _, source in chosen))}: nothing to export; no file "
                "contains an outline, a point or a tile"
            )
        if not elements:
            raise InputError(
                f"{slide.path}: nothing to export; give results=FOLDER, files=[...] or image_mpp"
            )
        about = {
            "slide": slide.name,
            "width": slide.width,
            "height": slide.height,
            "mpp": slide.mpp,
            "mpp_source": slide.mpp_source,
            "coordinates": "level-0 pixels in global, µm in um",
            "files": {name: source.name for name, source in sources.items()},
        }
        context.progress(0.3, "writing")
        spatial.write_store(path, elements, about)
    listed = [_describe(k, v, sources[k].name) for k, v in sorted(elements.items())]
    kinds = [element.kind for element in listed]
    return SpatialResult(
        **of_slide(slide),
        warnings=warnings,
        store=store,
        elements=listed,
        shapes=kinds.count("shapes"),
        points=kinds.count("points"),
        tables=kinds.count("table"),
        images=kinds.count("image"),
        coordinate_systems=[spatial.PIXELS, *([spatial.MICRONS] if slide.mpp else [])],
        spatialdata=version("spatialdata"),
    )


def _files(slide: Slide, given: SpatialInput, context: ToolContext) -> list[Path]:
    """Resolve the files to export: named files, then this slide's files in the results folder."""
    found = [context.input(file, "file") for file in given.files]
    for path in found:
        if path.suffix.lower() not in SUFFIXES:
            raise InputError(
                f"{path}: expected {', '.join(SUFFIXES)}, got {path.suffix or 'no ending'}"
            )
    if given.results is not None:
        folder = context.roots.input(given.results, "folder")
        for path in sorted(folder.rglob("*")):
            rest = path.name.removeprefix(f"{slide.name}.")
            ours = rest != path.name and rest.count(".") == 1 and path.suffix in SUFFIXES
            if not ours or not path.is_file() or path.resolve() in found:
                continue
            if path.suffix == ".csv" and not _has_positions(path):
                continue
            found.append(context.input(path, "file"))
    return found


def _has_positions(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as stream:
        header = [part.strip().strip('"') for part in stream.readline(65_536).split(",")]
    return {"x", "y"} <= set(header)


def name_elements(files: Sequence[Path], slide: str) -> list[tuple[str, Path]]:
    """Pair each file with the stem of its elements' names; raises `InputError` on duplicates."""
    held: dict[tuple[str, str], Path] = {}
    for path in files:
        rest = path.name.removeprefix(f"{slide}.")
        text = rest[: -len(path.suffix)]
        stem = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text)
        key = (stem.lstrip("_") or "file", path.suffix.lower())
        if key in held:
            raise InputError(
                f'{held[key]} and {path} would both be named "{key[0]}"; list only one of them in '
                "files, or rename one"
            )
        held[key] = path
    return [(stem, path) for (stem, _), path in held.items()]


def _elements(
    stem: str, path: Path, slide: Slide, warnings: list[str], open_files: ExitStack
) -> dict[str, Any]:
    from sage_exchange.spatial import elements, points

    size = (slide.width, slide.height)
    if path.suffix.lower() == ".geojson":
        return elements.from_geojson(path, stem, size, slide.mpp, warnings)
    if path.suffix.lower() == ".csv":
        return points.from_csv(path, stem, size, slide.mpp, warnings)
    return elements.from_hdf5(path, stem, size, slide.mpp, warnings, open_files)


def _describe(name: str, element: Any, file: str) -> SpatialElement:
    from spatialdata.models import (
        Image2DModel,
        PointsModel,
        ShapesModel,
        TableModel,
        get_model,
    )  # fmt: skip

    model = get_model(element)
    kind: Kind = "image"
    if model is TableModel:
        kind, count, columns = "table", element.n_obs, element.n_vars
    elif model is ShapesModel:
        kind, count, columns = "shapes", len(element), len(element.columns) - 1
    elif model is PointsModel:
        rows = int(element.divisions[-1]) + 1  # they are numbered; counting would read them all
        kind, count, columns = "points", rows, len(element.columns) - 2
    else:
        assert model is Image2DModel
        count, columns = len(getattr(element, "children", ())) or 1, 0
    return SpatialElement(name=name, kind=kind, count=count, columns=columns, file=file)
