"""Random number generators, each created from an explicit seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def generator(seed: int, *purpose: int) -> np.random.Generator:
    """Return a random generator that is identical on every machine for the same arguments.

    Parameters
    ----------
    seed : non-negative seed from the run, contract or call
    purpose : numbers that distinguish this use of the seed from others, such as a replicate
        index

    Raises
    ------
    TypeError
        If the seed is missing, since the random numbers could not be reproduced.
    """
    import numpy as np

    if seed is None:
        raise TypeError("a generator requires a seed")
    return np.random.default_rng([seed, *purpose])
