"""The exact pair search against brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.embedding.embed import normalize
from kg.fusion.cosine import find_cross_pairs, find_pairs


def near_duplicates(n: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) / np.sqrt(1 + np.arange(d))
    x[n // 2 :] = x[: n - n // 2] + rng.uniform(0, 0.6, (n - n // 2, 1)) * rng.standard_normal(
        (n - n // 2, d)
    ) / np.sqrt(1 + np.arange(d))
    return normalize(x)


def brute(x: np.ndarray, y: np.ndarray, tau: float) -> set[tuple[int, int]]:
    product = x.astype(np.float64) @ y.astype(np.float64).T
    # One order of summation for all: the definition is the float64 product, row by row.
    rows, columns = np.nonzero(product >= tau - 1e-9)
    exact = [
        sum(float(a) * float(b) for a, b in zip(x[i], y[j], strict=True))
        for i, j in zip(rows, columns, strict=True)
    ]
    return {(int(i), int(j)) for i, j, c in zip(rows, columns, exact, strict=True) if c >= tau}


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.5, 0.8, 0.9, 0.95]), st.integers(2, 70))
def test_pairs_are_those_of_brute_force(seed: int, tau: float, lead: int) -> None:
    x = near_duplicates(300, 64, seed)
    found = find_pairs(x, tau, lead=lead)
    expected = {(i, j) for i, j in brute(x, x, tau) if i < j}
    assert set(zip(found.left.tolist(), found.right.tolist(), strict=True)) == expected


def test_pairs_across_block_borders_are_found() -> None:
    x = near_duplicates(5000, 32, 1)
    found = find_pairs(x, 0.97, lead=12)
    product = x.astype(np.float64) @ x.astype(np.float64).T
    clear = np.argwhere(np.triu(product >= 0.97 + 1e-6, 1))
    got = set(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert {tuple(p) for p in clear.tolist()} <= got
    assert len(got) <= int(np.triu(product >= 0.97 - 1e-6, 1).sum())


def test_cosines_within_a_hundred_thousandth_of_tau_are_settled_in_float64() -> None:
    angle = np.arccos(0.9)
    offsets = np.array([-3e-6, -1e-6, -1e-7, 0.0, 1e-7, 1e-6, 3e-6])
    x = np.zeros((len(offsets) + 1, 8), dtype=np.float32)
    x[0, 0] = 1.0
    x[1:, 0] = np.cos(angle + offsets)
    x[1:, 1] = np.sin(angle + offsets)
    found = find_pairs(x, 0.9)
    got = {(int(i), int(j)) for i, j in zip(found.left, found.right, strict=True)}
    assert got == {(i, j) for i, j in brute(x, x, 0.9) if i < j}
    assert any((0, j) in got for j in range(1, 8))
    assert not all((0, j) in got for j in range(1, 8))


def test_cross_pairs_are_those_of_brute_force() -> None:
    x, y = near_duplicates(120, 48, 2), near_duplicates(700, 48, 2)
    found = find_cross_pairs(x, y, 0.85, lead=10)
    assert set(zip(found.left.tolist(), found.right.tolist(), strict=True)) == brute(x, y, 0.85)
