"""Classification of nuclei by size, shape, chromatin and optical density with a small model.

The model is a multinomial logistic regression with coefficients from a bundled card.
Densities are relative to the slide's stain strength; a nucleus's type does not depend on
the types of other nuclei.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from mcp_servers.pathology.compute.nuclei import COLUMNS, green_density, lymphocyte_like
from mcp_servers.slides.arrays import F64, U8, AnyArray, BoolArray
from sage.core.data import data_folder

TYPES = ("neoplastic", "lymphoid", "stromal", "other")
OUTSIDE = "outside"
"""Label used instead of a type if color or size is outside the range of the training data."""
FEATURES = (
    "log_area", "log_area_squared", "eccentricity", "circularity", "density", "texture", "hue",
)  # fmt: skip
"""Model features; each regression uses the features listed in its card."""
CARD = "nuclei_types.json"
Segmentation = Literal["classical", "survey"]
"""Pixel size at which the classical method outlines the nuclei: 0.5 µm, or 1 µm in a survey."""
USUAL_LOG_AREA = 3.4
DYED = 0.08
"""Green density at or above which a pixel counts as stained tissue."""
USUAL_STRENGTH = 0.3
"""Stain strength assumed if no pixel is stained."""
STRENGTHS = (0.12, 0.8)
"""Range of stain strengths in which types are assigned; the sources had 0.23 to 0.43."""
UNLIKELY = 0.2
"""Probability below which a small, round, dark nucleus is not considered a lymphocyte."""


class Coefficients(BaseModel):
    """A regression: `features` are centered, scaled, then weighted for each type.

    `low` and `high` (features) bound the values in the training nuclei; beyond them no type
    is assigned.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    features: tuple[str, ...] = Field(min_length=1)
    mean: tuple[float, ...]
    sd: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...] = Field(min_length=len(TYPES), max_length=len(TYPES))
    bias: tuple[float, ...] = Field(min_length=len(TYPES), max_length=len(TYPES))
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CellTypes:
    """Types of n nuclei: `probabilities` (n, types) in the order of `kinds`.

    `inside` (n,) is true for nuclei whose probabilities may be used.
    """

    probabilities: F64
    inside: BoolArray
    kinds: tuple[str, ...] = TYPES

    @property
    def names(self) -> AnyArray:
        """Most probable type for each nucleus, or `OUTSIDE`, with shape (n,)."""
        found = np.array(self.kinds, dtype=object)[self.probabilities.argmax(axis=1)]
        return np.where(self.inside, found, OUTSIDE)


def dye_strength(images: list[U8]) -> float:
    """Compute the median green density over the stained pixels of tissue images."""
    found = [green_density(image)[::2, ::2].ravel() for image in images]
    dyed = [values[values > DYED] for values in found]
    pooled = np.concatenate(dyed) if dyed else np.zeros(0, dtype=np.float32)
    return float(np.median(pooled)) if len(pooled) else USUAL_STRENGTH


def features(table: F64, strength: float | F64) -> F64:
    """Compute the features for a table of nuclei (see `compute.nuclei.COLUMNS`).

    The result has shape (n, len(FEATURES)).

    `density` is the logarithm of the mean density over the slide's stain strength, `texture`
    is the spread of the density within the nucleus over its mean, and `hue` is the green
    density over that of the nuclear stain.
    """
    area, eccentricity, circularity, density, spread, green = (
        table[:, COLUMNS.index(name)]
        for name in (
            "area_um2", "eccentricity", "circularity", "density_mean", "density_sd", "second_mean",
        )
    )  # fmt: skip
    size = np.log(np.maximum(area, 1.0))
    dense = np.maximum(density, 0.01)
    columns = [
        size, (size - USUAL_LOG_AREA) ** 2, eccentricity, circularity, np.log(dense / strength),
        spread / dense, green / dense,
    ]  # fmt: skip
    return np.stack(columns, axis=1)


@cache
def coefficients(segmentation: Segmentation) -> Coefficients:
    """Load the bundled regression for nuclei outlined by this method."""
    return Coefficients.model_validate(types_card()["regressions"][segmentation])


def types_card() -> dict[str, Any]:
    """Load the card: coefficients, training data and performance."""
    text = (data_folder("models") / CARD).read_text(encoding="utf-8")
    card: dict[str, Any] = json.loads(text)
    return card


def classify(table: F64, segmentation: Segmentation, strength: float) -> CellTypes:
    """Classify the nuclei in a table with the regression for their segmentation method.

    `strength` is the slide's stain strength; outside `STRENGTHS` no nucleus is assigned a
    type.
    """
    found = apply_regression(coefficients(segmentation), table, strength)
    if STRENGTHS[0] <= strength <= STRENGTHS[1]:
        return found
    return CellTypes(found.probabilities, np.zeros(len(table), dtype=bool))


def apply_regression(known: Coefficients, table: F64, strength: float | F64) -> CellTypes:
    """Classify nuclei with the given coefficients."""
    columns = [FEATURES.index(name) for name in known.features]
    given = features(table, strength)[:, columns]
    logits = (given - known.mean) / np.array(known.sd) @ np.array(known.weights).T + known.bias
    logits -= logits.max(axis=1, keepdims=True)
    chance = np.exp(logits)
    chance /= chance.sum(axis=1, keepdims=True)
    inside = ((given >= known.low) & (given <= known.high)).all(axis=1)
    return CellTypes(chance, np.asarray(inside, dtype=bool))


def lymphocytes(table: F64, dark: float, way: Segmentation, strength: float) -> BoolArray:
    """Select small, round, dark nuclei, except those whose type makes a lymphocyte unlikely.

    Nuclei outside the card's range are selected only by size, shape and darkness.

    Parameters
    ----------
    dark : minimum optical density of a lymphocyte's nucleus (see `compute.nuclei.darkness`)
    way : method used to segment the nuclei
    strength : strength of the slide's stain

    Returns
    -------
    (n,) mask of the nuclei considered lymphocytes.
    """
    found = classify(table, way, strength)
    unlikely = found.inside & (found.probabilities[:, TYPES.index("lymphoid")] < UNLIKELY)
    return np.asarray(lymphocyte_like(table, dark) & ~unlikely, dtype=bool)
