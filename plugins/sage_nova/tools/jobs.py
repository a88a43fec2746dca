"""A folder of slides, step by step as Trident does it: tissue, coordinates, features, heat maps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Device
from mcp_servers.slides.slide import Slide
from mcp_servers.spec import InputPath, OutputName, Resources
from sage.core.errors import InputError
from sage_nova.tools.common import Job, JobInput, NovaResult, folder_name, nova_tool, one_each
from sage_nova.tools.datasets import slides_in
from sage_nova.tools.weights import PatchEncoder, SlideEncoder, encode_slide, encoder_memory


class SlidesInput(JobInput):
    """Which slides of a folder."""

    wsi_source: InputPath = Field(description="Folder of slides")
    search_nested: bool = False
    skip_errors: bool = Field(default=False, description="Go on past slides that fail")
    skip_specific_wsi: list[str] = Field(default_factory=list, description="Names without ending")
    keep_only_these_wsi: list[str] | None = Field(default=None, description="Names without ending")
    base_mpp: float | None = Field(
        default=None, gt=0, le=100, description="µm per level-0 pixel, to override the files"
    )
    overwrite: bool = Field(default=False, description="Compute again what is there")


class Done(NovaResult):
    """How many slides were done, and which failed."""

    processed: list[str]
    found_before: list[str] = Field(description="Slides whose result was there")
    failed: dict[str, str] = Field(default_factory=dict)


def chosen(given: SlidesInput, context: ToolContext) -> list[Path]:
    """The slides to work on; raises `InputError` when there are none or a name is unknown."""
    every = slides_in(context, given.wsi_source, given.search_nested)
    names = {path.stem for path in every}
    wanted = names if given.keep_only_these_wsi is None else set(given.keep_only_these_wsi)
    if unknown := sorted(wanted - names):
        raise InputError(f"keep_only_these_wsi: {given.wsi_source} has no slide {unknown[0]}")
    kept = [p for p in every if p.stem in wanted and p.stem not in set(given.skip_specific_wsi)]
    if not kept:
        raise InputError(f"{given.wsi_source}: holds no slide to work on")
    one_each([path.stem for path in kept], given.wsi_source)
    return kept


def over(
    given: SlidesInput, context: ToolContext, job: Job, file: str, make: Callable[[Slide], None]
) -> Done:
    """Make the file of each slide where it is absent.

    Parameters
    ----------
    given : which slides, and what to do with errors
    context : roots, progress
    job : their job
    file : its name in the job, with NAME for the slide
    make : makes it
    """
    slides = chosen(given, context)
    done = Done(processed=[], found_before=[])
    for number, path in enumerate(slides):
        if not given.overwrite and job.find(file.replace("NAME", path.stem)) is not None:
            done.found_before.append(path.stem)
            continue
        try:
            with Slide.open(context.input(path, "file"), mpp=given.base_mpp) as slide:
                make(slide)
            done.processed.append(path.stem)
        except InputError as error:
            if not given.skip_errors:
                raise
            done.failed[path.stem] = str(error)
        context.progress((number + 1) / len(slides), path.stem)
    done.operations_log.append(
        f"{len(done.processed)} done, {len(done.found_before)} there before, "
        f"{len(done.failed)} failed"
    )
    return done


def _config(job: Job, context: ToolContext, name: str, given: BaseModel, done: Done) -> list[str]:
    """Write a step's arguments and log; their names."""
    config, log = job.out(f"{name}.json"), job.out(name.replace("_config_", "_logs_") + ".txt")
    with context.writing(config) as path:
        path.write_text(given.model_dump_json(indent=1) + "\n", encoding="utf-8")
    with context.writing(log) as path:
        lines = [*done.operations_log, *(f"{k}: {v}" for k, v in done.failed.items())]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [config, log]


class SegmentInput(SlidesInput):
    """What counts as tissue."""

    holes_are_tissue: bool = True
    remove_artifacts: bool = Field(
        default=True, description="Leave out pen marks and tissue out of focus (1 µm per pixel)"
    )


class SegmentResult(Done):
    """Where the tissue is."""

    dir_with_geojson_contours: str
    dir_with_tissue_contours_jpg: str
    dir_with_slide_thumbnails: str
    tissue_segmentation_config_file: OutputName
    tissue_segmentation_log_file: OutputName
    number_of_processed_segmentations: int
    method: str = "classical"


@nova_tool(
    "dataset_of_wsi_tissue_segmentation_tool",
    version="1.0.0",
    summary="Perform tissue segmentation on a dataset of WSI files: contours_geojson/NAME.geojson "
    "with tissue_id in level-0 pixels, contours/NAME.jpg, thumbnails/NAME.jpg. Method: classical "
    "(no GrandQC or HEST weights).",
    resources=Resources(cpu=2, memory_mb=1536, seconds_per_item=5.0),
)
def segment_tissue(given: SegmentInput, context: ToolContext) -> SegmentResult:
    """Tissue of each slide."""
    job = Job(given.job_dir, context)

    def make(slide: Slide) -> None:
        from mcp_servers.formats.geojson import feature
        from mcp_servers.pathology.drawing import GREEN, draw_outlines
        from mcp_servers.slides.geometry import Polygon, mask_polygons

        mask, scale = tissue_mask(slide, given.remove_artifacts, context)
        polygons = mask_polygons(mask, scale, simplify_px=0.7)
        if given.holes_are_tissue:
            polygons = [Polygon(p.exterior) for p in polygons]
        features = []
        for number, polygon in enumerate(polygons):
            item = feature(polygon, classification="Tissue")
            item["properties"]["tissue_id"] = number
            features.append(item)
        text = json.dumps({"type": "FeatureCollection", "features": features})
        with context.writing(job.out(f"contours_geojson/{slide.name}.geojson")) as path:
            path.write_text(text + "\n", encoding="utf-8")
        picture = slide.thumbnail(1024)
        ratio = slide.width / picture.shape[1]
        for folder, image in (
            ("thumbnails", picture),
            ("contours", draw_outlines(picture, polygons, ratio, GREEN)),
        ):
            with context.writing(job.out(f"{folder}/{slide.name}.jpg")) as path:
                write_jpeg(path, image)

    done = over(given, context, job, "contours_geojson/NAME.geojson", make)
    config, log = _config(job, context, "_config_segmentation", given, done)
    return SegmentResult(
        **done.model_dump(),
        dir_with_geojson_contours=job.out("contours_geojson"),
        dir_with_tissue_contours_jpg=job.out("contours"),
        dir_with_slide_thumbnails=job.out("thumbnails"),
        tissue_segmentation_config_file=config,
        tissue_segmentation_log_file=log,
        number_of_processed_segmentations=len(done.processed) + len(done.found_before),
    )


def tissue_mask(slide: Slide, clean: bool, context: ToolContext) -> tuple[Any, float]:
    """(height, width) of the tissue and level-0 pixels per its pixel; `clean` leaves out ink and
    what is out of focus."""
    from mcp_servers.pathology.tissue import COARSEST_FOCUS_MPP, blurred_area, slide_tissue

    found, view = slide_tissue(slide, keep_pen=not clean)
    mask = found.mask
    if clean and slide.need_mpp() <= COARSEST_FOCUS_MPP:
        mask = mask & ~blurred_area(slide, mask, view.scale, 50_000.0, context)
    return mask, view.scale


def write_jpeg(path: Path, image: Any) -> None:
    """Write an image as JPEG of quality 90."""
    from PIL import Image

    Image.fromarray(image).save(path, format="JPEG", quality=90)


class GridOf(SlidesInput):
    """Which grid of patches."""

    target_magnification: float = Field(default=20, gt=0, le=100, description="10 / µm per pixel")
    patch_size: int = Field(default=512, ge=16, le=8192, description="Pixels at the magnification")
    overlap: int = Field(default=0, ge=0, description="Pixels at the magnification")
    saveto_folder: str | None = Field(
        default=None, max_length=200, description="MAGx_SIZEpx_OVERLAPpx_overlap when absent"
    )

    def grid_folder(self) -> str:
        """The folder of the grid in the job."""
        made = folder_name(self.target_magnification, self.patch_size, self.overlap)
        return self.saveto_folder or made


class CoordinatesInput(GridOf):
    """How much of a patch must be tissue."""

    min_tissue_proportion: float = Field(default=0.95, ge=0, le=1)
    visualize: bool = True


class CoordinatesResult(Done):
    """Where the coordinates are."""

    patches_saved_dir: str
    patches_key_in_h5: str = "coords"
    dir_with_visualization: str | None
    patch_job_config_file: OutputName
    patch_job_log_file: OutputName
    patches: dict[str, int] = Field(description="Count per slide that was done now")


@nova_tool(
    "dataset_of_wsi_patch_coordinate_extraction_tool",
    version="1.0.0",
    summary="Extract patch coordinates from tissue regions in a dataset of WSIs: "
    "GRID/patches/NAME_patches.h5, dataset coords (n, 2) of level-0 corners with the attributes "
    "patch_size, patch_size_level0, level0_magnification, target_magnification.",
    resources=Resources(memory_mb=1024, seconds_per_item=2.0),
)
def extract_coordinates(given: CoordinatesInput, context: ToolContext) -> CoordinatesResult:
    """Coordinates over the tissue of the earlier step."""
    import numpy as np

    job, folder = Job(given.job_dir, context), given.grid_folder()
    counts: dict[str, int] = {}

    def make(slide: Slide) -> None:
        from mcp_servers.formats.geojson import read_polygons
        from mcp_servers.formats.hdf5 import write_coords
        from mcp_servers.formats.images import draw_squares
        from mcp_servers.pathology.drawing import GREEN
        from mcp_servers.pathology.tiles import TilesInput, every_tile
        from mcp_servers.slides.geometry import covered, rasterize

        remedy = "run dataset_of_wsi_tissue_segmentation_tool first"
        outlines = job.need(f"contours_geojson/{slide.name}.geojson", remedy)
        cut = TilesInput(
            slide=str(slide.path),
            tile_px=given.patch_size,
            at_mpp=10 / given.target_magnification,
            overlap_px=given.overlap,
        )
        corners, grid = every_tile(slide, cut)
        scale = max(1.0, 8.0 / slide.need_mpp())
        shape = (int(np.ceil(slide.height / scale)), int(np.ceil(slide.width / scale)))
        mask = rasterize(read_polygons(outlines), scale, shape)
        share = covered(mask, corners, grid.patch_size_level0, scale)
        keep = share >= max(given.min_tissue_proportion - 1e-9, 1e-9)
        with context.writing(job.out(f"{folder}/patches/{slide.name}_patches.h5")) as path:
            write_coords(path, corners[keep], grid, tissue_fraction=share[keep])
        counts[slide.name] = int(keep.sum())
        if given.visualize:
            picture = slide.thumbnail(1024)
            ratio = slide.width / picture.shape[1]
            labels = ["patch"] * counts[slide.name]
            side = grid.patch_size_level0
            drawn = draw_squares(picture, corners[keep], side, ratio, {"patch": GREEN}, labels, 0.2)
            with context.writing(job.out(f"{folder}/visualization/{slide.name}.jpg")) as path:
                write_jpeg(path, drawn)

    done = over(given, context, job, f"{folder}/patches/NAME_patches.h5", make)
    config, log = _config(job, context, f"{folder}/_config_coords", given, done)
    return CoordinatesResult(
        **done.model_dump(),
        patches_saved_dir=job.out(f"{folder}/patches"),
        dir_with_visualization=job.out(f"{folder}/visualization") if given.visualize else None,
        patch_job_config_file=config,
        patch_job_log_file=log,
        patches=counts,
    )


class PatchFeaturesInput(GridOf):
    """Which encoder."""

    patch_encoder_name: PatchEncoder = Field(
        default="conch_v15", description="handcrafted needs no weights, and is used only if named"
    )
    weights: InputPath | None = Field(default=None, description="Folder or file of its weights")
    hub: str | None = Field(default=None, max_length=200, description="OWNER/NAME in hub's cache")
    patch_feats_save_folder: str | None = Field(default=None, max_length=200)
    device: Device = "auto"

    @property
    def model(self) -> PatchEncoder:
        """The encoder."""
        return self.patch_encoder_name


class PatchFeaturesResult(Done):
    """Where the features are."""

    patch_features_dir: str
    patch_features_key_in_h5: str = "features"
    patch_encoder_name: str
    embedding_dim: int | None
    license: str
    config_file: OutputName
    log_file: OutputName


@nova_tool(
    "dataset_of_wsi_patch_features_extraction_tool",
    version="1.0.0",
    summary="Extract patch-level features from a dataset of WSIs using foundation models (the "
    "user's weights): GRID/features_ENCODER/NAME.h5, datasets features (n, d) and coords (n, 2).",
    resources=Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=60.0),
    memory_mb=encoder_memory,
)
def extract_patch_features(given: PatchFeaturesInput, context: ToolContext) -> PatchFeaturesResult:
    """Features at the coordinates of the earlier step."""
    from sage_nova.tools.weights import SPECS, patch_encoder

    job, folder = Job(given.job_dir, context), given.grid_folder()
    own = given.patch_feats_save_folder or f"features_{given.patch_encoder_name}"
    # said before the first slide is read, not after
    patch_encoder(given.model, given.weights, given.hub, given.device, 0.5, context)
    sizes: list[int] = []

    def make(slide: Slide) -> None:
        import h5py

        from mcp_servers.formats.hdf5 import read_coords
        from sage_nova.tools.wsi import square_features

        remedy = "run dataset_of_wsi_patch_coordinate_extraction_tool with the same grid first"
        held = job.need(f"{folder}/patches/{slide.name}_patches.h5", remedy)
        corners, attributes = read_coords(held)
        if not len(corners):
            raise InputError(f"{slide.path}: no patch has enough tissue; nothing to encode")
        side = int(attributes["patch_size_level0"])
        features = square_features(slide, corners, side, given, context)
        sizes.append(features.shape[1])
        name = job.out(f"{folder}/{own}/{slide.name}.h5")
        with context.writing(name) as path, h5py.File(path, "w") as file:
            file.create_dataset("features", data=features).attrs["encoder"] = given.model
            file.create_dataset("coords", data=corners).attrs.update(attributes)

    done = over(given, context, job, f"{folder}/{own}/NAME.h5", make)
    config, log = _config(job, context, f"{folder}/_config_{own}", given, done)
    return PatchFeaturesResult(
        **done.model_dump(),
        patch_features_dir=job.out(f"{folder}/{own}"),
        patch_encoder_name=given.patch_encoder_name,
        embedding_dim=sizes[0] if sizes else None,
        license=SPECS[given.model].license,
        config_file=config,
        log_file=log,
    )


class SlideFeaturesInput(GridOf):
    """Which slide encoder, over which features."""

    slide_encoder_name: SlideEncoder = Field(
        default="titan", description="mean needs no weights, and is used only if named"
    )
    patch_encoder_name: PatchEncoder = "conch_v15"
    patch_feats_save_folder: str | None = Field(default=None, max_length=200)
    slide_feats_save_folder: str | None = Field(default=None, max_length=200)
    weights: InputPath | None = Field(default=None, description="ONNX or TorchScript file")
    hub: str | None = Field(default=None, max_length=200, description="OWNER/NAME in hub's cache")


class SlideFeaturesResult(Done):
    """Where the vectors are."""

    slide_features_dir: str
    slide_features_key_in_h5: str = "features"
    slide_encoder_name: str
    embedding_dim: int | None
    config_file: OutputName
    log_file: OutputName


@nova_tool(
    "dataset_of_wsi_slide_features_extraction_tool",
    version="1.0.0",
    summary="Extract slide-level features from patch features for a dataset of WSIs using slide "
    "encoders (the user's TITAN, PRISM, MADELEINE, GigaPath graph; or mean): "
    "GRID/slide_features_ENCODER/NAME.h5, dataset features (d,).",
    resources=Resources(memory_mb=4096, seconds_per_item=5.0),
)
def extract_slide_features(given: SlideFeaturesInput, context: ToolContext) -> SlideFeaturesResult:
    """A vector per slide."""
    job, folder = Job(given.job_dir, context), given.grid_folder()
    source = given.patch_feats_save_folder or f"features_{given.patch_encoder_name}"
    own = given.slide_feats_save_folder or f"slide_features_{given.slide_encoder_name}"
    sizes: list[int] = []

    def make(slide: Slide) -> None:
        import h5py

        from mcp_servers.formats.hdf5 import read_features

        remedy = "run dataset_of_wsi_patch_features_extraction_tool with the same grid first"
        features, coords, has = read_features(
            job.need(f"{folder}/{source}/{slide.name}.h5", remedy)
        )
        if coords is None:
            raise InputError(f"{folder}/{source}/{slide.name}.h5: has no coords")
        side = int(has.get("patch_size_level0", given.patch_size))
        name = given.slide_encoder_name
        vector = encode_slide(name, features, coords, side, given.weights, given.hub, context)
        sizes.append(len(vector))
        target = job.out(f"{folder}/{own}/{slide.name}.h5")
        with context.writing(target) as path, h5py.File(path, "w") as file:
            file.create_dataset("features", data=vector).attrs["encoder"] = name

    done = over(given, context, job, f"{folder}/{own}/NAME.h5", make)
    config, log = _config(job, context, f"{folder}/_config_{own}", given, done)
    return SlideFeaturesResult(
        **done.model_dump(),
        slide_features_dir=job.out(f"{folder}/{own}"),
        slide_encoder_name=given.slide_encoder_name,
        embedding_dim=sizes[0] if sizes else None,
        config_file=config,
        log_file=log,
    )


class HeatmapInput(GridOf):
    """Which scores."""

    scores_path: InputPath = Field(description="Folder of NAME.h5 with the scores of each patch")
    scores_key: str = Field(default="attention_scores", max_length=100)
    output_dir: str = Field(default="heatmaps", max_length=500, description="Below the output")
    normalize: bool = Field(default=True, description="Scores to ranks in (0, 1], ties averaged")
    num_top_patches_to_save: int = Field(default=10, ge=1, le=500)


class SlideHeat(BaseModel):
    """One slide's picture and best patches."""

    heatmap: OutputName
    topk_patches_dir: str
    topk_patches: list[OutputName] = Field(description="From the lowest of them to the highest")
    topk_coords: list[tuple[int, int]] = Field(description="Level-0 corners, same order")
    topk_scores: list[float]


class HeatmapResult(Done):
    """Per slide, picture and patches."""

    heatmaps_save_paths: dict[str, SlideHeat]


@nova_tool(
    "dataset_of_wsi_create_score_heatmap_tool",
    version="1.0.0",
    summary="Create score heatmaps overlaid on WSIs for visualization and analysis, and save the "
    "patches with the highest scores at level 0 (top_INDEX_score_SCORE.png, higher is higher).",
    resources=Resources(memory_mb=1024, seconds_per_item=2.0),
)
def create_heatmaps(given: HeatmapInput, context: ToolContext) -> HeatmapResult:
    """Scores over each slide that has them."""
    import numpy as np
    from scipy.stats import rankdata

    job, folder = Job(given.job_dir, context), given.grid_folder()
    scores_folder = context.input(given.scores_path, "folder")
    saved: dict[str, SlideHeat] = {}
    names = [path.stem for path in chosen(given, context)]
    absent = [name for name in names if not (scores_folder / f"{name}.h5").exists()]
    if absent == names:
        raise InputError(f"{given.scores_path}: has no scores of the slides, e.g. {names[0]}.h5")

    def make(slide: Slide) -> None:
        from mcp_servers.formats.hdf5 import dataset, open_hdf5, read_coords
        from mcp_servers.formats.images import write_png

        remedy = "run dataset_of_wsi_patch_coordinate_extraction_tool with the same grid first"
        held = job.need(f"{folder}/patches/{slide.name}_patches.h5", remedy)
        corners, attributes = read_coords(held)
        file = context.input(scores_folder / f"{slide.name}.h5", "file")
        with open_hdf5(file) as stored:
            found = dataset(stored, given.scores_key, file)
            scores = np.asarray(found[()], dtype=np.float64).ravel()
        if len(scores) != len(corners):
            raise InputError(f"{file}: {len(scores)} scores for {len(corners)} patches")
        if not np.isfinite(scores).all():
            raise InputError(f"{file}: {given.scores_key} holds values that are no numbers")
        shown = rankdata(scores) / len(scores) if given.normalize else scores
        side = int(attributes["patch_size_level0"])
        base = f"{given.output_dir}/{slide.name}"
        with context.writing(f"{base}/heatmap.png") as path:
            write_png(path, heat_picture(slide, corners, shown, side))
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
    done = over(given.model_copy(update=less), context, job, "NAME", make)
    done.warnings += [f"{name}: has no scores" for name in absent]
    return HeatmapResult(**done.model_dump(), heatmaps_save_paths=saved)


def heat_picture(slide: Slide, corners: Any, scores: Any, side: int) -> Any:
    """Scores of squares drawn over a slide, with scale bar and range.

    Parameters
    ----------
    slide : the slide
    corners : (n, 2) upper left, level-0 pixels
    scores : (n,)
    side : of the squares, level-0 pixels
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
