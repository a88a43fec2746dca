"""Separation of dyes, normalization of colors, and positive nuclei."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sage.core.errors import InputError
from sage_stains import dyes
from tests.mcp_servers.slide_tools import blobs, context, png, run


def test_hed_separation_agrees_with_scikit_image() -> None:
    from skimage.color import rgb2hed

    image = blobs(60, 60)
    ours = dyes.concentrations(
        -np.log10(np.maximum(image, 1) / 255.0),
        np.array([dyes.HEMATOXYLIN, dyes.EOSIN, dyes.DAB]),
    )
    theirs = rgb2hed(image)
    # scikit-image divides the logarithm by log(1e-6) / log(0.1) = 6
    assert np.corrcoef(ours[..., 0].ravel(), theirs[..., 0].ravel())[0, 1] > 0.999
    ratio = ours[..., 0].std() / theirs[..., 0].std()
    assert ratio == pytest.approx(np.log(1e6) / np.log(10), rel=0.02)


def test_macenko_finds_planted_stains() -> None:
    rng = np.random.default_rng(3)
    planted = dyes.unit(np.array([[0.60, 0.72, 0.35], [0.18, 0.92, 0.34]]))
    amounts = rng.gamma(2.0, 0.5, (20_000, 2)) * (rng.random((20_000, 2)) < 0.7)
    found = dyes.macenko(amounts @ planted + rng.normal(0, 0.005, (20_000, 3)))
    cosines = (found.vectors * planted).sum(axis=1)
    assert (cosines > 0.995).all()


def test_macenko_refuses_glass_and_one_color() -> None:
    with pytest.raises(InputError, match="at least 200"):
        dyes.macenko(np.zeros((1000, 3)))
    with pytest.raises(InputError, match="single color"):
        dyes.macenko(np.tile([0.5, 0.8, 0.4], (1000, 1)))


def test_reinhard_gives_tissue_the_reference_statistics() -> None:
    image = blobs(200, 200)
    tissue = image[image.min(axis=2) < 215]
    lab = dyes.to_lab(tissue[None])[0]
    out = dyes.normalize_reinhard(image, lab.mean(axis=0), lab.std(axis=0))
    after = dyes.to_lab(out[image.min(axis=2) < 215][None])[0]
    assert after.mean(axis=0) == pytest.approx(dyes.REINHARD_MEAN, abs=0.08)


def test_stain_normalization_brings_two_stainings_together(tmp_path: Path) -> None:
    from PIL import Image

    image = blobs(600, 600)
    # half as much dye: optical density halves
    faded = (255 * (image / 255.0) ** 0.5).astype(np.uint8)
    png(tmp_path / "a.png", image)
    png(tmp_path / "b.png", faded)
    ctx = context(tmp_path)
    for how in ("macenko", "reinhard"):
        means = []
        for name in "ab":
            got = run(ctx, "stain_normalize", slide=f"{name}.png", mpp=0.5, at_mpp=0.5, how=how)
            out = np.asarray(Image.open(tmp_path / "out" / got["image"])).astype(float)
            means.append(out[image.min(axis=2) < 215].mean(axis=0))
        before = np.abs(image.astype(float) - faded)[image.min(axis=2) < 215].mean()
        assert np.abs(means[0] - means[1]).mean() < 0.5 * before


def test_ihc_counts_brown_nuclei(tmp_path: Path) -> None:
    import cv2

    rng = np.random.default_rng(2)
    image = np.full((600, 600, 3), (236, 236, 238), np.uint8)
    spots = [(x, y) for x in range(20, 590, 40) for y in range(20, 590, 40)]
    brown = rng.random(len(spots)) < 0.3
    for at, positive in zip(spots, brown, strict=True):
        cv2.circle(image, at, 8, (110, 70, 35) if positive else (120, 135, 185), -1, cv2.LINE_AA)
    png(tmp_path / "i.png", image)
    got = run(context(tmp_path), "ihc", slide="i.png", mpp=0.5)
    assert got["nuclei"] == pytest.approx(len(spots), abs=3)
    assert got["positive"] == pytest.approx(int(brown.sum()), abs=2)
    assert got["percent_1"] + got["percent_2"] + got["percent_3"] == pytest.approx(
        got["percent_positive"]
    )
