"""A part of an expression: what every measure of the language has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from mcp_servers.measures.places import TISSUE, Area, number
from mcp_servers.measures.units import ONE, Unit, read_unit
from sage.core.models import Strict

Statistic = Literal["mean", "median", "sd", "cv", "p10", "p90", "max", "total"]
Distance = Literal["mean", "median", "p10", "p90"]
Window = Annotated[float, Field(ge=10, le=10_000, allow_inf_nan=False)]
"""µm over which cells are counted; a window smaller than a cell holds at most a single cell."""
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


class Node(Strict, ABC):
    """A part of an expression. `poolable`: numerators and denominators of slides can be summed."""

    poolable: ClassVar[bool] = False
    additive: ClassVar[bool] = False
    fixed_unit: ClassVar[Unit] = ONE
    kind: str

    @property
    def unit(self) -> Unit:
        """The unit of its value."""
        return self.fixed_unit

    @property
    @abstractmethod
    def words(self) -> str:
        """Noun phrase for this node."""

    @property
    def formula(self) -> str:
        """Source text: arguments without default in order, others by name if they differ."""
        ordered, named = [], []
        for name, info in type(self).model_fields.items():
            value = getattr(self, name)
            if info.is_required():
                ordered.append(_format_argument(value))
            elif name != "kind" and value != info.default:
                named.append(f"{name}={_format_argument(value)}")
        return f"{self.kind}({', '.join([*ordered, *named])})"

    def parts(self) -> Iterator[Node]:
        """Yield this expression and all within it."""
        yield self


class Within(Node):
    """An expression that is taken within an area."""

    within: Area = TISSUE

    @property
    def where(self) -> str:
        """ "in the tissue"."""
        return f"in {self.within.words}"


class Enough(Within):
    """An expression that needs a least number of cells."""

    at_least: int = Field(default=10, ge=1, le=100_000)


def _format_argument(value: Any) -> str:
    if isinstance(value, BaseModel):
        return str(value.formula)  # type: ignore[attr-defined]
    if isinstance(value, int | float):
        return number(value)
    text = str(value)
    return text if text.isidentifier() and text.isascii() else f'"{text}"'
