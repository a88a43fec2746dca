"""Types of nuclei: one formula for all slides, silent outside its card."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from scipy.special import softmax

from mcp_servers.pathology.compute.cell_types import (
    FEATURES,
    STRENGTHS,
    TYPES,
    apply_regression,
    classify,
    coefficients,
    features,
    lymphocytes,
    types_card,
)
from mcp_servers.pathology.compute.nuclei import (
    COLUMNS,
    SURROUNDINGS,
    lymphocyte_like,
    segment,
    surroundings,
)

WAYS = ("classical", "survey")


def nuclei(count: int = 200, seed: int = 0) -> Any:
    """A table of plausible nuclei."""
    rng = np.random.default_rng(seed)
    names = COLUMNS
    table = np.zeros((count, len(names)))
    draws = {
        "area_um2": (12, 120), "eccentricity": (0.2, 0.95), "circularity": (0.5, 1),
        "density_mean": (0.1, 0.6), "density_sd": (0.02, 0.15), "second_mean": (0.2, 0.9),
    }  # fmt: skip
    for name, (low, high) in draws.items():
        table[:, names.index(name)] = rng.uniform(low, high, count)
    return table


@pytest.mark.parametrize("way", WAYS)
def test_probabilities_are_those_of_the_printed_formula(way: Any) -> None:
    table, card = nuclei(), types_card()["regressions"][way]
    found = classify(table, way, 0.3)
    for row, given in zip(found.probabilities[:20], table[:20], strict=False):
        area, ecc, circ, density, sd, green = (
            given[COLUMNS.index(name)]
            for name in ("area_um2", "eccentricity", "circularity", "density_mean", "density_sd",
                         "second_mean")
        )  # fmt: skip
        size = np.log(area)
        known = {
            "log_area": size, "log_area_squared": (size - 3.4) ** 2, "eccentricity": ecc,
            "circularity": circ, "density": np.log(density / 0.3), "texture": sd / density,
            "hue": green / density,
        }  # fmt: skip
        values = [known[name] for name in card["features"]]
        scaled = [(v - m) / s for v, m, s in zip(values, card["mean"], card["sd"], strict=True)]
        logits = [np.dot(w, scaled) + b for w, b in zip(card["weights"], card["bias"], strict=True)]
        assert row == pytest.approx(softmax(logits))


def test_a_type_does_not_depend_on_the_other_nuclei_nor_on_how_strongly_a_slide_is_dyed() -> None:
    table = nuclei()
    whole, half = classify(table, "classical", 0.3), classify(table[::2], "classical", 0.3)
    assert np.array_equal(whole.probabilities[::2], half.probabilities)
    darker = table.copy()
    dyes = ("density_mean", "density_sd", "second_mean")
    darker[:, [COLUMNS.index(name) for name in dyes]] *= 1.5
    again = classify(darker, "classical", 0.45)
    assert again.probabilities == pytest.approx(whole.probabilities)


def test_outside_the_card_no_nucleus_has_a_type() -> None:
    table = nuclei()
    for strength in (STRENGTHS[0] / 2, STRENGTHS[1] * 2):
        assert set(classify(table, "classical", strength).names) == {"outside"}
        plain = lymphocyte_like(table, 0.2)
        assert np.array_equal(lymphocytes(table, 0.2, "classical", strength), plain)
    brown = table.copy()
    brown[:, COLUMNS.index("second_mean")] *= 20
    assert set(classify(brown, "classical", 0.3).names) == {"outside"}
    assert len(features(table, 0.3)[0]) == len(FEATURES)
    assert set(apply_regression(coefficients("survey"), table, 0.3).names) <= {*TYPES, "outside"}


def test_surroundings_are_those_of_a_drawn_field() -> None:
    image = np.full((200, 200, 3), 240, np.uint8)
    image[:, 100:] = (200, 150, 190)  # glass beside pink tissue
    for x in (50, 150):
        cv2.circle(image, (x, 100), 8, (90, 60, 140), -1)
    nuclei = segment(image, 0.5)
    assert len(nuclei.table) == 2
    order = np.argsort(nuclei.table[:, 0])
    glass, tissue = surroundings(nuclei, image, 0.5)[order]
    around, second, rim, grain, crowding = (SURROUNDINGS.index(name) for name in SURROUNDINGS)
    side = 63  # pixels of a square of 31 µm
    assert glass[crowding] == pytest.approx(nuclei.table[order[0], 2] / 0.25 / side**2, rel=0.05)
    assert glass[rim] < 0.02 < tissue[rim]
    assert glass[second] < tissue[second] and glass[around] < tissue[around]
    assert glass[grain] > 0
    with_noise = image.copy()
    with_noise[(np.indices((200, 200)).sum(0) % 4) < 2] //= 2
    again = segment(image, 0.5)
    assert (surroundings(again, with_noise, 0.5)[:, grain] > 1.3 * glass[grain]).all()
