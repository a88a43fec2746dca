"""Derived variables: counts to log2-CPM, z-scores, signature scores, ratios.

Functions take and return arrays. None of them reads an outcome.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, ValidationError

from sage.core.data import data_folder
from sage.core.errors import InputError
from sage.core.models import Name, Passage, Strict
from validation.core.signature import GeneSignature

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from validation.statistics.base import FloatArray


class Signature(Strict):
    """A gene set with a scoring method, its meaning and its source."""

    id: str
    label: Name
    genes: tuple[str, ...] = Field(min_length=2)
    method: Literal["mean_z", "ssgsea"] = "mean_z"
    min_coverage: float = Field(default=0.7, gt=0, le=1)
    modality: Literal["immune", "derived"] = "derived"
    source: Passage
    synonyms: tuple[Name, ...] = ()
    note: Passage = ""


@lru_cache(maxsize=8)
def signatures(folder: Path | None = None) -> dict[str, Signature]:
    """Load all signatures in a folder (by default, the bundled ones) by identifier."""
    found: dict[str, Signature] = {}
    for path in sorted((folder or data_folder("signatures")).glob("*.json")):
        try:
            signature = Signature.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except (ValidationError, json.JSONDecodeError) as error:
            raise InputError(f"{path}: not a signature: {error}") from None
        found[signature.id] = signature
    return found


def log2_cpm(counts: FloatArray, library_sizes: FloatArray) -> FloatArray:
    """Compute log2(counts per million + 1).

    Parameters
    ----------
    counts : (genes, samples) raw counts
    library_sizes : (samples,) assigned reads in each sample, all above zero
    """
    if (library_sizes <= 0).any():
        raise InputError("expression: a sample has no reads (library size 0)")
    return np.asarray(np.log2(counts / library_sizes * 1e6 + 1.0), dtype=float)


def z_scores(values: FloatArray) -> FloatArray:
    """Scale each row to mean 0 and standard deviation 1 (n - 1); constant rows become NaN.

    Parameters
    ----------
    values : (genes, patients)
    """
    mean = np.nanmean(values, axis=1, keepdims=True)
    spread = np.nanstd(values, axis=1, keepdims=True, ddof=1)
    spread = np.where(spread > 0, spread, np.nan)
    return np.asarray((values - mean) / spread, dtype=float)


def mean_z(values: FloatArray) -> FloatArray:
    """Compute the mean of the genes' z-scores per patient: (genes, patients) to (patients,)."""
    scores = z_scores(values)
    kept = ~np.isnan(scores).all(axis=1)
    if not kept.any():
        raise InputError("signature: all of its genes are constant in this cohort")
    return np.asarray(np.nanmean(scores[kept], axis=0), dtype=float)


def ssgsea(values: FloatArray, members: NDArray[np.bool_], weight: float = 0.25) -> FloatArray:
    """Compute the single-sample gene-set enrichment score, not normalized.

    Genes are ranked within each patient; the score is the sum over the ranking of the
    difference between the weighted empirical distribution of the set and that of the other
    genes.

    Parameters
    ----------
    values : (genes, patients) on any scale; only ranks within a patient matter
    members : (genes,) true for genes in the set; some genes must be in it and some outside

    Source: Barbie et al. 2009 (Nature), with the weight 0.25 used there.
    """
    inside = int(members.sum())
    if inside == 0 or inside == len(members):
        raise InputError("ssGSEA requires genes inside and outside the set")
    return Ranking.build(values, weight).score(members.nonzero()[0])


@dataclass(frozen=True)
class Ranking:
    """Genes ranked within each patient, for scoring any gene set (`ssgsea`).

    `gain` (genes, patients) is the ascending rank to the power of the weight; `left` is the
    number of genes ranked at or below a gene's position. If a distribution jumps at a set's
    genes, its sum over the ranking is the sum of jump times `left` over these genes.
    """

    gain: FloatArray
    left: FloatArray

    @classmethod
    def build(cls, values: FloatArray, weight: float = 0.25) -> Ranking:
        """Rank the genes (rows) of each patient (column); ties share their mean rank."""
        from scipy.stats import rankdata

        ranks = rankdata(values, method="average", axis=0)
        order = np.argsort(-ranks, axis=0, kind="stable")
        left = np.empty(values.shape)
        np.put_along_axis(left, order, np.arange(len(values), 0, -1.0)[:, None], axis=0)
        return cls(np.asarray(ranks**weight, dtype=float), left)

    def score(self, genes: NDArray[np.int64]) -> FloatArray:
        """Compute the (patients,) enrichment score of a set, given the positions of its genes."""
        gain, left, total = self.gain[genes], self.left[genes], len(self.gain)
        inside = (gain * left).sum(axis=0) / gain.sum(axis=0)
        outside = (total * (total + 1) / 2 - left.sum(axis=0)) / (total - len(genes))
        return np.asarray(inside - outside, dtype=float)


def weighted_z(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Compute the weighted sum of the genes' z-scores per patient, divided by the sum of |weights|.

    Parameters
    ----------
    values : (genes, patients)
    weights : (genes,), of either sign; both sums leave out constant genes and unknown values
    """
    scores = z_scores(values)
    sizes = np.where(np.isnan(scores), 0.0, np.abs(weights)[:, None]).sum(axis=0)
    if not (sizes > 0).any():
        raise InputError("signature: all of its genes are constant in this cohort")
    total = np.nansum(scores * weights[:, None], axis=0)
    return np.asarray(np.where(sizes > 0, total / np.where(sizes > 0, sizes, 1.0), np.nan))


def composed_scores(
    signature: GeneSignature, values: FloatArray, sets: Sequence[NDArray[np.int64]]
) -> list[FloatArray]:
    """Score gene sets by a signature's method; return a (patients,) array per set.

    Parameters
    ----------
    values : (genes, patients) for all genes
    sets : positions of the genes in each set
    """
    if signature.method == "rank":
        ranking = Ranking.build(values)
        return [ranking.score(np.unique(genes)) for genes in sets]
    if signature.method == "mean_z":
        return [mean_z(values[np.unique(genes)]) for genes in sets]
    weights = np.asarray(signature.weights, dtype=float)
    return [weighted_z(values[genes], weights) for genes in sets]
