"""Measurement language: typed expressions with units over a slide's maps.

An expression measures a slide, and a rule combines a patient's slides into a single
value. A measurement is printed both as a formula, which can be parsed again, and as an
English sentence:

    mean(nearest(cells.b_cell, cells.neoplastic, median, within=regions.stroma))

Distances are in µm, as the name of each length argument indicates. `within` defaults to
the tissue. A statistic over fewer than `at_least` points is undefined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias, Union

from pydantic import Field, model_validator

from mcp_servers.measures.maps import Name
from mcp_servers.measures.nodes import AMOUNTS, ARRANGEMENTS, Node, ObjectSize
from mcp_servers.measures.units import Unit, UnitName, read_unit
from sage.core.hashes import hash_text
from sage.core.models import Strict

Rule = Literal["mean", "median", "max", "min", "area_weighted", "pooled", "only"]


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


class Code(Node):
    """Value computed by a program in the sandbox.

    `program` is the SHA-256 of its text: a different text is a different measurement.
    """

    phrase: ClassVar[str] = "{sentence} (by the program {name}, {program:.8})"
    kind: Literal["code"] = "code"
    name: Name
    measured_in: UnitName
    sentence: str = Field(pattern=r"^the [^\"\\\n]{8,280}$")
    program: str = Field(pattern=r"^[0-9a-f]{64}$")

    @property
    def unit(self) -> Unit:
        return read_unit(self.measured_in)


class Quantity(Node):
    """A number with its unit."""

    kind: Literal["quantity"] = "quantity"
    value: float = Field(allow_inf_nan=False)
    measured_in: UnitName

    @property
    def unit(self) -> Unit:
        return read_unit(self.measured_in)

    @property
    def words(self) -> str:
        return f"{self.value:g}" + ("" if self.measured_in == "1" else f" {self.measured_in}")


class Log2(Node):
    """The binary logarithm of a pure number."""

    phrase: ClassVar[str] = "the binary logarithm of ({of.words})"
    kind: Literal["log2"] = "log2"
    of: Expression

    @model_validator(mode="after")
    def _is_pure(self) -> Log2:
        if self.of.unit.powers:
            raise ValueError(
                f"log2 requires a dimensionless measure, not {self.of.unit}: {self.of.formula}"
            )
        return self

    def parts(self) -> Iterator[Node]:
        yield self
        yield from self.of.parts()


class Arithmetic(Node):
    """Two expressions that are added, subtracted, multiplied or divided."""

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
        left, right = self.left.unit, self.right.unit
        if self.operator == "*":
            return left * right
        return left / right if self.operator == "/" else left

    @property
    def words(self) -> str:
        verb = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}[self.operator]
        return f"{_in_parentheses(self.left)} {verb} {_in_parentheses(self.right)}"

    @property
    def formula(self) -> str:
        """Infix formula, with arithmetic operands in parentheses."""
        sides = [
            f"({side.formula})" if isinstance(side, Arithmetic) else side.formula
            for side in (self.left, self.right)
        ]
        return f" {self.operator} ".join(sides)

    def parts(self) -> Iterator[Node]:
        yield self
        yield from self.left.parts()
        yield from self.right.parts()


LEAVES: tuple[type[Node], ...] = (*AMOUNTS, *ARRANGEMENTS, Code, Quantity)


if TYPE_CHECKING:
    Expression: TypeAlias = Node
else:
    Expression = Annotated[Union[(*LEAVES, Log2, Arithmetic)], Field(discriminator="kind")]


Log2.model_rebuild()


Arithmetic.model_rebuild()


class Measurement(Strict):
    """An expression, and the rule for combining a patient's slides into a value."""

    rule: Rule
    of: Expression

    @model_validator(mode="after")
    def _rule_fits(self) -> Measurement:
        parts = list(self.of.parts())
        if all(isinstance(part, Quantity | Arithmetic | Log2) for part in parts):
            raise ValueError(f"{self.of.formula} does not measure anything on a slide")
        if self.rule == "pooled" and not poolable(self.of):
            raise ValueError(
                f"pooled requires counts or areas to sum over slides, which {self.of.formula} "
                "lacks; use mean, median, max, min, area_weighted or only"
            )
        return self

    @property
    def unit(self) -> str:
        """Unit of the value, such as "1/mm²"."""
        return str(self.of.unit)

    @property
    def formula(self) -> str:
        """Formula text that `mcp_servers.measures.formula.parse` can read."""
        return f"{self.rule}({self.of.formula})"

    @property
    def sentence(self) -> str:
        """One-sentence description of the measurement for a pathologist."""
        phrase = self.of.words
        return f"{phrase[0].upper()}{phrase[1:]}, {RULES[self.rule]}."

    @property
    def label(self) -> str:
        """Noun phrase for tables and figures."""
        return self.of.words.removeprefix("the ")

    @property
    def arranged(self) -> tuple[str, ...]:
        """Subject whose spatial arrangement is measured ("B cells"); empty for plain amounts."""
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
        """Name consisting of letters, digits and underscores, determined by the formula."""
        text = self.formula
        for sign, word in ((" / ", " over "), (" - ", " minus "), (" + ", " plus ")):
            text = text.replace(sign, word)
        text = text.replace(" * ", " times ").translate(str.maketrans("µ²³", "u23"))
        if isinstance(self.of, Code):
            return f"{self.rule}_{self.of.name}_{self.of.program[:8]}"
        slug = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
        if _is_plain(self.of) and len(slug) <= LONGEST_NAME:
            return slug
        return f"{slug[:LONGEST_NAME]}_{hash_text(self.formula, digits=8)}"


def poolable(expression: Node) -> bool:
    """Check whether the slides' numerators and denominators can be summed before dividing."""
    if isinstance(expression, Arithmetic):
        sides = (expression.left, expression.right)
        return expression.operator == "/" and all(_additive(side) for side in sides)
    return expression.poolable


def _additive(expression: Node) -> bool:
    return expression.additive or (
        isinstance(expression, ObjectSize) and expression.statistic == "total"
    )


def _in_parentheses(expression: Node) -> str:
    compound = isinstance(expression, Arithmetic | Log2)
    return f"({expression.words})" if compound else expression.words


def _is_plain(expression: Node) -> bool:
    """Check whether an expression's formula is identified by its letters and digits only."""
    return not isinstance(expression, Arithmetic | Log2) and not re.search(
        r"\d\.\d|e[+-]\d", expression.formula
    )
