"""Dense regions called lymphoid or not, blur left out of the mask, ink of usual colors."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image as Pil

from mcp_servers.pathology.compute.lymphoid import call
from mcp_servers.slides.slide import Slide
from tests.end_to_end.harness import sage
from tests.mcp_servers.slide_tools import Image, context, png, pyramid, run, shared
from tests.warm import HERE

PINK, NUCLEUS = (225, 165, 200), (85, 60, 135)


def sage_tool(name: str, *words: str, cwd: Path) -> dict[str, Any]:
    """The result of `sage tools run NAME ... --json`."""
    done = sage("tools", "run", name, *words, "--json", "--out", "out", cwd=cwd, **{HERE: "1"})
    assert done.code == 0, done.err
    return dict(done.json["result"])


def crowded(whole: bool, seed: int = 3) -> Image:
    """700 px at 0.5 µm: a disk of 7 µm nuclei, whole and round or broken into pieces."""
    rng = np.random.default_rng(seed)
    image = np.full((700, 700, 3), PINK, np.uint8)
    for y in range(60, 640, 17):
        for x in range(60, 640, 17):
            a, b = x + int(rng.integers(-3, 4)), y + int(rng.integers(-3, 4))
            if np.hypot(a - 350, b - 350) > 230:
                continue
            if whole:
                cv2.circle(image, (a, b), 6, NUCLEUS, -1, cv2.LINE_AA)
                continue
            for _ in range(3):  # fragments of odd shape
                corners = rng.normal(0, 5, (4, 2)) + rng.normal((a, b), 2.5)
                cv2.fillPoly(image, [corners.astype(np.int32)], NUCLEUS, cv2.LINE_AA)
    image = cv2.GaussianBlur(image, (0, 0), 0.8)
    return np.clip(image + rng.normal(0, 3, image.shape), 0, 255).astype(np.uint8)


def test_round_nuclei_make_an_aggregate_and_fragments_make_none(tmp_path: Path) -> None:
    png(tmp_path / "whole.png", crowded(True))
    png(tmp_path / "broken.png", crowded(False))
    options = {"mpp": 0.5, "at_mpp": 0.5}
    good = run(context(tmp_path), "tls", slide="whole.png", **options)
    assert (good["count"], good["doubtful"], good["rejected"]) == (1, 0, 0)
    assert good["aggregates"][0]["regular_nuclei"] > 0.55
    assert good["aggregates"][0]["reason"] == ""
    assert run(context(tmp_path), "tls", slide="broken.png", **options)["count"] == 0


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        ((0.70, 3.5, 1.0), "lymphoid"),
        ((0.50, 3.5, 1.0), "doubtful"),
        ((0.70, 2.0, 1.0), "doubtful"),
        ((0.35, 3.5, 1.0), "rejected"),
        ((0.45, 3.0, 1.5), "rejected"),
        ((0.70, 3.0, 1.5), "lymphoid"),
    ],
)
def test_the_call_follows_outline_contrast_and_darkness(look: Any, expected: str) -> None:
    row = np.array([2e4, 100.0, 9000.0, 0.5, 120.0, *look])
    assert call(row) == expected
    assert call(row, 0.0) != "rejected"


@pytest.mark.shared
def test_a_real_luminal_abscess_is_not_counted(tmp_path: Path) -> None:
    picture = shared("necrosis_masks/image_70.png").resolve()
    for least in (0.4, 0.0):
        got = run(context(tmp_path, picture.parent), "tls", slide=str(picture), mpp=1.0,
                  min_regular=least)  # fmt: skip
        assert got["count"] == 0


def test_a_rejected_region_is_listed_with_its_reason(tmp_path: Path) -> None:
    png(tmp_path / "whole.png", crowded(True))
    got = run(context(tmp_path), "tls", slide="whole.png", mpp=0.5, at_mpp=0.5, min_regular=0.999)
    assert (got["count"], got["rejected"]) == (0, 1)
    with (tmp_path / "out" / got["table"]).open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["call"] for row in rows} == {"rejected"}
    assert rows[0]["reason"]


@pytest.fixture
def half_blurred(tmp_path: Path) -> Path:
    """The real scan of a squamous carcinoma with its left half blurred by 3 µm."""
    source = shared("wsi_histolab/tcga-cr-7395-01a-01-ts1.svs")
    with Slide.open(source, mpp=1.0) as slide:
        image = slide.read(600, 900, 2000, 1600).copy()
    image[:, :1000] = cv2.GaussianBlur(image, (0, 0), 3.0)[:, :1000]
    return pyramid(tmp_path / "half.svs", image, mpp=1.0)


@pytest.mark.shared
def test_blurred_tissue_is_left_out_when_asked_and_reported_otherwise(half_blurred: Path) -> None:
    cwd = half_blurred.parent
    plain = sage_tool("tissue_mask", "--input", "half.svs", cwd=cwd)
    assert plain["focus"] == "sample" and plain["excluded_blur_mm2"] == 0
    assert 0.3 < plain["out_of_focus_fraction"] < 0.7
    assert any("out of focus" in note for note in plain["warnings"])
    before = np.asarray(Pil.open(cwd / "out" / plain["mask"])) > 0
    got = sage_tool("tissue_mask", "--input", "half.svs", "--set", "focus=exclude", cwd=cwd)
    after = np.asarray(Pil.open(cwd / "out" / got["mask"])) > 0
    half = before.shape[1] // 2
    edge = 10  # 80 µm to either side of the border, as cells of 64 µm are judged
    assert after[:, : half - edge].sum() < 0.15 * before[:, : half - edge].sum()
    assert after[:, half + edge :].sum() > 0.98 * before[:, half + edge :].sum()
    assert got["focus"] == "exclude"
    left_out = (before & ~after).sum() * (got["mask_mpp"] / 1000) ** 2
    assert got["excluded_blur_mm2"] == pytest.approx(left_out, rel=0.01)


def test_holes_are_filled_by_their_area(tmp_path: Path) -> None:
    image = np.full((600, 600, 3), 244, np.uint8)
    image[100:500, 100:500] = (205, 110, 165)
    image[150:160, 150:160] = 244  # 80 µm a side: 6,400 µm²
    image[300:330, 300:330] = 244  # 240 µm a side: 57,600 µm²
    png(tmp_path / "a.png", image)
    ctx = context(tmp_path)
    areas = [
        run(ctx, "tissue_mask", slide="a.png", mpp=8.0, fill_holes_um2=um2)["tissue_mm2"]
        for um2 in (0, 10_000, 100_000)
    ]
    assert areas[1] - areas[0] == pytest.approx(0.0064, rel=0.5)
    assert areas[2] - areas[1] == pytest.approx(0.0576, rel=0.15)
