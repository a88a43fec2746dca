"""Immunohistochemistry (hematoxylin and DAB): positive nuclei, H-score, and positive area."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SUITE, SlideInput, SlideResult, of_slide, open_slide
from mcp_servers.pathology.nuclei import Search
from mcp_servers.spec import InputPath, OutputName, Resources, Validity, tool
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.formats.spool import Spool
    from mcp_servers.slides.arrays import BoolArray
    from mcp_servers.slides.view import View


class IhcInput(SlideInput):
    """Region to measure, and density thresholds for positive staining."""

    regions: InputPath | None = Field(
        default=None, description="GeoJSON with regions of interest; default: all tissue"
    )
    search: Search = Field(
        default="auto",
        description="tissue, everything, or auto: everything if the area is below 1 mm²",
    )
    weak: float = Field(default=0.20, gt=0, description="Minimum mean DAB density of a 1+ nucleus")
    moderate: float = Field(
        default=0.40, gt=0, description="Minimum mean DAB density of a 2+ nucleus"
    )
    strong: float = Field(
        default=0.60, gt=0, description="Minimum mean DAB density of a 3+ nucleus"
    )


class IhcResult(SlideResult):
    """Positivity by nuclei and by area."""

    nuclei: int
    positive: int
    percent_positive: float | None = Field(description="Percentage of positive nuclei")
    h_score: float | None = Field(description="%1+ plus 2 x %2+ plus 3 x %3+, 0 to 300")
    percent_1: float | None
    percent_2: float | None
    percent_3: float | None
    positive_area_fraction: float = Field(
        description="Share of the tissue area that is positive, 0 to 1"
    )
    table: OutputName
    overlay: OutputName


@tool(
    "ihc",
    SUITE,
    "1.1.4",
    "Positive nuclei, H-score and positive area of an H-DAB immunohistochemistry slide.",
    resources=Resources(cpu=2, memory_mb=1024, seconds_per_item=25.0),
    validity=Validity(
        stain="hematoxylin with DAB; nuclear markers for the nuclear counts",
        mpp=(0.15, 1.05),
        organ="any",
        training_data="none; thresholds were chosen on the two labeled fields described under "
        "accuracy",
        tcga_overlap="none",
        known_failures=(
            "membrane and cytoplasmic markers: use the area, not the nuclei",
            "with a pale counterstain, negative nuclei are missed, which raises the percentage",
            "melanin and hemosiderin are counted as DAB; other chromogens are not separated",
        ),
        accuracy=(
            "two Ki67 fields compared with DeepLIIF's segmentation: positive 8.8% against 8.2% "
            "(bladder) and 16.1% against 18.0% (lung); both fields were used to choose the "
            "constants"
        ),
    ),
    title="Immunohistochemistry: positive cells",
)
def ihc(given: IhcInput, context: ToolContext) -> IhcResult:
    """Measure DAB positivity on a slide."""
    import numpy as np

    from mcp_servers.formats.images import write_png
    from mcp_servers.formats.spool import Spool
    from mcp_servers.formats.tables import write_parts
    from mcp_servers.pathology.compute.nuclei import COLUMNS, WORKING_MPP
    from mcp_servers.pathology.compute.tissue import background_color
    from mcp_servers.pathology.drawing import ORANGE, SKY, VERMILLION, YELLOW, captioned, dots
    from mcp_servers.pathology.nuclei import COARSEST_MPP, search_area
    from sage_stains.positivity import h_score

    if not given.weak < given.moderate < given.strong:
        raise InputError(
            "weak, moderate and strong must be in increasing order, e.g. 0.2, 0.4, 0.6"
        )
    slide = open_slide(given, context)
    base = slide.need_mpp()
    if base > COARSEST_MPP:
        raise InputError(
            f"{slide.path}: nuclei cannot be separated at {base:g} µm per pixel; use a scan at "
            f"{COARSEST_MPP:g} µm per pixel or finer"
        )
    mask, scale, warnings = search_area(slide, given.regions, context, given.search)
    view = slide.view(max(WORKING_MPP, base))
    white = background_color(slide.thumbnail(1024))
    names = {k: f"{slide.name}.ihc.{k}" for k in ("csv", "overlay.png")}
    levels = [given.weak, given.moderate, given.strong]
    legend = {"negative": SKY, "1+": YELLOW, "2+": ORANGE, "3+": VERMILLION}
    with Spool(context.roots.output, len(COLUMNS)) as spool:
        area, brown, outside = _nuclei(spool, view, mask, scale, white, given.weak, context)
        grades = np.digitize(spool.column(len(COLUMNS) - 1), levels).astype(np.uint8)
        with context.writing(names["csv"]) as path:
            write_parts(
                path,
                (
                    {n: rows[:, i] for i, n in enumerate(COLUMNS[:-1])}
                    | {"dab_mean": rows[:, -1], "grade": np.digitize(rows[:, -1], levels)}
                    for rows in spool.chunks()
                ),
            )
        picture = slide.thumbnail(3000).copy()
        ratio = slide.width / picture.shape[1]
        um = base * ratio
        for grade, color in enumerate(legend.values()):
            for rows in spool.chunks():
                own = np.digitize(rows[:, -1], levels) == grade
                dots(picture, rows[own, :2], color, ratio, um)
    with context.writing(names["overlay.png"]) as path:
        write_png(path, captioned(picture, um, legend))
    count = len(grades)
    if count < 50:
        warnings.append(f"only {count} nuclei: the percentages are uncertain")
    if brown and brown / area > 0.05 and outside / brown > 0.6:
        warnings.append(
            f"{outside / brown:.0%} of the positive area is outside nuclei. For a membrane or "
            "cytoplasmic marker, use the area, not the nuclei"
        )
    if area and brown / area > 0.9:
        warnings.append("nearly all tissue is positive; check that this is an H-DAB stain")

    def percent(of: int) -> float | None:
        return 100.0 * of / count if count else None

    return IhcResult(
        **of_slide(slide),
        warnings=warnings,
        nuclei=count,
        positive=int((grades > 0).sum()),
        percent_positive=percent(int((grades > 0).sum())),
        h_score=h_score(grades) if count else None,
        percent_1=percent(int((grades == 1).sum())),
        percent_2=percent(int((grades == 2).sum())),
        percent_3=percent(int((grades == 3).sum())),
        positive_area_fraction=brown / area if area else 0.0,
        table=names["csv"],
        overlay=names["overlay.png"],
    )


def _nuclei(
    table: Spool,
    view: View,
    mask: BoolArray,
    mask_scale: float,
    white: tuple[int, int, int],
    weak: float,
    context: ToolContext,
) -> tuple[int, int, int]:
    """Add all nuclei to a table, with x and y in level-0 pixels.

    Returns the number of tissue pixels, of positive pixels, and of positive pixels outside
    nuclei.
    """
    from mcp_servers.pathology.walk import walk
    from sage_stains.positivity import measure

    area, brown, outside = 0, 0, 0
    for piece in walk(view, mask, mask_scale, context, message="nuclei", span=(0.05, 0.9)):
        found = measure(piece.image, view.mpp, background=white, within=piece.tissue)
        rows = found.nuclei.table
        rows = rows[piece.owns(rows[:, 0], rows[:, 1])]
        rows[:, 0] = (rows[:, 0] + piece.x + 0.5) * view.scale
        rows[:, 1] = (rows[:, 1] + piece.y + 0.5) * view.scale
        table.append(rows)
        top, bottom, left, right = piece.inner
        tissue = piece.tissue[top:bottom, left:right]
        area += int(tissue.sum())
        positive = (found.dab[top:bottom, left:right] > weak) & tissue
        brown += int(positive.sum())
        outside += int((positive & (found.nuclei.labels[top:bottom, left:right] == 0)).sum())
    return area, brown, outside
