"""What a twin is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.random import Generator

Row = dict[str, Any]
TOLERANCE = 0.15


@contextmanager
def training(rng: Generator) -> Iterator[None]:
    """PyTorch seeded, on one thread: networks as small as the twins' are slower on several."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(int(rng.integers(1 << 30)))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class Twin:
    """A task: who makes its data and truth, and the program that solves it.

    `make(folder, rng)` writes the data and returns the truth by name; numbers are held to
    `tolerance`, texts have to be equal. The program leaves answer.json. With `weights` it uses
    weights that a user has to bring, trained here for the twin.
    """

    capability: str
    make: Callable[[Path, Generator], Row]
    program: str
    tolerance: float = TOLERANCE
    weights: bool = False
