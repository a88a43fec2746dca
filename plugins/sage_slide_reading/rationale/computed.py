"""Rationales without a model: sentences about measurements on the thumbnail and in the region."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sage_slide_reading.rationale.draft import Place, box_around
from sage_slide_reading.reader import computed
from sage_slide_reading.reader.scope import ONE_UM, Scope
from sage_slide_reading.reader.types import Finding, FindingName, Region
from sage_slide_reading.sessions.drafts import DraftedBy, Rationale

if TYPE_CHECKING:
    from mcp_servers.slides.arrays import F64

OVERVIEW_MPP = 8.0
WIDEST_UM = 1000.0
"""Side in µm above which findings are measured only in the middle of a region."""
LOOKS: tuple[tuple[FindingName, str], ...] = (
    ("tumor_share", "tumor-like (solid groups of large nuclei)"),
    ("stroma_share", "stroma-like"),
    ("necrosis_share", "necrosis-like"),
    ("gland_share", "gaps or lumens"),
)
ACROSS = ("left", "middle", "right")
DOWN = ("upper", "central", "lower")


@dataclass
class ComputedWriter:
    """Writes sentences about measurements by the slide reader's computed eyes, for one slide."""

    drafted_by: DraftedBy = "computed"
    statement: str = f"Drafted without a model. {computed.STATEMENT}"
    model: str | None = None
    sight: computed.Sight = field(default_factory=computed.Sight)
    _dye: F64 | None = None

    def write(self, scope: Scope, place: Place, task: str) -> Rationale:
        """See `sage_slide_reading.rationale.draft.Writer`."""
        return Rationale(
            thumbnail_impression=tuple(self._impression(scope, place)),
            why_zoom=tuple(self._explain_visit(scope, place)),
            findings=tuple(self._findings(scope, place)),
        )

    def _impression(self, scope: Scope, place: Place) -> list[str]:
        mm2 = scope.tissue_px * (scope.mpp / 1000) ** 2
        pieces = pieces_of(scope)
        x, y = scope.place(*place.region.box.center)
        edge = float(scope.edge_um([place.region.box.center])[0])
        where = f"{DOWN[_third(y)]} {ACROSS[_third(x)]}"
        lines = [
            f"The slide contains {mm2:.3g} mm² of tissue in {pieces} piece{'s' * (pieces != 1)}.",
            f"The region is in the {where} part of the tissue.",
        ]
        if 0 < edge < 1e5:
            lines.append(f"Its center is {edge:.0f} µm from the nearest edge of the tissue.")
        return lines

    def _explain_visit(self, scope: Scope, place: Place) -> list[str]:
        lines = [place.doing]
        rank = self._rank(scope, place.region)
        if rank is not None:
            more, others = ("more", rank) if rank >= 0.5 else ("less", 1 - rank)
            many = f"{others:.0%}" if others < 0.995 else "nearly all"
            lines.append(
                f"At low power it contains {more} nuclear dye than {many} of the fields of its "
                "size on tissue."
            )
        share = scope.tissue_share(place.region.box)
        if share < 0.9:
            lines.append(f"Tissue fills {share:.0%} of it, so an edge or a gap is in view.")
        return lines

    def _rank(self, scope: Scope, region: Region) -> float | None:
        """Compute the share of tissue whose region-sized surroundings contain less dye."""
        import cv2

        from mcp_servers.pathology.compute.nuclei import nuclear_density

        rows, columns = scope.mask.shape
        if self._dye is None:
            view = scope.slide.view(max(scope.mpp, scope.mask_scale * scope.mpp, OVERVIEW_MPP))
            image = view.read(0, 0, view.width, view.height)
            dye = cv2.resize(nuclear_density(image), (columns, rows), interpolation=cv2.INTER_AREA)
            self._dye = np.asarray(dye, dtype=np.float64)
        k = scope.mask_scale
        size = (max(1, round(region.box.width / k)), max(1, round(region.box.height / k)))
        around = cv2.blur(self._dye, size, borderType=cv2.BORDER_REFLECT)
        tissue = around[scope.mask]
        if len(tissue) < 100 or size[0] * size[1] > 0.5 * len(tissue):
            return None
        x, y = region.box.center
        own = around[min(rows - 1, int(y / k)), min(columns - 1, int(x / k))]
        return float((tissue < own).mean())

    def _findings(self, scope: Scope, place: Place) -> list[str]:
        middle = _middle(scope, place.region)
        if middle.magnification < computed.NUCLEI_FROM:
            return [f"At {scope.native:.2g}x, single nuclei cannot be measured on this slide."]
        found = computed.findings(scope, middle, self.sight)
        whole = middle.box == place.region.box
        where = "area" if whole else f"middle {middle.um[2] / 1000:.2g} mm"
        lines = [*tissue_sentences(found, where), *nuclei_sentences(found)]
        if place.cytology.box != middle.box:
            fine = computed.findings(scope, place.cytology, self.sight)
            um = place.cytology.um[2]
            area, spread = fine["nuclear_area"].value, fine["pleomorphism"].value
            if area > 0:
                lines.append(
                    f"In the central {um:.0f} µm the median nucleus measures {area:.0f} µm²"
                    f" (robust CV {spread:.2f})."
                )
        return lines


def tissue_sentences(found: dict[FindingName, Finding], where: str) -> list[str]:
    """Describe the shares of tissue by appearance."""
    shares = [
        f"{found[name].value:.0%} {words}" for name, words in LOOKS if found[name].value >= 0.01
    ]
    said = f"{', '.join(shares)}" if shares else "no class of tissue predominates"
    return [f"Of the {where}, {said}."]


def nuclei_sentences(found: dict[FindingName, Finding]) -> list[str]:
    """Describe the number of nuclei by kind."""
    lines = [f"There are {found['cellularity'].value:,.0f} nuclei per mm² of tissue."]
    if lymphoid := found["lymphoid_share"].value:
        lines.append(
            f"{lymphoid:.0%} of the nuclei are lymphocyte-like, at most "
            f"{found['lymphoid_density'].value:,.0f} per mm² in a square of 100 µm."
        )
    figures = round(found["mitosis_like"].value)
    lines.append(
        f"{figures} dark irregular figure{'s' * (figures != 1)} resemble{'s' * (figures == 1)} "
        "mitoses."
        if figures
        else "No mitosis-like figures are counted."
    )
    return lines


def pieces_of(scope: Scope) -> int:
    """Return the pieces of tissue, except those below a hundredth of its area."""
    import cv2

    _, _, stats, _ = cv2.connectedComponentsWithStats(scope.mask.astype(np.uint8))
    areas = stats[1:, cv2.CC_STAT_AREA]
    return int((areas >= 0.01 * max(1, areas.sum())).sum())


def _middle(scope: Scope, region: Region) -> Region:
    """Return the region, or the middle of a large one, at 10x or the nearest available power."""
    side = WIDEST_UM / scope.mpp
    power = min(scope.native, max(10.0, region.magnification), ONE_UM / 0.5)
    x, y = region.box.center
    w, h = min(region.box.width, side), min(region.box.height, side)
    return scope.region(box_around(scope, x, y, w, h), power, f"{region.id}m")


def _third(at: float) -> int:
    """Name the third of the range -1 to 1 that contains a value."""
    return min(2, max(0, math.floor((at + 1) * 1.5)))
