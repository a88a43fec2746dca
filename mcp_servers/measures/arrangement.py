"""Measures of where things lie: distances, neighbors, patterns, gradients, hot spots."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from mcp_servers.measures.maps import Name
from mcp_servers.measures.nodes import (
    PER_MM2,
    STATISTICS,
    UM,
    UM2,
    Distance,
    Enough,
    Node,
    Radius,
    Window,
)
from mcp_servers.measures.places import Cells, Points, Width
from mcp_servers.measures.units import Unit, read_unit
from mcp_servers.measures.words import area_words, with_article


class Nearest(Enough):
    """The distance from points to the nearest of another kind (or the nearest other of the same).

    To objects it is the distance to their outlines where these are known, 0 inside.
    """

    fixed_unit: ClassVar[Unit] = UM
    kind: Literal["nearest"] = "nearest"
    of: Points
    to: Points
    statistic: Distance

    @property
    def words(self) -> str:
        """As in `Node`."""
        other = "other " if self.of == self.to else ""
        return (
            f"the {STATISTICS[self.statistic]} distance from {self.of.plural} {self.where} to the"
            f" nearest {other}{self.to.singular}"
        )


class ToRegion(Enough):
    """The distance from points to the nearest border-to-border region of a kind, 0 inside."""

    fixed_unit: ClassVar[Unit] = UM
    kind: Literal["to_region"] = "to_region"
    of: Points
    region: Name
    statistic: Distance

    @property
    def words(self) -> str:
        """As in `Node`."""
        return (
            f"the {STATISTICS[self.statistic]} distance from {self.of.plural} {self.where} to"
            f" {area_words(self.region)}"
        )


class ShareNear(Enough):
    """The share of points with another kind within a radius."""

    poolable: ClassVar[bool] = True
    kind: Literal["share_near"] = "share_near"
    of: Points
    to: Points
    radius_um: Radius

    @property
    def words(self) -> str:
        """As in `Node`."""
        other = "another" if self.of == self.to else "at least one"
        return (
            f"the share of {self.of.plural} {self.where} that have {other} {self.to.singular}"
            f" within {self.radius_um:g} µm"
        )


class Neighbors(Enough):
    """The mean number of points of a kind within a radius."""

    poolable: ClassVar[bool] = True
    kind: Literal["neighbors"] = "neighbors"
    of: Points
    to: Points
    radius_um: Radius

    @property
    def words(self) -> str:
        """As in `Node`."""
        other = "other " if self.of == self.to else ""
        return (
            f"the mean number of {other}{self.to.plural} within {self.radius_um:g} µm of "
            f"{with_article(self.of.singular)} {self.where}"
        )


class NeighborShare(Enough):
    """The share of a type among the cells around a cell, averaged over cells with neighbors."""

    kind: Literal["neighbor_share"] = "neighbor_share"
    of: Cells
    to: Cells
    radius_um: Radius

    @property
    def words(self) -> str:
        """As in `Node`."""
        return (
            f"the mean share of {self.to.plural} among the cells within {self.radius_um:g} µm of "
            f"{with_article(self.of.singular)} {self.where}"
        )


class NeighborEntropy(Enough):
    """Shannon entropy of the types around a cell, averaged over cells with neighbors."""

    fixed_unit: ClassVar[Unit] = read_unit("bits")
    kind: Literal["neighbor_entropy"] = "neighbor_entropy"
    of: Cells
    radius_um: Radius

    @property
    def words(self) -> str:
        """As in `Node`."""
        return (
            f"the mean diversity (Shannon entropy) of cell types within {self.radius_um:g} µm of "
            f"{with_article(self.of.singular)} {self.where}"
        )


class _Pattern(Enough):
    of: Points
    to: Points | None = None
    radius_um: Radius

    def _pattern(self, alone: str, together: str, name: str) -> str:
        what = (
            f"{alone} of {self.of.plural}"
            if self.to is None
            else f"{together} of {self.to.plural} around {self.of.plural}"
        )
        cross = "" if self.to is None else "cross-"
        return f"the {what} {self.where} at {self.radius_um:g} µm ({name.format(cross)})"


class RipleyK(_Pattern):
    """Ripley's K, or cross-K to another kind, with the border correction."""

    fixed_unit: ClassVar[Unit] = UM2
    kind: Literal["ripley_k"] = "ripley_k"

    @property
    def words(self) -> str:
        """As in `Node`."""
        return self._pattern("clustering", "clustering", "Ripley's {}K")


class RipleyL(_Pattern):
    """The root of K over π: the radius itself under randomness."""

    fixed_unit: ClassVar[Unit] = UM
    kind: Literal["ripley_l"] = "ripley_l"

    @property
    def words(self) -> str:
        """As in `Node`."""
        return self._pattern("clustering", "clustering", "Ripley's {}L")


class PairCorrelation(_Pattern):
    """Pairs at a distance, 1 under randomness; a ring of radius ± half width, border-corrected."""

    kind: Literal["pair_correlation"] = "pair_correlation"
    halfwidth_um: Radius

    @model_validator(mode="after")
    def _is_a_ring(self) -> PairCorrelation:
        if self.halfwidth_um > self.radius_um:
            raise ValueError("pair_correlation: halfwidth_um must not exceed radius_um")
        return self

    @property
    def words(self) -> str:
        """As in `Node`."""
        return self._pattern(
            "crowding", "crowding", f"{{}}pair correlation, ± {self.halfwidth_um:g} µm"
        )


class ClarkEvans(Enough):
    """Mean distance to the nearest of the same kind over that under randomness.

    Points within `guard_um` of the border count as neighbors alone.
    """

    kind: Literal["clark_evans"] = "clark_evans"
    of: Points
    guard_um: Width = 20.0

    @property
    def words(self) -> str:
        """As in `Node`."""
        return (
            f"the evenness of {self.of.plural} {self.where} (Clark–Evans index: below 1 clustered,"
            " above 1 regular)"
        )


class CrossG(Enough):
    """The share of points with another kind within a radius, of those farther from the border."""

    kind: Literal["cross_g"] = "cross_g"
    of: Points
    to: Points
    radius_um: Radius

    @property
    def words(self) -> str:
        """As in `Node`."""
        origin, target = with_article(self.of.singular), with_article(self.to.singular)
        return (
            f"the probability that {origin} {self.where} has {target}"
            f" within {self.radius_um:g} µm (nearest-neighbor function G, corrected for the border)"
        )


class Gradient(Node):
    """Slope of density over the signed distance to a region's border, outward, by bands."""

    fixed_unit: ClassVar[Unit] = read_unit("1/mm³")
    kind: Literal["gradient"] = "gradient"
    of: Points
    region: Name
    reach_um: Radius
    bands: int = Field(default=4, ge=2, le=50)
    at_least: int = Field(default=10, ge=1, le=100_000)

    @property
    def words(self) -> str:
        """As in `Node`."""
        return (
            f"the change in density of {self.of.plural} per mm from {self.reach_um:g} µm inside to"
            f" {self.reach_um:g} µm outside the border of {area_words(self.region)}"
        )


class HotSpot(Enough):
    """The maximum of a Gaussian kernel density."""

    fixed_unit: ClassVar[Unit] = PER_MM2
    kind: Literal["hotspot"] = "hotspot"
    of: Points
    bandwidth_um: Radius
    at_least: int = Field(default=10, ge=0, le=100_000, description="0: none is a density of 0")

    @property
    def words(self) -> str:
        """As in `Node`."""
        return (
            f"the density of {self.of.plural} per mm² at their hot spot {self.where} (kernel of"
            f" {self.bandwidth_um:g} µm)"
        )


class HotWindow(Enough):
    """The highest count in a square window, per mm²."""

    fixed_unit: ClassVar[Unit] = PER_MM2
    kind: Literal["hot_window"] = "hot_window"
    of: Points
    side_um: Window
    at_least: int = Field(default=10, ge=0, le=100_000, description="0: none is a density of 0")

    @property
    def words(self) -> str:
        """As in `Node`."""
        return (
            f"the number of {self.of.plural} per mm² in the densest square of {self.side_um:g} µm"
            f" {self.where}"
        )


class Heterogeneity(Enough):
    """Unevenness of points over square fields: CV of densities, or Morisita's index."""

    kind: Literal["heterogeneity"] = "heterogeneity"
    of: Points
    side_um: Radius
    index: Literal["cv", "morisita"]

    @property
    def words(self) -> str:
        """As in `Node`."""
        name = {"cv": "coefficient of variation", "morisita": "Morisita's index"}[self.index]
        return (
            f"the unevenness of {self.of.plural} over fields of {self.side_um:g} µm {self.where}"
            f" ({name})"
        )


ARRANGEMENTS = (
    *(Nearest, ToRegion, ShareNear, Neighbors, NeighborShare, NeighborEntropy, RipleyK, RipleyL),
    *(PairCorrelation, ClarkEvans, CrossG, Gradient, HotSpot, HotWindow, Heterogeneity),
)
"""Measures of where things lie, not of how many there are."""
