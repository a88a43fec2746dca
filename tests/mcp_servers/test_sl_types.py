"""Types of nuclei: one formula for all slides, silent outside its card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mcp_servers.pathology.compute.cell_types import (
    FEATURES,
    STRENGTHS,
    TYPES,
    applied,
    classify,
    coefficients,
    features,
    lymphocytes,
    types_card,
)
from mcp_servers.pathology.compute.nuclei import COLUMNS, lymphocyte_like
from tests.mcp_servers.slide_tools import context, png, run, shared

WAYS = ("network", "classical", "survey")


def nuclei(count: int = 200, seed: int = 0) -> Any:
    """A table of plausible nuclei."""
    rng = np.random.default_rng(seed)
    table = np.zeros((count, len(COLUMNS)))
    draws = {
        "area_um2": (12, 120), "eccentricity": (0.2, 0.95), "circularity": (0.5, 1),
        "density_mean": (0.1, 0.6), "density_sd": (0.02, 0.15), "second_mean": (0.2, 0.9),
    }  # fmt: skip
    for name, (low, high) in draws.items():
        table[:, COLUMNS.index(name)] = rng.uniform(low, high, count)
    return table


@pytest.mark.parametrize("way", WAYS)
def test_probabilities_are_those_of_the_printed_formula(way: Any) -> None:
    from scipy.special import softmax

    table, card = nuclei(), types_card()["regressions"][way]
    found = classify(table, way, 0.3)
    for row, given in zip(found.probabilities[:20], table[:20], strict=False):
        area, ecc, circ, density, sd, green = (
            given[COLUMNS.index(name)]
            for name in ("area_um2", "eccentricity", "circularity", "density_mean", "density_sd",
                         "second_mean")
        )  # fmt: skip
        size = np.log(area)
        values = [size, (size - 3.4) ** 2, ecc, circ, np.log(density / 0.3), sd / density,
                  green / density]  # fmt: skip
        scaled = [(v - m) / s for v, m, s in zip(values, card["mean"], card["sd"], strict=True)]
        logits = [np.dot(w, scaled) + b for w, b in zip(card["weights"], card["bias"], strict=True)]
        assert row == pytest.approx(softmax(logits))


def test_a_type_does_not_depend_on_the_other_nuclei_nor_on_how_strongly_a_slide_is_dyed() -> None:
    table = nuclei()
    whole, half = classify(table, "network", 0.3), classify(table[::2], "network", 0.3)
    assert np.array_equal(whole.probabilities[::2], half.probabilities)
    darker = table.copy()
    darker[:, [COLUMNS.index(n) for n in ("density_mean", "density_sd", "second_mean")]] *= 1.5
    again = classify(darker, "network", 0.45)
    assert again.probabilities == pytest.approx(whole.probabilities)


def test_outside_the_card_no_nucleus_has_a_type() -> None:
    table = nuclei()
    for strength in (STRENGTHS[0] / 2, STRENGTHS[1] * 2):
        assert set(classify(table, "network", strength).names) == {"outside"}
        plain = lymphocyte_like(table, 0.2)
        assert np.array_equal(lymphocytes(table, 0.2, "network", strength), plain)
    brown = table.copy()
    brown[:, COLUMNS.index("second_mean")] *= 20
    assert set(classify(brown, "network", 0.3).names) == {"outside"}
    assert len(features(table, 0.3)[0]) == len(FEATURES)
    assert set(applied(coefficients("survey"), table, 0.3).names) <= {*TYPES, "outside"}


def test_the_table_of_nuclei_has_types_and_probabilities(tmp_path: Path) -> None:
    from validation.simulate.slide import render_slide

    render_slide(tmp_path / "s.tif", seed=5, size_px=700, aggregates=1)
    got = run(context(tmp_path), "nuclei", slide="s.tif")
    table = pd.read_csv(tmp_path / "out" / got["table"])
    chances = table[[f"p_{name}" for name in TYPES]].to_numpy()
    assert chances.sum(axis=1) == pytest.approx(np.ones(len(table)), abs=1e-4)
    inside = table["type"] != "outside"
    best = np.array(TYPES)[chances.argmax(axis=1)]
    assert (table["type"][inside] == best[inside]).all()
    assert got["lymphocyte_like"] == table["lymphocyte_like"].sum()
    unlikely = inside & (table["p_lymphoid"] < 0.2)
    assert not (table["lymphocyte_like"] & unlikely).any()
    assert got["types"] == {
        name: int((table["type"] == name).sum()) for name in (*TYPES, "outside")
    }
    coarse = run(context(tmp_path), "nuclei", slide="s.tif", mpp=0.9)
    assert coarse["types"]["outside"] == coarse["nuclei"] > 0
    assert any("have none" in note for note in coarse["warnings"])


def test_the_card_says_how_thin_its_evidence_is() -> None:
    card = types_card()
    assert "no pathologist" in card["labels"] and "script" in card
    for way in WAYS:
        shares = card["regressions"][way]["left_out"]["shares"]
        assert shares["lymphoid"]["nuclei"] < 200 < shares["neoplastic"]["nuclei"]
    json.dumps(card)


@pytest.mark.shared
def test_few_nuclei_of_lung_tumor_and_many_of_a_lymphoid_tile_are_lymphoid(tmp_path: Path) -> None:
    shares = []
    for name, mpp in (("til_patches/6.png", 0.5), ("tls_tile/he_tls_tile.png", 0.25)):
        picture = shared(name)
        ctx = context(tmp_path, picture.parent)
        got = run(ctx, "nuclei", slide=str(picture), mpp=mpp)
        shares.append(got["lymphocyte_like"] / got["nuclei"])
    assert shares[1] > 2 * shares[0]
    png(tmp_path / "white.png", np.full((300, 300, 3), 244, np.uint8))
    assert run(context(tmp_path), "nuclei", slide="white.png", mpp=0.5)["nuclei"] == 0
