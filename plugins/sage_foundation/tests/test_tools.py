"""Encoders, clusters, heatmaps, attention MIL, text scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from mcp_servers.formats.hdf5 import Grid
from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError
from sage_foundation.attention import auc, auc_interval
from sage_foundation.features import read_features, write_features
from sage_foundation.handcrafted import DIMENSION, NAMES, encode_patch
from sage_foundation.specs import ENCODERS
from tests.clip import write_clip
from tests.mcp_servers.slide_tools import blobs, context, png, pyramid, run

GRID = Grid("s", 256, 256, 0.5, 0.5, 0, 4096, 4096)


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A slide and its handcrafted features."""
    folder = tmp_path_factory.mktemp("encoded")
    pyramid(folder / "s.svs", blobs(1400, 1400))
    ctx = context(folder)
    return folder, run(ctx, "encode_tiles", slide="s.svs", tile_px=128, min_tissue=0.3)


def test_handcrafted_features_are_named_finite_and_repeatable() -> None:
    patch = blobs(256, 256)
    first, second = encode_patch(patch, 0.5), encode_patch(patch.copy(), 0.5)
    assert np.array_equal(first, second)
    assert len(first) == len(set(NAMES)) == DIMENSION == ENCODERS["handcrafted"].dimension
    assert np.isfinite(first).all()
    white = encode_patch(np.full((64, 64, 3), 255, np.uint8), 0.5)
    assert np.isfinite(white).all() and white[NAMES.index("gap_share")] == 1.0


def test_handcrafted_features_do_not_change_when_a_patch_is_turned() -> None:
    patch = blobs(256, 256)
    first, second = encode_patch(patch, 0.5), encode_patch(np.rot90(patch).copy(), 0.5)
    assert np.abs(first - second).max() < 0.12
    assert np.corrcoef(first, second)[0, 1] > 0.999


def test_encoding_without_weights_says_classical(encoded: tuple[Path, dict[str, Any]]) -> None:
    folder, got = encoded
    assert (got["method"], got["encoder"], got["dimension"]) == ("classical", "handcrafted", 81)
    features, coords, attributes = read_features(folder / "out" / got["features"])
    assert features.shape == (got["tiles"], 81) and coords is not None
    assert attributes["encoder"] == "handcrafted"
    assert attributes["patch_size_level0"] == 128


@pytest.mark.parametrize("name", [n for n in ENCODERS if n != "handcrafted"])
def test_a_named_model_without_weights_is_never_replaced_silently(
    encoded: tuple[Path, dict[str, Any]], name: str
) -> None:
    with pytest.raises(InputError, match=r"needs pretrained weights.*handcrafted"):
        run(context(encoded[0]), "encode_tiles", slide="s.svs", encoder=name, tile_px=128)


def test_given_coordinates_are_encoded_as_they_are(encoded: tuple[Path, dict[str, Any]]) -> None:
    folder, first = encoded
    ctx = context(folder)
    tiles = run(ctx, "tile_slide", slide="s.svs", tile_px=128, min_tissue=0.3)
    again = run(ctx, "encode_tiles", slide="s.svs", coords=tiles["coords"])
    assert again["tiles"] == tiles["tiles"] == first["tiles"]


def test_clusters_are_stable_and_number_all_tiles(encoded: tuple[Path, dict[str, Any]]) -> None:
    folder, got = encoded
    ctx = context(folder)
    options = {"slide": "s.svs", "features": got["features"], "clusters": 3}
    first, second = (run(ctx, "cluster_tiles", **options) for _ in range(2))
    assert first == second
    assert sum(c["tiles"] for c in first["clusters"]) == got["tiles"]
    sizes = [c["tiles"] for c in first["clusters"]]
    assert sizes == sorted(sizes, reverse=True)
    table = pd.read_csv(folder / "out" / first["table"])
    assert set(table["cluster"]) == {0, 1, 2}


def test_a_heatmap_is_brightest_where_the_score_is_highest(tmp_path: Path) -> None:
    from PIL import Image

    png(tmp_path / "a.png", np.full((512, 512, 3), 240, np.uint8))
    rows = [(x, y, float(x)) for x in range(0, 512, 64) for y in range(0, 512, 64)]
    pd.DataFrame(rows, columns=["x", "y", "score"]).to_csv(tmp_path / "s.csv", index=False)
    got = run(context(tmp_path), "heatmap", slide="a.png", scores="s.csv")
    picture = np.asarray(Image.open(tmp_path / "out" / got["image"])).astype(int)
    assert picture[30, 480, 0] > picture[30, 30, 0] + 50
    assert got["tiles"] == 64


def bags(folder: Path, count: int, seed: int, signal: float = 3.0) -> None:
    """Feature files and labels: positive slides hold 15% tiles that are shifted in a number."""
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    rows = []
    for i in range(count):
        features = rng.normal(0, 1, (60, 12)).astype(np.float32)
        positive = i % 2 == 0
        if positive:
            features[:9, 4] += signal
        coords = np.stack([np.arange(60) * 256, np.zeros(60, int)], axis=1)
        write_features(folder / f"p{seed}_{i}.h5", coords, [features], GRID, "test")
        label = "hot" if positive else "cold"
        rows.append((f"p{seed}_{i}", f"patient{i // 2 * 2 + positive}", label))
    table = pd.DataFrame(rows, columns=["slide", "patient", "label"])
    table.to_csv(folder / "labels.csv", index=False)


def test_auc_agrees_with_scikit_learn_and_its_interval_holds_it() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(1)
    labels = rng.random(80) < 0.4
    scores = rng.normal(labels * 1.0, 1)
    assert auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores))
    low, high = auc_interval(labels, scores, np.arange(80), seed=0)
    assert low < auc(labels, scores) < high


def test_mil_learns_a_planted_signal_and_points_at_its_tiles(tmp_path: Path) -> None:
    import h5py

    bags(tmp_path / "train", 28, seed=1)
    bags(tmp_path / "new", 16, seed=2)
    ctx = context(tmp_path)
    options = {"folds": 2, "epochs": 15, "hidden": 32, "device": "cpu"}
    got = run(ctx, "mil_train", features="train", labels="train/labels.csv", **options)
    assert got["auc"] > 0.85
    assert got["auc_low"] < got["auc"] <= got["auc_high"] + 1e-9
    card = json.loads((tmp_path / "out" / got["card"]).read_text())
    assert (card["classes"], card["encoder"], card["dimension"]) == (["cold", "hot"], "test", 12)
    new = run(
        ctx, "mil_evaluate", weights=got["weights"], features="new", labels="new/labels.csv",
        device="cpu",
    )  # fmt: skip
    assert new["auc"] > 0.85
    with h5py.File(tmp_path / "out" / "mil.attention" / "p2_0.h5") as file:
        attention = file["attention"][()]
    assert attention[:9].mean() > 1.5 * attention[9:].mean()
    assert attention.mean() == pytest.approx(1.0, rel=1e-3)
    predictions = pd.read_csv(tmp_path / "out" / got["predictions"])
    assert len(predictions) == 28


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("slide,label\np1_0,a\np1_1,a\n", "at least two labels are needed"),
        ("slide,label\np1_0,a\np1_0,b\n", "twice"),
        ("name,label\np1_0,a\n", "columns slide and label"),
        ("slide,label\nzzz,a\nyyy,b\n", "no features"),
        ("slide,label\np1_0,a\np1_1,b\n", "fewer than"),
    ],
)
def test_labels_that_cannot_be_learned_are_named(tmp_path: Path, labels: str, words: str) -> None:
    bags(tmp_path / "train", 6, seed=1)
    (tmp_path / "l.csv").write_text(labels)
    with pytest.raises(InputError, match=words):
        run(context(tmp_path), "mil_train", features="train", labels="l.csv", device="cpu")


def test_text_scores_with_a_local_model_sum_to_one(encoded: tuple[Path, dict[str, Any]]) -> None:
    import torch
    from transformers import CLIPModel
    from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

    folder = encoded[0] / "clip"
    tokens, config = write_clip(folder)
    ctx = context(encoded[0])
    asked = {"slide": "s.svs", "texts": ["tumor", "stroma"], "weights": "clip", "tile_px": 128}
    got = run(ctx, "text_score", **asked, device="cpu")
    assert got["method"] == "learned"
    table = pd.read_csv(encoded[0] / "out" / got["table"])
    assert (table["tumor"] + table["stroma"]).to_numpy() == pytest.approx(1.0, abs=1e-4)
    assert sum(t["share_of_tiles"] for t in got["texts"]) == pytest.approx(1.0)
    with Slide.open(encoded[0] / "s.svs") as slide:
        x, y = int(table["x"][0]), int(table["y"][0])
        tile = Image.fromarray(slide.read(x, y, 128, 128)).resize(
            (64, 64), Image.Resampling.BICUBIC
        )
    both = tokens(["tumor", "stroma"], padding=True, return_tensors="pt")
    pixels = (np.asarray(tile) / 255 - OPENAI_CLIP_MEAN) / OPENAI_CLIP_STD
    both["pixel_values"] = torch.from_numpy(pixels).float().permute(2, 0, 1)[None]
    with torch.inference_mode():
        direct = CLIPModel.from_pretrained(folder).eval()(**both).logits_per_image.softmax(1)[0]
    given = [table["tumor"][0], table["stroma"][0]]
    assert given == pytest.approx(direct.tolist(), abs=2e-3)
    assert abs(given[0] - 0.5) > 1e-3  # not the answer of a model that saw nothing
    torch.manual_seed(1)
    CLIPModel(config).save_pretrained(folder, safe_serialization=True)
    other = run(ctx, "text_score", **asked, device="cpu")  # the same worker must not keep the old
    means = [[t["mean_probability"] for t in first["texts"]] for first in (got, other)]
    assert means[0] != pytest.approx(means[1], abs=1e-4)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda p: p.write_bytes(b"no hdf5"), "not a readable HDF5"),
        (lambda p: _h5(p, other=np.zeros(3)), "not found"),
        (lambda p: _h5(p, features=np.full((3, 2), np.nan)), "NaN"),
        (lambda p: _h5(p, features=np.zeros((3, 2)), coords=np.zeros((2, 2))), "coordinates"),
    ],
)
def test_broken_feature_files_are_named(tmp_path: Path, write: Any, words: str) -> None:
    path = tmp_path / "f.h5"
    write(path)
    with pytest.raises(InputError, match=words):
        read_features(path)


def _h5(path: Path, **data: Any) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, values in data.items():
            file.create_dataset(name, data=values)


@pytest.mark.parametrize("way", ["external", "virtual", "link"])
def test_numbers_of_another_file_are_not_read_through_hdf5(tmp_path: Path, way: str) -> None:
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file.create_dataset("features", data=np.ones((4, 2)))
    with h5py.File(tmp_path / "s.h5", "w") as file:
        if way == "external":
            file.create_dataset("features", (4, 2), "u1", external=[(str(secret), 0, 8)])
        elif way == "virtual":
            layout = h5py.VirtualLayout((4, 2), "f8")
            layout[:] = h5py.VirtualSource(str(secret), "features", (4, 2))
            file.create_virtual_dataset("features", layout)
        else:
            file["features"] = h5py.ExternalLink(str(secret), "features")
    with pytest.raises(InputError, match='"features" links to another file'):
        read_features(tmp_path / "s.h5")
