"""The four scores of a path (SAGE, B.1), as pure functions on arrays.

A batch of n paths with at most m nodes is an (n, m) array of node indices; short rows are padded
with -1 at the end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.integer]

#: The "small constant" of B.1.3.
EPSILON = 1e-6
#: Result of min-max scaling if all candidates are equal: the middle, as nothing is known.
UNDECIDED = 0.5


def logic(query: NDArray[np.floating], paths: NDArray[np.floating]) -> Floats:
    """Compute the cosine similarity of the query with each path's sentence (SAGE, B.1.1).

    Parameters
    ----------
    query : (d,) unit vector of the query
    paths : (n, d) unit vectors of the path sentences

    Returns
    -------
    (n,) cosines in [-1, 1]
    """
    # einsum sums each row in the same order for every batch, so that a path's score does not
    # depend on the other paths in its batch.
    product = np.einsum(
        "nd,d->n", np.asarray(paths, dtype=np.float64), np.asarray(query, dtype=np.float64)
    )
    return np.asarray(np.clip(product, -1.0, 1.0), dtype=np.float64)


def relevance(paths: Ints, distances: NDArray[np.floating]) -> Floats:
    """Compute 1 minus the mean Euclidean distance of a path's entities to the domain (SAGE, B.1.2).

    Parameters
    ----------
    paths : (n, m) node indices, padded with -1
    distances : (n_nodes,) distance of each node's unit vector to the domain's unit vector

    Returns
    -------
    (n,) raw relevance in [-1, 1]
    """
    return 1.0 - _mean_over(paths, np.asarray(distances, dtype=np.float64))


def information_content(degrees: Ints, epsilon: float = EPSILON) -> Floats:
    """Compute the information content of each node, in nats (SAGE, B.1.3).

    The content is -log P(e) with P(e) = (deg(e) + eps) / (sum of degrees + eps). An isolated node
    has the largest value, which is finite; for a graph without edges, all values are zero.
    """
    degree: Floats = np.asarray(degrees, dtype=np.float64)
    content: Floats = -np.log((degree + epsilon) / (degree.sum() + epsilon))
    return content


def novelty(paths: Ints, content: Floats) -> Floats:
    """Compute the mean information content of a path's entities, in nats (SAGE, B.1.3).

    Parameters
    ----------
    paths : (n, m) node indices, padded with -1
    content : (n_nodes,) from `information_content`
    """
    return _mean_over(paths, content)


def category_distribution(categories: Ints, n_categories: int) -> Floats:
    """Compute each category's share of all nodes, (n_categories,); zeros if there are no nodes."""
    counts = np.bincount(np.asarray(categories, dtype=np.int64), minlength=n_categories)
    total = counts.sum()
    return counts / total if total else counts.astype(np.float64)


def category_counts(paths: Ints, categories: Ints, n_categories: int) -> Ints:
    """Count each path's entities per category, (n, n_categories)."""
    n, m = paths.shape
    counts = np.zeros((n, n_categories), dtype=np.int64)
    rows = np.arange(n)
    for column in range(m):
        at = paths[:, column]
        there = at >= 0
        # Within a column each row occurs once, so plain fancy indexing counts correctly.
        counts[rows[there], np.asarray(categories)[at[there]]] += 1
    return counts


def surprise(counts: Ints, background: Floats) -> Floats:
    """Compute the KL divergence of each path's entity categories from the graph's (SAGE, B.1.4).

    Parameters
    ----------
    counts : (n_paths, n_categories) number of entities per category; no row is all zeros
    background : (n_categories,) category distribution over the entire graph, which sums to 1

    Returns
    -------
    (n_paths,) divergence in nats, never negative, not yet normalized

    Raises
    ------
    ValueError
        If a path has no entities, or has a category with zero probability in the background.
    """
    counts = np.asarray(counts, dtype=np.float64)
    background = np.asarray(background, dtype=np.float64)
    sizes = counts.sum(axis=1)
    if (sizes == 0).any():
        raise ValueError("a path without entities has no category distribution")
    if (counts[:, background <= 0] > 0).any():
        raise ValueError("a path uses a category with zero probability in the background")
    actual = counts / sizes[:, None]
    expected = np.where(background > 0, background, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(actual > 0, actual * np.log(actual / expected), 0.0)
    divergence: Floats = np.maximum(terms.sum(axis=1), 0.0)
    return divergence


def min_max(values: Floats) -> Floats:
    """Scale values to [0, 1] over the candidates; if all are equal, each becomes 0.5."""
    values = np.asarray(values, dtype=np.float64)
    if values.size == 0:
        return values
    low, high = values.min(), values.max()
    # Sums in a different order differ in the last bits; such values count as equal.
    if high - low <= 1e-12 * max(1.0, abs(low), abs(high)):
        return np.full(values.shape, UNDECIDED)
    scaled: Floats = (values - low) / (high - low)
    return scaled


def clamp_logic(raw: Floats) -> Floats:
    """Clamp cosines to [0, 1], so that a path opposed to the query counts as unrelated."""
    return np.clip(raw, 0.0, 1.0)


def rescale_relevance(raw: Floats) -> Floats:
    """Linearly rescale raw relevance and clamp it to [0, 1] (SAGE, B.1.2).

    Unit vectors are at most 2 apart, so raw relevance is in [-1, 1] and (1 + raw) / 2 in [0, 1].
    """
    return np.clip((np.asarray(raw, dtype=np.float64) + 1.0) / 2.0, 0.0, 1.0)


def total(
    weights: tuple[float, float, float, float],
    logic_: Floats,
    relevance_: Floats,
    novelty_: Floats,
    surprise_: Floats,
) -> Floats:
    """Compute the weighted mean of the normalized scores (SAGE, equation 1).

    Parameters
    ----------
    weights : weights of Logic, Relevance, Novelty and Surprise (alpha to delta); scaled to sum to 1
    logic_, relevance_, novelty_, surprise_ : (n,) scores normalized to [0, 1]

    Returns
    -------
    (n,) totals in [0, 1]

    Raises
    ------
    ValueError
        If a weight is negative or not finite, or all are zero.
    """
    weight = check_weights(weights)
    return (
        weight[0] * logic_ + weight[1] * relevance_ + weight[2] * novelty_ + weight[3] * surprise_
    )


def check_weights(weights: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Scale weights to sum to 1; raise ValueError if any is negative or not finite, or all 0."""
    array = np.asarray(weights, dtype=np.float64)
    if not np.isfinite(array).all() or (array < 0).any() or array.sum() <= 0:
        raise ValueError(f"path weights must be >= 0 and not all zero, got {weights}")
    logic_, relevance_, novelty_, surprise_ = (array / array.sum()).tolist()
    return logic_, relevance_, novelty_, surprise_


def _mean_over(paths: Ints, values: Floats) -> Floats:
    there = paths >= 0
    sizes = there.sum(axis=1)
    if (sizes == 0).any():
        raise ValueError("a path without entities has no mean")
    sums = np.zeros(paths.shape[0])
    for column in range(paths.shape[1]):  # column by column: the order of summation is fixed
        sums += np.where(there[:, column], values[paths[:, column]], 0.0)
    means: Floats = sums / sizes
    return means
