"""How likely two nodes are to be linked within some years, learned from how the graph grew.

The model looks at windows of the past: what the graph was in one year, and which of its pairs the
years after linked. Features are measured against random pairs of the same year, so that a graph
that has grown is no other world. A logistic regression learns on the earlier windows, against
random and degree-matched pairs; isotonic regression on the latest window that is over makes a
share of its score, each negative standing for all the unlinked pairs that it was drawn from. How
many links the next years bring is no property of a pair (a collection may dry up), and shares of
the past do not foretell it. So what is told is a ratio: how many times as likely as the average
unlinked pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.foresight.features import FEATURES, Floats, PastGraph
from benchmarks.foresight.pairs import Against, Ends, Window, negatives, window
from kg.graph.model import Graph
from sage.core.errors import InputError

HORIZON = 5
#: Fewer pairs that were linked in a window teach nothing.
FEWEST = 20
_RATIO = 5
_WINDOWS = (0, 2, 4, 6)
_RIDGE = 0.003
_WIDEST = 5.0


@dataclass(frozen=True)
class Outlook:
    """What the model expects of pairs.

    `ratio`: how many times as likely as the average unlinked pair each is to be linked within the
    horizon; `percentile`, the share of random unlinked pairs that it expects less of.
    """

    ratio: Floats
    percentile: Floats


@dataclass
class _Measured:
    """Pairs of one window, their features in units of the random pairs of its cut."""

    new: Floats
    others: dict[Against, Floats]
    linkable: int


class Foresight:
    """A fitted model at one cut; `fit` it, then ask `outlook` or `score`.

    Attributes
    ----------
    cut, horizon : the last year known, and the years ahead that are spoken of
    past : the graph as of the cut, measured
    coefficients : weight of each feature (in standard deviations of random pairs), by name
    """

    def __init__(
        self, cut: int, horizon: int, past: PastGraph, scale: _Scale, fitted: Any, level: Any
    ) -> None:
        self.cut, self.horizon, self.past = cut, horizon, past
        self._scale, self._fitted, self._level = scale, fitted, level
        self._random = np.sort(self.score(scale.pairs))
        shares = level.predict(self._random) if len(self._random) else np.ones(1)
        self._average = max(float(shares.mean()), np.finfo(np.float64).tiny)

    @classmethod
    def fit(cls, graph: Graph, cut: int, *, horizon: int = HORIZON, seed: int = 0) -> Foresight:
        """Learn from what the graph was up to `cut`, and from nothing later.

        Parameters
        ----------
        graph : dated by its readings or edges
        cut : the last year that may be seen; windows end at it or before
        horizon : years ahead
        seed : of the pairs drawn to compare with

        Raises
        ------
        InputError
            If the years before the cut hold too few new links to learn from.
        """
        from sklearn.linear_model import LogisticRegression

        known = graph.as_of(cut)
        ends = [cut - horizon - back for back in _WINDOWS]
        measured = [m for end in ends if (m := _measure(known, end, horizon, seed)) is not None]
        if not measured:
            raise InputError(
                f"fewer than {FEWEST} pairs were newly linked in the {horizon} years up to {cut}: "
                "too few to learn which pairs will be. Take a larger corpus or a later year."
            )
        latest, taught = measured[0], measured[1:] or measured
        x = np.concatenate([part for m in taught for part in (m.new, *m.others.values())])
        y = np.concatenate(
            [
                np.full(len(part), number == 0)
                for m in taught
                for number, part in enumerate((m.new, *m.others.values()))
            ]
        )
        fitted = LogisticRegression(C=_RIDGE, max_iter=2000).fit(x, y)
        random = latest.others[Against.RANDOM]
        raw = fitted.decision_function(np.concatenate([latest.new, random]))
        label = np.arange(len(raw)) < len(latest.new)
        level = _calibrated(raw, label, latest.linkable / max(len(random), 1))
        past = PastGraph(known, cut)
        return cls(cut, horizon, past, _Scale.of(past, seed), fitted, level)

    @property
    def coefficients(self) -> dict[str, float]:
        """Weight of each feature, in units of its spread over random pairs."""
        return dict(zip(FEATURES, self._fitted.coef_[0].tolist(), strict=True))

    def score(self, ends: Ends) -> Floats:
        """(p,) log odds, not yet calibrated: fit to rank pairs, finer than the ratio."""
        raw: Floats = self._fitted.decision_function(self._scale(self.past.features(ends)))
        return raw

    def outlook(self, ends: Ends) -> Outlook:
        """What is expected of pairs of nodes of `past.graph`, given by position."""
        if not len(ends):
            return Outlook(np.zeros(0), np.zeros(0))
        raw = self.score(ends)
        percentile = np.searchsorted(self._random, raw) / max(len(self._random), 1)
        return Outlook(self._level.predict(raw) / self._average, percentile)


#: Linked pairs per step of the calibration.
_STEP = 10


def _calibrated(raw: Floats, label: NDArray[np.bool_], stands_for: float) -> Any:
    """Isotonic regression of the share that was linked on the score.

    Steps of ten linked pairs, counted with half a negative beyond those drawn: the best pairs of a
    small window are not certain.

    Parameters
    ----------
    raw, label : (p,) scores, and whether each pair was linked
    stands_for : unlinked pairs that each negative was drawn from
    """
    from sklearn.isotonic import IsotonicRegression

    order = np.argsort(raw, kind="stable")[::-1]
    step = (np.cumsum(label[order]) - label[order]) // _STEP
    size = np.bincount(step)
    linked = np.bincount(step, weights=label[order])
    unlinked = (size - linked + 0.5) * stands_for
    level = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    middle = np.bincount(step, weights=raw[order]) / size
    return level.fit(middle, linked / (linked + unlinked), sample_weight=linked + unlinked)


class _Scale:
    """Features in units of random unlinked pairs of the same graph."""

    def __init__(self, pairs: Ends, mean: Floats, spread: Floats) -> None:
        self.pairs, self._mean, self._spread = pairs, mean, spread

    @classmethod
    def of(cls, past: PastGraph, seed: int, count: int = 1500) -> _Scale:
        """The scale of a graph, from `count` random pairs of its nodes."""
        blank = np.zeros((count, 2), dtype=np.int64)
        drawn = negatives(
            Window(past.graph, past.year, 0, blank, _linked(past)), Against.RANDOM, 1, seed
        )
        x = past.features(drawn)
        if not len(x):
            return cls(drawn, np.zeros(len(FEATURES)), np.ones(len(FEATURES)))
        return cls(drawn, x.mean(axis=0), np.maximum(x.std(axis=0), 1e-6))

    def __call__(self, features: Floats) -> Floats:
        scaled: Floats = np.clip((features - self._mean) / self._spread, -_WIDEST, _WIDEST)
        return scaled


def _linked(past: PastGraph) -> NDArray[np.int64]:
    one, other = past.links.nonzero()
    codes: NDArray[np.int64] = (one.astype(np.int64) * past.n + other)[one < other]
    return codes


def _measure(graph: Graph, cut: int, horizon: int, seed: int) -> _Measured | None:
    """Pairs and features of one window; None where too little happened in it."""
    given = window(graph, cut, horizon)
    if len(given.new) < FEWEST or given.past.n_nodes < 10:
        return None
    past = PastGraph(given.past, cut)
    scale = _Scale.of(past, seed)
    others = {
        against: scale(past.features(negatives(given, against, _RATIO, seed)))
        for against in (Against.RANDOM, Against.DEGREE)
    }
    return _Measured(scale(past.features(given.new)), others, given.linkable)
