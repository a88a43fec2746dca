"""Types of nuclei from size, shape, chromatin and optical density, by a single small formula.

A multinomial logistic regression with the coefficients of a card that ships. Densities are relative
to how strongly the slide's tissue is dyed; nothing depends on the types of other nuclei.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from mcp_servers.pathology.compute.nuclei import (
    COLUMNS,
    green_density,
    lymphocyte_like,
)
from mcp_servers.slides.arrays import F64, U8, AnyArray, BoolArray
from sage.core.data import data_folder

TYPES = ("neoplastic", "lymphoid", "stromal", "other")
OUTSIDE = "outside"
"""In place of a type where color or size lies outside what the classifier has seen."""
FEATURES = (
    "log_area", "log_area_squared", "eccentricity", "circularity", "density", "texture", "hue",
    "around", "grain", "crowding", "rim", "tint",
)  # fmt: skip
"""A regression uses those that its card names; the last five need a table with `SURROUNDINGS`."""
ALONE = FEATURES[:7]
CARD = "nuclei_types.json"
Segmentation = Literal["network", "classical", "survey", "classical_around"]
"""How outlines were made: the network or the classical method at 0.5 µm per pixel, the classical
method at 1 µm per pixel. `network` and `classical_around` need a table with `SURROUNDINGS`."""
USUAL_LOG_AREA = 3.4
DYED = 0.08
"""Density of green from which a pixel is dyed tissue."""
USUAL_STRENGTH = 0.3
"""Strength of dye that is taken where nothing is dyed."""
STRENGTHS = (0.12, 0.8)
"""Strengths of dye within which types are given; the sources had 0.23 to 0.43."""
UNLIKELY = 0.2
"""Below this probability a small, round, dark nucleus is not taken for a lymphocyte."""
TYPED_MPP = (0.45, 0.6)
"""Pixel sizes at which nuclei found by the network or the classical method are typed."""


class Coefficients(BaseModel):
    """A regression: `features` are centered, scaled, then weighted for each type.

    `low` and `high` (features) bound what the training nuclei had; beyond them there is no type.
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
    """`probabilities` (n, types) in the order of `kinds`; `inside` (n,) where they may be read."""

    probabilities: F64
    inside: BoolArray
    kinds: tuple[str, ...] = TYPES

    @property
    def names(self) -> AnyArray:
        """(n,) most probable type, or `OUTSIDE`."""
        found = np.array(self.kinds, dtype=object)[self.probabilities.argmax(axis=1)]
        return np.where(self.inside, found, OUTSIDE)


def dye_strength(images: list[U8]) -> float:
    """Median density of green over the dyed pixels of images of tissue."""
    found = [green_density(image)[::2, ::2].ravel() for image in images]
    dyed = [values[values > DYED] for values in found]
    pooled = np.concatenate(dyed) if dyed else np.zeros(0, dtype=np.float32)
    return float(np.median(pooled)) if len(pooled) else USUAL_STRENGTH


def features(table: F64, strength: float | F64) -> F64:
    """(n, len(FEATURES)) of a table of nuclei (see `compute.nuclei.COLUMNS`), or (n, len(ALONE)).

    `density` is the logarithm of the mean density over the slide's strength of dye, `texture`  is
    the spread of the density within the nucleus over its mean, `hue` the density of green over that
    of the nuclear dye. A table that also has `SURROUNDINGS` adds the logarithms of
    the density around over the slide's strength (`around`), of grain over density (`grain`), of the
    rim's density over the nucleus' (`rim`) and of its hue over that around (`tint`).
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
    if table.shape[1] > len(COLUMNS):
        around, second, rim, grain, crowding = table[:, len(COLUMNS) :].T
        around, second, rim = (np.maximum(values, 0.01) for values in (around, second, rim))
        hue = np.maximum(green, 0.01) / dense
        columns += [
            np.log(around / strength), np.log(np.maximum(grain, 1e-3) / dense), crowding,
            np.log(rim / dense), np.log(hue * around / second),
        ]  # fmt: skip
    return np.stack(columns, axis=1)


@cache
def coefficients(segmentation: Segmentation, folder: Path | None = None) -> Coefficients:
    """Return the shipped regression for nuclei outlined by this method."""
    card = types_card(folder)
    return Coefficients.model_validate(card["regressions"][segmentation])


def types_card(folder: Path | None = None) -> dict[str, Any]:
    """Return the card: coefficients, what they were fitted to, and how well they do."""
    path = (folder or data_folder("models")) / CARD
    card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return card


def classify(table: F64, segmentation: Segmentation, strength: float) -> CellTypes:
    """Types of the nuclei of a table, by the regression for how they were outlined.

    `strength` is the slide's strength of dye; beyond `STRENGTHS` no nucleus has a type.
    """
    found = apply_regression(coefficients(segmentation), table, strength)
    if STRENGTHS[0] <= strength <= STRENGTHS[1]:
        return found
    return CellTypes(found.probabilities, np.zeros(len(table), dtype=bool))


def apply_regression(known: Coefficients, table: F64, strength: float | F64) -> CellTypes:
    """Types by given coefficients."""
    columns = [FEATURES.index(name) for name in known.features]
    given = features(table, strength)[:, columns]
    logits = (given - known.mean) / np.array(known.sd) @ np.array(known.weights).T + known.bias
    logits -= logits.max(axis=1, keepdims=True)
    chance = np.exp(logits)
    chance /= chance.sum(axis=1, keepdims=True)
    inside = ((given >= known.low) & (given <= known.high)).all(axis=1)
    return CellTypes(chance, np.asarray(inside, dtype=bool))


def lymphocytes(table: F64, dark: float, way: Segmentation, strength: float) -> BoolArray:
    """Small, round, dark nuclei, without those whose type makes a lymphocyte unlikely.

    `dark` is the least density (see `compute.nuclei.darkness`); nuclei outside the card are judged
    by size, shape and darkness alone.

    Parameters
    ----------
    dark : least optical density of a lymphocyte's nucleus
    way : how the nuclei were segmented
    strength : of the slide's stain

    Returns
    -------
    (n,) true for those taken as lymphocytes.
    """
    found = classify(table, way, strength)
    unlikely = found.inside & (found.probabilities[:, TYPES.index("lymphoid")] < UNLIKELY)
    return np.asarray(lymphocyte_like(table, dark) & ~unlikely, dtype=bool)
