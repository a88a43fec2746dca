"""Tool for TLS-like lymphoid aggregates and their germinal centers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.formats.geojson import feature
from mcp_servers.formats.images import draw_polygons
from mcp_servers.formats.tables import write_rows
from mcp_servers.pathology.common import (
    SUITE,
    Call,
    SlideResult,
    of_slide,
    open_slide,
    save_geojson,
)
from mcp_servers.pathology.compute.cell_types import STRENGTHS
from mcp_servers.pathology.compute.germinal import COARSEST_MPP
from mcp_servers.pathology.compute.lymphoid import FOLD_BACKGROUND, SURE_REGULAR, Aggregates
from mcp_servers.pathology.drawing import (
    BLUE,
    GRAY,
    GREEN,
    VERMILLION,
    YELLOW,
    Color,
    draw_outlines,
    line_width,
    save_overlay,
)
from mcp_servers.pathology.surveying import Surveyed, survey_slide
from mcp_servers.pathology.tumor import TumorArea, TumorSource, TumorSourceName, tumor_area
from mcp_servers.slides.arrays import U8, BoolArray
from mcp_servers.slides.geometry import Polygon, mask_polygons
from mcp_servers.slides.slide import Slide
from mcp_servers.spec import OutputName, Resources, Validity, tool

Place = Literal["intratumoral", "peritumoral", "distant", "unknown"]
LISTED = 50
GERMINAL_CENTER = "Germinal center"
"""Class name of germinal centers in the outlines."""
DOUBTFUL_CENTER = "doubtful germinal center"
"""Name prefix for pale cores that are not counted as germinal centers."""


class TlsInput(TumorSource):
    """Criteria for detecting aggregates."""

    at_mpp: float = Field(
        default=1.0,
        ge=0.2,
        le=1.3,
        description="Working resolution, in µm per pixel; 1.0 is 10x, 0.5 is 20x",
    )
    min_area_um2: float = Field(default=10_000.0, ge=0, description="Minimum area")
    min_cells: int = Field(default=50, ge=1, description="Minimum number of lymphocyte-like nuclei")
    min_width_um: float = Field(default=70.0, ge=0, description="Minimum inscribed diameter")
    min_regular: float = Field(
        default=0.40,
        ge=0,
        le=1,
        description="Minimum share of nuclei with a round, smooth outline; aggregates below "
        "this, or that look like a fold, are listed as rejected and not counted. 0 counts "
        "everything",
    )
    band_um: float = Field(
        default=500.0, gt=0, description="Width of the peritumoral band around the tumor"
    )


class Aggregate(BaseModel):
    """A lymphoid aggregate; x, y is its center in level-0 pixels."""

    x: float
    y: float
    area_um2: float
    lymphocytes: int
    peak_per_mm2: float
    call: Call = Field(
        description="Class; doubtful aggregates are counted, rejected ones only listed"
    )
    reason: str = Field(description="Reason if it is doubtful or rejected; otherwise empty")
    regular_nuclei: float = Field(
        description="Share of nuclei with a round, smooth outline, 0 to 1"
    )
    contrast: float = Field(description="Red density of nuclei divided by that between them")
    background: float = Field(description="Density between nuclei divided by the slide's median")
    tumor_distance_um: float | None = Field(
        description="Distance to the tumor's border; negative inside"
    )
    location: Place
    germinal_centers: int | None = Field(
        description="Number of germinal centers within it; None if they were not searched for"
    )
    doubtful_germinal_centers: int = Field(
        description="Pale cores that are not counted as germinal centers"
    )


class TlsResult(SlideResult):
    """Aggregates on a slide; `aggregates` lists the 50 largest counted ones, the table all."""

    tumor_source: TumorSourceName = Field(description="Method by which the tumor was detected")
    count: int = Field(description="Lymphoid and doubtful ones; all sums are over these")
    doubtful: int = Field(description="Counted ones that look partly like debris or epithelium")
    rejected: int = Field(description="Not counted: necrosis, crowded epithelium, folds")
    area_mm2: float
    tissue_mm2: float
    per_mm2: float | None = Field(description="Aggregates per mm² of tissue")
    area_fraction: float | None = Field(description="Share of the tissue, 0 to 1")
    intratumoral: int
    peritumoral: int
    distant: int
    unknown: int = Field(description="Location unknown, because the tumor is not known")
    germinal_centers: int | None = Field(
        description="Pale cores of larger nuclei within the counted aggregates; None, with a "
        "warning, if they were not searched for"
    )
    doubtful_germinal_centers: int = Field(
        description="Pale cores that are not counted as germinal centers"
    )
    germinal_center_mm2: float | None
    aggregates: list[Aggregate]
    table: OutputName
    geojson: OutputName
    overlay: OutputName


TLS_VALIDITY = Validity(
    stain="H&E",
    mpp=(0.2, 1.3),
    organ="any solid tumor; not lymph nodes or tonsil",
    training_data="constants: simulated slides and two scans; types: see nuclei",
    tcga_overlap="one TCGA slide was examined while the constants were chosen",
    known_failures=(
        "an aggregate is not yet a TLS: high endothelial venules are not detected",
        "germinal centers were scored only on painted slides, as no labeled image was "
        "available; pale stains and blur hide them, and those below 70 µm or without a mantle "
        "are missed; a packed nest of pale tumor cells in a ring of lymphocytes, or a "
        "granuloma, can be mistaken for one unless the tumor is outlined",
        "nests of small basaloid epithelium and necrosis can be included, mostly as doubtful: "
        "see the column call; blur by 1 µm or more makes debris and lymphocytes look alike",
        "dense infiltrate on thick, blurred or very pink slides is called doubtful or missed",
        "plasma cells and large activated lymphocytes are not counted as lymphocyte-like",
    ),
    accuracy=(
        "painted slides, 7 fields: every aggregate of 10,000 µm² or more found (26 of 26), none "
        "false, area off by 2 to 3% on average (3 of 5 seeds held out). Germinal centers of 12 "
        "other painted slides: 22 of 24 found, 2 doubtful, none false; with half the dye 0, "
        "blurred by 1.5 µm 5. All real images were known when constants were chosen: one TLS "
        "tile is one aggregate; of four colon fields around one luminal abscess none is counted "
        "or listed (three were listed before types were used); 18 lung patches with tumor and "
        "necrosis, at two resolutions: none counted; one frozen section: none (two doubtful "
        "infiltrates before)"
    ),
)


@tool(
    "tls",
    SUITE,
    "1.5.0",
    "Detect TLS-like lymphoid aggregates and their germinal centers: count, area, density per "
    "mm², and location relative to the tumor.",
    resources=Resources(cpu=2, memory_mb=1024, seconds_per_item=8.0),
    validity=TLS_VALIDITY,
    title="Tertiary lymphoid structures",
)
def tls(given: TlsInput, context: ToolContext) -> TlsResult:
    """Detect lymphoid aggregates on a slide."""
    from mcp_servers.pathology.compute.lymphoid import aggregates

    slide = open_slide(given, context)
    surveyed = survey_slide(slide, given, context, at_mpp=given.at_mpp)
    found = aggregates(
        surveyed.survey,
        min_area_um2=given.min_area_um2,
        min_cells=given.min_cells,
        min_width_um=given.min_width_um,
        min_regular=given.min_regular,
    )
    area = tumor_area(slide, surveyed, context, given)
    why_not = not_sought(surveyed)
    centers = None if why_not else outlined_centers(found, area, surveyed.scale(slide))
    drawn = locate_aggregates(found, centers, area.mask, surveyed.scale(slide), given.band_um)
    context.progress(0.95, "files")
    start = f"{slide.name}.tls"
    with context.writing(f"{start}.csv") as path:
        table = [{"slide": slide.name, **row.model_dump()} for row, _ in drawn]
        empty = dict.fromkeys(["slide", *Aggregate.model_fields])
        write_rows(path, table) if table else path.write_text(",".join(empty) + "\n")
    picture, legend = draw_aggregates(slide, drawn, centers or [], area, surveyed.scale(slide))
    tissue = surveyed.survey.area_mm2()
    rows = [row for row, _ in drawn if row.call != "rejected"]
    rejected = len(drawn) - len(rows)
    doubtful = sum(row.call == "doubtful" for row in rows)
    total = sum(row.area_um2 for row in rows) / 1e6
    sure = [center for center in centers or () if center.sure]
    counts = {p: sum(row.location == p for row in rows) for p in get_args(Place)}
    return TlsResult(
        **of_slide(slide),
        method=area.method,
        tumor_source=area.source,
        warnings=[*surveyed.warnings, *area.warnings, *notes(doubtful, rejected), *why_not],
        count=len(rows),
        doubtful=doubtful,
        rejected=rejected,
        area_mm2=total,
        tissue_mm2=tissue,
        per_mm2=len(rows) / tissue if tissue else None,
        area_fraction=total / tissue if tissue else None,
        **counts,
        germinal_centers=None if why_not else len(sure),
        doubtful_germinal_centers=len(centers or ()) - len(sure),
        germinal_center_mm2=None if why_not else sum(c.area_um2 for c in sure) / 1e6,
        aggregates=rows[:LISTED],
        table=f"{start}.csv",
        geojson=save_geojson(context, f"{start}.geojson", outline_all(drawn, centers or [])),
        overlay=save_overlay(context, slide, f"{start}.overlay.png", picture, legend),
    )


class Center(NamedTuple):
    """A certain or doubtful germinal center with its outline in level-0 pixels."""

    aggregate: int
    sure: bool
    reason: str
    area_um2: float
    outline: Polygon


def not_sought(surveyed: Surveyed) -> list[str]:
    """List the reasons why germinal centers were not searched for; empty if they were."""
    from mcp_servers.measures.compute import LEAST_TISSUE_MM2

    why = []
    if surveyed.at_mpp > COARSEST_MPP:
        why.append(f"{surveyed.at_mpp:g} µm per pixel are too coarse")
    if not STRENGTHS[0] <= surveyed.survey.strength <= STRENGTHS[1]:
        why.append("the stain is paler or darker than any tested")
    if surveyed.survey.area_mm2() < LEAST_TISSUE_MM2:
        why.append(f"less than {LEAST_TISSUE_MM2:g} mm² of tissue")
    return [f"germinal centers were not searched for: {reason}" for reason in why]


def outlined_centers(found: Aggregates, tumor: TumorArea, scale: float) -> list[Center]:
    """Return the germinal-center cores of counted aggregates.

    Cores inside a tumor that was outlined or found by a model are doubtful. `scale` is
    level-0 pixels per grid cell.
    """
    centers: list[Center] = []
    for region, (call, own) in enumerate(zip(found.calls, found.cores, strict=True)):
        for core in own if call != "rejected" else ():
            reason = core.reason
            if tumor.mask[core.box][core.cells].mean() > 0.5:
                reason = "is within the tumor"
            corner = (core.box[1].start * scale, core.box[0].start * scale)
            outlines = mask_polygons(
                core.cells, scale, origin=corner, simplify_px=0.5, label=GERMINAL_CENTER
            )
            outline = max(outlines, key=lambda p: p.area)
            centers.append(Center(region, not reason, reason, core.area_um2, outline))
    return centers


def locate_aggregates(
    found: Aggregates, centers: list[Center] | None, tumor: BoolArray, scale: float, band_um: float
) -> list[tuple[Aggregate, Polygon]]:
    """Outline each aggregate: counted aggregates by size, then rejected ones.

    `centers` is None if germinal centers were not searched for, and `scale` is level-0 pixels
    per grid cell.
    """
    from mcp_servers.pathology.compute.distance import Border

    pieces, labels = found.regions.pieces(), range(1, found.regions.count + 1)
    places = [(pieces.box(label), pieces.cells(label)) for label in labels]
    drawn: list[tuple[Aggregate, Polygon]] = []
    for number, ((box, inside), far_um, measured, called) in enumerate(
        zip(places, Border(tumor).measure_places(places), found.table, found.calls, strict=True)
    ):
        own = [center for center in centers or () if center.aggregate == number]
        sure = sum(center.sure for center in own)
        corner = (box[1].start * scale, box[0].start * scale)
        outlines = mask_polygons(
            inside, scale, origin=corner, simplify_px=0.5, label="Lymphoid aggregate"
        )
        outline = max(outlines, key=lambda p: p.area)
        x, y = outline.centroid
        # median distance: half of the aggregate's cells are closer to the tumor
        far = float(np.median(far_um))
        row = Aggregate(
            x=round(x, 1),
            y=round(y, 1),
            area_um2=float(measured[0]),
            lymphocytes=int(measured[1]),
            peak_per_mm2=round(float(measured[2]), 1),
            call=called,
            reason=reason(called, *measured[5:8]),
            regular_nuclei=round(float(measured[5]), 3),
            contrast=round(float(measured[6]), 2),
            background=round(float(measured[7]), 2),
            tumor_distance_um=round(far, 1) if np.isfinite(far) else None,
            location=place(far, band_um),
            germinal_centers=None if centers is None else sure,
            doubtful_germinal_centers=len(own) - sure,
        )
        drawn.append((row, outline))
    return sorted(drawn, key=lambda pair: (pair[0].call == "rejected", -pair[0].area_um2))


def outline_all(
    drawn: list[tuple[Aggregate, Polygon]], centers: list[Center]
) -> Iterator[dict[str, Any]]:
    """Yield aggregate and germinal-center outlines as features, including doubtful centers."""
    for row, polygon in drawn:
        clear = row.call == "lymphoid"
        yield feature(
            polygon,
            name=f"{row.location} aggregate" if clear else f"{row.call}: {row.reason}",
            classification="Ignore*" if row.call == "rejected" else None,
            measurements=measurements(row),
        )
    for center in centers:
        yield feature(
            center.outline,
            name="germinal center" if center.sure else f"{DOUBTFUL_CENTER}: {center.reason}",
            classification=None if center.sure else "Ignore*",
            measurements={"Area µm^2": center.area_um2},
        )


def draw_aggregates(
    slide: Slide,
    drawn: list[tuple[Aggregate, Polygon]],
    centers: list[Center],
    tumor: TumorArea,
    scale: float,
) -> tuple[U8, dict[str, Color]]:
    """Draw aggregates, germinal centers and tumor over a thumbnail; return it and its legend.

    `scale` is level-0 pixels per cell of the tumor mask.
    """
    picture = slide.thumbnail(2048)
    ratio = slide.width / picture.shape[1]
    border = mask_polygons(tumor.mask, scale, simplify_px=1.0)
    picture = draw_polygons(picture, border, ratio, VERMILLION, line_width(picture))
    for call, color in {"lymphoid": BLUE, "doubtful": YELLOW, "rejected": GRAY}.items():
        own = [polygon for row, polygon in drawn if row.call == call]
        picture = draw_outlines(picture, own, ratio, color)
    picture = draw_outlines(picture, [c.outline for c in centers if c.sure], ratio, GREEN)
    legend = {"lymphoid aggregate": BLUE, "doubtful": YELLOW, "not counted": GRAY}
    legend |= {"germinal center": GREEN} if any(center.sure for center in centers) else {}
    return picture, legend | {"tumor": VERMILLION}


def measurements(row: Aggregate) -> dict[str, float]:
    """Return an aggregate's QuPath measurements, omitting the distance if there is no tumor."""
    shown = {
        "Regular nuclei": row.regular_nuclei,
        "Area µm^2": row.area_um2,
        "Lymphocytes": row.lymphocytes,
    }
    if row.tumor_distance_um is not None:
        shown["Tumor distance µm"] = row.tumor_distance_um
    return shown


def place(distance_um: float, band_um: float) -> Place:
    """Classify an object's zone from its signed distance to the tumor border."""
    if distance_um == float("inf"):
        return "unknown"
    if distance_um <= 0:
        return "intratumoral"
    return "peritumoral" if distance_um <= band_um else "distant"


def reason(call: Call, regular: float, contrast: float, background: float) -> str:
    """Explain why an aggregate is doubtful or rejected, citing the relevant value.

    A contrast of 1 means none; a background of 1 is typical.
    """
    if call == "lymphoid":
        return ""
    why = []
    if regular < SURE_REGULAR:
        why.append(f"necrosis or crowded epithelium: only {regular:.0%} of the nuclei are regular")
    if background > FOLD_BACKGROUND:
        why.append(f"a fold or dark edge: {background:.1f} times as dark between nuclei as usual")
    if why:
        return "may be " + "; or ".join(why)
    return f"nuclei have little contrast ({contrast:.1f} times): blur, thick section or debris"


def notes(doubtful: int, rejected: int) -> list[str]:
    """Return warnings about doubtful and rejected aggregates."""
    out = []
    if doubtful:
        out.append(f"doubtful among the counted aggregates: {doubtful}; see the table's reasons")
    if rejected:
        out.append(
            f"dense regions not counted: {rejected} (debris, epithelium or folds by their "
            "nuclei): see the table's reasons"
        )
    return out
