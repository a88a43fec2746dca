"""Tool for tumor from outlines or a model: mask, outlines and overlay."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.formats.geojson import read_polygons
from mcp_servers.formats.images import blend_mask
from mcp_servers.lazy import cv2
from mcp_servers.pathology.common import (
    SUITE,
    Device,
    Method,
    SlideInput,
    SlideResult,
    find_own,
    of_slide,
    open_slide,
    save_geojson,
    save_png,
)
from mcp_servers.pathology.drawing import VERMILLION, ramp_of, save_overlay
from mcp_servers.pathology.surveying import Surveyed, survey_slide, write_map
from mcp_servers.pathology.tissue import outline_areas
from mcp_servers.slides.arrays import F32, AnyArray, BoolArray
from mcp_servers.slides.geometry import Polygon, mask_polygons, rasterize
from mcp_servers.slides.slide import Slide
from mcp_servers.spec import InputPath, OutputName, Resources, Validity, tool
from sage.core.errors import InputError
from sage.core.plugins import load_first
from sage.core.printable import quote_text

TumorSourceName = Literal["none", "learned", "outlines"]
TUMOR = frozenset(("tumor", "tumour", "carcinoma", "cancer", "neoplasm", "malignant"))
"""Class names that mean tumor, in every tool that identifies a class by name."""
NEEDS_TUMOR = (
    "needs tumor: give tumor_regions (a pathologist's outlines as GeoJSON) or model (of "
    "patch_train); without either, nothing that rests on the tumor has a value"
)


class TumorModel(SlideInput):
    """A slide and, optionally, a trained model that finds its tumor."""

    model: InputPath | None = Field(default=None, description="Model of patch_train")
    weights: InputPath | None = Field(
        default=None,
        description="Folder of the encoder's weights, if the model's encoder needs any",
    )
    device: Device = "auto"


class TumorSource(TumorModel):
    """A slide, and the source of its tumor outlines."""

    tumor_regions: InputPath | None = Field(
        default=None,
        description="GeoJSON of tumor outlines, or a folder with a file per slide (NAME.geojson): "
        "those of class Tumor, Carcinoma ..., or all if none has a class; without these or a "
        "model, what rests on the tumor has no value",
    )


class TumorInput(TumorSource):
    """Source of the tumor, and options for a model."""

    threshold: float = Field(
        default=0.5, ge=0, le=1, description="Threshold on the model's probability"
    )
    min_area_um2: float = Field(
        default=20_000.0, ge=0, description="Drop smaller regions found by a model"
    )


class TumorResult(SlideResult):
    """Tumor area and output files."""

    tumor_source: TumorSourceName = Field(description="Method by which the tumor was detected")
    tumor_mm2: float
    tissue_mm2: float
    tumor_fraction: float = Field(description="Share of the tissue, 0 to 1")
    regions: int
    threshold: float | None = Field(description="None for outlines")
    mask: OutputName = Field(description="PNG, 255 where there is tumor, one pixel per cell")
    mask_mpp: float
    score: OutputName | None = Field(
        description="PNG of the colored probability; None for outlines"
    )
    geojson: OutputName
    overlay: OutputName


TUMOR_VALIDITY = Validity(
    stain="H&E",
    mpp=(0.2, 1.3),
    organ="that of the outlines, or of the model's training slides",
    training_data="outlines: none; with model=: the slides named in the model's card",
    tcga_overlap="that of the model",
    known_failures=(
        "without outlines or a model there is no value: SAGE ships no tumor detector",
        "a model is only as good as its outlines: see its held-out scores in the result",
    ),
    accuracy="outlines are taken as given; a model's held-out scores are in its card",
)


@dataclass(frozen=True)
class TumorArea:
    """Tumor mask on a survey's grid, and its source."""

    mask: BoolArray
    warnings: tuple[str, ...]
    source: TumorSourceName
    probability: F32 | None = None

    @property
    def method(self) -> Method:
        """Detection method: "learned" if a model found the tumor, otherwise "classical"."""
        return "learned" if self.source == "learned" else "classical"


def find_outlines(slide: Slide, given: TumorSource, context: ToolContext) -> Path | None:
    """Find the file with a slide's tumor outlines; None if there is none."""
    if given.tumor_regions is None:
        return None
    return find_own(slide, context.input(given.tumor_regions), ".geojson")


def tumor_area(
    slide: Slide,
    surveyed: Surveyed,
    context: ToolContext,
    given: TumorSource,
    threshold: float = 0.5,
    min_area_um2: float = 20_000.0,
) -> TumorArea:
    """Find the tumor from outlines or with a model; without either, it is unknown.

    The result's `source` names the method, or is "none", with an empty mask, if the tumor is
    unknown. Raises `InputError` if both outlines and a model are given, or if the classes of
    either do not include tumor.

    Parameters
    ----------
    given : outlines, or a model with its weights
    threshold : threshold on the model's probability
    min_area_um2 : minimum area of a region found by a model
    """
    survey = surveyed.survey
    if given.tumor_regions is not None and given.model is not None:
        raise InputError("tumor_regions and model cannot be combined")
    if given.model is not None:
        return predict_tumor(slide, surveyed, context, given, threshold, min_area_um2)
    path = find_outlines(slide, given, context)
    if path is None:
        return TumorArea(np.zeros(survey.shape, dtype=bool), (NEEDS_TUMOR,), "none")
    outlines, notes = tumor_outlines(path)
    mask = rasterize(outlines, surveyed.scale(slide), survey.shape) & survey.tissue
    if not mask.any():
        notes.append("the tumor outlines contain no tissue")
    return TumorArea(mask, tuple(notes), "outlines")


def need_tumor(slide: Slide, given: TumorSource, context: ToolContext) -> None:
    """Raise `InputError` if a tool that requires the tumor got neither outlines nor a model."""
    if given.model is None and find_outlines(slide, given, context) is None:
        raise InputError(f"{slide.path}: {NEEDS_TUMOR}")


def means_tumor(label: str) -> bool:
    """Check whether a class name means tumor and nothing else.

    Only exact names match, ignoring case and surrounding spaces, underscores and hyphens, and
    also QuPath's classes derived from them ("Tumor: Positive"). Other names that contain such
    a word do not: "non_tumor", "tumor stroma", "tumor-free", "peritumoral" and "tumor
    necrosis" all mean that the region is not tumor. The user must map any other name
    explicitly.
    """
    base = label.casefold().partition(":")[0]
    return base.strip(" \t\r\n_-") in TUMOR


def tumor_outlines(path: Path) -> tuple[list[Polygon], list[str]]:
    """Read the outlines whose class means tumor, or all if none has a class; return notes too.

    Raises `InputError` if there are classes but none means tumor.
    """
    outlines, notes = read_polygons(path)
    named = [outline for outline in outlines if means_tumor(outline.label)]
    others = sorted({outline.label for outline in outlines if not means_tumor(outline.label)})
    classes = ", ".join(quote_text(label) for label in others if label)
    if named:
        left = len(outlines) - len(named)
        words = classes or "without a class"
        notes += [f"outlines not used as tumor: {left} ({words})"] if left else []
        return named, notes
    if not classes:
        return outlines, notes
    raise InputError(
        f"{path}: no outline is labeled as tumor; the classes are {classes}. Name the tumor "
        f"class {', '.join(sorted(TUMOR))} (in any case), or provide only tumor outlines "
        "without a class"
    )


def predict_tumor(
    slide: Slide,
    surveyed: Surveyed,
    context: ToolContext,
    given: TumorModel,
    threshold: float,
    min_area_um2: float,
) -> TumorArea:
    """Predict the tumor with the requested model, which a plugin loads.

    The plugin registers a function under `sage.tumor`. It takes the first four arguments and
    returns the tumor probability on the survey's grid, with warnings.

    Raises `InputError` if there is no such plugin.
    """
    from mcp_servers.pathology.compute.tumor import clean_mask

    predict = load_first("sage.tumor")
    if predict is None:
        raise InputError("model= requires a plugin that registers under sage.tumor")
    probability, warnings = predict(slide, surveyed, context, given)
    tissue = surveyed.survey.tissue
    mask = clean_mask((probability > threshold) & tissue, min_area_um2) & tissue
    if not mask.any():
        warnings.append("the model found no tumor")
    return TumorArea(mask, tuple(warnings), "learned", probability)


def to_thumbnail(
    mask: BoolArray | F32, slide: Slide, surveyed: Surveyed, picture_width: int, height: int
) -> F32:
    """Resample a mask on the survey grid to the thumbnail's size."""
    k = surveyed.scale(slide) * picture_width / slide.width
    move = np.array([[k, 0, 0], [0, k, 0]], dtype=np.float64)
    values: AnyArray = mask.view(np.uint8) if mask.dtype == np.bool_ else mask
    out = cv2.warpAffine(values, move, (picture_width, height), flags=cv2.INTER_NEAREST)
    return np.asarray(out, dtype=np.float32)


@tool(
    "tumor",
    SUITE,
    "2.0.0",
    "Segment the tumor of a slide with a trained model, or from outlines: mask, area, outlines.",
    resources=Resources(cpu=2, memory_mb=1024, seconds_per_item=8.0),
    validity=TUMOR_VALIDITY,
    title="Tumor regions",
)
def tumor(given: TumorInput, context: ToolContext) -> TumorResult:
    """Find tumor on a slide."""
    slide = open_slide(given, context)
    need_tumor(slide, given, context)
    surveyed = survey_slide(slide, given, context)
    area = tumor_area(slide, surveyed, context, given, given.threshold, given.min_area_um2)
    context.progress(0.92, "files")
    start = f"{slide.name}.tumor"
    rows, columns = surveyed.inside(slide)
    mask = save_png(context, f"{start}.mask.png", area.mask[:rows, :columns])
    score, probability = None, area.probability
    if probability is not None:
        score = f"{start}.score.png"
        with context.writing(score) as path:
            ramp = ramp_of("tumor probability 0", "1")
            write_map(path, slide, surveyed, lambda part: probability[part], (0, 1), ramp)
    polygons = mask_polygons(area.mask, surveyed.scale(slide), simplify_px=0.7, label="Tumor")
    picture = slide.thumbnail(2048)
    shown = to_thumbnail(area.mask, slide, surveyed, picture.shape[1], picture.shape[0]) > 0
    legend = {"tumor": VERMILLION}
    picture = blend_mask(picture, shown, VERMILLION, 0.3)
    cell_mm2 = (surveyed.cell_um / 1000) ** 2
    tissue_cells = float(surveyed.survey.tissue.sum())
    return TumorResult(
        **of_slide(slide),
        method=area.method,
        tumor_source=area.source,
        warnings=[*surveyed.warnings, *area.warnings],
        tumor_mm2=float(area.mask.sum()) * cell_mm2,
        tissue_mm2=tissue_cells * cell_mm2,
        tumor_fraction=float(area.mask.sum()) / tissue_cells if tissue_cells else 0.0,
        regions=len(polygons),
        threshold=None if given.model is None else given.threshold,
        mask=mask,
        mask_mpp=surveyed.cell_um,
        score=score,
        geojson=save_geojson(context, f"{start}.geojson", outline_areas(slide, polygons)),
        overlay=save_overlay(context, slide, f"{start}.overlay.png", picture, legend),
    )
