"""Patch classifiers: trained on outlines or folders, held out by patient, used to find tumor."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest

from mcp_servers.formats.geojson import feature, square, write_geojson
from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError
from sage_foundation.patches import load_model
from tests.mcp_servers.slide_tools import context, png, run
from tests.mcp_servers.test_sl_calls import sage_tool
from validation.simulate.slide import SlideTruth, render_slide

Labelled: TypeAlias = tuple[Path, list[SlideTruth]]


def make_outlines(truth: Any) -> list[dict[str, Any]]:
    """Squares of 64 µm that hold nuclei of a single kind, as a pathologist would pick them."""
    side = 64 / truth.mpp
    kinds = {
        "Tumor": truth.tumor_nuclei,
        "Stroma": truth.stroma_nuclei,
        "Immune": truth.lymphocytes,
    }
    shape = (int(truth.height / side), int(truth.width / side))
    counts = {}
    for name, points in kinds.items():
        grid = np.zeros(shape, int)
        cells = np.minimum((points / side).astype(int), np.array(shape[::-1]) - 1)
        np.add.at(grid, (cells[:, 1], cells[:, 0]), 1)
        counts[name] = grid
    least = {"Tumor": 10, "Stroma": 3, "Immune": 30}
    out = []
    for name, grid in counts.items():
        others = sum(g for other, g in counts.items() if other != name)
        for row, column in np.argwhere((grid >= least[name]) & (others <= 1)):
            out.append(feature(square(column * side, row * side, side, name)))
    return out


@pytest.fixture(scope="module")
def labelled_slides(tmp_path_factory: pytest.TempPathFactory) -> Labelled:
    """Three painted slides with outlines of their classes, and a fourth without."""
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "slides").mkdir()
    (folder / "regions").mkdir()
    truths = []
    for seed in (301, 302, 303, 304):
        where = folder / "slides" if seed < 304 else folder
        truth = render_slide(where / f"p{seed}.tif", seed=seed, size_px=1400, mpp=0.5, aggregates=2)
        truths.append(truth)
        if seed < 304:
            write_geojson(folder / "regions" / f"p{seed}.geojson", make_outlines(truth))
    return folder, truths


@pytest.fixture(scope="module")
def trained_model(labelled_slides: Labelled) -> dict[str, Any]:
    """The model trained from the command line."""
    folder, _ = labelled_slides
    return sage_tool(
        "patch_train", "--set", "slides=slides", "--set", "regions=regions", "--set", "folds=3",
        "--root", ".", cwd=folder,
    )  # fmt: skip


def test_a_model_is_trained_and_scored_on_slides_it_did_not_see(
    labelled_slides: Labelled, trained_model: dict[str, Any]
) -> None:
    folder, _ = labelled_slides
    assert trained_model["method"] == "learned" and trained_model["folds"] == 3
    assert [c["name"] for c in trained_model["classes"]] == ["Immune", "Stroma", "Tumor"]
    assert trained_model["tumor_classes"] == ["Tumor"]
    assert trained_model["balanced_accuracy"] > 0.9
    card = json.loads((folder / "out" / trained_model["card"]).read_text())
    assert card["training_slides"] == ["p301", "p302", "p303"]
    assert (card["encoder"], card["tile_px"], card["at_mpp"]) == ("handcrafted", 128, 0.5)
    assert card["held_out"]["balanced_accuracy"] == trained_model["balanced_accuracy"]
    table = pd.read_csv(folder / "out" / trained_model["predictions"])
    assert len(table) == trained_model["patches"] == sum(card["patches"].values())
    assert (table["predicted"] == table["label"]).mean() == pytest.approx(trained_model["accuracy"])
    assert any("only 3 patients" in note for note in trained_model["warnings"])


def test_tumor_by_a_model_says_learned_and_finds_the_tumor_of_a_new_slide(
    labelled_slides: Labelled, trained_model: dict[str, Any]
) -> None:
    from PIL import Image

    folder, truths = labelled_slides
    got = sage_tool(
        "tumor", "--input", "p304.tif", "--set", f"model=out/{trained_model['model']}",
        "--root", ".", cwd=folder,
    )  # fmt: skip
    assert got["method"] == "learned"
    assert any("held-out balanced accuracy" in note for note in got["warnings"])
    mask = np.asarray(Image.open(folder / "out" / got["mask"])) > 0

    def share(points: Any) -> float:
        cells = np.minimum((points * 0.5 / 8).astype(int), np.array(mask.shape)[::-1] - 1)
        return float(mask[cells[:, 1], cells[:, 0]].mean())

    assert share(truths[3].tumor_nuclei) > 0.8
    assert share(truths[3].stroma_nuclei) < 0.3


def test_every_tool_that_needs_the_tumor_takes_the_model_and_says_so(
    labelled_slides: Labelled, trained_model: dict[str, Any]
) -> None:
    folder, truths = labelled_slides
    ctx = context(folder)
    for name in ("tls", "til", "stroma", "region_patches"):
        cells = {"cells": str(truths[3].write_cells(folder / "cells.csv"))} if name == "til" else {}
        learned = run(ctx, name, slide="p304.tif", model=trained_model["model"], **cells)
        assert (learned["method"], learned["tumor_source"]) == ("learned", "learned")


def test_a_slide_of_the_training_set_is_flagged(
    labelled_slides: Labelled, trained_model: dict[str, Any]
) -> None:
    got = run(
        context(labelled_slides[0]), "tumor", slide="slides/p301.tif", model=trained_model["model"]
    )
    assert any("trained on this slide" in note for note in got["warnings"])


def test_images_sorted_into_folders_train_too(tmp_path: Path) -> None:
    from tests.mcp_servers.test_sl_calls import crowded

    for name, whole in (("carcinoma", True), ("stroma", False)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for seed in range(3):
            image = crowded(whole, seed)[150:550, 150:550]
            png(tmp_path / "images" / name / f"{seed}.png", image)
    got = run(context(tmp_path), "patch_train", slides="images", mpp=0.5, tile_px=128, folds=3)
    assert got["tumor_classes"] == ["carcinoma"]
    assert got["slides"] == 6 and got["patches"] == 54
    assert got["balanced_accuracy"] > 0.9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"regions": "none"}, "not found"),
        ({"regions": "slides/p301.tif"}, "not JSON|codec|decode"),
        ({"tumor_classes": ["Karzinom"]}, "not among the labels"),
        ({"regions": None}, "one subfolder of images per class"),
        ({"tile_px": 1024}, "no tile of 1024 px"),
        ({"encoder": "uni2"}, "needs pretrained weights"),
    ],
)
def test_what_cannot_be_learned_is_named(
    labelled_slides: Labelled, change: dict[str, Any], words: str
) -> None:
    options = {"slides": "slides", "regions": "regions", "max_patches": 5, "name": "bad"} | change
    given = {k: v for k, v in options.items() if v is not None}
    with pytest.raises(InputError, match=words):
        run(context(labelled_slides[0]), "patch_train", **given)
    assert not list((labelled_slides[0] / "out").glob("bad*"))


def test_a_model_that_does_not_fit_is_refused(
    labelled_slides: Labelled, trained_model: dict[str, Any]
) -> None:
    folder, _ = labelled_slides
    ctx = context(folder)
    (folder / "junk.safetensors").write_bytes(b"junk")
    with pytest.raises(InputError, match="not a patch_train model"):
        run(ctx, "tumor", slide="p304.tif", model="junk.safetensors")
    shutil.copy(folder / "regions" / "p301.geojson", folder / "r.geojson")
    with pytest.raises(InputError, match="cannot be combined"):
        run(ctx, "tls", slide="p304.tif", model=trained_model["model"], tumor_regions="r.geojson")


def test_a_head_gives_probabilities_and_stores_no_code(
    labelled_slides: Labelled, trained_model: dict[str, Any], tmp_path: Path
) -> None:
    path = labelled_slides[0] / "out" / trained_model["model"]
    model = load_model(path)
    given = np.random.default_rng(0).normal(size=(5, len(model.head.mean))).astype(np.float32)
    out = model.head.probabilities(given)
    assert out.shape == (5, 3) and out.sum(axis=1) == pytest.approx(np.ones(5))
    model.save(tmp_path / "again.safetensors")
    again = load_model(tmp_path / "again.safetensors")
    assert np.array_equal(again.head.probabilities(given), out) and again.card == model.card


def rewritten(file: Path, new: Path, tensors: dict[str, Any] | None = None, **card: Any) -> Path:
    """A model with other numbers or another card; a value of ... takes the key out."""
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    with safe_open(file, framework="numpy") as opened:
        old = json.loads(opened.metadata()["card"])
    plain = {k: v for k, v in (old | card).items() if v is not ...}
    save_file(load_file(file) | (tensors or {}), new, metadata={"card": json.dumps(plain)})
    return new


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ({"classes": ["Immune", "non_tumor", "Tumor"], "tumor_classes": ["non_tumor", "Tumor"],
          "tumor_named": ...}, '"non_tumor" was assumed to be tumor'),
        ({"classes": ["a", "b", "c"], "tumor_classes": ["a", "b", "c"], "tumor_named": True},
         "all of its classes"),
        ({"tile_px": 5}, "tile_px"),
        ({"at_mpp": "x"}, "at_mpp"),
        ({"classes": "abc"}, "classes"),
        ({"classes": ["Tumor", "Tumor", "Stroma"]}, "twice"),
        ({"classes": ["Tumor", "Stroma"]}, "do not match the card"),
        ({"tumor_classes": ["Krebs"]}, "not among the classes"),
        ({"name": ...}, "name"),
        ({"encoder": "nosuch"}, "encoder"),
        ({"held_out": {"balanced_accuracy": "good"}}, "balanced_accuracy"),
    ],
)  # fmt: skip
def test_a_card_that_cannot_be_used_is_named(
    labelled_slides: Labelled, trained_model: dict[str, Any], card: dict[str, Any], words: str
) -> None:
    folder, _ = labelled_slides
    model = rewritten(folder / "out" / trained_model["model"], folder / "card.safetensors", **card)
    with pytest.raises(InputError, match=rf"card\.safetensors: .*{words}"):
        load_model(model)


def test_a_slide_smaller_than_the_models_tiles_is_not_called_free_of_tumor(
    labelled_slides: Labelled, trained_model: dict[str, Any]
) -> None:
    folder, _ = labelled_slides
    with Slide.open(folder / "p304.tif") as slide:
        image = slide.read(600, 600, 110, 110)
    png(folder / "small.png", image)
    with pytest.raises(InputError, match=r"model patch requires tiles of 128 px at 0\.5 µm"):
        run(context(folder), "tumor", slide="small.png", mpp=0.5, model=trained_model["model"])
