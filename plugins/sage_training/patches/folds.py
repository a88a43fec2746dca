"""Training and held-out tiles for a patch classifier, split by patient."""

from __future__ import annotations

import warnings

import numpy as np

from mcp_servers.slides.arrays import AnyArray

Splits = list[tuple[AnyArray, AnyArray]]
DRAWS = 10
"""Number of seeds to try for each number of folds."""


def splits_by_patient(y: AnyArray, patients: AnyArray, most: int, seed: int) -> Splits:
    """Split indices into training and held-out parts by patient; empty if impossible.

    Every class stays in every training part. If a draw puts all patients with a class into
    one fold, the split is repeated with another draw, then with fewer folds, then with more,
    up to `most`. With one patient per fold, every class that two patients have is kept.

    Parameters
    ----------
    y : (n,) classes
    patients : (n,)
    most : maximum number of folds
    seed : random seed of the draws
    """
    from sklearn.model_selection import StratifiedGroupKFold

    classes = np.unique(y)
    least = min(len(np.unique(patients[y == c])) for c in classes)
    if least < 2:
        return []
    first = min(most, least)
    more = min(most, len(np.unique(patients)), int(np.bincount(y).max()))
    for folds in (*range(first, 1, -1), *range(first + 1, more + 1)):
        for draw in range(DRAWS):
            state = (seed + draw) % 2**32
            splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=state)
            with warnings.catch_warnings():  # a class with fewer tiles than folds is not a problem
                warnings.simplefilter("ignore", UserWarning)
                splits = list(splitter.split(y, y, patients))
            if all(
                len(test) and len(np.unique(y[train])) == len(classes) for train, test in splits
            ):
                return splits
    return []


def why_none(y: AnyArray, patients: AnyArray, classes: list[str]) -> str:
    """Explain why no patients could be held out."""
    alone = [n for i, n in enumerate(classes) if len(np.unique(patients[y == i])) < 2]
    if alone:
        reason = (
            f"the tiles of {', '.join(alone)} all come from one patient, and at least two "
            "are needed"
        )
    else:
        reason = (
            f"no split of the {len(np.unique(patients))} patients leaves every class in each "
            "training part; outline every class on more patients, or allow more folds"
        )
    return f"no patients could be held out: {reason}; the model's accuracy is unknown"
