"""Listing the merges that made a graph's nodes."""

from __future__ import annotations

from collections import Counter

from kg.fusion.model import Merge, MergeTier
from kg.graph.model import Graph
from sage.core.errors import InputError
from sage.core.models import Strict


class MergeList(Strict):
    """Merges with their reasons; `total` counts those that a limit left out too."""

    merges: tuple[Merge, ...]
    total: int
    by_tier: dict[str, int]
    mode: str


def list_merges(
    graph: Graph,
    about: str | None = None,
    tier: str | None = None,
    limit: int | None = None,
) -> MergeList:
    """The merges of a graph, or of one node, or of one tier; similarity merges first.

    Parameters
    ----------
    graph : a built graph
    about : id, name or alias of a node whose merges alone are listed; None for all nodes
    tier : one of `MergeTier`; None for all
    limit : most merges that are listed; the totals count all that fit

    Returns
    -------
    Within a tier the least similar come first, since they are the likeliest to be wrong; counts by
    tier, and the mode of fusion that made the graph.

    Raises
    ------
    InputError
        If there is no such node or tier.
    """
    if tier is not None and tier not in set(MergeTier):
        raise InputError(f'merge tier "{tier}": choose one of {", ".join(MergeTier)}.')
    order = {t: n for n, t in enumerate(reversed(MergeTier))}
    found = sorted(
        (m for m in graph.merges(about) if tier is None or m.tier == tier),
        key=lambda m: (order[m.tier], m.score or 0.0, m.node, m.joined),
    )
    return MergeList(
        merges=tuple(found if limit is None else found[:limit]),
        total=len(found),
        by_tier=dict(sorted(Counter(m.tier.value for m in found).items())),
        mode=graph.meta.get("options", {}).get("mode", "unknown"),
    )
