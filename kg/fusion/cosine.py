"""Exact search for all pairs of unit vectors with cosine >= tau, without the n x n matrix.

The vectors are rotated onto their principal axes, and the leading block is kept. By Cauchy-Schwarz,
the rest of a dot product is at most the product of the two residual norms, so
`lead_i . lead_j + r_i r_j` bounds the cosine from above. With the residual norm appended as another
column, that bound is a single small matrix product. Pairs whose bound reaches tau are rechecked on
the full vectors in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kg.embedding.embed import FloatArray
from sage.core.errors import InputError

#: Above float32 rounding of the rotation and of a dot product of 384 terms.
_MARGIN = 2e-5
_LEAD = 48
_FEW = 64
_ROWS = 1024
_COLUMNS = 2048


@dataclass(frozen=True)
class Pairs:
    """Pairs with cosine >= tau, sorted by (left, right)."""

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    cosine: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.left)


def find_pairs(vectors: FloatArray, tau: float, lead: int = _LEAD) -> Pairs:
    """Find the pairs i < j of rows whose dot product, computed in float64, is at least tau.

    Parameters
    ----------
    vectors : (n, d) rows of unit length
    tau : threshold in (0, 1]
    lead : number of leading axes used for the bound; affects only the speed

    Raises
    ------
    InputError
        If tau is not in (0, 1], or if rows are not of unit length.
    """
    return _search(_check_vectors(vectors, tau), None, tau, lead)


def find_cross_pairs(new: FloatArray, old: FloatArray, tau: float, lead: int = _LEAD) -> Pairs:
    """Find the pairs (i of `new`, j of `old`) with cosine >= tau, with the method of `find_pairs`.

    Parameters
    ----------
    new : (n, d) rows of unit length; a row of zeros is not similar to anything
    old : (m, d) rows of unit length, from the same embedding model
    tau : threshold in (0, 1]
    lead : number of leading axes used for the bound; affects only the speed

    Returns
    -------
    Pairs in which `left` indexes rows of `new` and `right` rows of `old`, sorted by both; every
    cosine is computed in float64.

    Raises
    ------
    InputError
        If tau is not in (0, 1], if rows are not of unit length, or if the dimensions differ.
    """
    left, right = _check_vectors(new, tau), _check_vectors(old, tau)
    if left.shape[1] != right.shape[1]:
        raise InputError(
            f"vectors of dimension {left.shape[1]} cannot be compared with vectors of dimension "
            f"{right.shape[1]}; embed both with the same model."
        )
    return _search(left, right, tau, lead)


def _check_vectors(vectors: FloatArray, tau: float) -> FloatArray:
    if not 0.0 < tau <= 1.0:
        raise InputError(f"the cosine threshold tau must be in (0, 1], got {tau}.")
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    if vectors.ndim != 2:
        raise InputError(f"vectors must have shape (n, d), got {vectors.shape}.")
    norms = np.einsum("nd,nd->n", vectors, vectors)
    # A zero row is allowed: it is similar to nothing.
    if not np.all((np.abs(norms - 1.0) < 1e-3) | (norms == 0.0)):
        raise InputError(
            "vectors must have unit length; normalize them first (kg.embedding.embed.normalize)."
        )
    return vectors


def _search(left: FloatArray, other: FloatArray | None, tau: float, lead: int) -> Pairs:
    right = left if other is None else other
    empty = np.zeros(0, dtype=np.int32)
    if not len(left) or not len(right):
        return Pairs(empty, empty, np.zeros(0, dtype=np.float32))
    dimension = left.shape[1]
    # The axes cost more than they save where a side is a handful of new names.
    if lead < dimension and min(len(left), len(right)) > _FEW:
        axes = _axes(right, lead)
        bound_left = _bounding(left, axes)
        bound_right = bound_left if other is None else _bounding(right, axes)
    else:
        bound_left, bound_right = left, right
    found: list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]] = []
    buffer = np.empty((_ROWS, _COLUMNS), dtype=np.float32)
    low = np.float32(tau - _MARGIN)
    for top in range(0, len(left), _ROWS):
        rows = bound_left[top : top + _ROWS]
        for start in range(top if other is None else 0, len(right), _COLUMNS):
            columns = bound_right[start : start + _COLUMNS]
            block = buffer[: len(rows), : len(columns)]
            np.matmul(rows, columns.T, out=block)
            if block.max() < low:  # true of most blocks
                continue
            i, j = (at.astype(np.int32) for at in np.nonzero(block >= low))
            i, j = i + np.int32(top), j + np.int32(start)
            if other is None:
                above = j > i
                i, j = i[above], j[above]
            cosines = np.einsum("nd,nd->n", left[i], right[j], dtype=np.float64)
            keep = cosines >= tau
            found.append((i[keep], j[keep], cosines[keep].astype(np.float32)))
    if not found:
        return Pairs(empty, empty, np.zeros(0, dtype=np.float32))
    i, j, c = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((j, i))
    return Pairs(i[order], j[order], c[order])


def _axes(vectors: FloatArray, lead: int) -> FloatArray:
    """Compute the (d, lead) leading eigenvectors of the second moment of at most 8,192 rows."""
    step = max(1, len(vectors) // 8192)
    sample = vectors[::step].astype(np.float64)
    _, axes = np.linalg.eigh(sample.T @ sample)
    return np.ascontiguousarray(axes[:, ::-1][:, :lead], dtype=np.float32)


def _bounding(vectors: FloatArray, axes: FloatArray) -> FloatArray:
    """Project vectors on the axes and append the residual norm, giving (n, lead + 1)."""
    out = np.empty((len(vectors), axes.shape[1] + 1), dtype=np.float32)
    np.matmul(vectors, axes, out=out[:, :-1])
    whole = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
    led = np.einsum("nd,nd->n", out[:, :-1], out[:, :-1], dtype=np.float64)
    # Rounding may make the residual slightly too small; 1e-6 under the root keeps it a bound.
    out[:, -1] = np.sqrt(np.maximum(whole - led, 0.0) + 1e-6)
    return out
