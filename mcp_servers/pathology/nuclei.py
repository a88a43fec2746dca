"""Tool that finds nuclei: their positions, outlines, shapes and stain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.formats.geojson import feature, read_polygons
from mcp_servers.formats.spool import Spool
from mcp_servers.formats.tables import write_parts
from mcp_servers.lazy import cv2
from mcp_servers.pathology import drawing
from mcp_servers.pathology.common import (
    SUITE,
    Device,
    SlideInput,
    SlideResult,
    choose_device,
    find_own,
    of_slide,
    open_slide,
    region_warnings,
    save_geojson,
)
from mcp_servers.pathology.compute.nuclei import (
    COLUMNS,
    SURROUNDINGS,
    WORKING_MPP,
    Nuclei,
    agreement,
    nuclear_strength,
    segment,
)
from mcp_servers.pathology.drawing import dots, save_overlay
from mcp_servers.pathology.nuclei_net.model import NucleiNetwork, shipped_network
from mcp_servers.pathology.surveying import sample_tissue
from mcp_servers.pathology.tissue import slide_tissue, tissue_warnings
from mcp_servers.pathology.walk import Piece, walk
from mcp_servers.slides.arrays import F64, U8, AnyArray, BoolArray
from mcp_servers.slides.geometry import Polygon, lattice, mask_area, rasterize
from mcp_servers.slides.slide import Slide
from mcp_servers.spec import InputPath, OutputName, Resources, Validity, tool
from sage.core.errors import InputError
from sage.core.plugins import load_first

Search = Literal["auto", "tissue", "everything"]
Scaling = Literal["percentile", "unit", "none"]
PANNUKE = ("neoplastic", "inflammatory", "connective", "dead", "epithelial")
"""PanNuke's types in channel order, without the background."""
MOST_TYPES = 20
TILE, HALO_UM = 768, 20.0
"""Side length of a network's blocks in pixels, and their overlap with adjacent blocks in µm."""
SEAM_UM = 3.0
"""Distance below which centers in adjacent blocks are one nucleus, cut or moved by the seam."""
MAX_OUTLINES = 60_000
NUCLEUS = "nucleus"
"""Label of a nucleus without a type."""
LYMPHOCYTES = frozenset(("lymphoid", "lymphocyte", "lymphocytes", "til", "tils", "inflammatory"))
"""Names of types that mean lymphocytes."""
NO_TYPES = (
    "types and lymphocytes have no value: SAGE's own typing did not rank lymphoid tissue above "
    "carcinoma on labeled images; pass weights of a network with types (HoVer-Net, CellViT)"
)
COARSEST_MPP = 1.05
CHECKED, LEAST_AGREEMENT = 6, 0.5
"""Patches on which both methods are compared on a pale slide, and their minimum F1 score."""


class NucleiInput(SlideInput):
    """Slide and region in which to detect nuclei."""

    regions: InputPath | None = Field(
        default=None, description="GeoJSON with regions of interest; default: all tissue"
    )
    search: Search = Field(
        default="auto",
        description="tissue: only found tissue; everything: all pixels; auto: everything in "
        "images below 1 mm², which have no glass to compare with tissue",
    )
    method: Literal["auto", "learned", "classical"] = Field(
        default="auto",
        description="learned: a network; classical: threshold and watershed; auto: the bundled "
        "network, and no value on slides paler than its training unless the classical method "
        "agrees; the classical method, with a warning, if PyTorch is not installed",
    )
    weights: InputPath | None = Field(
        default=None,
        description="Your own network instead of the bundled one: safetensors of `sage training "
        "train nuclei`, or a module in TorchScript or ONNX (.onnx) that maps (1, 3, H, W) to a "
        "label image or a probability, as InstanSeg exports it, or to the maps np, hv and tp of "
        "HoVer-Net (or CellViT's names for them), with its own types. A TorchScript file is "
        "code: use only files that you trust",
    )
    hub: str | None = Field(
        default=None,
        max_length=300,
        description="Such a network by its name on the Hugging Face hub, OWNER/NAME:FILE, from "
        "this machine's cache (nothing is downloaded); only safetensors and ONNX",
    )
    weights_mpp: float | None = Field(
        default=None,
        ge=0.1,
        le=2.0,
        description="µm per pixel expected by such a module; default: its own pixel_size, or "
        "else 0.5",
    )
    weights_types: list[str] | None = Field(
        default=None,
        max_length=MOST_TYPES,
        description="Names of such a module's types in the order of its channels, without the "
        f"background; default: as stated by the module. PanNuke's: {', '.join(PANNUKE)}",
    )
    scaling: Scaling = Field(
        default="percentile",
        description="Such a module's input: percentile maps the slide's 0.1 and 99.9 "
        "percentiles to 0 and 1 (InstanSeg), unit divides by 255, none keeps gray values "
        "(HoVer-Net)",
    )
    device: Device = "auto"
    outlines: bool = Field(
        default=True, description=f"Write outlines for QuPath, for up to {MAX_OUTLINES} nuclei"
    )


class CellsSource(SlideInput):
    """A slide, and the table of its cells by a network with types."""

    cells: InputPath | None = Field(
        default=None,
        description="Table of the tool nuclei, run with weights of a network with types (CSV with "
        "x and y in level-0 pixels, and type), or a folder with NAME.nuclei.csv per slide; "
        "without it, lymphocytes have no value",
    )


class NucleiResult(SlideResult):
    """Counts and median shape; the table has a row per nucleus."""

    model: str | None = Field(description="Name of the network; None for the classical method")
    at_mpp: float = Field(description="µm per pixel at which nuclei were detected")
    strength: float | None = Field(description="Optical density of the nuclear stain on the slide")
    nuclei: int
    types: dict[str, int] = Field(
        description="Nuclei by most probable type, for a network with types of its own; empty for "
        "others, which have none"
    )
    lymphocytes: int | None = Field(
        description="Nuclei whose type means lymphocyte; None without types"
    )
    area_mm2: float = Field(description="Area of searched tissue")
    nuclei_per_mm2: float | None
    median_area_um2: float | None
    median_eccentricity: float | None
    contrast: float = Field(description="Optical density of nuclei above their surroundings")
    table: OutputName = Field(
        description="CSV, one row per nucleus: x and y in level-0 pixels, shape and stain, and for "
        "a network with types of its own, type and the probabilities p_NAME"
    )
    geojson: OutputName | None
    overlay: OutputName


NUCLEI_VALIDITY = Validity(
    stain="H&E; H-DAB in the same way (method=classical)",
    mpp=(0.15, 1.05),
    organ="any",
    training_data="network: 84 of 107 tiles of dsb2018_he (Data Science Bowl 2018, CC0), seed "
    "17, see the network's card; with weights=: those of the network, see its authors",
    tcga_overlap="none for the network",
    known_failures=(
        "below its goal (F1 0.76 on dark violet tiles, 0.66 on pink ones): the network was trained "
        "on few tiles. On 14 other MoNuSeg tiles, measured by others before dark slides were "
        "scaled, it had F1 0.590, the classical method 0.730, Otsu + watershed 0.741; scaled by "
        "hand 0.678: on dark violet slides compare method=classical",
        "the detected nuclei depend slightly on the position of the image: 90 to 94% of nuclei "
        "are found again after a rotation, flip or shift by some pixels of a painted tile, 95% "
        "with hematoxylin times 0.6, 98% times 1.5, 90% after JPEG of quality 50",
        "no types: the types that were tried ranked fields of lymphocytes below carcinoma (AUC "
        "0.33 by density, 0.32 by share, goal 0.95, on 6 lymphoid and 69 other fields); pass "
        "weights with types",
        "coarser than 0.6 µm per pixel, only larger nuclei keep their shape",
        "keratin, ink, pigment and folds can be mistaken for nuclei; necrotic debris is counted",
    ),
    accuracy=(
        "through this tool, default / network as trained / classical, F1 (AJI, error of counts): "
        "13 MoNuSeg tiles 0.640 (0.489, 11%) / 0.609 (0.465, 17%) / 0.597 (0.462, 12%), 9 TNBC "
        "tiles 0.666 (0.559, 18%) / 0.666 (0.559, 18%) / 0.560 (0.493, 58%); Otsu + watershed "
        "0.527 and 0.515. Neither set was trained on; both were seen when the scaling of dark "
        "slides was chosen. By organ (F1 network / classical / Otsu, unscaled): breast 0.60 / 0.68 "
        "/ 0.64, colon 0.51 / 0.49 / 0.44, kidney 0.71 / 0.73 / 0.69, lung 0.57 / 0.49 / 0.42, "
        "prostate 0.62 / 0.44 / 0.26. 23 held-out dsb2018_he tiles, on which cut and saddle were "
        "chosen: F1 0.768, AJI 0.609 (Otsu 0.573, 0.461). 1.9 "
        "megapixels per second on one core"
    ),
)
CLASSES = {
    "neoplastic": "Tumor", "lymphoid": "Immune cells", "stromal": "Stroma", "other": "Other",
}  # fmt: skip
"""QuPath's default class for each type."""


@tool(
    "nuclei",
    SUITE,
    "3.0.0",
    "Detect and outline nuclei, with the shape and stain of each, and the type by networks that "
    "have types, over the tissue or in regions.",
    resources=Resources(cpu=2, memory_mb=2048, gpu="optional", seconds_per_item=60.0),
    validity=NUCLEI_VALIDITY,
    fingerprint=lambda given: "" if given.hub is None else load_reader().fingerprint(given.hub),
)
def segment_nuclei(given: NucleiInput, context: ToolContext) -> NucleiResult:
    """Detect the nuclei on a slide."""
    slide = open_slide(given, context)
    mask, scale, warnings = search_area(slide, given.regions, context, given.search)
    network, notes = load_network(slide, mask, scale, given, context)
    warnings += notes
    strength = measure_strength(slide, mask, scale)
    if isinstance(network, NucleiNetwork):
        checked = given.method == "auto" and given.weights is None and given.hub is None
        network = adapt_network(network, slide, mask, scale, strength, checked=checked)
    start = f"{slide.name}.nuclei"
    area = mask_area(mask, scale, slide.width, slide.height) * (slide.need_mpp() / 1000) ** 2
    own = () if network is None else network.types
    with Spool(context.roots.output, len(COLUMNS) + len(SURROUNDINGS) + len(own)) as table:
        found = find_nuclei(
            slide, mask, scale, context, table, outlines=given.outlines, network=network
        )
        medians = [
            float(np.median(table.column(COLUMNS.index(name)), overwrite_input=True))
            if len(table)
            else None
            for name in ("area_um2", "eccentricity")
        ]
        typed = Typing(own)
        with context.writing(f"{start}.csv") as path:
            write_parts(path, (typed.columns(rows) for rows in table.chunks()))
        geojson = None
        if given.outlines and len(found.outlines) == len(table):
            features = _features(found.outlines, table, typed)
            geojson = save_geojson(context, f"{start}.geojson", features)
        elif given.outlines:
            warnings.append(f"more than {MAX_OUTLINES} nuclei: only positions, no outlines")
        if found.contrast < 0.08 and len(table):
            warnings.append(
                "nuclei have little contrast with their surroundings; counts are uncertain"
            )
        picture = slide.thumbnail(3000).copy()
        ratio = slide.width / picture.shape[1]
        um = slide.need_mpp() * ratio
        colors = palette(own)
        counts = dict.fromkeys(colors, 0)
        for rows in table.chunks():
            kinds = typed.names(rows)
            for kind, color in colors.items():
                chosen = kinds == kind
                counts[kind] += int(chosen.sum())
                dots(picture, rows[chosen, :2], color, ratio, um)
        count = len(table)
    if not own:
        warnings.append(NO_TYPES)
    return NucleiResult(
        **of_slide(slide),
        method="classical" if network is None else "learned",
        warnings=warnings,
        model=None if network is None else network.path.name,
        at_mpp=found.at_mpp,
        strength=strength,
        nuclei=count,
        types=counts if own else {},
        lymphocytes=sum(n for kind, n in counts.items() if means_lymphocyte(kind)) if own else None,
        area_mm2=area,
        nuclei_per_mm2=count / area if area else None,
        median_area_um2=medians[0],
        median_eccentricity=medians[1],
        contrast=found.contrast,
        table=f"{start}.csv",
        geojson=geojson,
        overlay=save_overlay(context, slide, f"{start}.overlay.png", picture, colors),
    )


def palette(own: tuple[str, ...]) -> dict[str, tuple[int, int, int]]:
    """Assign a color to each type, or to nuclei without types; colors repeat if there are many."""
    colors = (
        drawing.VERMILLION, drawing.YELLOW, drawing.GREEN, drawing.BLUE,
        drawing.SKY, drawing.ORANGE, drawing.GRAY,
    )  # fmt: skip
    if not own:
        return {NUCLEUS: drawing.BLUE}
    return dict(zip(own, cycle(colors), strict=False))


@dataclass(frozen=True)
class Typing:
    """Types of nuclei by a network that has its `own`, whose probabilities end each row.

    SAGE has no types of its own: see `NO_TYPES`.
    """

    own: tuple[str, ...] = ()

    def names(self, rows: F64) -> AnyArray:
        """Return the most probable type of each nucleus, or `NUCLEUS` without types."""
        if not self.own:
            return np.full(len(rows), NUCLEUS, dtype=object)
        kinds: AnyArray = np.array(self.own, dtype=object)
        return np.asarray(kinds[rows[:, -len(self.own) :].argmax(axis=1)])

    def columns(self, rows: F64) -> dict[str, AnyArray]:
        """Return the columns of the output table."""
        measured = (*COLUMNS, *SURROUNDINGS)
        found = {name: rows[:, i] for i, name in enumerate(measured)}
        if not self.own:
            return found
        chances = {f"p_{kind}": rows[:, len(measured) + i] for i, kind in enumerate(self.own)}
        return found | {"type": self.names(rows)} | chances


def find_cells(slide: Slide, given: CellsSource, context: ToolContext) -> Path | None:
    """Find the table of a slide's typed cells; None if there is none."""
    if given.cells is None:
        return None
    return find_own(slide, context.input(given.cells), ".nuclei.csv")


def read_lymphocytes(slide: Slide, given: CellsSource, context: ToolContext) -> F64:
    """Read the (n, 2) centers of a slide's lymphocytes, in level-0 pixels.

    Raises `InputError` if there is no table of cells, or it has no types.
    """
    import pandas as pd

    path = find_cells(slide, given, context)
    if path is None:
        raise InputError(f"{slide.path}: needs lymphocytes: give cells; {NO_TYPES}")
    rows = pd.read_csv(path)
    if not {"x", "y", "type"} <= set(rows.columns):
        raise InputError(f"{path}: has no columns x, y and type; {NO_TYPES}")
    chosen = rows["type"].astype(str).map(means_lymphocyte).to_numpy(dtype=bool)
    return rows.loc[chosen, ["x", "y"]].to_numpy(dtype=np.float64)


def means_lymphocyte(label: str) -> bool:
    """Check whether a type's name means lymphocytes, as every tool that counts them does."""
    return label.casefold().strip() in LYMPHOCYTES


def _features(outlines: list[Polygon], table: Spool, typed: Typing) -> Iterator[dict[str, Any]]:
    remaining = iter(outlines)
    for rows in table.chunks():
        for row, kind in zip(rows, typed.names(rows), strict=True):
            yield feature(
                next(remaining),
                kind="detection",
                classification=CLASSES.get(kind, kind.title()),
                measurements={"Area µm^2": row[2], "Eccentricity": row[6]},
            )


def search_area(
    slide: Slide, regions: str | None, context: ToolContext, search: Search = "tissue"
) -> tuple[BoolArray, float, list[str]]:
    """Find the tissue to search, within any regions of interest, with scale and warnings.

    Parameters
    ----------
    regions : GeoJSON below the roots; None for all tissue
    search : "everything" searches the whole slide; "auto" does so for a small field

    Returns
    -------
    A mask, level-0 pixels per mask pixel, and warnings.
    """
    found, view = slide_tissue(slide)
    mask = found.mask
    warnings = list(slide.warnings)
    small = slide.width * slide.height * slide.need_mpp() ** 2 < 1e6
    if search == "everything" or (search == "auto" and small):
        mask = np.ones_like(mask)
        if search == "auto":
            warnings.append("small image: searched everywhere, not only in detected tissue")
    else:
        warnings += tissue_warnings(found)
    if regions is not None:
        polygons, notes = read_polygons(context.input(regions, "file"))
        warnings += notes
        mask = mask & rasterize(polygons, view.scale, mask.shape)
        if not mask.any():
            warnings.append("the regions contain no tissue")
        warnings += region_warnings(polygons, view)
    return mask, view.scale, warnings


class SlideNuclei(NamedTuple):
    """Information about a slide's nuclei that accompanies their table."""

    outlines: list[Polygon]
    contrast: float
    at_mpp: float


class Network(Protocol):
    """A loaded network, either bundled or provided by the user."""

    path: Path
    mpp: float
    types: tuple[str, ...]

    def segment(self, image: U8, mpp: float, within: BoolArray | None = None) -> Nuclei:
        """Segment the nuclei in an image whose pixels are `mpp` µm wide."""
        ...


@dataclass(frozen=True)
class NetworkReader:
    """Reader for networks in other formats, registered by a plugin under `sage.nuclei`.

    `find_cached` returns the cached file for a name on a hub, and `fingerprint` identifies
    the content that such a name refers to. `open` takes file, device, slide, tissue mask
    (height, width), level-0 pixels per mask pixel, arguments and context, and returns the
    network and notes.
    """

    find_cached: Callable[[str], Path]
    fingerprint: Callable[[str], str]
    open: Callable[
        [Path, str, Slide, BoolArray, float, NucleiInput, ToolContext], tuple[Network, list[str]]
    ]


def load_reader() -> NetworkReader:
    """Load the first reader provided by a plugin; raise `InputError` if there is none."""
    found: NetworkReader | None = load_first("sage.nuclei")
    if found is None:
        raise InputError("this network requires a plugin that registers under sage.nuclei")
    return found


def load_network(
    slide: Slide, mask: BoolArray, scale: float, given: NucleiInput, context: ToolContext
) -> tuple[Network | None, list[str]]:
    """Load the requested or bundled network (None for the classical method), with notes.

    Raises `InputError` if weights are given for the classical method, types for a network
    without them, if a network was requested but none is available, or if the scan is too
    coarse for it. `scale` is level-0 pixels per pixel in the (height, width) tissue mask.
    """
    if given.weights_types and (given.weights or given.hub) is None:
        raise InputError("weights_types names the types of a custom network; also set its weights")
    if given.method == "classical":
        if given.weights is not None or given.hub is not None:
            raise InputError("method=classical does not use weights; omit either method or weights")
        return None, []
    if given.weights is not None and given.hub is not None:
        raise InputError("weights and hub cannot be combined")
    if given.hub is not None:
        path: Path | None = load_reader().find_cached(given.hub)
    else:
        path = shipped_network() if given.weights is None else context.input(given.weights, "file")
    if path is None:
        note = (
            "the bundled network requires PyTorch, which is not installed (pip install "
            '"sage-pathology[models]")'
        )
        if given.method == "learned":
            raise InputError(f"method=learned: {note}")
        return None, [f"{note}: nuclei were detected by the classical method"]
    device = choose_device(given.device, context.device)
    if path.suffix == ".safetensors":
        if given.weights_types:
            raise InputError(f"{path.name} does not accept custom types; omit weights_types")
        stat = path.stat()
        key = ("nuclei", str(path), stat.st_mtime_ns, stat.st_size, device)
        return context.share_handle(key, lambda: NucleiNetwork(path, device)), []
    return load_reader().open(path, device, slide, mask, scale, given, context)


def measure_strength(slide: Slide, mask: BoolArray, scale: float) -> float | None:
    """Measure `nuclear_strength` on samples of a slide's tissue; None without stained pixels.

    `scale` is level-0 pixels per pixel of the (height, width) tissue mask.
    """
    finest = max(WORKING_MPP, slide.need_mpp())
    return nuclear_strength(sample_tissue(slide, mask, scale, finest))


def adapt_network(
    network: NucleiNetwork,
    slide: Slide,
    mask: BoolArray,
    scale: float,
    strength: float | None,
    *,
    checked: bool = True,
) -> NucleiNetwork:
    """Adapt the network to a slide's stain strength, as every tool that uses it must do.

    Dark slides are scaled to the network's reference. A slide paler than any training tile
    has a value only if the classical method, which needs no training, finds about the same
    nuclei; if `checked`, `InputError` is raised otherwise. `scale` is level-0 pixels per
    pixel of the (height, width) tissue mask.
    """
    network = network.adapt(strength)
    span = network.card.strength
    if not checked or span is None or strength is None or strength >= span[0]:
        return network
    mpp = max(WORKING_MPP, slide.need_mpp())
    patches = sample_tissue(slide, mask, scale, mpp, count=CHECKED)
    both = [(network.segment(p, mpp).labels, segment(p, mpp).labels) for p in patches]
    alike = [agreement(*pair) for pair in both if any(labels.any() for labels in pair)]
    agreed = float(np.median(alike)) if alike else 0.0
    if agreed < LEAST_AGREEMENT:
        raise InputError(
            f"{slide.path}: no value for nuclei: stain strength {strength:.3f} is below the "
            f"network's minimum of {span[0]:.3f}, and the network and the classical "
            f"method agree on only {agreed:.0%} of nuclei. Use a slide with typical "
            "staining, or set method to learned or classical and check the overlay"
        )
    return network


def find_nuclei(
    slide: Slide,
    mask: BoolArray,
    mask_scale: float,
    context: ToolContext,
    table: Spool,
    *,
    outlines: bool,
    network: Network | None,
) -> SlideNuclei:
    """Find nuclei with centers in a mask, block by block at 0.5 µm per pixel.

    They are added to `table`: `compute.nuclei.COLUMNS` with x, y in level-0 pixels, then
    `SURROUNDINGS`, then the network's own types. If a `network` replaces the classical
    method, blocks have the network's pixel size and a wider overlap. Raises `InputError` if
    the scan is coarser than 1.05 µm per pixel. `mask_scale` is level-0 pixels per pixel in
    the (height, width) mask.
    """
    from mcp_servers.pathology.compute.nuclei import surroundings

    base = slide.need_mpp()
    if base > COARSEST_MPP:
        raise InputError(
            f"{slide.path}: nuclei cannot be separated at {base:g} µm per pixel; use a scan at "
            f"{COARSEST_MPP:g} µm per pixel or finer"
        )
    view = slide.view(max(WORKING_MPP if network is None else network.mpp, base))
    block = {} if network is None else {"size": TILE, "halo": round(HALO_UM / view.mpp)}
    polygons: list[Polygon] = []
    contrasts: list[tuple[float, int]] = []
    seams: list[tuple[AnyArray, F64]] = []  # number and row of each that may be in two blocks
    total = 0
    for piece in walk(view, mask, mask_scale, context, message="nuclei", span=(0.05, 0.9), **block):
        find = segment if network is None else network.segment
        nuclei = find(piece.image, view.mpp, within=piece.tissue)
        own = piece.owns(nuclei.table[:, 0], nuclei.table[:, 1])
        near_by = surroundings(nuclei, piece.image, view.mpp)
        kinds = [] if nuclei.kinds is None else [nuclei.kinds[own]]
        rows = np.hstack([nuclei.table[own], near_by[own], *kinds])
        contrasts.append((nuclei.contrast, len(rows)))
        if outlines and total + len(rows) <= MAX_OUTLINES:
            polygons.extend(_outlines(nuclei, own, piece, view.scale))
        elif outlines:
            polygons.clear()
        near = np.zeros(0, dtype=np.int64)
        if network is not None:
            near = np.flatnonzero(piece.to_seam(rows[:, 0], rows[:, 1]) <= SEAM_UM / view.mpp + 1)
        rows[:, 0] = (rows[:, 0] + piece.x + 0.5) * view.scale
        rows[:, 1] = (rows[:, 1] + piece.y + 0.5) * view.scale
        seams.append((near + total, rows[near, :3]))
        table.append(rows)
        total += len(rows)
    weight = sum(n for _, n in contrasts)
    contrast = sum(c * n for c, n in contrasts) / weight if weight else 0.0
    if network is not None and seams:
        numbers = np.concatenate([own for own, _ in seams])
        places = np.concatenate([rows for _, rows in seams])
        twice = numbers[~select_unique(places, [len(rows) for _, rows in seams], SEAM_UM / base)]
        table.drop(twice)
        left_out = set(twice.tolist())
        polygons = [p for i, p in enumerate(polygons) if i not in left_out]
    return SlideNuclei(polygons, contrast, view.mpp)


def select_unique(table: F64, counts: list[int], reach: float) -> BoolArray:
    """Select nuclei so that none is counted in two blocks, keeping the larger of close pairs.

    `counts` are the numbers of nuclei in each block, in table order; `reach` is in level-0 pixels.
    """
    from scipy.spatial import cKDTree

    keep = np.ones(len(table), dtype=bool)
    if not len(table):
        return keep
    block = np.repeat(np.arange(len(counts)), counts)
    for i, j in sorted(cKDTree(table[:, :2]).query_pairs(reach)):
        if block[i] != block[j] and keep[i] and keep[j]:
            keep[j if table[i, 2] >= table[j, 2] else i] = False
    return keep


def _outlines(nuclei: Nuclei, own: BoolArray, piece: Piece, scale: float) -> list[Polygon]:
    """Return the outline of each nucleus that belongs to the block, in table order."""
    out = []
    boxes = _boxes(nuclei.labels, len(own))
    for index in np.flatnonzero(own):
        top, bottom, left, right = boxes[index]
        part = (nuclei.labels[top:bottom, left:right] == index + 1).astype(np.uint8)
        rings, _ = cv2.findContours(lattice(part), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
        ring = max(rings, key=len)[:, 0, :].astype(np.float64)
        points = ring / 2 + [left + piece.x, top + piece.y]
        out.append(Polygon(points * scale))
    return out


def _boxes(labels: AnyArray, count: int) -> list[tuple[int, int, int, int]]:
    from scipy import ndimage

    slices = ndimage.find_objects(labels, max_label=count)
    return [(s[0].start, s[0].stop, s[1].start, s[1].stop) if s else (0, 1, 0, 1) for s in slices]
