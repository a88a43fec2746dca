"""Update of the critics' scores after a round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

LOWEST, HIGHEST = 1.0, 10.0
_FAINTEST = 1e-3


def sigma(scores: Sequence[float] | FloatArray) -> float:
    """Compute the population standard deviation (divisor n) of the panel's scores."""
    return float(np.std(np.asarray(scores, dtype=np.float64)))


def update(
    scores: Sequence[float] | FloatArray,
    proposals: Sequence[float] | FloatArray,
    confidences: Sequence[float] | FloatArray,
    own_weight: float = 3.0,
    heard: Sequence[bool] | None = None,
) -> FloatArray:
    """Compute each critic's score after a round of confidence-weighted proposals.

    Derivation. The hypothesis has one unknown novelty x. Critic i enters the round believing
    x ~ N(s_i, 1 / (k c_i)): its score s_i is the mean, its confidence c_i the precision up to
    a scale, and k = `own_weight` is the number of proposals that its current belief is worth.
    In the round, each critic j (including i) reads the new evidence and proposes p_j, which
    all critics treat as a measurement of x with normal error, p_j | x ~ N(x, 1 / c_j). A
    normal prior with independent normal measurements has the posterior mean

        s_i' = (k c_i s_i + sum_j c_j p_j) / (k c_i + sum_j c_j),

    the precision-weighted mean. Since it is a convex combination of scores and proposals:

    - every s_i' stays between the smallest and the largest of them, hence in [1, 10];
    - if all scores and proposals agree, nothing changes (fixed point), for any confidences;
    - the order of the critics does not matter: permuting them permutes the result, and
      critics with equal scores and confidences end equal;
    - with equal confidences and unchanged proposals, the distance of every s_i to the mean
      proposal shrinks by k / (k + n) per round: k = 3 halves the sigma of three critics in
      each round, so that a debate that starts at sigma 2 and brings no new evidence ends in
      the third.

    A proposal is a measurement only if it is based on a record or an argument not counted
    before; the sums run over the proposals that are `heard`. If none is, no score changes.

    A critic with zero confidence is given a confidence of 0.001, so that its own belief stays
    defined.

    Parameters
    ----------
    scores : (n,) scores before the round, each in [1, 10]
    proposals : (n,) scores proposed in the round, each in [1, 10]
    confidences : (n,) in [0, 1]
    own_weight : k, positive
    heard : (n,) whether the proposal is based on new evidence; by default, all are

    Returns
    -------
    (n,) updated scores

    Raises
    ------
    ValueError
        If lengths differ, a value is out of range, or k is not positive.

    Source: SAGE, 3.2.5 ("Bayesian debate"; "scores update iteratively based on each agent's
    confidence-weighted proposals"). The paper gives no formula; this formula is ours.
    """
    s = np.asarray(scores, dtype=np.float64)
    p = np.asarray(proposals, dtype=np.float64)
    c = np.asarray(confidences, dtype=np.float64)
    if s.ndim != 1 or s.size == 0 or p.shape != s.shape or c.shape != s.shape:
        raise ValueError(
            "scores, proposals and confidences must have the same length (one value per critic)"
        )
    for name, values in (("score", s), ("proposal", p)):
        if not ((values >= LOWEST) & (values <= HIGHEST)).all():
            raise ValueError(
                f"every {name} must be between {LOWEST:g} and {HIGHEST:g}, got {values.tolist()}"
            )
    if not ((c >= 0.0) & (c <= 1.0)).all():
        raise ValueError(f"every confidence must be between 0 and 1, got {c.tolist()}")
    if not own_weight > 0.0:
        raise ValueError(f"own_weight must be positive, got {own_weight}")
    c = np.maximum(c, _FAINTEST)
    own = own_weight * c
    new = c * np.asarray([True] * len(c) if heard is None else heard, dtype=np.float64)
    moved = (own * s + (new * p).sum()) / (own + new.sum())
    # The bounds of the convex combination hold up to rounding; enforce them exactly.
    moved = np.clip(moved, min(s.min(), p.min()), max(s.max(), p.max()))
    return np.asarray(moved, dtype=np.float64)


def penalize(scores: Sequence[float] | FloatArray, penalty: float) -> FloatArray:
    """Subtract `penalty` points from each score, but never go below 1."""
    return np.maximum(np.asarray(scores, dtype=np.float64) - penalty, LOWEST)
