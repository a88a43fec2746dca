"""Random number generators, each of which is created from an explicitly given seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def generator(seed: int, *purpose: int) -> np.random.Generator:
    """Return a random generator that is identical on every machine for the same arguments.

    Parameters
    ----------
    seed : the seed of the run, the contract or the call; not negative
    purpose : numbers that distinguish this use of the seed from others, such as a replicate's index

    Raises
    ------
    TypeError
        If the seed is missing, since the random numbers could not be reproduced.
    """
    import numpy as np

    if seed is None:
        raise TypeError("a generator requires a seed")
    return np.random.default_rng([seed, *purpose])
