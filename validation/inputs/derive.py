"""Derived variables: counts to log2-CPM, z-scores, signature scores, ratios.

Arrays in, arrays out. None of them looks at an outcome.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from sage.core.data import data_folder
from sage.core.errors import InputError
from sage.core.models import Strict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class Signature(Strict):
    """A set of genes with a score: what it stands for, and who defined it."""

    id: str
    label: str
    genes: tuple[str, ...] = Field(min_length=2)
    method: Literal["mean_z", "ssgsea"] = "mean_z"
    min_coverage: float = Field(default=0.7, gt=0, le=1)
    modality: Literal["immune", "derived"] = "derived"
    source: str
    synonyms: tuple[str, ...] = ()
    note: str = ""


@lru_cache(maxsize=8)
def signatures(folder: Path | None = None) -> dict[str, Signature]:
    """All signatures of a folder (default: the shipped ones), by identifier."""
    found: dict[str, Signature] = {}
    for path in sorted((folder or data_folder("signatures")).glob("*.json")):
        try:
            one = Signature.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except (ValidationError, json.JSONDecodeError) as error:
            raise InputError(f"{path}: not a signature: {error}") from None
        found[one.id] = one
    return found


def log2_cpm(counts: Floats, library_sizes: Floats) -> Floats:
    """log2(counts per million + 1).

    Parameters
    ----------
    counts : (genes, samples) raw counts
    library_sizes : (samples,) assigned reads of each sample, all above zero
    """
    import numpy as np

    if (library_sizes <= 0).any():
        raise InputError("expression: a sample has no reads (library size 0)")
    return np.asarray(np.log2(counts / library_sizes * 1e6 + 1.0), dtype=float)


def z_scores(values: Floats) -> Floats:
    """Each row to mean 0 and standard deviation 1 (n - 1); constant rows become NaN.

    Parameters
    ----------
    values : (genes, patients)
    """
    import numpy as np

    mean = np.nanmean(values, axis=1, keepdims=True)
    spread = np.nanstd(values, axis=1, keepdims=True, ddof=1)
    spread = np.where(spread > 0, spread, np.nan)
    return np.asarray((values - mean) / spread, dtype=float)


def mean_z(values: Floats) -> Floats:
    """Mean of the genes' z-scores per patient: (genes, patients) to (patients,)."""
    import numpy as np

    scores = z_scores(values)
    kept = ~np.isnan(scores).all(axis=1)
    if not kept.any():
        raise InputError("signature: every gene of it is constant in this cohort")
    return np.asarray(np.nanmean(scores[kept], axis=0), dtype=float)


def ssgsea(values: Floats, members: NDArray[np.bool_], weight: float = 0.25) -> Floats:
    """Single-sample gene-set enrichment score, not normalized.

    Genes are ranked within each patient; the score is the sum over the ranking of the difference
    between the weighted empirical distribution of the set and that of the other genes.

    Parameters
    ----------
    values : (genes, patients) on any scale; only ranks within a patient matter
    members : (genes,) true for genes of the set; some must be in it and some outside

    Source: Barbie et al. 2009 (Nature), with the weight 0.25 used there.
    """
    import numpy as np
    from scipy.stats import rankdata

    inside = int(members.sum())
    if inside == 0 or inside == len(members):
        raise InputError("ssGSEA needs genes inside the set and genes outside it")
    scores = np.empty(values.shape[1])
    for column in range(values.shape[1]):
        ranks = rankdata(values[:, column], method="average")
        order = np.argsort(-ranks, kind="stable")
        hit = members[order]
        gain = np.where(hit, ranks[order] ** weight, 0.0)
        scores[column] = float(
            (np.cumsum(gain) / gain.sum() - np.cumsum(~hit) / (len(hit) - inside)).sum()
        )
    return scores
