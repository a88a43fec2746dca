"""The source of chance: every generator comes from a seed that somebody gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def generator(seed: int, *purpose: int) -> np.random.Generator:
    """Return a generator that equal arguments give again, on every machine.

    Parameters
    ----------
    seed : of the run, the contract or the call; not negative
    purpose : numbers that set this use of the seed apart from others, say a copy's number

    Raises
    ------
    TypeError
        Without a seed: chance that nobody can repeat.
    """
    import numpy as np

    if seed is None:
        raise TypeError("a generator needs a seed")
    return np.random.default_rng([seed, *purpose])
