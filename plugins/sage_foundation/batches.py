"""Batches of slide tiles, read in threads while the previous batch is processed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from mcp_servers.formats.hdf5 import Grid
    from mcp_servers.slides.arrays import I64, U8
    from mcp_servers.slides.slide import Slide

T = TypeVar("T")
_END: Any = object()


def tiles(slide: Slide, corners: I64, grid: Grid) -> Iterator[U8]:
    """Yield tiles (patch, patch, 3) at `corners` (level-0 pixels), in order, decoded in parallel.

    `grid` gives the tile size: `patch_size` pixels from `patch_size_level0` level-0 pixels.
    """
    patch, size = grid.patch_size, grid.patch_size_level0
    if size == patch:
        yield from slide.tiles(corners, patch)
        return
    view = slide.scale_to(size / patch)

    def part(chunk: I64) -> list[U8]:
        at = [(round(x / view.scale), round(y / view.scale)) for x, y in chunk.tolist()]
        return [view.read(x, y, patch, patch) for x, y in at]

    waiting: deque[Future[list[U8]]] = deque()
    pool = ThreadPoolExecutor(slide.threads, thread_name_prefix="tiles")
    try:
        for start in range(0, len(corners), 8):
            waiting.append(pool.submit(part, corners[start : start + 8]))
            if len(waiting) > 2 * slide.threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def batches(
    items: Iterator[T], size: int, stack: Callable[[list[T]], Any], deep: int = 2
) -> Iterator[tuple[int, Any]]:
    """Yield the number of items processed so far and each batch made by `stack`.

    A thread fetches and stacks items up to `deep` batches ahead of the current batch; its
    errors are raised here.
    """

    def make() -> tuple[int, Any]:
        batch = [item for _, item in zip(range(size), items, strict=False)]
        return len(batch), stack(batch) if batch else _END

    with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
        waiting = deque(pool.submit(make) for _ in range(deep))
        done = 0
        while True:
            count, batch = waiting.popleft().result()
            if batch is _END:
                return
            waiting.append(pool.submit(make))
            done += count
            yield done, batch
