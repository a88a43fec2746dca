"""Reader backend without a model, which describes patches by computed measurements.

At low power (5x), single nuclei are barely resolved, so patches are ranked by an
impression from stain densities averaged over cells of 32 µm. At high power, nuclei are
segmented and measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sage_slide_reading.reader.concepts import Concept, concepts_of, meaning
from sage_slide_reading.reader.scope import ONE_UM, Scope
from sage_slide_reading.reader.types import (
    UNITS,
    Box,
    Described,
    Finding,
    FindingName,
    Question,
    Region,
)

if TYPE_CHECKING:
    from mcp_servers.slides.arrays import F32, F64, I64, BoolArray

CELL_UM = 32.0
NETWORK_MPP = 0.7
"""µm per pixel above which nuclei are too small for the network."""
NUCLEI_FROM = 8.0
"""Minimum magnification for segmenting nuclei; below it, there is only an impression."""
TUMOR_PER_MM2 = 1800.0
"""Minimum density per mm² of large round nuclei, over about 50 µm, for tumor-like tissue."""
PACKED_PER_MM2 = 4000.0
"""Minimum median density of large nuclei, per mm², for a group to be packed.

Germinal centers are packed in this way; carcinoma, with more cytoplasm between nuclei,
seldom is. Chosen on painted nodes 600 to 611, where deposits had up to 3,600 and germinal
centers at least 4,500.
"""
MANTLE_UM, MANTLE_SIDES = 300.0, 8
"""Maximum distance of a mantle from a group's center, and number of directions searched."""
DEBRIS_PER_MM2 = 2200.0
"""Minimum density per mm² of small ragged nuclear fragments for tissue called necrotic."""
LYMPHOID_PER_MM2 = 3000.0
LARGE_UM2 = 45.0
MITOSIS_AREA_UM2 = (14.0, 110.0)
MITOSIS_DARKER = 1.7
"""Ratio of a mitosis-like figure's darkness to the median darkness of the nuclei seen."""
STATEMENT = (
    "Computed eyes: rules over measurements of color and nuclei (found by the bundled small "
    "network, or else by thresholds); no language model, no vision model, no pathologist. They "
    "distinguish solid groups of large nuclei, lymphocyte-like nuclei, dark irregular figures, "
    "tissue without viable nuclei and gaps, and abstain on everything else. Not for diagnosis."
)


@dataclass(frozen=True)
class Sign:
    """Criteria by which findings show a concept.

    `least` is the minimum value of the decisive finding for a region to support the concept,
    and `area_um2` the minimum total area of such regions. `share` is the weight among classes
    that cover the tissue, and 0 for other concepts. Signs with `of_cells` are absent only
    where cells were measured.
    """

    finding: FindingName
    name: str
    least: float = float("inf")
    area_um2: float = 0.0
    share: float = 0.0
    of_cells: bool = False


SIGNS: dict[Concept, Sign] = {
    Concept.TUMOR: Sign("tumor_share", "tumor-like epithelium", 0.30, share=1.0, of_cells=True),
    Concept.MARGIN: Sign(
        "tumor_share", "tumor-like epithelium at the tissue's edge", 0.25, of_cells=True
    ),
    Concept.LYMPHOID: Sign(
        "lymphoid_share", "lymphocyte-rich tissue", 0.35, share=1.0, of_cells=True
    ),
    Concept.TLS: Sign(
        "lymphoid_density", "a TLS-like lymphoid aggregate", LYMPHOID_PER_MM2 * 1.2, 10_000.0,
        share=1.0, of_cells=True,
    ),
    Concept.MITOSIS: Sign("mitosis_like", "mitosis-like figures", 1.0, of_cells=True),
    Concept.NECROSIS: Sign(
        "necrosis_share", "tissue without viable nuclei (necrosis-like)", 0.60, 8_000.0, share=1.0
    ),
    Concept.STROMA: Sign("stroma_share", "stroma", 0.50, share=0.9),
    Concept.GLAND: Sign("gland_share", "gland-like lumens", 0.08, share=1.5),
    Concept.PLEOMORPHISM: Sign("pleomorphism", "pleomorphic nuclei", 0.40),
    Concept.CELLULARITY: Sign("cellularity", "cellular tissue"),
}  # fmt: skip


@dataclass
class Sight:
    """Measurements of a reading, cached so that no region is measured twice."""

    kept: dict[tuple[str, float], dict[FindingName, Finding]] = field(default_factory=dict)
    coarse: dict[str, F64] = field(default_factory=dict)
    overview: dict[str, dict[Concept, float]] = field(default_factory=dict)
    nuclei: dict[tuple[str, float], F64] = field(default_factory=dict)

    def cells_of(self, scope: Scope, patch: Region) -> F64:
        """Return the cells of a patch at low power."""
        if patch.id not in self.coarse:
            self.coarse[patch.id] = coarse_cells(scope, patch)
        return self.coarse[patch.id]

    def nuclei_of(self, scope: Scope, region: Region) -> F64:
        """Return a region's nuclei, which from then on contribute to the slide's usual values."""
        key = (region.id, region.magnification)
        if key not in self.nuclei:
            scope.count(region)
            self.nuclei[key] = nuclei_table(scope, region)
        return self.nuclei[key]

    def usual_density(self, magnification: float) -> float:
        """Compute the median optical density of all nuclei seen so far at a magnification."""
        dark = [t[:, 8] for (_, level), t in self.nuclei.items() if level == magnification]
        pooled = np.concatenate(dark) if dark else np.zeros(0)
        return float(np.median(pooled)) if len(pooled) else 0.0


_CELLS = ("nuclear", "covered", "eosin", "gap", "darkest", "edge", "tissue")


class ComputedNavigator:
    """Navigator that ranks patches by how much they resemble a question's concepts."""

    name = "computed"
    screens = True

    def __init__(self, sight: Sight) -> None:
        self.sight = sight

    def relevance(
        self, scope: Scope, regions: Sequence[Region], question: Question, query: str
    ) -> list[float]:
        """See `eyes.Navigator`; the score is that of the question's strongest concept."""
        wanted = concepts_of(query) or meaning(question).concepts or (Concept.CELLULARITY,)
        low = any(region.magnification < NUCLEI_FROM for region in regions)
        if low and not self.sight.overview:
            cells = {patch.id: self.sight.cells_of(scope, patch) for patch in scope.patches}
            self.sight.overview = impressions(cells)
        for region in regions:
            if region.magnification >= NUCLEI_FROM:
                self.sight.nuclei_of(scope, region)  # the meaning of dark depends on all of them
        scores = []
        for region in regions:
            if region.magnification < NUCLEI_FROM:
                seen = self.sight.overview.get(region.id) or {}
                scores.append(max(seen.get(concept, 0.0) for concept in wanted))
            else:
                found = findings(scope, region, self.sight)
                scores.append(max(_weight(found, concept) for concept in wanted))
        return scores


def _weight(found: dict[FindingName, Finding], concept: Concept) -> float:
    value = found[SIGNS[concept].finding].value
    if concept is Concept.MARGIN:
        far = found["edge_distance"].value
        return value / (1.0 + max(0.0, far) / 100.0)
    if concept is Concept.MITOSIS:
        return value + 0.5 * found["tumor_share"].value
    return value


def coarse_cells(scope: Scope, patch: Region) -> F64:
    """Compute a low-power patch's (cells, 7) `_CELLS`, averaged over cells of 32 µm."""
    import cv2

    from mcp_servers.pathology.compute.nuclei import green_density, nuclear_density

    image = scope.pixels(patch)
    mpp = ONE_UM / patch.magnification
    nuclear, green = nuclear_density(image), green_density(image)
    smooth = cv2.GaussianBlur(nuclear, (0, 0), 1.0)
    height, width = nuclear.shape
    rows, columns = max(1, round(height * mpp / CELL_UM)), max(1, round(width * mpp / CELL_UM))
    size = (columns, rows)

    def average(layer: F32 | BoolArray) -> F64:
        whole = np.asarray(layer, dtype=np.float32)
        return np.asarray(
            cv2.resize(whole, size, interpolation=cv2.INTER_AREA), dtype=np.float64
        ).ravel()

    dark = np.zeros((rows, columns))
    for row in range(rows):
        for column in range(columns):
            part = smooth[
                row * height // rows : (row + 1) * height // rows,
                column * width // columns : (column + 1) * width // columns,
            ]
            dark[row, column] = float(part.max()) if part.size else 0.0
    xs = patch.box.x + (np.arange(columns) + 0.5) * patch.box.width / columns
    ys = patch.box.y + (np.arange(rows) + 0.5) * patch.box.height / rows
    points = [(float(x), float(y)) for y in ys for x in xs]
    side = max(1, round(CELL_UM / scope.mpp))
    share = np.array(
        [
            scope.tissue_share(
                Box(x=round(x - side / 2), y=round(y - side / 2), width=side, height=side)
            )
            for x, y in points
        ]
    )
    return np.column_stack(
        (
            average(nuclear),
            average(nuclear > 0.12),
            average(np.maximum(green - 1.1 * nuclear, 0.0)),
            average(green < 0.08),
            dark.ravel(),
            scope.edge_um(points),
            share,
        )
    )


def impressions(coarse: dict[str, F64]) -> dict[str, dict[Concept, float]]:
    """Score each patch's relevance to each concept, relative to the rest of the slide.

    Scores compare patches on one slide; they are neither fractions nor probabilities.
    """
    every = np.concatenate(list(coarse.values()))
    every = every[every[:, 6] > 0.5]
    if not len(every):
        every = np.concatenate(list(coarse.values()))
    middle, low, high, far = np.percentile(every, (50, 10, 99, 90), axis=0)
    span = np.maximum(high - middle, 0.02)
    out = {}
    for name, cells in coarse.items():
        inside = cells[:, 6] > 0.5
        own = cells[inside] if inside.any() else cells
        nuclear, covered, eosin, gap, dark, edge = (own[:, k] for k in range(6))
        lymphoid = np.clip((nuclear - middle[0]) / span[0], 0, 1.2)
        crowd = lymphoid > 0.7
        # solid groups of nuclei: much of the cell is covered, but not as densely as lymphocytes
        solid = np.clip((covered - middle[1]) / span[1], 0, 1) * np.where(crowd, 0.45, 1.0)
        pink = np.clip((eosin - middle[2]) / span[2], 0, 1)
        pale = np.clip((middle[1] - covered) / max(middle[1] - low[1], 0.02), 0, 1.5)
        fold = (eosin > far[2]) & (nuclear > far[0])
        solid = np.where(fold, 0.3 * solid, solid)
        spot = np.clip((dark - middle[4]) / span[4], 0, 2) * np.where(crowd, 0.5, 1.0)
        size = len(own)
        near = np.exp(-np.maximum(edge, 0.0) / 80.0)
        out[name] = {
            Concept.TUMOR: _top(solid, 0.5),
            Concept.MARGIN: _top(solid * near, 0.15),
            Concept.LYMPHOID: float(lymphoid.mean()),
            Concept.TLS: _top(lymphoid, 10 / size),
            Concept.MITOSIS: _top(spot, 6 / size) + 0.3 * _top(solid, 0.5),
            Concept.NECROSIS: _top(pink * (1 - np.clip(lymphoid, 0, 1)) + 0.3 * pale * pink, 0.3),
            Concept.STROMA: float((pale > 0.3).mean()),
            Concept.GLAND: float(gap.mean()),
            Concept.PLEOMORPHISM: _top(solid, 0.5),
            Concept.CELLULARITY: float(covered.mean()),
        }
    return out


def _top(values: F64, share: float) -> float:
    """Average the highest fraction of the values."""
    count = max(1, min(len(values), round(share * len(values))))
    return float(np.sort(values)[-count:].mean())


# -- high power -------------------------------------------------------------------------------


def nuclei_table(scope: Scope, region: Region) -> F64:
    """Measure nuclei centered in a region; x and y in level-0 pixels, columns as in `nuclei`."""
    from mcp_servers.pathology.compute.nuclei import WORKING_MPP, segment

    mpp = ONE_UM / region.magnification
    fine = region
    if mpp < WORKING_MPP:  # nuclei are detected at 20x; finer pixels are averaged down
        fine = region.model_copy(update={"magnification": ONE_UM / WORKING_MPP})
        mpp = WORKING_MPP
    halo = round(10.0 / mpp)
    image = scope.pixels(fine, halo)
    network = scope.network if mpp <= NETWORK_MPP else None
    find = segment if network is None else network.segment
    table = find(image, mpp).table.copy()
    table[:, 0] = region.box.x + (table[:, 0] - halo + 0.5) * mpp / scope.mpp
    table[:, 1] = region.box.y + (table[:, 1] - halo + 0.5) * mpp / scope.mpp
    x, y = table[:, 0], table[:, 1]
    box = region.box
    own = (x >= box.x) & (x < box.x + box.width) & (y >= box.y) & (y < box.y + box.height)
    return np.asarray(table[own])


def findings(scope: Scope, region: Region, sight: Sight) -> dict[FindingName, Finding]:
    """Compute every quantity for a region at high power, by name.

    Raises `ValueError` if the region's magnification is too low for nuclei.
    """
    from mcp_servers.pathology.compute.nuclei import (
        green_density,
        lymphocyte_like,
        regular_outline,
    )

    if region.magnification < NUCLEI_FROM:
        raise ValueError(f"nuclei cannot be measured at {region.magnification:g}x")
    key = (region.id, region.magnification)
    if key in sight.kept:
        return sight.kept[key]
    table = sight.nuclei_of(scope, region)
    image = scope.pixels(region)
    green = green_density(image)
    mm2 = max(region.um[2] * region.um[3] * scope.tissue_share(region.box) / 1e6, 1e-6)
    area, ecc, circular, dark = (table[:, k] for k in (2, 6, 7, 8))
    level = sight.usual_density(region.magnification)
    lymphoid = lymphocyte_like(table) if len(table) else np.zeros(0, dtype=bool)
    large = ~lymphoid & (area >= LARGE_UM2) & (ecc <= 0.9)
    figures = mitosis_like(table, level)
    own = area[~lymphoid & ~figures & (area >= 25.0)]
    spread = 1.4826 * float(np.median(np.abs(own - np.median(own)))) if len(own) else 0.0
    shape = tuple(max(2, round(side / 16.0)) for side in region.um[2:])
    viable = (area >= 22.0) & (dark >= 0.7 * level) & (circular >= 0.5)
    crowd = _density(table[large & ~figures], region, shape)
    round_ = _density(table[lymphoid], region, shape)
    alive = _density(table[viable], region, shape)
    dust = _density(table[~lymphoid & (area < 35.0) & ~regular_outline(table)], region, shape)
    tumor = (crowd >= TUMOR_PER_MM2) & (crowd > round_)
    tumor &= ~germinal_like(scope, region, crowd, tumor)
    cellular = _density(table[large | figures], region, shape) >= 0.6 * TUMOR_PER_MM2
    figures &= _select_nuclei(
        table, region, cellular & (crowd > round_)
    )  # keratin and ink have none
    import cv2

    gaps = cv2.resize(
        (green < 0.08).astype(np.float32), (shape[0], shape[1]), interpolation=cv2.INTER_AREA
    )
    eosin = cv2.resize(green, (shape[0], shape[1]), interpolation=cv2.INTER_AREA)
    gap = gaps > 0.5
    dead = ~gap & (((alive < 330.0) & (eosin > 0.10)) | ((dust >= DEBRIS_PER_MM2) & (dust > crowd)))
    stroma = ~gap & ~dead & ~tumor & (round_ < LYMPHOID_PER_MM2)
    grouped = table[large & _select_nuclei(table, region, tumor), :2].tolist()
    far = scope.edge_um([(x, y) for x, y in grouped]) if grouped else None
    values: dict[FindingName, float] = {
        "cellularity": len(table) / mm2,
        "lymphoid_share": float(lymphoid.mean()) if len(table) else 0.0,
        "lymphoid_density": _peak(table[lymphoid], region),
        "nuclear_area": float(np.median(own)) if len(own) else 0.0,
        "pleomorphism": spread / float(np.median(own)) if len(own) >= 10 else 0.0,
        "epithelial_share": float(large.mean()) if len(table) else 0.0,
        "mitosis_like": float(figures.sum()),
        "necrosis_share": float(dead.mean()),
        "stroma_share": float(stroma.mean()),
        "gland_share": float((gap & scope.mask_tissue(region.box, gap.shape)).mean()),
        "tumor_share": float(tumor.mean()),
        "edge_distance": float(far.min()) if far is not None else -1.0,
    }
    points = {"mitosis_like": tuple((round(x, 1), round(y, 1)) for x, y in table[figures, :2])}
    found = {
        name: Finding(
            name=name, value=round(value, 4), unit=UNITS[name][0], points=points.get(name, ())
        )
        for name, value in values.items()
    }
    sight.kept[key] = found
    return found


def germinal_like(scope: Scope, region: Region, crowd: F64, tumor: BoolArray) -> BoolArray:
    """Find groups of large nuclei packed within a darker mantle, as in germinal centers.

    Parameters
    ----------
    scope : the slide
    crowd : (down, across) large nuclei per mm² over the region
    tumor : (down, across) mask of the groups to judge

    Returns
    -------
    (down, across) mask of the groups that resemble germinal centers
    """
    import cv2

    out = np.zeros_like(tumor)
    count, labels = cv2.connectedComponents(tumor.astype(np.uint8))
    for label in range(1, count):
        own = labels == label
        if float(np.median(crowd[own])) >= PACKED_PER_MM2:
            rows, columns = np.nonzero(own)
            x = region.box.x + (columns.mean() + 0.5) * region.box.width / tumor.shape[1]
            y = region.box.y + (rows.mean() + 0.5) * region.box.height / tumor.shape[0]
            if has_mantle(scope, float(x), float(y)):
                out |= own
    return out


def has_mantle(scope: Scope, x: float, y: float) -> bool:
    """Return True if most rays from a point (level-0 pixels) reach a darker mantle.

    The thresholds for darkness and for the fraction of the rim are those of the germinal
    center tool.
    """
    import cv2

    from mcp_servers.pathology.compute.germinal import LIMITS
    from mcp_servers.pathology.compute.nuclei import nuclear_density

    view = scope.slide.view(4.0)
    half = round(MANTLE_UM / view.mpp)
    image = view.read(
        round(x / view.scale) - half, round(y / view.scale) - half, 2 * half + 1, 2 * half + 1
    )
    cell = max(1, round(CELL_UM / view.mpp))
    smooth = cv2.blur(nuclear_density(image), (cell, cell))
    core = max(1, round(60.0 / view.mpp))
    middle = float(smooth[half - core : half + core + 1, half - core : half + core + 1].mean())
    far = np.arange(core, half, max(1, cell // 2))
    ways = np.arange(MANTLE_SIDES) * 2 * np.pi / MANTLE_SIDES
    rows = (half + np.outer(np.sin(ways), far)).round().astype(int)
    columns = (half + np.outer(np.cos(ways), far)).round().astype(int)
    darker = smooth[rows, columns].max(axis=1) * LIMITS["paleness"].sure >= middle
    return bool(darker.mean() >= LIMITS["enclosed"].least)


def mitosis_like(table: F64, usual: float) -> BoolArray:
    """Find irregular figures far darker than the usual nucleus, excluding dust and clumps."""
    area, dark = table[:, 2], table[:, 8]
    level = max(MITOSIS_DARKER * usual, 0.33)
    sized = (area >= MITOSIS_AREA_UM2[0]) & (area <= MITOSIS_AREA_UM2[1])
    irregular = (table[:, 7] < 0.9) | (table[:, 6] > 0.6)
    return np.asarray(sized & irregular & (dark >= level), dtype=bool)


def _locate(table: F64, region: Region, shape: tuple[int, ...]) -> tuple[I64, I64]:
    """Return the (n,) rows and columns of nuclei on a (down, across) grid over the region."""
    box, (down, across) = region.box, shape
    column = ((table[:, 0] - box.x) / box.width * across).astype(int)
    row = ((table[:, 1] - box.y) / box.height * down).astype(int)
    return row.clip(0, down - 1), column.clip(0, across - 1)


def _count_nuclei(table: F64, region: Region, shape: tuple[int, int]) -> tuple[F32, float]:
    """Count nuclei on a (down, across) grid over the region; also return the cell area in mm²."""
    grid = np.zeros(shape, dtype=np.float32)
    np.add.at(grid, _locate(table, region, shape), 1.0)
    return grid, region.um[2] * region.um[3] / grid.size / 1e6


def _density(table: F64, region: Region, shape: tuple[int, ...]) -> F64:
    """Compute nuclei per mm² on a 16 µm grid, smoothed over 50 µm; `shape` is (across, down)."""
    import cv2

    grid, cell_mm2 = _count_nuclei(table, region, (shape[1], shape[0]))
    smooth = cv2.GaussianBlur(grid, (0, 0), 1.4, borderType=cv2.BORDER_REFLECT)
    return np.asarray(smooth / cell_mm2, dtype=np.float64)


def _select_nuclei(table: F64, region: Region, mask: BoolArray) -> BoolArray:
    """Select nuclei where a mask over the region is set."""
    return np.asarray(mask[_locate(table, region, mask.shape)], dtype=bool)


def _peak(table: F64, region: Region) -> float:
    """Find the maximum nuclei per mm² in any 100 µm square (0.01 mm², the least aggregate area)."""
    import cv2

    across, down = (max(1, round(side / 25.0)) for side in region.um[2:])
    grid, cell_mm2 = _count_nuclei(table, region, (down, across))
    kernel = (min(4, across), min(4, down))
    return float(cv2.blur(grid, kernel, borderType=cv2.BORDER_REFLECT).max()) / cell_mm2


class ComputedPerceptor:
    """Perceptor that converts a region to typed findings, and the findings to a sentence."""

    name = "computed"

    def __init__(self, sight: Sight) -> None:
        self.sight = sight

    def describe(self, scope: Scope, region: Region, question: Question | None) -> Described:
        """Describe a region in numbers with units, the most relevant first."""
        if not scope.mask_tissue(region.box, (8, 8)).any():
            text = "glass: no tissue here"
            return Described(region=region, text=text, guided=question is not None)
        if region.magnification < NUCLEI_FROM:
            return self._impression(scope, region, question)
        found = findings(scope, region, self.sight)
        first = [
            SIGNS[concept].finding for concept in (meaning(question).concepts if question else ())
        ]
        order = list(dict.fromkeys([*first, *found]))
        return Described(
            region=region,
            text="; ".join(
                found[name].describe() for name in order if _is_relevant(found[name], name in first)
            ),
            guided=question is not None,
            findings=tuple(found[name] for name in order),
        )

    def _impression(self, scope: Scope, region: Region, question: Question | None) -> Described:
        cells = self.sight.cells_of(scope, region)
        text = (
            f"impression at {region.magnification:.3g}x: {cells[:, 1].mean():.0%} nuclear, "
            f"{cells[:, 3].mean():.0%} without dye"
        )
        ranks = self.sight.overview.get(region.id)
        if ranks is not None and question is not None:
            said = [f"{concept} {ranks[concept]:.2f}" for concept in meaning(question).concepts]
            if said:
                text += "; resemblance to " + ", ".join(said) + " (against this slide, no share)"
        return Described(region=region, text=text, guided=question is not None)


def _is_relevant(found: Finding, asked: bool) -> bool:
    return asked or (found.value > 0 and found.name != "edge_distance")
