"""Countable entities (cells, objects), the areas that contain them, and their names."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mcp_servers.measures.maps import Name
from sage.core.models import Strict

Width = Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)]
CELLS = {
    "b_cell": "B cell",
    "t_cell": "T cell",
    "cd4_t_cell": "CD4+ T cell",
    "cd8_t_cell": "CD8+ T cell",
    "lymphoid": "lymphoid cell",
    "neoplastic": "neoplastic cell",
    "nk_cell": "NK cell",
    "other": "cell of another type",
}
PLURALS = {"cell of another type": "cells of other types"}
OBJECTS = {"tls": "tertiary lymphoid structure", "germinal_center": "germinal center"}
INSPECTED = "inspected_"
"""Prefix of a cell type for inspected regions: "inspected_tumor" were inspected for tumor."""
READ = "read_"
"""Prefix of an object kind found by a reader: "read_tls"."""
REGIONS = {
    "tumor": "the tumor",
    "stroma": "the stroma",
    "necrosis": "the necrosis",
    "peritumoral": "the peritumoral tissue",
}


def singular(source: str, name: str) -> str:
    """Return the singular noun: "B cell" for "b_cell", "germinal center" for "germinal_center"."""
    plain = name.replace("_", " ")
    if source == "objects":
        if name.startswith(READ):
            what = plain.partition(" ")[2]
            return f"{'figure' if what == 'mitosis' else 'region'} read as {what}"
        return OBJECTS.get(name, plain)
    if name in CELLS:
        return CELLS[name]
    if name.startswith(INSPECTED):
        return f"region inspected for {plain.partition(' ')[2]}"
    is_cell = plain.endswith(("cell", "cyte", "phage", "blast", "phil"))
    return plain if is_cell else f"{plain} cell"


def plural(source: str, name: str) -> str:
    """Return the plural noun: "B cells" for "b_cell"."""
    noun = singular(source, name)
    if noun in PLURALS:
        return PLURALS[noun]
    if name.startswith((INSPECTED, READ)):
        head, _, rest = noun.partition(" ")
        return f"{head}s {rest}"
    return noun[:-1] + "ies" if noun.endswith("y") else f"{noun}s"


def area_words(region: str) -> str:
    """Return the noun phrase for a region: "the tumor", or "the X region" if not listed."""
    return REGIONS.get(region, f"the {region.replace('_', ' ')} region")


def number(value: float) -> str:
    """Format a number as in formulas, with no more digits than needed."""
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else repr(value)


class Counted(Strict):
    """Cells or objects of a given type, or of all types; named "B cell" and "cells.b_cell"."""

    source: str
    type: Name | None

    @property
    def singular(self) -> str:
        """Singular noun, such as "B cell"."""
        return "cell" if self.type is None else singular(self.source, self.type)

    @property
    def plural(self) -> str:
        """Plural noun, such as "B cells"."""
        return "cells" if self.type is None else plural(self.source, self.type)

    @property
    def any(self) -> str:
        """Singular with its indefinite article; initialisms are not recognized."""
        return f"{'an' if self.singular[:1].lower() in 'aeiou' else 'a'} {self.singular}"

    @property
    def formula(self) -> str:
        """Formula text, such as "cells.b_cell"."""
        return self.source if self.type is None else f"{self.source}.{self.type}"


class Cells(Counted):
    """Cells of all types or of a given type."""

    source: Literal["cells"] = "cells"
    type: Name | None = None


class Objects(Counted):
    """Objects of a given kind."""

    source: Literal["objects"] = "objects"
    type: Name


Points = Annotated[Cells | Objects, Field(discriminator="source")]


class Tissue(Strict):
    """All analyzed tissue."""

    area: Literal["tissue"] = "tissue"

    @property
    def words(self) -> str:
        """Noun phrase, such as "the tissue"."""
        return "the tissue"

    @property
    def formula(self) -> str:
        """Formula text, such as "tissue"."""
        return "tissue"


class Region(Strict):
    """The regions of a given kind, within the tissue; phrase and formula as in `Tissue`."""

    area: Literal["region"] = "region"
    name: Name

    @property
    def words(self) -> str:
        return area_words(self.name)

    @property
    def formula(self) -> str:
        return f"regions.{self.name}"


class Margin(Strict):
    """Area within a distance of a region's border, inside and outside; otherwise as `Tissue`.

    Only borders with other tissue count: there is no margin where the region ends with the
    tissue.
    """

    area: Literal["margin"] = "margin"
    of: Name
    inside_um: Width
    outside_um: Width

    @model_validator(mode="after")
    def _has_width(self) -> Margin:
        if not self.inside_um and not self.outside_um:
            raise ValueError("a margin requires an inside or outside width")
        return self

    @property
    def words(self) -> str:
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
        return f"margin(regions.{self.of}, {number(self.inside_um)}, {number(self.outside_um)})"


Area = Annotated[Tissue | Region | Margin, Field(discriminator="area")]


TISSUE = Tissue()
