"""Units of measurement as products of powers, such as 1/mm² or OD/µm²."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from sage.core.errors import InputError

LENGTHS = {"µm": 1.0, "mm": 1000.0}
"""Size of each unit of length, in µm."""
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_PLAIN = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_ATOM = re.compile(r"^([A-Za-zµ°%]{1,12})([⁰¹²³⁴⁵⁶⁷⁸⁹]{0,2})$")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: powers of base units, and its size in those base units.

    `powers` is sorted by base and contains no zeros; lengths are powers of µm.
    """

    powers: tuple[tuple[str, int], ...] = ()
    scale: float = 1.0

    def __mul__(self, other: Unit) -> Unit:
        """Return the product; its lengths are in µm if they are to the first power, else in mm."""
        return self._combine(other, 1)

    def __truediv__(self, other: Unit) -> Unit:
        """Return the quotient, with lengths in the same units as for a product."""
        return self._combine(other, -1)

    def __str__(self) -> str:
        over = [self._atom(base, power) for base, power in self.powers if power > 0]
        under = [self._atom(base, -power) for base, power in self.powers if power < 0]
        text = "·".join(over) or "1"
        return "/".join([text, *under])

    def fits(self, other: Unit) -> bool:
        """Check whether values in the two units can be added."""
        return self.powers == other.powers

    def per(self, other: Unit) -> float:
        """Return the factor that converts `other` to this unit; dimensions must agree."""
        return other.scale / self.scale

    def _combine(self, other: Unit, sign: int) -> Unit:
        powers = dict(self.powers)
        for base, power in other.powers:
            powers[base] = powers.get(base, 0) + sign * power
        kept = tuple(sorted((base, power) for base, power in powers.items() if power))
        length = dict(kept).get("µm", 0)
        return Unit(kept, LENGTHS["µm" if length == 1 else "mm"] ** length)

    def _atom(self, base: str, power: int) -> str:
        if base == "µm":
            total = dict(self.powers)["µm"]
            base = min(LENGTHS, key=lambda name: abs(LENGTHS[name] ** total / self.scale - 1))
        return base + ("" if power == 1 else str(power).translate(_RAISED))


ONE = Unit()


def read_unit(text: str) -> Unit:
    """Parse a unit such as "1/mm²", "µm", "OD" or "1".

    Names that are not lengths ("OD", "bits") become separate units. Raises `InputError` if
    the text is not a unit.
    """
    powers: dict[str, int] = {}
    scale = 1.0
    for place, part in enumerate(text.split("/")):
        for factor in part.split("·"):
            if factor == "1":
                continue
            atom = _ATOM.match(factor)
            if atom is None:
                raise InputError(
                    f"{text!r} is not a unit; expected a unit such as µm, 1/mm², OD or 1"
                )
            name, power = atom[1], int(atom[2].translate(_PLAIN) or 1) * (-1 if place else 1)
            base = "µm" if name in LENGTHS else name
            powers[base] = powers.get(base, 0) + power
            scale *= LENGTHS.get(name, 1.0) ** power
    return Unit(tuple(sorted((base, power) for base, power in powers.items() if power)), scale)


def _normalize_unit(text: str) -> str:
    return str(read_unit(text))


UnitName = Annotated[str, AfterValidator(_normalize_unit)]
"""Text of a unit, normalized to its usual spelling."""
