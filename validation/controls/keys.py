"""Keys for the controls' numbers in `results.json`.

Code that writes or quotes these numbers gets the keys from here.
"""

from __future__ import annotations

from enum import StrEnum


class Key(StrEnum):
    """Keys for the controls' numbers."""

    PERMUTED_P = "control.permuted.p"
    PERMUTED_DRAWS = "control.permuted.draws"
    PERMUTED_AS_GOOD = "control.permuted.as_good"
    PERMUTED_RATE = "control.permuted.false_positive_rate"
    KNOWN_POSITIVE_HR = "control.known_positive.hr"
    KNOWN_POSITIVE_LEVEL = "control.known_positive.hr_per_level"
    KNOWN_POSITIVE_LOWER = "control.known_positive.lower"
    KNOWN_POSITIVE_UPPER = "control.known_positive.upper"
    KNOWN_POSITIVE_P = "control.known_positive.p"
    KNOWN_POSITIVE_EVENTS = "control.known_positive.events"
    MISSING = "control.missingness.missing"
    MISSING_P = "control.missingness.p"
    MISSING_EFFECT = "control.missingness"
    NEGATIVE_P = "control.negative.p"
    NEGATIVE_N = "control.negative.n"
    SPECIFICATIONS = "specification.n"
    EXPECTED_SIGN = "specification.expected_sign"
    SPECIFICATIONS_SIGNIFICANT = "specification.significant"
    SPECIFICATION_MEDIAN = "specification.median"
    SPECIFICATION_LOWEST = "specification.lowest"
    SPECIFICATION_HIGHEST = "specification.highest"
    SPECIFICATIONS_FAILED = "specification.failed"
    SITES_LEFT_OUT = "specification.left_out"
    LEFT_OUT_LOWEST = "specification.left_out.lowest"
    LEFT_OUT_HIGHEST = "specification.left_out.highest"
    LEFT_OUT_SIGN = "specification.left_out.expected_sign"
    SPECIFICATION_OWN = "specification.own"


def random_key(exposure: int, number: str) -> str:
    """Return the key for a number about an exposure's random features, such as `as_good` or `p`.

    Exposures are counted from 0 in the argument and from 1 in the key.
    """
    return f"control.random.{exposure + 1}.{number}"
