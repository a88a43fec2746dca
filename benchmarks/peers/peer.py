"""What the peers' scripts share. Runs in the peer's environment: the standard library only.

A script is called with a slide, a number of tiles and a number of repeats, and prints one line of
JSON: seconds (median, after one warm-up) and how many tiles it kept.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

TILE = 256
Corner = tuple[int, int]


def seconds(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median seconds over repeats after one warm-up, and the last answer."""
    answer = call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        answer = call()
        times.append(time.perf_counter() - start)
    return statistics.median(times), answer


def aligned(width: int, height: int, count: int) -> list[Corner]:
    """Corners of `count` tiles on the grid of the file's own tiles, from the middle rows."""
    columns = width // TILE
    first = (height // (2 * TILE)) * columns
    return [((i % columns) * TILE, (i // columns) * TILE) for i in range(first, first + count)]


def reading(read: Callable[[Corner], Any], corners: list[Corner]) -> dict[str, Callable[[], int]]:
    """Ways to read tiles with a peer's own call: one after the other, and in a thread per core."""

    def in_turn() -> int:
        return sum(1 for corner in corners if read(corner) is not None)

    def in_threads() -> int:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return sum(1 for tile in pool.map(read, corners) if tile is not None)

    return {"one thread": in_turn, "a thread per core": in_threads}


def peak_mb() -> float:
    """Highest memory of this program in MiB; getrusage would count that of its parent too."""
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def main(
    package: str,
    mask_and_tiles: Callable[[str], int],
    reader: Callable[[str], tuple[tuple[int, int], Callable[[Corner], Any]]],
    *,
    way: str,
    nuclei: str,
) -> None:
    """Measure and print. `way` names the calls that were used, `nuclei` what there is for them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("slide")
    parser.add_argument("--tiles", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    stdout, sys.stdout = sys.stdout, sys.stderr  # what the peer prints must not mix with the answer
    taken, tiles = seconds(lambda: mask_and_tiles(options.slide), options.repeats)
    (width, height), read = reader(options.slide)
    best = ("", float("inf"))
    for name, call in reading(read, aligned(width, height, options.tiles)).items():
        one, _ = seconds(call, options.repeats)
        best = min(best, (name, one), key=lambda pair: pair[1])
    answer = {
        "version": importlib.metadata.version(package),
        "python": sys.version.split()[0],
        "mask_seconds": taken,
        "tiles": tiles,
        "way": way,
        "read_per_second": options.tiles / best[1],
        "read_way": best[0],
        "nuclei": nuclei,
        "peak_mb": peak_mb(),
    }
    print(json.dumps(answer), file=stdout)
