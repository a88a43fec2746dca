"""Trident's steps for a slide folder: tissue, coordinates, features, heat maps, and checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, create_model

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Given, SlideInput, open_slide
from mcp_servers.slides.candidates import SLIDE_SUFFIXES, list_candidates
from mcp_servers.spec import InputPath, OutputName, Resources, SlidePath
from sage.core.errors import InputError
from sage_nova.tools import declare as nova
from sage_nova.tools.models import (
    ENCODERS,
    PatchEncoder,
    SlideEncoder,
    encode_slide,
    encode_squares,
    encoder_memory,
    override,
)
from sage_nova.tools.slide import cut_tiles, find_tissue

if TYPE_CHECKING:
    from mcp_servers.slides.slide import Slide

SMALL = Resources(memory_mb=256)
NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_ .,+=@()-]{0,200}$")
CUT = "run dataset_of_wsi_patch_coordinate_extraction_tool with the same grid first"
Named = Annotated[str | None, Field(max_length=200)]
DONE: dict[str, Any] = {
    "processed": list[str], "failed": dict[str, str],
    "found_before": Annotated[list[str], Field(description="Slides whose result already existed")],
}  # fmt: skip
"""Results of every step: the slides that were processed, had results, or failed."""


@nova.tool(
    "dataset_of_wsi_get_valid_slide_paths_tool", SMALL,
    slide_paths=nova.described(list[str], "Paths, sorted by name"),
    slide_names=nova.described(list[str], "Names without folder and suffix, in the same order"),
    total=int,
)  # fmt: skip
def slide_paths(
    given: Given,
    context: ToolContext,
    *,
    wsi_source: Annotated[SlidePath, Field(description="Folder of slides")],
    search_nested: Annotated[bool, Field(description="Also search subfolders")] = False,
    extensions: Annotated[
        list[str] | None,
        Field(description='Only these suffixes, e.g. [".svs"]; default: all known suffixes'),
    ] = None,
) -> nova.Result:
    """Get valid WSI file paths from a directory with optional extension filtering."""
    found = list_slides(context, wsi_source, search_nested, extensions)
    names = [path.stem for path in found]
    return {"slide_paths": list(map(str, found)), "slide_names": names, "total": len(found)}


def list_slides(
    context: ToolContext, source: str, nested: bool, extensions: list[str] | None = None
) -> list[Path]:
    """List a folder's slides by name, excluding links that lead out of the roots."""
    folder, wanted = context.roots.input(source, "folder"), None
    if extensions is not None:
        wanted = frozenset("." + word.lower().lstrip(".") for word in extensions)
        if unknown := sorted(wanted - SLIDE_SUFFIXES):
            known = nova.list_choices(sorted(SLIDE_SUFFIXES))
            raise InputError(f"unknown slide file suffix {unknown[0]}; known suffixes: {known}")
    places = sorted(folder.rglob("*") if nested else folder.iterdir())
    found, _ = list_candidates(path for path in places if context.roots.allows(path.resolve()))
    return [path for path in found if wanted is None or path.suffix.lower() in wanted]


class NamesInput(nova.JobInput):
    """A job and slide names."""

    wsis: list[str] = Field(
        min_length=1, max_length=100_000, description="Names of the slides, without suffix"
    )
    skip_wsi_to_check: list[str] = Field(default_factory=list)

    def names(self) -> list[str]:
        """Return the names to check; raises `InputError` if any is not a valid file name."""
        if wrong := [name for name in self.wsis if not NAME.match(name)]:
            raise InputError(
                f"wsis: {wrong[0][:80]!r} must be a slide name without the file suffix"
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


@nova.tool(
    "dataset_of_wsi_check_tissue_segmentation_exists_tool", SMALL,
    slides=dict[str, SegmentationState], skipped=list[str], all_exist=bool,
)  # fmt: skip
def check_segmentation(given: NamesInput, context: ToolContext) -> nova.Result:
    """Check if tissue segmentation files exist for a dataset of WSIs."""
    job, slides = nova.Job(given.job_dir, context), {}
    places = {"geojson": ("contours_geojson", "geojson"), "thumbnail": ("thumbnails", "jpg"),
              "contour": ("contours", "jpg")}  # fmt: skip
    for name in given.names():
        paths = {kind: f"{folder}/{name}.{end}" for kind, (folder, end) in places.items()}
        there = {f"{kind}_exists": job.find(path) is not None for kind, path in paths.items()}
        slides[name] = {f"{kind}_path": path for kind, path in paths.items()} | there
    every = all(state["geojson_exists"] for state in slides.values())
    return {"slides": slides, "skipped": given.skip_wsi_to_check, "all_exist": every}


class FileState(BaseModel):
    """State of a file in the job."""

    path: str = Field(description="Path in the job's folder")
    path_exists: bool = False
    file_schema_ok: bool = False
    rows: int | None = None
    dimension: int | None = None
    problem: str = ""


def _describe_file(path: Path, key: str, axes: int) -> dict[str, Any]:
    from sage_foundation.features import dataset, open_hdf5

    try:
        with open_hdf5(path) as held:
            shape = dataset(held, key, path).shape
    except InputError as error:
        return {"problem": str(error)}
    if len(shape) != axes or (key == "coords" and shape[1] != 2):
        return {"problem": f"{key} has shape {shape}"}
    rows = int(shape[0]) if axes == 2 else 1
    return {"file_schema_ok": True, "rows": rows, "dimension": int(shape[-1])}


def _make_check(
    kind: str, content: str, form: str, key: str, axes: int, fields: dict[str, Any],
    find_file: Callable[[Any], str],
) -> object:  # fmt: skip
    model = create_model(f"{kind}_input", __base__=(NamesInput, nova.GridInput), **fields)

    def check(given: Any, context: ToolContext) -> nova.Result:
        job, slides = nova.Job(given.job_dir, context), {}
        for name in given.names():
            state = FileState(path=f"{given.grid_folder()}/{find_file(given).format(name)}")
            if (path := job.find(state.path)) is not None:
                found = {"path_exists": True, **_describe_file(path, key, axes)}
                state = state.model_copy(update=found)
            slides[name] = state
        good = all(state.file_schema_ok for state in slides.values())
        return {"slides": slides, "skipped": given.skip_wsi_to_check, "all_ok": good}

    check.__annotations__["given"] = model
    check.__doc__ = (
        f"Check if {content} files exist and validate their schema for a dataset of WSIs: {form}."
    )
    tool = f"dataset_of_wsi_check_{kind}_and_schema_tool"
    return nova.tool(
        tool, SMALL, slides=dict[str, FileState], skipped=list[str], all_ok=bool
    )(check)  # fmt: skip


Encoder = Annotated[str, Field(max_length=60)]
check_coordinates = _make_check(
    "patch_coordinates_exist", "patch coordinate",
    "GRID/patches/NAME_patches.h5, dataset coords of (n, 2)", "coords", 2, {},
    lambda _: "patches/{}_patches.h5",
)  # fmt: skip
check_patch_features = _make_check(
    "patch_features_exist", "patch feature",
    "GRID/features_ENCODER/NAME.h5, dataset features of (n, d)", "features", 2,
    {"patch_encoder_name": (Encoder, "uni_v1"), "patch_feats_save_folder": (Named, None)},
    lambda given: f"{patch_folder(given)}/{{}}.h5",
)  # fmt: skip
check_slide_features = _make_check(
    "slide_features_exist", "slide-level feature",
    "GRID/slide_features_ENCODER/NAME.h5, dataset features of (d,)", "features", 1,
    {"slide_encoder_name": (Encoder, "titan"), "slide_feats_save_folder": (Named, None)},
    lambda given: f"{slide_folder(given)}/{{}}.h5",
)  # fmt: skip


def patch_folder(given: Any) -> str:
    """Return the folder for patch features within the grid's folder."""
    return given.patch_feats_save_folder or f"features_{given.patch_encoder_name}"


def slide_folder(given: Any) -> str:
    """Return the folder for slide features within the grid's folder."""
    return given.slide_feats_save_folder or f"slide_features_{given.slide_encoder_name}"


class SlidesInput(nova.JobInput):
    """Slides in a folder."""

    wsi_source: SlidePath = Field(description="Folder of slides")
    search_nested: bool = False
    skip_errors: bool = Field(default=False, description="Continue after slides that fail")
    skip_specific_wsi: list[str] = Field(
        default_factory=list, description="Skip these slides, by name without suffix"
    )
    keep_only_these_wsi: list[str] | None = Field(
        default=None, description="Process only these slides, by name without suffix"
    )
    base_mpp: float | None = Field(
        default=None, gt=0, le=100, description="µm per level-0 pixel, overriding the files"
    )
    overwrite: bool = Field(default=False, description="Recompute existing results")


class SlidesGridInput(SlidesInput, nova.GridInput):
    """Slides in a folder, and a patch grid."""


def select_slides(given: SlidesInput, context: ToolContext) -> list[Path]:
    """Select the slides; raises `InputError` if there are none or a name is unknown."""
    every = list_slides(context, given.wsi_source, given.search_nested)
    names = {path.stem for path in every}
    wanted = names if given.keep_only_these_wsi is None else set(given.keep_only_these_wsi)
    if unknown := sorted(wanted - names):
        raise InputError(f"keep_only_these_wsi: slide {unknown[0]} not found in {given.wsi_source}")
    kept = [p for p in every if p.stem in wanted and p.stem not in set(given.skip_specific_wsi)]
    if not kept:
        raise InputError(f"{given.wsi_source}: contains no slides to process")
    nova.check_unique([path.stem for path in kept], given.wsi_source)
    return kept


def process_slides(
    given: SlidesInput, job: nova.Job, file: str, process: Callable[[Slide], Sequence[str] | None],
    config: str = "",
) -> nova.Result:  # fmt: skip
    """Call `process`, which returns warnings, for each slide without a result.

    `file` is the name of the result in the job, in which NAME is the slide's name. The step's
    arguments and log are written under the name `config`, if given.
    """
    context, slides = job.context, select_slides(given, job.context)
    processed, before, failed, warnings = list[str](), list[str](), dict[str, str](), list[str]()
    for number, path in enumerate(slides):
        if not given.overwrite and job.find(file.replace("NAME", path.stem)) is not None:
            before.append(path.stem)
            continue
        try:
            asked = SlideInput(slide=str(path), mpp=given.base_mpp)
            slide = open_slide(asked, context, "bright field")
            warnings += [f"{path.stem}: {text}" for text in process(slide) or ()]
            processed.append(path.stem)
        except InputError as error:
            if not given.skip_errors:
                raise
            failed[path.stem] = str(error)
        context.progress((number + 1) / len(slides), path.stem)
    log = [f"{len(processed)} processed, {len(before)} found, {len(failed)} failed"]
    if config:
        nova.write_json(context, job.out(f"{config}.json"), given.model_dump(mode="json"))
        with context.writing(job.out(_log_name(config))) as path:
            lines = [*log, *(f"{name}: {why}" for name, why in failed.items())]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {
        "processed": processed, "found_before": before, "failed": failed, "operations_log": log,
        "warnings": warnings,
    }  # fmt: skip


def _log_name(config: str) -> str:
    return config.replace("_config_", "_logs_") + ".txt"


def _write_jpeg(job: nova.Job, name: str, image: Any) -> None:
    from PIL import Image

    with job.context.writing(job.out(name)) as path:
        picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
        picture.save(path, format="JPEG", quality=90)


@nova.tool(
    "dataset_of_wsi_tissue_segmentation_tool",
    Resources(cpu=2, memory_mb=1536, seconds_per_item=5.0), **DONE, dir_with_geojson_contours=str,
    dir_with_tissue_contours_jpg=str, dir_with_slide_thumbnails=str,
    tissue_segmentation_config_file=OutputName, tissue_segmentation_log_file=OutputName,
    number_of_processed_segmentations=int, method=str,
)  # fmt: skip
def segment_tissue(
    given: SlidesInput, context: ToolContext, *, holes_are_tissue: bool = True,
    remove_artifacts: Annotated[bool,
        Field(description="Exclude pen marks and out-of-focus tissue (at 1 µm per pixel)")] = True,
) -> nova.Result:  # fmt: skip
    """Perform tissue segmentation on a dataset of WSI files: contours_geojson/NAME.geojson.

    Features have tissue_id and level-0 pixels; also contours/NAME.jpg and thumbnails/NAME.jpg.
    Method: classical (no GrandQC or HEST weights).
    """
    job = nova.Job(given.job_dir, context)
    focus = "exclude" if remove_artifacts else "off"

    def segment(slide: Slide) -> list[str]:
        features, drawn, warnings = find_tissue(
            slide, context, focus=focus, keep_pen=not remove_artifacts
        )
        for number, item in enumerate(features):
            item["properties"]["tissue_id"] = number
            if holes_are_tissue:
                del item["geometry"]["coordinates"][1:]
        name = job.out(f"contours_geojson/{slide.name}.geojson")
        nova.write_json(context, name, {"type": "FeatureCollection", "features": features})
        _write_jpeg(job, f"thumbnails/{slide.name}.jpg", slide.thumbnail(1024))
        _write_jpeg(job, f"contours/{slide.name}.jpg", drawn)
        return warnings

    done = process_slides(
        given, job, "contours_geojson/NAME.geojson", segment, "_config_segmentation"
    )
    return done | {
        "dir_with_geojson_contours": job.out("contours_geojson"),
        "dir_with_tissue_contours_jpg": job.out("contours"),
        "dir_with_slide_thumbnails": job.out("thumbnails"),
        "tissue_segmentation_config_file": job.out("_config_segmentation.json"),
        "tissue_segmentation_log_file": job.out("_logs_segmentation.txt"),
        "number_of_processed_segmentations": len(done["processed"]) + len(done["found_before"]),
        "method": "classical",
    }


@nova.tool(
    "dataset_of_wsi_patch_coordinate_extraction_tool",
    Resources(memory_mb=1024, seconds_per_item=2.0), **DONE, patches_saved_dir=str,
    patches_key_in_h5=str, dir_with_visualization=str | None, patch_job_config_file=OutputName,
    patch_job_log_file=OutputName,
    patches=nova.described(dict[str, int], "Number of patches per slide processed by this call"),
)  # fmt: skip
def extract_coordinates(
    given: SlidesGridInput, context: ToolContext, *,
    min_tissue_proportion: Annotated[float, Field(ge=0, le=1)] = 0.95, visualize: bool = True,
) -> nova.Result:  # fmt: skip
    """Extract patch coordinates from tissue regions in a dataset of WSIs.

    GRID/patches/NAME_patches.h5 has the dataset coords (n, 2) of level-0 corners with attributes
    patch_size, patch_size_level0, level0_magnification, target_magnification.
    """
    from mcp_servers.formats.geojson import read_polygons
    from mcp_servers.formats.hdf5 import write_coords
    from mcp_servers.formats.images import draw_squares
    from mcp_servers.pathology.drawing import GREEN

    job, folder = nova.Job(given.job_dir, context), given.grid_folder()
    counts: dict[str, int] = {}

    def extract(slide: Slide) -> None:
        remedy = "run dataset_of_wsi_tissue_segmentation_tool first"
        outlines = job.need(f"contours_geojson/{slide.name}.geojson", remedy)
        corners, share, grid = cut_tiles(
            slide, read_polygons(outlines)[0], context, tile_px=given.patch_size,
            at_mpp=10 / given.target_magnification, overlap_px=given.overlap,
            min_tissue=max(0.0, min_tissue_proportion - 1e-9),
        )  # fmt: skip
        with context.writing(job.out(f"{folder}/patches/{slide.name}_patches.h5")) as path:
            write_coords(path, corners, grid, tissue_fraction=share)
        counts[slide.name] = len(corners)
        if visualize:
            picture, side = slide.thumbnail(1024), grid.patch_size_level0
            ratio, labels = slide.width / picture.shape[1], ["patch"] * len(corners)
            drawn = draw_squares(picture, corners, side, ratio, {"patch": GREEN}, labels, 0.2)
            _write_jpeg(job, f"{folder}/visualization/{slide.name}.jpg", drawn)

    config = f"{folder}/_config_coords"
    done = process_slides(given, job, f"{folder}/patches/NAME_patches.h5", extract, config)
    return done | {
        "patches_saved_dir": job.out(f"{folder}/patches"), "patches_key_in_h5": "coords",
        "dir_with_visualization": job.out(f"{folder}/visualization") if visualize else None,
        "patch_job_config_file": job.out(f"{config}.json"),
        "patch_job_log_file": job.out(_log_name(config)), "patches": counts,
    }  # fmt: skip


class PatchFeaturesInput(SlidesGridInput, nova.NetworkWeights):
    """A patch encoder for the slides."""

    patch_encoder_name: PatchEncoder = "conch_v15"
    patch_feats_save_folder: Named = None


@nova.tool(
    "dataset_of_wsi_patch_features_extraction_tool",
    Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=60.0),
    memory_mb=encoder_memory, **DONE, patch_features_dir=str, patch_features_key_in_h5=str,
    patch_encoder_name=str, embedding_dim=int | None, license=str, config_file=OutputName,
    log_file=OutputName,
)  # fmt: skip
def extract_patch_features(given: PatchFeaturesInput, context: ToolContext) -> nova.Result:
    """Extract patch-level features from a dataset of WSIs using foundation models.

    Weights are the user's. GRID/features_ENCODER/NAME.h5 has features (n, d) and coords (n, 2).
    """
    from sage_foundation.models import encoder_for
    from sage_foundation.specs import encoder_spec

    job, name = nova.Job(given.job_dir, context), given.patch_encoder_name
    folder, own, spec = given.grid_folder(), patch_folder(given), encoder_spec(ENCODERS[name])
    encoder_for(spec, given.weights, given.device, spec.mpp, context)  # raises before any slide

    def extract(slide: Slide) -> list[str]:
        held = job.need(f"{folder}/patches/{slide.name}_patches.h5", CUT)
        with nova.house(context) as part:
            made = encode_squares(slide, name, given, part, held)
            nova.keep_file(part, made.features, context, job.out(f"{folder}/{own}/{slide.name}.h5"))
        return made.warnings

    config = f"{folder}/_config_{own}"
    done = process_slides(given, job, f"{folder}/{own}/NAME.h5", extract, config)
    return done | {
        "patch_features_dir": job.out(f"{folder}/{own}"), "patch_features_key_in_h5": "features",
        "patch_encoder_name": name, "embedding_dim": spec.dimension if done["processed"] else None,
        "license": spec.license, "config_file": job.out(f"{config}.json"),
        "log_file": job.out(_log_name(config)),
    }  # fmt: skip


class SlideFeaturesInput(SlidesGridInput, nova.ModelWeights):
    """A slide encoder and the patch features that it reads."""

    slide_encoder_name: SlideEncoder = "titan"
    patch_encoder_name: PatchEncoder = "conch_v15"
    patch_feats_save_folder: Named = None
    slide_feats_save_folder: Named = None


@nova.tool(
    "dataset_of_wsi_slide_features_extraction_tool",
    Resources(memory_mb=4096, seconds_per_item=5.0), **DONE, slide_features_dir=str,
    slide_features_key_in_h5=str, slide_encoder_name=str, embedding_dim=int | None,
    config_file=OutputName, log_file=OutputName,
)  # fmt: skip
def extract_slide_features(given: SlideFeaturesInput, context: ToolContext) -> nova.Result:
    """Extract slide-level features from patch features for a dataset of WSIs.

    Encoders: the user's TITAN, PRISM, MADELEINE or GigaPath graph; or mean.
    GRID/slide_features_ENCODER/NAME.h5 has the dataset features (d,).
    """
    from sage_foundation.features import read_features

    job, name = nova.Job(given.job_dir, context), given.slide_encoder_name
    folder, source, own = given.grid_folder(), patch_folder(given), slide_folder(given)
    sizes: list[int] = []

    def extract(slide: Slide) -> None:
        remedy = "run dataset_of_wsi_patch_features_extraction_tool with the same grid first"
        file = f"{folder}/{source}/{slide.name}.h5"
        features, coords, has = read_features(job.need(file, remedy))
        if coords is None:
            raise InputError(f"{file}: coords are missing")
        side = int(has.get("patch_size_level0", given.patch_size))
        vector = encode_slide(name, features, coords, side, given, context)
        sizes.append(len(vector))
        nova.write_vectors(
            context, job.out(f"{folder}/{own}/{slide.name}.h5"), "features", vector, name
        )

    config = f"{folder}/_config_{own}"
    done = process_slides(given, job, f"{folder}/{own}/NAME.h5", extract, config)
    return done | {
        "slide_features_dir": job.out(f"{folder}/{own}"), "slide_features_key_in_h5": "features",
        "slide_encoder_name": name, "embedding_dim": sizes[0] if sizes else None,
        "config_file": job.out(f"{config}.json"), "log_file": job.out(_log_name(config)),
    }  # fmt: skip


class SlideHeat(BaseModel):
    """A slide's heat map and its best patches."""

    heatmap: OutputName
    topk_patches_dir: str
    topk_patches: list[OutputName] = Field(description="From the lowest to the highest score")
    topk_coords: list[tuple[int, int]] = Field(description="Level-0 corners, in the same order")
    topk_scores: list[float]


@nova.tool(
    "dataset_of_wsi_create_score_heatmap_tool", Resources(memory_mb=1024, seconds_per_item=2.0),
    **DONE, heatmaps_save_paths=dict[str, SlideHeat],
)  # fmt: skip
def create_heatmaps(
    given: SlidesGridInput, context: ToolContext, *,
    scores_path: Annotated[InputPath,
        Field(description="Folder of NAME.h5 files with the scores of each patch")],
    scores_key: Annotated[str, Field(max_length=100)] = "attention_scores",
    output_dir: nova.Folder = "heatmaps",
    normalize: Annotated[bool,
        Field(description="Convert scores to ranks in (0, 1], with ties averaged")] = True,
    num_top_patches_to_save: Annotated[int, Field(ge=1, le=500)] = 10,
) -> nova.Result:  # fmt: skip
    """Create score heatmaps overlaid on WSIs for visualization and analysis.

    The patches with the highest scores are saved at level 0 (top_INDEX_score_SCORE.png).
    """
    import numpy as np
    from scipy.stats import rankdata

    from mcp_servers.pathology.common import save_png
    from sage_foundation.features import dataset, open_hdf5, read_coords

    job, folder = nova.Job(given.job_dir, context), given.grid_folder()
    place = context.input(scores_path, "folder")
    saved: dict[str, dict[str, Any]] = {}
    names = [path.stem for path in select_slides(given, context)]
    absent = [name for name in names if not (place / f"{name}.h5").exists()]
    if absent == names:
        raise InputError(f"{scores_path}: scores for the slides are missing, e.g. {names[0]}.h5")

    def draw(slide: Slide) -> None:
        corners, attributes = read_coords(
            job.need(f"{folder}/patches/{slide.name}_patches.h5", CUT)
        )
        file = context.input(place / f"{slide.name}.h5", "file")
        with open_hdf5(file) as stored:
            scores = np.asarray(dataset(stored, scores_key, file)[()], dtype=np.float64).ravel()
        if len(scores) != len(corners):
            raise InputError(f"{file}: got {len(scores)} scores for {len(corners)} patches")
        if not np.isfinite(scores).all():
            raise InputError(f"{file}: {scores_key} has values that are not finite")
        shown = rankdata(scores) / len(scores) if normalize else scores
        side, base = int(attributes["patch_size_level0"]), f"{output_dir}/{slide.name}"
        draw_scores(slide, corners, shown, side, context, f"{base}/heatmap.png")
        best = np.argsort(shown, kind="stable")[-num_top_patches_to_save:]
        places = corners[best].tolist()
        saved[slide.name] = {
            "heatmap": f"{base}/heatmap.png", "topk_patches_dir": f"{base}/topk",
            "topk_coords": places, "topk_scores": shown[best].tolist(),
            "topk_patches": [
                save_png(context, f"{base}/topk/top_{number}_score_{score:.4f}.png",
                         slide.read(x, y, side, side))
                for number, ((x, y), score) in enumerate(zip(places, shown[best], strict=True))
            ],
        }  # fmt: skip

    less = {"skip_specific_wsi": [*given.skip_specific_wsi, *absent], "overwrite": True}
    done = process_slides(given.model_copy(update=less), job, "NAME", draw)
    done["warnings"] += [f"{name}: no scores found" for name in absent]
    return done | {"heatmaps_save_paths": saved}


def draw_scores(
    slide: Slide, corners: Any, scores: Any, side: int, context: ToolContext, name: str
) -> str:
    """Draw (n,) scores of squares with `heatmap`, and return the picture's name.

    `corners` (n, 2) and `side` are in level-0 pixels.
    """
    from sage_foundation.features import write_scores
    from sage_foundation.heatmap import HeatmapInput, heatmap

    low, high = float(scores.min()), float(scores.max())
    with nova.house(context) as own:
        with own.writing("scores.h5") as path:
            write_scores(path, corners, {"patch_size_level0": side}, score=scores)
        file = str(own.roots.output / "scores.h5")
        asked = HeatmapInput(
            slide=str(slide.path), mpp=override(slide), scores=file, low=low, high=high
        )
        made = heatmap(asked, own)
        return nova.keep_file(own, made.image, context, name)
