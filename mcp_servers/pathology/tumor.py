"""Tool for tumor or tumor-like epithelium: mask, outlines and overlay."""

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

TumorSourceName = Literal["none", "classical", "learned", "outlines"]
TUMOR = frozenset(("tumor", "tumour", "carcinoma", "cancer", "neoplasm", "malignant"))
"""Class names that mean tumor, in every tool that identifies a class by name."""
NEEDS_TUMOR = (
    "needs tumor: give tumor_regions (a pathologist's outlines, or outlines of the tool tumor that "
    "you have checked) or model; without either, nothing that rests on the tumor has a value"
)
CLASSICAL_NOTE = (
    "tumor was detected by a classical method, as solid epithelium of large nuclei. It cannot "
    "separate tumor from normal epithelium; if that matters, provide a pathologist's outlines as "
    "tumor_regions"
)


class TumorModel(SlideInput):
    """A slide and, optionally, a trained model that finds its tumor."""

    model: InputPath | None = Field(default=None, description="Model of patch_train")
    weights: InputPath | None = Field(
        default=None,
        description="Folder of the encoder's weights, if the model's encoder needs any",
    )
    device: Device = "auto"


class TumorInput(TumorModel):
    """Options for tumor detection."""

    threshold: float | None = Field(
        default=None,
        ge=-0.5,
        le=1.6,
        description="Threshold on the score; default: automatic. With a model, a threshold on "
        "the probability; default: 0.5",
    )
    min_area_um2: float = Field(default=20_000.0, ge=0, description="Drop smaller regions")


class TumorResult(SlideResult):
    """Tumor area (tumor-like epithelium without a model) and output files."""

    tumor_mm2: float
    tissue_mm2: float
    tumor_fraction: float = Field(description="Share of the tissue, 0 to 1")
    regions: int
    threshold: float
    mask: OutputName = Field(description="PNG, 255 where tumor-like, one pixel per cell")
    mask_mpp: float
    score: OutputName = Field(description="PNG of the colored score")
    geojson: OutputName
    overlay: OutputName


TUMOR_VALIDITY = Validity(
    stain="H&E",
    mpp=(0.2, 1.3),
    organ="carcinomas; developed on urothelial-like simulated tissue and head and neck",
    training_data="classical: none, constants chosen on simulated slides and two scans; with "
    "model=: the slides named in the model's card",
    tcga_overlap="one TCGA slide was examined while the constants were chosen",
    known_failures=(
        "normal epithelium is called tumor-like",
        "single-cell and spindle-cell tumors are missed",
        "folds and dark tissue edges can be called tumor-like",
        "slides without any epithelium: Otsu's threshold still splits the tissue",
        "a model is only as good as its outlines: see its held-out scores in the result",
    ),
    accuracy=(
        "painted slides, 5 seeds at 0.5 µm/px: the mask contains 97% of tumor, 23% of stroma and "
        "4% of lymphocyte nuclei (0.25 µm/px, 2 seeds: 86%, 10%, 1%); real slides were only "
        "inspected, not scored: a frozen squamous carcinoma 72%, two fields of breast cancer 46% "
        "(nests, by eye about half) and 38% (ducts, by eye a fifth)"
    ),
)


@dataclass(frozen=True)
class TumorArea:
    """Tumor mask on a survey's grid, and its source."""

    mask: BoolArray
    threshold: float | None
    warnings: tuple[str, ...]
    source: TumorSourceName
    score: F32 | None = None

    @property
    def method(self) -> Method:
        """Detection method: "learned" if a model found the tumor, otherwise "classical"."""
        return "learned" if self.source == "learned" else "classical"


def tumor_area(
    slide: Slide,
    surveyed: Surveyed,
    context: ToolContext,
    given: TumorModel,
    regions: str | None = None,
) -> TumorArea:
    """Find the tumor from outlines or with a model; without either, it is unknown.

    The result's `source` names the method, or is "none", with an empty mask, if the tumor is
    unknown. Raises `InputError` if both outlines and a model are given, or if the classes of
    either do not include tumor.

    Parameters
    ----------
    given : a model, with its weights
    regions : GeoJSON with tumor outlines, under the roots
    """
    survey = surveyed.survey
    if regions is not None:
        if given.model is not None:
            raise InputError("tumor_regions and model cannot be combined")
        outlines, notes = tumor_outlines(context.input(regions, "file"))
        drawn = rasterize(outlines, surveyed.scale(slide), survey.shape)
        mask = drawn & survey.tissue
        if not mask.any():
            notes.append("the tumor outlines contain no tissue")
        return TumorArea(mask, None, tuple(notes), "outlines")
    if given.model is not None:
        return predict_tumor(slide, surveyed, context, given, None, 20_000.0)
    return TumorArea(np.zeros(survey.shape, dtype=bool), None, (NEEDS_TUMOR,), "none")


def need_tumor(slide: Slide, given: TumorSource) -> None:
    """Raise `InputError` if a tool that requires the tumor got neither outlines nor a model."""
    if given.model is None and given.tumor_regions is None:
        raise InputError(f"{slide.path}: {NEEDS_TUMOR}")


def resemble_tumor(surveyed: Surveyed, threshold: float | None, min_area_um2: float) -> TumorArea:
    """Find solid epithelium with large nuclei, which may be tumor, with notes on limitations."""
    from mcp_servers.pathology.compute.tumor import PALE, tumor_mask

    mask, used = tumor_mask(surveyed.survey, threshold=threshold, min_area_um2=min_area_um2)
    warnings = [CLASSICAL_NOTE]
    if threshold is None and used < PALE:
        warnings.append("pale nuclei: the tumor mask depends mostly on how solid the tissue is")
    if not mask.any():
        warnings.append("no tumor-like region was found")
    return TumorArea(mask, used, tuple(warnings), "classical")


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
    threshold: float | None,
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
    used = 0.5 if threshold is None else threshold
    mask = clean_mask((probability > used) & tissue, min_area_um2) & tissue
    if not mask.any():
        warnings.append("the model found no tumor")
    return TumorArea(mask, used, tuple(warnings), "learned", probability)


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
    "1.1.3",
    "Segment tumor on a slide with a trained model, or else tumor-like epithelium: mask, area.",
    resources=Resources(cpu=2, memory_mb=1024, seconds_per_item=8.0),
    validity=TUMOR_VALIDITY,
    title="Tumor regions",
)
def tumor(given: TumorInput, context: ToolContext) -> TumorResult:
    """Find tumor on a slide."""
    from mcp_servers.pathology.compute.tumor import tumor_score

    slide = open_slide(given, context)
    surveyed = survey_slide(slide, given, context)
    limits = given.threshold, given.min_area_um2
    if given.model is None:
        area = resemble_tumor(surveyed, *limits)
    else:
        area = predict_tumor(slide, surveyed, context, given, *limits)
    context.progress(0.92, "files")
    start = f"{slide.name}.tumor"
    rows, columns = surveyed.inside(slide)
    mask = save_png(context, f"{start}.mask.png", area.mask[:rows, :columns])
    low, high = (0.0, 1.0) if area.source == "learned" else (-0.2, 1.3)

    def score(rows: slice) -> F32:
        return tumor_score(surveyed.survey, rows) if area.score is None else area.score[rows]

    word = "probability" if area.source == "learned" else "score"
    with context.writing(f"{start}.score.png") as path:
        ramp = ramp_of(f"tumor {word} {low:g}", f"{high:g}")
        write_map(path, slide, surveyed, score, (low, high), ramp)
    polygons = mask_polygons(area.mask, surveyed.scale(slide), simplify_px=0.7, label="Tumor")
    picture = slide.thumbnail(2048)
    shown = to_thumbnail(area.mask, slide, surveyed, picture.shape[1], picture.shape[0]) > 0
    legend = {"tumor" if area.source == "learned" else "tumor-like": VERMILLION}
    picture = blend_mask(picture, shown, VERMILLION, 0.3)
    cell_mm2 = (surveyed.cell_um / 1000) ** 2
    tissue_cells = float(surveyed.survey.tissue.sum())
    return TumorResult(
        **of_slide(slide),
        method=area.method,
        warnings=[*surveyed.warnings, *area.warnings],
        tumor_mm2=float(area.mask.sum()) * cell_mm2,
        tissue_mm2=tissue_cells * cell_mm2,
        tumor_fraction=float(area.mask.sum()) / tissue_cells if tissue_cells else 0.0,
        regions=len(polygons),
        threshold=float(area.threshold or 0.0),
        mask=mask,
        mask_mpp=surveyed.cell_um,
        score=f"{start}.score.png",
        geojson=save_geojson(context, f"{start}.geojson", outline_areas(slide, polygons)),
        overlay=save_overlay(context, slide, f"{start}.overlay.png", picture, legend),
    )


class TumorSource(TumorModel):
    """A slide, and the source of its tumor outlines."""

    tumor_regions: InputPath | None = Field(
        default=None,
        description="GeoJSON of tumor outlines: those of class Tumor, Carcinoma ..., or all if "
        "none has a class; without these or a model, what rests on the tumor has no value",
    )
