"""Measures of how much there is: counts, areas, densities, shares, sizes."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from mcp_servers.measures.maps import Name
from mcp_servers.measures.nodes import MM2, PER_MM2, STATISTICS, Enough, Node, Statistic, Within
from mcp_servers.measures.places import Area, Cells, Objects, Points
from mcp_servers.measures.units import ONE, Unit, UnitName, read_unit


class Count(Within):
    """Number of points in an area."""

    poolable: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    kind: Literal["count"] = "count"
    of: Points

    @property
    def words(self) -> str:
        """As in `Node`."""
        return f"the number of {self.of.plural} {self.where}"


class Size(Node):
    """The area of tissue or of a region."""

    poolable: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    fixed_unit: ClassVar[Unit] = MM2
    kind: Literal["area"] = "area"
    of: Area

    @property
    def words(self) -> str:
        """As in `Node`."""
        return f"the area of {self.of.words}"


class Density(Within):
    """Points per mm²."""

    poolable: ClassVar[bool] = True
    fixed_unit: ClassVar[Unit] = PER_MM2
    kind: Literal["density"] = "density"
    of: Points

    @property
    def words(self) -> str:
        """As in `Node`."""
        return f"the number of {self.of.plural} per mm² of {self.within.words}"


class Share(Enough):
    """Cells of a type among all cells."""

    poolable: ClassVar[bool] = True
    kind: Literal["share"] = "share"
    of: Cells

    @property
    def words(self) -> str:
        """As in `Node`."""
        return f"the share of {self.of.plural} among all cells {self.where}"

    @field_validator("of")
    @classmethod
    def _has_type(cls, value: Cells) -> Cells:
        if value.type is None:
            raise ValueError("share: name a type, as in share(cells.lymphoid)")
        return value


class Ratio(Enough):
    """Number of points of a kind per point of another."""

    poolable: ClassVar[bool] = True
    kind: Literal["ratio"] = "ratio"
    of: Points
    to: Points

    @property
    def words(self) -> str:
        """As in `Node`."""
        return f"the number of {self.of.plural} for each {self.to.singular} {self.where}"


class CellColumn(Enough):
    """A statistic over cells of a column such as the area of nuclei."""

    kind: Literal["cell"] = "cell"
    of: Cells
    column: Name
    measured_in: UnitName
    statistic: Statistic

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return ONE if self.statistic == "cv" else read_unit(self.measured_in)

    @property
    def words(self) -> str:
        """As in `Node`."""
        column = re.sub(r"_(um2?|od)$", "", self.column).replace("_", " ")
        return f"the {STATISTICS[self.statistic]} {column} of {self.of.plural} {self.where}"


class ObjectSize(Enough):
    """A statistic over the areas of objects."""

    kind: Literal["size"] = "size"
    of: Objects
    statistic: Statistic
    at_least: int = Field(default=1, ge=1, le=100_000)

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return ONE if self.statistic == "cv" else MM2

    @property
    def words(self) -> str:
        """As in `Node`."""
        return f"the {STATISTICS[self.statistic]} area of {self.of.plural} {self.where}"
