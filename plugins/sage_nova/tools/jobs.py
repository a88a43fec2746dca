"""Trident's steps for a slide folder: tissue, coordinates, features, and heat maps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Device
from mcp_servers.slides.slide import Slide
from mcp_servers.spec import InputPath, OutputName, Resources, SlidePath
from sage.core.errors import InputError
from sage_nova.tools.common import (
    GridInput,
    Job,
    JobInput,
    NovaResult,
    check_unique,
    nova_tool,
    write_json_output,
)
from sage_nova.tools.datasets import list_slides, patch_folder, slide_folder
from sage_nova.tools.weights import (
    SPECS,
    ModelWeights,
    PatchEncoder,
    SlideEncoder,
    encode_slide,
    encoder_memory,
    load_patch_encoder,
)
from sage_nova.tools.wsi import encode_squares


class SlidesInput(JobInput):
    """Slides in a folder."""

    wsi_source: SlidePath = Field(description="Folder of slides")
    search_nested: bool = False
    skip_errors: bool = Field(default=False, description="Continue after slides that fail")
    skip_specific_wsi: list[str] = Field(
        default_factory=list, description="Process only these slides, by name without suffix"
    )
    keep_only_these_wsi: list[str] | None = Field(
        default=None, description="Skip these slides, by name without suffix"
    )
    base_mpp: float | None = Field(
        default=None, gt=0, le=100, description="µm per level-0 pixel, overriding the files"
    )
    overwrite: bool = Field(default=False, description="Recompute existing results")


class SlidesGridInput(SlidesInput, GridInput):
    """Slides in a folder, and a patch grid."""


class Done(NovaResult):
    """Slides that were processed, already had results, or failed."""

    processed: list[str]
    found_before: list[str] = Field(description="Slides whose result already existed")
    failed: dict[str, str] = Field(default_factory=dict)


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
    check_unique([path.stem for path in kept], given.wsi_source)
    return kept


def process_slides(
    given: SlidesInput, context: ToolContext, job: Job, file: str, process: Callable[[Slide], None]
) -> Done:
    """Call `process` for each slide without a result.

    `file` is the name of the result in the job, in which NAME is the slide's name.
    """
    slides = select_slides(given, context)
    done = Done(processed=[], found_before=[])
    for number, path in enumerate(slides):
        if not given.overwrite and job.find(file.replace("NAME", path.stem)) is not None:
            done.found_before.append(path.stem)
            continue
        try:
            with Slide.open(context.input(path, "file"), mpp=given.base_mpp) as slide:
                slide.need_stain(gray=True)
                process(slide)
            done.processed.append(path.stem)
        except InputError as error:
            if not given.skip_errors:
                raise
            done.failed[path.stem] = str(error)
        context.progress((number + 1) / len(slides), path.stem)
    done.operations_log.append(
        f"{len(done.processed)} processed, {len(done.found_before)} found,"
        f" {len(done.failed)} failed"
    )
    return done


def _write_logs(job: Job, name: str, given: BaseModel, done: Done) -> tuple[str, str]:
    """Write a step's arguments and log, and return both file names."""
    config = write_json_output(job.context, job.out(f"{name}.json"), given.model_dump(mode="json"))
    log = job.out(name.replace("_config_", "_logs_") + ".txt")
    with job.context.writing(log) as path:
        lines = [*done.operations_log, *(f"{k}: {v}" for k, v in done.failed.items())]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return config, log


def _write_jpeg(job: Job, name: str, image: Any) -> None:
    from PIL import Image

    with job.context.writing(job.out(name)) as path:
        Image.fromarray(image).save(path, format="JPEG", quality=90)


def _write_features(job: Job, name: str, encoder: str, features: Any, **coords: Any) -> None:
    import h5py

    with job.context.writing(job.out(name)) as path, h5py.File(path, "w") as file:
        file.create_dataset("features", data=features).attrs["encoder"] = encoder
        if coords:
            file.create_dataset("coords", data=coords["corners"]).attrs.update(coords["attributes"])


class SegmentInput(SlidesInput):
    """Options for tissue segmentation."""

    holes_are_tissue: bool = True
    remove_artifacts: bool = Field(
        default=True, description="Exclude pen marks and out-of-focus tissue (at 1 µm per pixel)"
    )


class SegmentResult(Done):
    """Tissue files."""

    dir_with_geojson_contours: str
    dir_with_tissue_contours_jpg: str
    dir_with_slide_thumbnails: str
    tissue_segmentation_config_file: OutputName
    tissue_segmentation_log_file: OutputName
    number_of_processed_segmentations: int
    method: str = "classical"


@nova_tool(
    "dataset_of_wsi_tissue_segmentation_tool",
    Resources(cpu=2, memory_mb=1536, seconds_per_item=5.0),
)
def segment_tissue(given: SegmentInput, context: ToolContext) -> SegmentResult:
    """Perform tissue segmentation on a dataset of WSI files: contours_geojson/NAME.geojson.

    Features have tissue_id and level-0 pixels; also contours/NAME.jpg and thumbnails/NAME.jpg.
    Method: classical (no GrandQC or HEST weights).
    """
    from mcp_servers.formats.geojson import feature
    from mcp_servers.pathology.drawing import GREEN, draw_outlines
    from mcp_servers.slides.geometry import Polygon, mask_polygons

    job = Job(given.job_dir, context)

    def segment(slide: Slide) -> None:
        mask, scale = find_tissue(slide, given.remove_artifacts, context)
        polygons = mask_polygons(mask, scale, simplify_px=0.7)
        if given.holes_are_tissue:
            polygons = [Polygon(p.exterior) for p in polygons]
        features = [feature(polygon, classification="Tissue") for polygon in polygons]
        for number, item in enumerate(features):
            item["properties"]["tissue_id"] = number
        name = job.out(f"contours_geojson/{slide.name}.geojson")
        write_json_output(context, name, {"type": "FeatureCollection", "features": features})
        picture = slide.thumbnail(1024)
        drawn = draw_outlines(picture, polygons, slide.width / picture.shape[1], GREEN)
        _write_jpeg(job, f"thumbnails/{slide.name}.jpg", picture)
        _write_jpeg(job, f"contours/{slide.name}.jpg", drawn)

    done = process_slides(given, context, job, "contours_geojson/NAME.geojson", segment)
    config, log = _write_logs(job, "_config_segmentation", given, done)
    return SegmentResult(
        **done.model_dump(),
        dir_with_geojson_contours=job.out("contours_geojson"),
        dir_with_tissue_contours_jpg=job.out("contours"),
        dir_with_slide_thumbnails=job.out("thumbnails"),
        tissue_segmentation_config_file=config,
        tissue_segmentation_log_file=log,
        number_of_processed_segmentations=len(done.processed) + len(done.found_before),
    )


def find_tissue(slide: Slide, clean: bool, context: ToolContext) -> tuple[Any, float]:
    """Compute a (height, width) tissue mask and the level-0 pixels per mask pixel.

    `clean` excludes ink and out-of-focus areas.
    """
    from mcp_servers.pathology.tissue import COARSEST_FOCUS_MPP, blurred_area, slide_tissue

    found, view = slide_tissue(slide, keep_pen=not clean)
    mask = found.mask
    if clean and slide.need_mpp() <= COARSEST_FOCUS_MPP:
        mask = mask & ~blurred_area(slide, mask, view.scale, 50_000.0, context)
    return mask, view.scale


class CoordinatesInput(SlidesGridInput):
    """Patch grid and minimum tissue fraction per patch."""

    min_tissue_proportion: float = Field(default=0.95, ge=0, le=1)
    visualize: bool = True


class CoordinatesResult(Done):
    """Coordinate files."""

    patches_saved_dir: str
    patches_key_in_h5: str = "coords"
    dir_with_visualization: str | None
    patch_job_config_file: OutputName
    patch_job_log_file: OutputName
    patches: dict[str, int] = Field(
        description="Number of patches per slide processed by this call"
    )


@nova_tool(
    "dataset_of_wsi_patch_coordinate_extraction_tool",
    Resources(memory_mb=1024, seconds_per_item=2.0),
)
def extract_coordinates(given: CoordinatesInput, context: ToolContext) -> CoordinatesResult:
    """Extract patch coordinates from tissue regions in a dataset of WSIs.

    GRID/patches/NAME_patches.h5 has the dataset coords (n, 2) of level-0 corners with attributes
    patch_size, patch_size_level0, level0_magnification, target_magnification.
    """
    import numpy as np

    from mcp_servers.formats.geojson import read_polygons
    from mcp_servers.formats.hdf5 import write_coords
    from mcp_servers.formats.images import draw_squares
    from mcp_servers.pathology.drawing import GREEN
    from mcp_servers.pathology.tiles import TilesInput, every_tile
    from mcp_servers.slides.geometry import measure_coverage, rasterize

    job, folder = Job(given.job_dir, context), given.grid_folder()
    counts: dict[str, int] = {}

    def extract(slide: Slide) -> None:
        remedy = "run dataset_of_wsi_tissue_segmentation_tool first"
        outlines = job.need(f"contours_geojson/{slide.name}.geojson", remedy)
        cut = TilesInput(
            slide=str(slide.path), tile_px=given.patch_size, at_mpp=10 / given.target_magnification,
            overlap_px=given.overlap,
        )  # fmt: skip
        corners, grid = every_tile(slide, cut)
        scale = max(1.0, 8.0 / slide.need_mpp())
        shape = (int(np.ceil(slide.height / scale)), int(np.ceil(slide.width / scale)))
        mask = rasterize(read_polygons(outlines)[0], scale, shape)
        side = grid.patch_size_level0
        share = measure_coverage(mask, corners, side, scale)
        keep = share >= max(given.min_tissue_proportion - 1e-9, 1e-9)
        with context.writing(job.out(f"{folder}/patches/{slide.name}_patches.h5")) as path:
            write_coords(path, corners[keep], grid, tissue_fraction=share[keep])
        counts[slide.name] = int(keep.sum())
        if given.visualize:
            picture = slide.thumbnail(1024)
            ratio, labels = slide.width / picture.shape[1], ["patch"] * counts[slide.name]
            drawn = draw_squares(picture, corners[keep], side, ratio, {"patch": GREEN}, labels, 0.2)
            _write_jpeg(job, f"{folder}/visualization/{slide.name}.jpg", drawn)

    done = process_slides(given, context, job, f"{folder}/patches/NAME_patches.h5", extract)
    config, log = _write_logs(job, f"{folder}/_config_coords", given, done)
    return CoordinatesResult(
        **done.model_dump(),
        patches_saved_dir=job.out(f"{folder}/patches"),
        dir_with_visualization=job.out(f"{folder}/visualization") if given.visualize else None,
        patch_job_config_file=config,
        patch_job_log_file=log,
        patches=counts,
    )


class PatchFeaturesInput(SlidesGridInput, ModelWeights):
    """A patch encoder for the slides."""

    patch_encoder_name: PatchEncoder = Field(
        default="conch_v15",
        description="Name of the encoder; handcrafted, which needs no "
        "weights, is used only on request",
    )
    patch_feats_save_folder: str | None = Field(default=None, max_length=200)
    device: Device = "auto"


class PatchFeaturesResult(Done):
    """Feature files."""

    patch_features_dir: str
    patch_features_key_in_h5: str = "features"
    patch_encoder_name: str
    embedding_dim: int | None
    license: str
    config_file: OutputName
    log_file: OutputName


@nova_tool(
    "dataset_of_wsi_patch_features_extraction_tool",
    Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=60.0),
    memory_mb=encoder_memory,
)
def extract_patch_features(given: PatchFeaturesInput, context: ToolContext) -> PatchFeaturesResult:
    """Extract patch-level features from a dataset of WSIs using foundation models.

    Weights are the user's. GRID/features_ENCODER/NAME.h5 has features (n, d) and coords (n, 2).
    """
    from sage_foundation.features import read_coords

    job, name = Job(given.job_dir, context), given.patch_encoder_name
    folder, own = given.grid_folder(), patch_folder(given)
    load_patch_encoder(name, given, 0.5, context)  # raises before the first slide is read
    sizes: list[int] = []

    def extract(slide: Slide) -> None:
        remedy = "run dataset_of_wsi_patch_coordinate_extraction_tool with the same grid first"
        held = job.need(f"{folder}/patches/{slide.name}_patches.h5", remedy)
        corners, attributes = read_coords(held)
        if not len(corners):
            raise InputError(f"{slide.path}: no patch contains enough tissue to encode")
        side = int(attributes["patch_size_level0"])
        features = encode_squares(slide, corners, side, name, given, context)
        sizes.append(features.shape[1])
        file = f"{folder}/{own}/{slide.name}.h5"
        _write_features(job, file, name, features, corners=corners, attributes=attributes)

    done = process_slides(given, context, job, f"{folder}/{own}/NAME.h5", extract)
    config, log = _write_logs(job, f"{folder}/_config_{own}", given, done)
    return PatchFeaturesResult(
        **done.model_dump(),
        patch_features_dir=job.out(f"{folder}/{own}"),
        patch_encoder_name=name,
        embedding_dim=sizes[0] if sizes else None,
        license=SPECS[name].license,
        config_file=config,
        log_file=log,
    )


class SlideFeaturesInput(SlidesGridInput, ModelWeights):
    """A slide encoder and the patch features that it reads."""

    slide_encoder_name: SlideEncoder = Field(
        default="titan",
        description="Name of the encoder; mean, which needs no weights, is used only on request",
    )
    patch_encoder_name: PatchEncoder = "conch_v15"
    patch_feats_save_folder: str | None = Field(default=None, max_length=200)
    slide_feats_save_folder: str | None = Field(default=None, max_length=200)


class SlideFeaturesResult(Done):
    """Files with slide vectors."""

    slide_features_dir: str
    slide_features_key_in_h5: str = "features"
    slide_encoder_name: str
    embedding_dim: int | None
    config_file: OutputName
    log_file: OutputName


@nova_tool(
    "dataset_of_wsi_slide_features_extraction_tool",
    Resources(memory_mb=4096, seconds_per_item=5.0),
)
def extract_slide_features(given: SlideFeaturesInput, context: ToolContext) -> SlideFeaturesResult:
    """Extract slide-level features from patch features for a dataset of WSIs.

    Encoders: the user's TITAN, PRISM, MADELEINE or GigaPath graph; or mean.
    GRID/slide_features_ENCODER/NAME.h5 has the dataset features (d,).
    """
    from sage_foundation.features import read_features

    job, name = Job(given.job_dir, context), given.slide_encoder_name
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
        _write_features(job, f"{folder}/{own}/{slide.name}.h5", name, vector)

    done = process_slides(given, context, job, f"{folder}/{own}/NAME.h5", extract)
    config, log = _write_logs(job, f"{folder}/_config_{own}", given, done)
    return SlideFeaturesResult(
        **done.model_dump(),
        slide_features_dir=job.out(f"{folder}/{own}"),
        slide_encoder_name=name,
        embedding_dim=sizes[0] if sizes else None,
        config_file=config,
        log_file=log,
    )


class HeatmapInput(SlidesGridInput):
    """Scores and slides for heat maps."""

    scores_path: InputPath = Field(
        description="Folder of NAME.h5 files with the scores of each patch"
    )
    scores_key: str = Field(default="attention_scores", max_length=100)
    output_dir: str = Field(
        default="heatmaps", max_length=500, description="Folder in the output folder"
    )
    normalize: bool = Field(
        default=True, description="Convert scores to ranks in (0, 1], with ties averaged"
    )
    num_top_patches_to_save: int = Field(default=10, ge=1, le=500)


class SlideHeat(BaseModel):
    """A slide's heat map and its best patches."""

    heatmap: OutputName
    topk_patches_dir: str
    topk_patches: list[OutputName] = Field(
        description="Colors from the lowest to the highest score"
    )
    topk_coords: list[tuple[int, int]] = Field(description="Level-0 corners, in the same order")
    topk_scores: list[float]


class HeatmapResult(Done):
    """Heat map and best patches for each slide."""

    heatmaps_save_paths: dict[str, SlideHeat]


@nova_tool(
    "dataset_of_wsi_create_score_heatmap_tool", Resources(memory_mb=1024, seconds_per_item=2.0)
)
def create_heatmaps(given: HeatmapInput, context: ToolContext) -> HeatmapResult:
    """Create score heatmaps overlaid on WSIs for visualization and analysis.

    The patches with the highest scores are saved at level 0 (top_INDEX_score_SCORE.png).
    """
    import numpy as np
    from scipy.stats import rankdata

    from mcp_servers.formats.images import write_png
    from sage_foundation.features import dataset, open_hdf5, read_coords

    job, folder = Job(given.job_dir, context), given.grid_folder()
    scores_folder = context.input(given.scores_path, "folder")
    saved: dict[str, SlideHeat] = {}
    names = [path.stem for path in select_slides(given, context)]
    absent = [name for name in names if not (scores_folder / f"{name}.h5").exists()]
    if absent == names:
        raise InputError(
            f"{given.scores_path}: scores for the slides are missing, e.g. {names[0]}.h5"
        )

    def draw(slide: Slide) -> None:
        remedy = "run dataset_of_wsi_patch_coordinate_extraction_tool with the same grid first"
        held = job.need(f"{folder}/patches/{slide.name}_patches.h5", remedy)
        corners, attributes = read_coords(held)
        file = context.input(scores_folder / f"{slide.name}.h5", "file")
        with open_hdf5(file) as stored:
            found = dataset(stored, given.scores_key, file)
            scores = np.asarray(found[()], dtype=np.float64).ravel()
        if len(scores) != len(corners):
            raise InputError(f"{file}: got {len(scores)} scores for {len(corners)} patches")
        if not np.isfinite(scores).all():
            raise InputError(f"{file}: {given.scores_key} has values that are not finite")
        shown = rankdata(scores) / len(scores) if given.normalize else scores
        side, base = int(attributes["patch_size_level0"]), f"{given.output_dir}/{slide.name}"
        with context.writing(f"{base}/heatmap.png") as path:
            write_png(path, draw_heatmap(slide, corners, shown, side))
        best = np.argsort(shown, kind="stable")[-given.num_top_patches_to_save :]
        patches = []
        for number, i in enumerate(best):
            name = f"{base}/topk/top_{number}_score_{shown[i]:.4f}.png"
            with context.writing(name) as path:
                write_png(path, slide.read(int(corners[i, 0]), int(corners[i, 1]), side, side))
            patches.append(name)
        saved[slide.name] = SlideHeat(
            heatmap=f"{base}/heatmap.png",
            topk_patches_dir=f"{base}/topk",
            topk_patches=patches,
            topk_coords=[(int(x), int(y)) for x, y in corners[best]],
            topk_scores=[float(v) for v in shown[best]],
        )

    less = {"skip_specific_wsi": [*given.skip_specific_wsi, *absent], "overwrite": True}
    done = process_slides(given.model_copy(update=less), context, job, "NAME", draw)
    done.warnings += [f"{name}: no scores found" for name in absent]
    return HeatmapResult(**done.model_dump(), heatmaps_save_paths=saved)


def draw_heatmap(slide: Slide, corners: Any, scores: Any, side: int) -> Any:
    """Draw (n,) scores as squares over a slide, with a scale bar and the score range.

    `corners` (n, 2) and `side` are in level-0 pixels.
    """
    import cv2
    import numpy as np

    from mcp_servers.formats.images import colorize
    from mcp_servers.pathology.drawing import captioned, ramp_of

    low, high = float(scores.min()), float(scores.max())
    colors = colorize(scores, low, max(high, low + 1e-9))
    picture = slide.thumbnail(2048)
    ratio, layer = slide.width / picture.shape[1], picture.copy()
    for (x, y), color in zip(corners, colors, strict=True):
        a = (round(x / ratio), round(y / ratio))
        b = (round((x + side) / ratio) - 1, round((y + side) / ratio) - 1)
        cv2.rectangle(layer, a, b, tuple(int(v) for v in color), -1)
    drawn = np.asarray(cv2.addWeighted(layer, 0.55, picture, 0.45, 0), dtype=np.uint8)
    um = slide.mpp * ratio if slide.mpp else None
    return captioned(drawn, um, ramp=ramp_of(f"{low:.3g}", f"{high:.3g}"))
