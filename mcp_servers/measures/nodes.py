"""Measures in the language: amounts of cells, objects and tissue, and their arrangement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from mcp_servers.measures.maps import Name
from mcp_servers.measures.places import (
    TISSUE,
    Area,
    Cells,
    Objects,
    Points,
    Width,
    area_words,
    number,
)
from mcp_servers.measures.units import ONE, Unit, UnitName, read_unit
from sage.core.models import Strict

Statistic = Literal["mean", "median", "sd", "cv", "p10", "p90", "max", "total"]
Distance = Literal["mean", "median", "p10", "p90"]
Window = Annotated[float, Field(ge=10, le=10_000, allow_inf_nan=False)]
"""Side length in µm of a counting window; below cell size it contains at most one cell."""
Radius = Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)]
PER_MM2 = read_unit("1/mm²")
MM2 = read_unit("mm²")
UM = read_unit("µm")
UM2 = read_unit("µm²")
STATISTICS: dict[str, str] = {
    "mean": "mean",
    "median": "median",
    "sd": "standard deviation of the",
    "cv": "coefficient of variation of the",
    "p10": "10th percentile of the",
    "p90": "90th percentile of the",
    "max": "largest",
    "total": "total",
}


class Node(Strict):
    """A part of an expression. `poolable` means that slides' numerators and denominators add up."""

    poolable: ClassVar[bool] = False
    additive: ClassVar[bool] = False
    fixed_unit: ClassVar[Unit] = ONE
    phrase: ClassVar[str]
    """Noun phrase with fields in braces; {node} is this node, {other} "other " if kinds match."""
    kind: str

    @property
    def unit(self) -> Unit:
        """Unit of the value."""
        return self.fixed_unit

    @property
    def words(self) -> str:
        """Noun phrase that describes this node."""
        fields = dict(self)
        fields["statistic"] = STATISTICS.get(fields.get("statistic", ""))
        fields["region"] = area_words(fields.get("region", ""))
        other = "other " if fields.get("of") == fields.get("to") else ""
        return self.phrase.format(**fields, node=self, other=other)

    @property
    def formula(self) -> str:
        """Source text: required arguments in order, then non-default arguments by name."""
        ordered, named = [], []
        for name, info in type(self).model_fields.items():
            value = getattr(self, name)
            if info.is_required():
                ordered.append(_format_argument(value))
            elif name != "kind" and value != info.default:
                named.append(f"{name}={_format_argument(value)}")
        return f"{self.kind}({', '.join([*ordered, *named])})"

    def parts(self) -> Iterator[Node]:
        """Yield this expression and all expressions within it."""
        yield self


class Within(Node):
    """An expression evaluated within an area."""

    within: Area = TISSUE

    @property
    def where(self) -> str:
        """Location phrase, such as "in the tissue"."""
        return f"in {self.within.words}"


class Enough(Within):
    """An expression that requires a minimum number of cells."""

    at_least: int = Field(default=10, ge=1, le=100_000)


def _format_argument(value: Any) -> str:
    if isinstance(value, BaseModel):
        return str(value.formula)  # type: ignore[attr-defined]
    if isinstance(value, int | float):
        return number(value)
    text = str(value)
    return text if text.isidentifier() and text.isascii() else f'"{text}"'


class Count(Within):
    """Number of points in an area."""

    poolable: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    phrase: ClassVar[str] = "the number of {of.plural} {node.where}"
    kind: Literal["count"] = "count"
    of: Points


class Size(Node):
    """The area of tissue or of a region."""

    poolable: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    fixed_unit: ClassVar[Unit] = MM2
    phrase: ClassVar[str] = "the area of {of.words}"
    kind: Literal["area"] = "area"
    of: Area


class Density(Within):
    """Points per mm²."""

    poolable: ClassVar[bool] = True
    fixed_unit: ClassVar[Unit] = PER_MM2
    phrase: ClassVar[str] = "the number of {of.plural} per mm² of {within.words}"
    kind: Literal["density"] = "density"
    of: Points


class Share(Enough):
    """Cells of a type among all cells."""

    poolable: ClassVar[bool] = True
    phrase: ClassVar[str] = "the share of {of.plural} among all cells {node.where}"
    kind: Literal["share"] = "share"
    of: Cells

    @field_validator("of")
    @classmethod
    def _has_type(cls, value: Cells) -> Cells:
        if value.type is None:
            raise ValueError("share requires a cell type, as in share(cells.lymphoid)")
        return value


class Ratio(Enough):
    """Number of points of one kind per point of another kind."""

    poolable: ClassVar[bool] = True
    phrase: ClassVar[str] = "the number of {of.plural} for each {to.singular} {node.where}"
    kind: Literal["ratio"] = "ratio"
    of: Points
    to: Points


class CellColumn(Enough):
    """A statistic of a column, such as nuclear area, over cells."""

    phrase: ClassVar[str] = "the {statistic} {node.title} of {of.plural} {node.where}"
    kind: Literal["cell"] = "cell"
    of: Cells
    column: Name
    measured_in: UnitName
    statistic: Statistic

    @property
    def unit(self) -> Unit:
        return ONE if self.statistic == "cv" else read_unit(self.measured_in)

    @property
    def title(self) -> str:
        """The column's name without its unit, such as "area"."""
        return re.sub(r"_(um2?|od)$", "", self.column).replace("_", " ")


class ObjectSize(Enough):
    """A statistic of object areas."""

    phrase: ClassVar[str] = "the {statistic} area of {of.plural} {node.where}"
    kind: Literal["size"] = "size"
    of: Objects
    statistic: Statistic
    at_least: int = Field(default=1, ge=1, le=100_000)

    @property
    def unit(self) -> Unit:
        return ONE if self.statistic == "cv" else MM2


AMOUNTS = (Count, Size, Density, Share, Ratio, CellColumn, ObjectSize)


class Nearest(Enough):
    """The distance from points to the nearest point of another kind, or of the same kind.

    The distance to objects is measured to their outlines if these are known, 0 inside.
    """

    fixed_unit: ClassVar[Unit] = UM
    phrase: ClassVar[str] = (
        "the {statistic} distance from {of.plural} {node.where} to the nearest {other}{to.singular}"
    )
    kind: Literal["nearest"] = "nearest"
    of: Points
    to: Points
    statistic: Distance


class ToRegion(Enough):
    """The distance from points to the nearest border-to-border region of a kind, 0 inside."""

    fixed_unit: ClassVar[Unit] = UM
    phrase: ClassVar[str] = "the {statistic} distance from {of.plural} {node.where} to {region}"
    kind: Literal["to_region"] = "to_region"
    of: Points
    region: Name
    statistic: Distance


class ShareNear(Enough):
    """The share of points that have another kind within a radius."""

    poolable: ClassVar[bool] = True
    phrase: ClassVar[str] = (
        "the share of {of.plural} {node.where} that have {node.some} {to.singular}"
        " within {radius_um:g} µm"
    )
    kind: Literal["share_near"] = "share_near"
    of: Points
    to: Points
    radius_um: Radius

    @property
    def some(self) -> str:
        """Quantifier: "another" for the same kind, else "at least one"."""
        return "another" if self.of == self.to else "at least one"


class Neighbors(Enough):
    """The mean number of points of a kind within a radius."""

    poolable: ClassVar[bool] = True
    phrase: ClassVar[str] = (
        "the mean number of {other}{to.plural} within {radius_um:g} µm of {of.any} {node.where}"
    )
    kind: Literal["neighbors"] = "neighbors"
    of: Points
    to: Points
    radius_um: Radius


class NeighborShare(Enough):
    """The mean share of a type among the cells around a cell, over cells with neighbors."""

    phrase: ClassVar[str] = (
        "the mean share of {to.plural} among the cells within {radius_um:g} µm of"
        " {of.any} {node.where}"
    )
    kind: Literal["neighbor_share"] = "neighbor_share"
    of: Cells
    to: Cells
    radius_um: Radius


class NeighborEntropy(Enough):
    """Shannon entropy of the types around a cell, averaged over cells with neighbors."""

    fixed_unit: ClassVar[Unit] = read_unit("bits")
    phrase: ClassVar[str] = (
        "the mean diversity (Shannon entropy) of cell types within {radius_um:g} µm of"
        " {of.any} {node.where}"
    )
    kind: Literal["neighbor_entropy"] = "neighbor_entropy"
    of: Cells
    radius_um: Radius


class _Pattern(Enough):
    pattern: ClassVar[str] = "clustering"
    of: Points
    to: Points | None = None
    radius_um: Radius

    @property
    def words(self) -> str:
        points = self.of.plural if self.to is None else f"{self.to.plural} around {self.of.plural}"
        name = self.phrase.format(**dict(self), cross="" if self.to is None else "cross-")
        return f"the {self.pattern} of {points} {self.where} at {self.radius_um:g} µm ({name})"


class RipleyK(_Pattern):
    """Ripley's K, or cross-K to another kind, with the border correction."""

    fixed_unit: ClassVar[Unit] = UM2
    phrase: ClassVar[str] = "Ripley's {cross}K"
    kind: Literal["ripley_k"] = "ripley_k"


class RipleyL(_Pattern):
    """The root of K over π, which equals the radius under randomness."""

    fixed_unit: ClassVar[Unit] = UM
    phrase: ClassVar[str] = "Ripley's {cross}L"
    kind: Literal["ripley_l"] = "ripley_l"


class PairCorrelation(_Pattern):
    """Pairs at a distance, 1 under randomness; a ring of radius ± half width, border-corrected."""

    pattern: ClassVar[str] = "crowding"
    phrase: ClassVar[str] = "{cross}pair correlation, ± {halfwidth_um:g} µm"
    kind: Literal["pair_correlation"] = "pair_correlation"
    halfwidth_um: Radius

    @model_validator(mode="after")
    def _is_a_ring(self) -> PairCorrelation:
        if self.halfwidth_um > self.radius_um:
            raise ValueError("pair_correlation: halfwidth_um must not exceed radius_um")
        return self


class ClarkEvans(Enough):
    """Mean distance to the nearest point of the same kind, relative to that under randomness.

    Points within `guard_um` of the border count only as neighbors.
    """

    phrase: ClassVar[str] = (
        "the evenness of {of.plural} {node.where} (Clark–Evans index: below 1 clustered,"
        " above 1 regular)"
    )
    kind: Literal["clark_evans"] = "clark_evans"
    of: Points
    guard_um: Width = 20.0


class CrossG(Enough):
    """The share of points with another kind within a radius, for points farther from the border."""

    phrase: ClassVar[str] = (
        "the probability that {of.any} {node.where} has {to.any} within {radius_um:g} µm"
        " (nearest-neighbor function G, corrected for the border)"
    )
    kind: Literal["cross_g"] = "cross_g"
    of: Points
    to: Points
    radius_um: Radius


class Gradient(Node):
    """Slope of density over the signed distance to a region's border, outward, by bands."""

    fixed_unit: ClassVar[Unit] = read_unit("1/mm³")
    phrase: ClassVar[str] = (
        "the change in density of {of.plural} per mm from {reach_um:g} µm inside to"
        " {reach_um:g} µm outside the border of {region}"
    )
    kind: Literal["gradient"] = "gradient"
    of: Points
    region: Name
    reach_um: Radius
    bands: int = Field(default=4, ge=2, le=50)
    at_least: int = Field(default=10, ge=1, le=100_000)


class HotSpot(Enough):
    """The maximum of a Gaussian kernel density."""

    fixed_unit: ClassVar[Unit] = PER_MM2
    phrase: ClassVar[str] = (
        "the density of {of.plural} per mm² at their hot spot {node.where} (kernel of"
        " {bandwidth_um:g} µm)"
    )
    kind: Literal["hotspot"] = "hotspot"
    of: Points
    bandwidth_um: Radius
    at_least: int = Field(
        default=10, ge=0, le=100_000, description="0: no points count as a density of 0"
    )


class HotWindow(Enough):
    """The highest count in a square window, per mm²."""

    fixed_unit: ClassVar[Unit] = PER_MM2
    phrase: ClassVar[str] = (
        "the number of {of.plural} per mm² in the densest square of {side_um:g} µm {node.where}"
    )
    kind: Literal["hot_window"] = "hot_window"
    of: Points
    side_um: Window
    at_least: int = Field(
        default=10, ge=0, le=100_000, description="0: no points count as a density of 0"
    )


class Heterogeneity(Enough):
    """Unevenness of points over square fields: CV of densities, or Morisita's index."""

    phrase: ClassVar[str] = (
        "the unevenness of {of.plural} over fields of {side_um:g} µm {node.where}"
        " ({node.index_name})"
    )
    kind: Literal["heterogeneity"] = "heterogeneity"
    of: Points
    side_um: Radius
    index: Literal["cv", "morisita"]

    @property
    def index_name(self) -> str:
        """Name of the index, such as "Morisita's index"."""
        return {"cv": "coefficient of variation", "morisita": "Morisita's index"}[self.index]


ARRANGEMENTS = (
    *(Nearest, ToRegion, ShareNear, Neighbors, NeighborShare, NeighborEntropy, RipleyK, RipleyL),
    *(PairCorrelation, ClarkEvans, CrossG, Gradient, HotSpot, HotWindow, Heterogeneity),
)
"""Measures of the location, rather than the number, of cells and objects."""
