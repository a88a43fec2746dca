"""The language of measurements: typed expressions with units over the maps of a slide.

An expression measures one slide; a rule makes one value of a patient's slides. A measurement is
printed as a formula, from which it can be read again, and as one English sentence:

    mean(nearest(cells.b_cell, cells.neoplastic, median, within=regions.stroma))

Distances are µm; an argument that is a length says so in its name. `within` is the tissue where
nothing else is said. A statistic of fewer than `at_least` points is undefined.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from mcp_servers.measures.maps import Name
from mcp_servers.measures.units import ONE, Unit, read_unit
from mcp_servers.measures.words import area_words, plural, singular, with_article
from sage.core.models import Strict

Statistic = Literal["mean", "median", "sd", "cv", "p10", "p90", "max", "total"]
Distance = Literal["mean", "median", "p10", "p90"]
Rule = Literal["mean", "median", "max", "min", "area_weighted", "pooled", "only"]
Window = Annotated[float, Field(ge=10, le=10_000, allow_inf_nan=False)]
"""µm over which cells are counted; a window smaller than a cell holds one at most."""
Radius = Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)]
Width = Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)]

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
RULES: dict[Rule, str] = {
    "mean": "averaged over the patient's slides",
    "median": "as the median of the patient's slides",
    "max": "as the highest of the patient's slides",
    "min": "as the lowest of the patient's slides",
    "area_weighted": "averaged over the patient's slides by their area of tissue",
    "pooled": "with all slides of the patient taken together",
    "only": "on the patient's only slide",
}
DEEPEST = 12
LONGEST_NAME = 100


class Cells(Strict):
    """Cells, all or of one type."""

    source: Literal["cells"] = "cells"
    type: Name | None = None

    @property
    def plural(self) -> str:
        """ "B cells"."""
        return "cells" if self.type is None else plural("cells", self.type)

    @property
    def singular(self) -> str:
        """ "B cell"."""
        return "cell" if self.type is None else singular("cells", self.type)

    @property
    def formula(self) -> str:
        """ "cells.b_cell"."""
        return "cells" if self.type is None else f"cells.{self.type}"


class Objects(Strict):
    """Objects of one kind."""

    source: Literal["objects"] = "objects"
    type: Name

    @property
    def plural(self) -> str:
        """ "germinal centers"."""
        return plural("objects", self.type)

    @property
    def singular(self) -> str:
        """ "germinal center"."""
        return singular("objects", self.type)

    @property
    def formula(self) -> str:
        """ "objects.germinal_center"."""
        return f"objects.{self.type}"


Points = Annotated[Cells | Objects, Field(discriminator="source")]


class Tissue(Strict):
    """All tissue that was looked at."""

    area: Literal["tissue"] = "tissue"

    @property
    def words(self) -> str:
        """ "the tissue"."""
        return "the tissue"

    @property
    def formula(self) -> str:
        """ "tissue"."""
        return "tissue"


class Region(Strict):
    """The regions of a kind, within the tissue."""

    area: Literal["region"] = "region"
    name: Name

    @property
    def words(self) -> str:
        """ "the tumor"."""
        return area_words(self.name)

    @property
    def formula(self) -> str:
        """ "regions.tumor"."""
        return f"regions.{self.name}"


class Margin(Strict):
    """What lies within a distance of a region's border, inside of it and outside.

    The border is that to other tissue: where the region ends with the tissue, there is no margin.
    """

    area: Literal["margin"] = "margin"
    of: Name
    inside_um: Width
    outside_um: Width

    @model_validator(mode="after")
    def _has_width(self) -> Margin:
        if not self.inside_um and not self.outside_um:
            raise ValueError("a margin needs a width inside or outside")
        return self

    @property
    def words(self) -> str:
        """ "the 100 µm on both sides of the tumor's border"."""
        border = f"the border of {area_words(self.of)}"
        if self.inside_um == self.outside_um:
            return f"the {self.inside_um:g} µm on both sides of {border}"
        sides = [
            f"{width:g} µm {side}"
            for width, side in ((self.inside_um, "inside"), (self.outside_um, "outside"))
            if width
        ]
        return f"the {' and '.join(sides)} {border}"

    @property
    def formula(self) -> str:
        """ "margin(regions.tumor, 100, 100)"."""
        return f"margin(regions.{self.of}, {number(self.inside_um)}, {number(self.outside_um)})"


Area = Annotated[Tissue | Region | Margin, Field(discriminator="area")]
TISSUE = Tissue()


class Node(Strict, ABC):
    """A part of an expression. `poolable`: numerators and denominators of slides can be summed."""

    poolable: ClassVar[bool] = False
    additive: ClassVar[bool] = False
    kind: str

    @property
    def unit(self) -> Unit:
        """The unit of its value."""
        return ONE

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, as a phrase that begins with "the"."""

    @property
    def formula(self) -> str:
        """How it is written: arguments without default in order, others by name if they differ."""
        ordered, named = [], []
        for name, info in type(self).model_fields.items():
            value = getattr(self, name)
            if info.is_required():
                ordered.append(_written(value))
            elif name != "kind" and value != info.default:
                named.append(f"{name}={_written(value)}")
        return f"{self.kind}({', '.join([*ordered, *named])})"

    def parts(self) -> Iterator[Node]:
        """This expression and all within it."""
        yield self


class _Within(Node):
    within: Area = TISSUE

    @property
    def where(self) -> str:
        """ "in the tissue"."""
        return f"in {self.within.words}"


class _Enough(_Within):
    at_least: int = Field(default=10, ge=1, le=100_000)


class Count(_Within):
    """How many points lie in an area."""

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
    kind: Literal["area"] = "area"
    of: Area

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return MM2

    @property
    def words(self) -> str:
        """As in `Node`."""
        return f"the area of {self.of.words}"


class Density(_Within):
    """Points per mm²."""

    poolable: ClassVar[bool] = True
    kind: Literal["density"] = "density"
    of: Points

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return PER_MM2

    @property
    def words(self) -> str:
        """As in `Node`."""
        return f"the number of {self.of.plural} per mm² of {self.within.words}"


class Share(_Enough):
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


class Ratio(_Enough):
    """Points of one kind for each of another."""

    poolable: ClassVar[bool] = True
    kind: Literal["ratio"] = "ratio"
    of: Points
    to: Points

    @property
    def words(self) -> str:
        """As in `Node`."""
        return f"the number of {self.of.plural} for each {self.to.singular} {self.where}"


class Nearest(_Enough):
    """The distance from points to the nearest of another kind (or the nearest other of the same).

    To objects it is the distance to their outlines where these are known, 0 inside.
    """

    kind: Literal["nearest"] = "nearest"
    of: Points
    to: Points
    statistic: Distance

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return UM

    @property
    def words(self) -> str:
        """As in `Node`."""
        other = "other " if self.of == self.to else ""
        return (
            f"the {STATISTICS[self.statistic]} distance from {self.of.plural} {self.where} to the"
            f" nearest {other}{self.to.singular}"
        )


class ToRegion(_Enough):
    """The distance from points to the nearest border-to-border region of a kind, 0 inside."""

    kind: Literal["to_region"] = "to_region"
    of: Points
    region: Name
    statistic: Distance

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return UM

    @property
    def words(self) -> str:
        """As in `Node`."""
        return (
            f"the {STATISTICS[self.statistic]} distance from {self.of.plural} {self.where} to"
            f" {area_words(self.region)}"
        )


class ShareNear(_Enough):
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


class Neighbors(_Enough):
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


class NeighborShare(_Enough):
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


class NeighborEntropy(_Enough):
    """Shannon entropy of the types around a cell, averaged over cells with neighbors."""

    kind: Literal["neighbor_entropy"] = "neighbor_entropy"
    of: Cells
    radius_um: Radius

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return read_unit("bits")

    @property
    def words(self) -> str:
        """As in `Node`."""
        return (
            f"the mean diversity (Shannon entropy) of cell types within {self.radius_um:g} µm of "
            f"{with_article(self.of.singular)} {self.where}"
        )


class _Pattern(_Enough):
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

    kind: Literal["ripley_k"] = "ripley_k"

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return UM2

    @property
    def words(self) -> str:
        """As in `Node`."""
        return self._pattern("clustering", "clustering", "Ripley's {}K")


class RipleyL(_Pattern):
    """The root of K over π: the radius itself under randomness."""

    kind: Literal["ripley_l"] = "ripley_l"

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return UM

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


class ClarkEvans(_Enough):
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


class CrossG(_Enough):
    """The share of points with another kind within a radius, of those farther from the border."""

    kind: Literal["cross_g"] = "cross_g"
    of: Points
    to: Points
    radius_um: Radius

    @property
    def words(self) -> str:
        """As in `Node`."""
        one, other = with_article(self.of.singular), with_article(self.to.singular)
        return (
            f"the probability that {one} {self.where} has {other}"
            f" within {self.radius_um:g} µm (nearest-neighbor function G, corrected for the border)"
        )


class Gradient(Node):
    """Slope of density over the signed distance to a region's border, outward, by bands."""

    kind: Literal["gradient"] = "gradient"
    of: Points
    region: Name
    reach_um: Radius
    bands: int = Field(default=4, ge=2, le=50)
    at_least: int = Field(default=10, ge=1, le=100_000)

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return read_unit("1/mm³")

    @property
    def words(self) -> str:
        """As in `Node`."""
        return (
            f"the change in density of {self.of.plural} per mm from {self.reach_um:g} µm inside to"
            f" {self.reach_um:g} µm outside the border of {area_words(self.region)}"
        )


class CellColumn(_Enough):
    """A statistic over cells of a column such as the area of nuclei."""

    kind: Literal["cell"] = "cell"
    of: Cells
    column: Name
    measured_in: str
    statistic: Statistic

    @field_validator("measured_in")
    @classmethod
    def _is_a_unit(cls, value: str) -> str:
        return str(read_unit(value))

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return ONE if self.statistic == "cv" else read_unit(self.measured_in)

    @property
    def words(self) -> str:
        """As in `Node`."""
        column = re.sub(r"_(um2?|od)$", "", self.column).replace("_", " ")
        return f"the {STATISTICS[self.statistic]} {column} of {self.of.plural} {self.where}"


class ObjectSize(_Enough):
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


class HotSpot(_Enough):
    """The maximum of a Gaussian kernel density."""

    kind: Literal["hotspot"] = "hotspot"
    of: Points
    bandwidth_um: Radius
    at_least: int = Field(default=10, ge=0, le=100_000, description="0: none is a density of 0")

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return PER_MM2

    @property
    def words(self) -> str:
        """As in `Node`."""
        return (
            f"the density of {self.of.plural} per mm² at their hot spot {self.where} (kernel of"
            f" {self.bandwidth_um:g} µm)"
        )


class HotWindow(_Enough):
    """The highest count in a square window, per mm²."""

    kind: Literal["hot_window"] = "hot_window"
    of: Points
    side_um: Window
    at_least: int = Field(default=10, ge=0, le=100_000, description="0: none is a density of 0")

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return PER_MM2

    @property
    def words(self) -> str:
        """As in `Node`."""
        return (
            f"the number of {self.of.plural} per mm² in the densest square of {self.side_um:g} µm"
            f" {self.where}"
        )


class Heterogeneity(_Enough):
    """How unevenly points spread over square fields: the CV of densities, or Morisita's index."""

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


class Code(Node):
    """What a program computes in the sandbox (`sage.programs`).

    `program` is the SHA-256 of its text: another text is another measurement.
    """

    kind: Literal["code"] = "code"
    name: Name
    measured_in: str
    sentence: str = Field(pattern=r"^the [^\"\\\n]{8,280}$")
    program: str = Field(pattern=r"^[0-9a-f]{64}$")

    @field_validator("measured_in")
    @classmethod
    def _is_a_unit(cls, value: str) -> str:
        return str(read_unit(value))

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return read_unit(self.measured_in)

    @property
    def words(self) -> str:
        """As in `Node`."""
        return f"{self.sentence} (by the program {self.name}, {self.program[:8]})"


class Quantity(Node):
    """A number with its unit."""

    kind: Literal["quantity"] = "quantity"
    value: float = Field(allow_inf_nan=False)
    measured_in: str

    @field_validator("measured_in")
    @classmethod
    def _is_a_unit(cls, value: str) -> str:
        return str(read_unit(value))

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        return read_unit(self.measured_in)

    @property
    def words(self) -> str:
        """As in `Node`."""
        return f"{self.value:g}" + ("" if self.measured_in == "1" else f" {self.measured_in}")


class Log2(Node):
    """The binary logarithm of a pure number."""

    kind: Literal["log2"] = "log2"
    of: Expression

    @model_validator(mode="after")
    def _is_pure(self) -> Log2:
        if self.of.unit.powers:
            raise ValueError(f"log2 takes a pure number, not {self.of.unit}: {self.of.formula}")
        return self

    @property
    def words(self) -> str:
        """As in `Node`."""
        return f"the binary logarithm of ({self.of.words})"

    def parts(self) -> Iterator[Node]:
        """As in `Node`."""
        yield self
        yield from self.of.parts()


class Arithmetic(Node):
    """Two expressions, added, subtracted, multiplied or divided."""

    kind: Literal["arithmetic"] = "arithmetic"
    left: Expression
    operator: Literal["+", "-", "*", "/"]
    right: Expression

    @model_validator(mode="after")
    def _units_fit(self) -> Arithmetic:
        left, right = self.left.unit, self.right.unit
        if self.operator in "+-" and not left.fits(right):
            how = "added to" if self.operator == "+" else "subtracted from"
            first, second = (left, right) if self.operator == "+" else (right, left)
            raise ValueError(f"{first} cannot be {how} {second}: {self.formula}")
        return self

    @property
    def unit(self) -> Unit:
        """As in `Node`."""
        left, right = self.left.unit, self.right.unit
        if self.operator == "*":
            return left * right
        return left / right if self.operator == "/" else left

    @property
    def words(self) -> str:
        """As in `Node`."""
        verb = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}[self.operator]
        return f"{_in_parentheses(self.left)} {verb} {_in_parentheses(self.right)}"

    @property
    def formula(self) -> str:
        """Infix; every operand that is arithmetic itself stands in parentheses."""
        sides = [
            f"({side.formula})" if isinstance(side, Arithmetic) else side.formula
            for side in (self.left, self.right)
        ]
        return f" {self.operator} ".join(sides)

    def parts(self) -> Iterator[Node]:
        """As in `Node`."""
        yield self
        yield from self.left.parts()
        yield from self.right.parts()


LEAVES: tuple[type[Node], ...] = (
    *(Count, Size, Density, Share, Ratio, Nearest, ToRegion, ShareNear, Neighbors),
    *(NeighborShare, NeighborEntropy, RipleyK, RipleyL, PairCorrelation, ClarkEvans, CrossG),
    *(Gradient, CellColumn, ObjectSize, HotSpot, HotWindow, Heterogeneity, Code, Quantity),
)
Expression = Annotated[
    Count
    | Size
    | Density
    | Share
    | Ratio
    | Nearest
    | ToRegion
    | ShareNear
    | Neighbors
    | NeighborShare
    | NeighborEntropy
    | RipleyK
    | RipleyL
    | PairCorrelation
    | ClarkEvans
    | CrossG
    | Gradient
    | CellColumn
    | ObjectSize
    | HotSpot
    | HotWindow
    | Heterogeneity
    | Code
    | Quantity
    | Log2
    | Arithmetic,
    Field(discriminator="kind"),
]
ARRANGEMENTS = (
    *(Nearest, ToRegion, ShareNear, Neighbors, NeighborShare, NeighborEntropy, RipleyK, RipleyL),
    *(PairCorrelation, ClarkEvans, CrossG, Gradient, HotSpot, HotWindow, Heterogeneity),
)
"""Measures of where things lie, not of how many there are."""
Log2.model_rebuild()
Arithmetic.model_rebuild()


class Measurement(Strict):
    """An expression, and the rule by which a patient's slides become one value."""

    rule: Rule
    of: Expression

    @model_validator(mode="after")
    def _rule_fits(self) -> Measurement:
        parts = list(self.of.parts())
        if all(isinstance(part, Quantity | Arithmetic | Log2) for part in parts):
            raise ValueError(f"{self.of.formula} measures nothing on a slide")
        if self.rule == "pooled" and not poolable(self.of):
            raise ValueError(
                f"pooled sums counts and areas over slides, which {self.of.formula} has not; take"
                " mean, median, max, min, area_weighted or only"
            )
        return self

    @property
    def unit(self) -> str:
        """ "1/mm²"."""
        return str(self.of.unit)

    @property
    def formula(self) -> str:
        """What `mcp_servers.measures.formula.parse` reads."""
        return f"{self.rule}({self.of.formula})"

    @property
    def sentence(self) -> str:
        """One sentence for a pathologist."""
        phrase = self.of.words
        return f"{phrase[0].upper()}{phrase[1:]}, {RULES[self.rule]}."

    @property
    def label(self) -> str:
        """What it measures as a noun, for tables and figures."""
        return self.of.words.removeprefix("the ")

    @property
    def arranged(self) -> tuple[str, ...]:
        """What has the spatial arrangement that it measures ("B cells"); empty for mere amounts."""
        found = [
            points.plural
            for part in self.of.parts()
            if isinstance(part, ARRANGEMENTS)
            for name in ("of", "to")
            if (points := getattr(part, name, None)) is not None and points.type is not None
        ]
        return tuple(dict.fromkeys(found))

    @property
    def name(self) -> str:
        """A name of letters, digits and underscores, the same for the same formula."""
        text = self.formula
        for sign, word in ((" / ", " over "), (" - ", " minus "), (" + ", " plus ")):
            text = text.replace(sign, word)
        text = text.replace(" * ", " times ").translate(str.maketrans("µ²³", "u23"))
        if isinstance(self.of, Code):
            return f"{self.rule}_{self.of.name}_{self.of.program[:8]}"
        slug = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
        if _is_plain(self.of) and len(slug) <= LONGEST_NAME:
            return slug
        return f"{slug[:LONGEST_NAME]}_{_short_hash(self.formula)}"


def poolable(expression: Node) -> bool:
    """Whether numerator and denominator of slides can be summed before dividing."""
    if isinstance(expression, Arithmetic):
        sides = (expression.left, expression.right)
        return expression.operator == "/" and all(_additive(side) for side in sides)
    return expression.poolable


def number(value: float) -> str:
    """A number as formulas write it: no more digits than it needs."""
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else repr(value)


def _additive(expression: Node) -> bool:
    return expression.additive or (
        isinstance(expression, ObjectSize) and expression.statistic == "total"
    )


def _written(value: Any) -> str:
    if isinstance(value, BaseModel):
        return str(value.formula)  # type: ignore[attr-defined]
    if isinstance(value, int | float):
        return number(value)
    text = str(value)
    return text if text.isidentifier() and text.isascii() else f'"{text}"'


def _in_parentheses(expression: Node) -> str:
    compound = isinstance(expression, Arithmetic | Log2)
    return f"({expression.words})" if compound else expression.words


def _is_plain(expression: Node) -> bool:
    """Whether the letters and digits of its formula tell it from all others."""
    return not isinstance(expression, Arithmetic | Log2) and not re.search(
        r"\d\.\d|e[+-]\d", expression.formula
    )


def _short_hash(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:8]
