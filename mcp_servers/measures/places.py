"""Things that are counted (cells, objects) and the areas that contain them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field, model_validator

from mcp_servers.measures.maps import Name
from mcp_servers.measures.words import area_words, plural, singular, with_article
from sage.core.models import Strict

Width = Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)]


class _Counted(Strict):
    @property
    @abstractmethod
    def singular(self) -> str:
        """Singular noun, such as "B cell"."""

    @property
    def any(self) -> str:
        """Singular with its article, such as "a B cell"."""
        return with_article(self.singular)


class Cells(_Counted):
    """Cells, all or of a type."""

    source: Literal["cells"] = "cells"
    type: Name | None = None

    @property
    def plural(self) -> str:
        """Plural noun, such as "B cells"."""
        return "cells" if self.type is None else plural("cells", self.type)

    @property
    def singular(self) -> str:
        """Singular noun, such as "B cell"."""
        return "cell" if self.type is None else singular("cells", self.type)

    @property
    def formula(self) -> str:
        """Formula text, such as "cells.b_cell"."""
        return "cells" if self.type is None else f"cells.{self.type}"


class Objects(_Counted):
    """Objects of a kind."""

    source: Literal["objects"] = "objects"
    type: Name

    @property
    def plural(self) -> str:
        """Plural noun, such as "germinal centers"."""
        return plural("objects", self.type)

    @property
    def singular(self) -> str:
        """Singular noun, such as "germinal center"."""
        return singular("objects", self.type)

    @property
    def formula(self) -> str:
        """Formula text, such as "objects.germinal_center"."""
        return f"objects.{self.type}"


Points = Annotated[Cells | Objects, Field(discriminator="source")]


class Tissue(Strict):
    """All analyzed tissue."""

    area: Literal["tissue"] = "tissue"

    @property
    def words(self) -> str:
        """The tissue in words: "the tissue"."""
        return "the tissue"

    @property
    def formula(self) -> str:
        """The tissue as a formula: "tissue"."""
        return "tissue"


class Region(Strict):
    """The regions of a kind, within the tissue."""

    area: Literal["region"] = "region"
    name: Name

    @property
    def words(self) -> str:
        """The region in words, such as "the tumor"."""
        return area_words(self.name)

    @property
    def formula(self) -> str:
        """The region as a formula, such as "regions.tumor"."""
        return f"regions.{self.name}"


class Margin(Strict):
    """Area within a distance of a region's border, inside and outside.

    The border is that to other tissue: there is no margin where the region ends with the tissue.
    """

    area: Literal["margin"] = "margin"
    of: Name
    inside_um: Width
    outside_um: Width

    @model_validator(mode="after")
    def _has_width(self) -> Margin:
        if not self.inside_um and not self.outside_um:
            raise ValueError("a margin requires a width inside or outside")
        return self

    @property
    def words(self) -> str:
        """Noun phrase, such as "the 100 µm on both sides of the tumor's border"."""
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
        """Formula text, such as "margin(regions.tumor, 100, 100)"."""
        return f"margin(regions.{self.of}, {number(self.inside_um)}, {number(self.outside_um)})"


Area = Annotated[Tissue | Region | Margin, Field(discriminator="area")]


TISSUE = Tissue()


def number(value: float) -> str:
    """Format a number as in formulas, with no more digits than needed."""
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else repr(value)
