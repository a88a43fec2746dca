"""Exact enumeration of simple paths by a depth-first search pruned with a distance field.

A breadth-first search from the targets gives each node its distance to the nearest target. The
depth-first search enters a node only if a target can still be reached in the remaining steps, and
therefore explores few dead ends. All loops are compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

FAR = 127


@numba.njit(cache=True, nogil=True)
def distance_field(indptr: Any, indices: Any, targets: Any, most: int) -> Any:
    """Compute the number of steps from each node to the nearest of `targets`, (n,) int8.

    Parameters
    ----------
    indptr, indices : (n + 1,) and (e,) CSR arrays of the simple undirected graph
    targets : (t,) int32 node positions; duplicates are ignored
    most : maximum number of steps in the search; less than `FAR`

    Returns
    -------
    Steps, which are 0 at the targets themselves and `FAR` at nodes that cannot reach a target
    within `most` steps.
    """
    n = indptr.shape[0] - 1
    distance = np.full(n, FAR, dtype=np.int8)
    queue = np.empty(n, dtype=np.int32)
    first, last = 0, 0
    for k in range(targets.shape[0]):
        if distance[targets[k]] == FAR:
            distance[targets[k]] = 0
            queue[last] = targets[k]
            last += 1
    while first < last:
        u = queue[first]
        first += 1
        d = distance[u]
        if d >= most:
            continue
        for c in range(indptr[u], indptr[u + 1]):
            v = indices[c]
            if distance[v] == FAR:
                distance[v] = d + 1
                queue[last] = v
                last += 1
    return distance


@numba.njit(cache=True, nogil=True)
def _walk(
    indptr: Any,
    indices: Any,
    distance: Any,
    source: int,
    single: int,
    through: bool,
    hops: int,
    hub_cap: int,
    share: int,
    of: int,
    phase: int,
    limit: int,
    budget: int,
    out: Any,
) -> Any:
    """Count simple paths with exactly `hops` steps and write an even sample: `share` of every `of`.

    `single` is the only target, or -1. If `limit` < 0, all paths are counted; otherwise, the
    search stops once `limit` paths are written. Returns (count, written, steps); steps >
    budget means that the search was cut off.
    """
    node = np.empty(hops + 1, dtype=np.int32)
    cursor = np.empty(hops + 1, dtype=np.int64)
    stop = np.empty(hops + 1, dtype=np.int64)
    count, written, steps = 0, 0, 0
    node[0] = source
    cursor[0] = indptr[source]
    stop[0] = indptr[source + 1]
    depth = 0
    if distance[source] > hops:
        return count, written, steps
    while depth >= 0:
        if cursor[depth] >= stop[depth]:
            depth -= 1
            continue
        v = indices[cursor[depth]]
        cursor[depth] += 1
        steps += 1
        left = hops - depth - 1  # steps left once at v
        d = distance[v]
        if d > left:
            continue
        if left > 0:
            if d == 0 and not through:
                continue
            if hub_cap > 0 and depth > 0 and cursor[depth] - indptr[node[depth]] > hub_cap:
                cursor[depth] = stop[depth]
                continue
        seen = False
        for k in range(depth + 1):
            if node[k] == v:
                seen = True
                break
        if seen:
            continue
        if steps > budget:
            return count, written, steps
        end = depth + 1
        node[end] = v
        if left == 1 and single >= 0:
            end += 1  # d == 1: the only target is next to v and, not passed through, not yet used
            node[end] = single
        elif left > 0:
            depth += 1
            cursor[depth] = indptr[v]
            stop[depth] = indptr[v + 1]
            continue
        if (count * share + phase) % of < share and written < out.shape[0]:
            for k in range(end + 1):
                out[written, k] = node[k]
            written += 1
        count += 1
        if limit >= 0 and written >= limit:
            return count, written, steps
    return count, written, steps


@dataclass(frozen=True)
class Found:
    """Paths as rows of node positions, padded with -1, and the total number of paths."""

    rows: NDArray[np.int32]
    total: int
    complete: bool


class Searcher:
    """Path search from any source to a set of targets.

    Parameters
    ----------
    indptr, indices : CSR arrays of the simple undirected graph
    targets : (t,) node positions
    blocked : nodes that paths may not use, except as sources
    through : whether a path may pass through a target (useful if the targets form a class)
    hub_cap : maximum number of neighbors entered from a node, least connected first; 0 for
        all
    budget : maximum number of steps in a search; if exceeded, the result has `complete=False`
    """

    def __init__(
        self,
        indptr: NDArray[np.int64],
        indices: NDArray[np.int32],
        targets: NDArray[np.int32],
        max_hops: int,
        *,
        blocked: NDArray[np.int32] | None = None,
        through: bool = False,
        hub_cap: int = 0,
        budget: int = 20_000_000,
    ) -> None:
        self._indptr, self._indices = indptr, indices
        self._max_hops = max_hops
        self._hub_cap = hub_cap
        self._budget = budget
        self._single = int(targets[0]) if len(targets) == 1 else -1
        self._through = through and self._single < 0
        self.distance: NDArray[np.int8] = distance_field(
            indptr, indices, targets.astype(np.int32), max_hops
        )
        if blocked is not None and len(blocked):
            inside = blocked[self.distance[blocked] > 0]
            self.distance[inside] = FAR

    def count(self, source: int, hops: int) -> tuple[int, bool]:
        """Count the simple paths with exactly `hops` steps, and return whether all were counted."""
        nowhere = np.empty((0, 1), dtype=np.int32)
        count, _, steps = self._run(source, hops, (1, 1, 0), -1, nowhere)
        return count, steps <= self._budget

    def shortest(self, source: int, k: int, min_hops: int = 1) -> Found:
        """Find the first k paths by length, then in the order of the neighbor lists."""
        rows = np.full((k, self._max_hops + 1), -1, dtype=np.int32)
        have, complete = 0, True
        for hops in range(min_hops, self._max_hops + 1):
            if have >= k:
                break
            _, written, steps = self._run(source, hops, (1, 1, 0), k - have, rows[have:])
            have += written
            complete = complete and steps <= self._budget
        return Found(rows[:have], have, complete)

    def spread(self, source: int, most: int, min_hops: int, seed: int) -> Found:
        """Find all paths if there are at most `most`, else an even sample of each length.

        Each path length gets an equal quota; unused quota is redistributed to other lengths. A
        length with too many paths is sampled evenly, at an offset that depends on the seed; nothing
        is random.

        Parameters
        ----------
        most : maximum number of paths returned, over all lengths
        min_hops : shortest length in steps; the longest is that of the searcher
        seed : determines which paths are sampled; the same seed gives the same paths

        Returns
        -------
        (p, max_hops + 1) rows with p at most `most`, shorter paths first, and the total number of
        paths; `complete` is False if a search was cut off by its step budget.
        """
        lengths = range(min_hops, self._max_hops + 1)
        counted = [self.count(source, hops) for hops in lengths]
        total = sum(c for c, _ in counted)
        room = shares([c for c, _ in counted], most)
        parts: list[NDArray[np.int32]] = []
        for hops, (count, _), quota in zip(lengths, counted, room, strict=True):
            if not quota:
                continue
            rows = np.full((quota, self._max_hops + 1), -1, dtype=np.int32)
            phase = (seed * 2_654_435_761 + hops) % count
            _, written, _ = self._run(source, hops, (quota, count, phase), quota, rows)
            parts.append(rows[:written])
        rows = np.concatenate(parts) if parts else np.empty((0, self._max_hops + 1), dtype=np.int32)
        return Found(rows, total, all(whole for _, whole in counted))

    def _run(
        self, source: int, hops: int, sample: tuple[int, int, int], limit: int, out: Any
    ) -> tuple[int, int, int]:
        own = self.distance[source]
        if own == 0:
            return 0, 0, 0  # the source is itself a target: no simple path leads back to it
        counts: tuple[int, int, int] = _walk(
            self._indptr,
            self._indices,
            self.distance,
            source,
            self._single,
            self._through,
            hops,
            self._hub_cap,
            *sample,
            limit,
            self._budget,
            out,
        )
        return counts


def shares(wanted: list[int], most: int) -> list[int]:
    """Divide `most` into equal quotas, none larger than the number wanted."""
    room = [0] * len(wanted)
    left = most
    open_ = [n for n, w in enumerate(wanted) if w]
    while left > 0 and open_:
        each = max(1, left // len(open_))
        for n in list(open_):
            take = min(each, wanted[n] - room[n], left)
            room[n] += take
            left -= take
            if room[n] == wanted[n]:
                open_.remove(n)
    return room
