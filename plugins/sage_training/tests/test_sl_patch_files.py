"""Inputs of a patch classifier: classes by name, slides by name, tiles, folds."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mcp_servers.formats.geojson import feature, write_geojson
from mcp_servers.slides.geometry import Polygon, make_grid, measure_coverage, rasterize
from sage.core.errors import InputError
from tests.mcp_servers.slide_tools import context, png, run


def folders(place: Path, *names: str, count: int = 2) -> None:
    """A folder of images per class, each image of its own color and noise."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(names):
        (place / "images" / name).mkdir(parents=True)
        for k in range(count):
            image = rng.normal((200 - 40 * number, 120, 170), 12, (160, 160, 3))
            png(place / "images" / name / f"{k}.png", np.clip(image, 0, 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        (("non_tumor", "tumor_stroma"), {}, "no class.*tumor_classes"),
        (("tumor", "carcinoma"), {}, "all classes .* mean tumor"),
        (("tumor", "stroma"), {"tumor_classes": ["tumor", "stroma"]}, "all classes"),
    ],
)
def test_what_only_sounds_like_tumor_is_not_taken_for_it(
    tmp_path: Path, labels: tuple[str, ...], options: dict[str, Any], words: str
) -> None:
    folders(tmp_path, *labels)
    with pytest.raises(InputError, match=words):
        run(context(tmp_path), "patch_train", slides="images", mpp=0.5, tile_px=64, **options)


def test_only_the_class_called_tumor_is_tumor(tmp_path: Path) -> None:
    names = ("Tumor", "non_tumor", "tumor necrosis", "tumor_stroma")
    folders(tmp_path, *names)
    options = {"slides": "images", "mpp": 0.5, "tile_px": 64}
    got = run(context(tmp_path), "patch_train", **options)
    assert got["tumor_classes"] == ["Tumor"]
    asked = ["Tumor", "tumor necrosis"]
    got = run(context(tmp_path), "patch_train", **options, tumor_classes=asked)
    assert got["tumor_classes"] == asked


class Plain:
    """As much of a slide as cutting tiles asks for."""

    path, name = Path("x.svs"), "x"
    levels = ()

    def __init__(self, width: int, height: int, mpp: float) -> None:
        self.width, self.height, self.mpp = width, height, mpp

    def need_mpp(self) -> float:
        return self.mpp

    def view(self, mpp: float) -> Any:
        return SimpleNamespace(scale=max(1.0, mpp / self.mpp))


def cut_tiles(slide: Any, polygons: list[Polygon], **options: Any) -> tuple[Any, list[str]]:
    from sage_training.patches.gather import _tiles
    from sage_training.patches.inputs import PatchTrainInput

    corners, names, _ = _tiles(slide, polygons, PatchTrainInput(slides="x", regions="y", **options))
    return corners, names


@pytest.mark.parametrize("mpp", [0.2527, 2.0])
def test_tiles_cut_within_boxes_are_those_of_a_mask_of_the_whole(mpp: float) -> None:
    slide = Plain(9000, 7001, mpp)
    rng = np.random.default_rng(3)
    options = {"tile_px": 64, "at_mpp": max(0.5, mpp), "min_in_region": 0.6}
    polygons = []
    for number in range(16):
        turn = np.sort(rng.uniform(0, 2 * np.pi, 9))
        rays = rng.uniform(600, 2500, 9)[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        center = rng.uniform(-500, 9500, 2)
        holes = (center + rays * 0.4,) if number % 3 == 0 else ()
        polygons.append(Polygon(center + rays, holes, "ABC"[number % 3]))
    polygons.append(Polygon(np.array([[9e4, 9e4], [9.1e4, 9e4], [9e4, 9.1e4]]), (), "D"))
    corners, names = cut_tiles(slide, polygons, **options)
    scale = max(1.0, 2.0 / mpp)
    shape = (int(slide.height / scale) + 1, int(slide.width / scale) + 1)
    side = round(64 * max(0.5, mpp) / mpp)
    whole = make_grid(slide.width, slide.height, side, 64 * max(0.5, mpp) / mpp)
    cover = np.stack(
        [
            measure_coverage(
                rasterize([p for p in polygons if p.label == name], scale, shape),
                whole,
                side,
                scale,
            )
            for name in "ABCD"
        ]
    )
    keep = (cover >= 0.6).sum(axis=0) == 1
    assert 50 < keep.sum() < len(whole) - 50
    assert np.array_equal(corners, whole[keep])
    assert names == ["ABCD"[i] for i in cover.argmax(axis=0)[keep]]


def test_outlines_on_a_large_slide_take_memory_for_their_boxes_only() -> None:
    def box(x: int, label: str) -> Polygon:
        corners = [[x, x], [x + 3000, x], [x + 3000, x + 3000], [x, x + 3000]]
        return Polygon(np.array(corners, dtype=float), (), label)

    tracemalloc.start()
    corners, names = cut_tiles(
        Plain(100_000, 80_000, 0.25), [box(1000, "Tumor"), box(70_000, "Stroma")]
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(corners) > 100 and set(names) == {"Tumor", "Stroma"}
    assert peak < 40 * 2**20


def test_files_that_give_no_tile_are_counted_and_named(tmp_path: Path) -> None:
    folders(tmp_path, "tumor", "stroma")
    for name in ("stroma/tiny.png", "tumor/tiny.png"):
        png(tmp_path / "images" / name, np.full((40, 40, 3), 128, np.uint8))
    got = run(context(tmp_path), "patch_train", slides="images", mpp=0.5, tile_px=64)
    note = next(n for n in got["warnings"] if "not used for training" in n)
    assert note.startswith("2 of 6 files were not used for training, starting with stroma/tiny.png")


def test_the_class_that_keeps_anything_from_being_held_out_is_named(tmp_path: Path) -> None:
    folders(tmp_path, "tumor", "immune")
    rows = ["tumor/0.png,a", "tumor/1.png,b", "immune/0.png,c", "immune/1.png,c"]
    (tmp_path / "p.csv").write_text("slide,patient\n" + "\n".join(rows) + "\n")
    got = run(context(tmp_path), "patch_train", slides="images", mpp=0.5, tile_px=64,
              patients="p.csv")  # fmt: skip
    assert got["folds"] == 0
    assert any("tiles of immune all come from one patient" in note for note in got["warnings"])


def test_splits_are_found_where_some_exist() -> None:
    """Random tables: whatever is found is sound, and found wherever folds may be patients."""
    from sage_training.patches.folds import splits_by_patient

    rng = np.random.default_rng(0)
    tried = 0
    for _ in range(60):
        classes, people = int(rng.integers(2, 4)), int(rng.integers(3, 9))
        counts = rng.integers(1, 60, (people, classes)) * (rng.random((people, classes)) < 0.6)
        if ((counts > 0).sum(axis=0) < 2).any():
            continue
        y = np.concatenate([np.repeat(np.arange(classes), row) for row in counts])
        patients = np.repeat(np.arange(people), counts.sum(axis=1))
        splits = splits_by_patient(y, patients, 10, 0)
        tried += 1
        assert len(splits) >= 2
        held = np.sort(np.concatenate([test for _, test in splits]))
        assert np.array_equal(held, np.arange(len(y)))
        for train, test in splits:
            assert not set(patients[train]) & set(patients[test])
            assert len(np.unique(y[train])) == classes
    assert tried > 20


def write_outlines(place: Path, slides: tuple[str, ...], files: tuple[str, ...]) -> dict[str, Any]:
    """Slides of one picture, each half of it another class in every file; the options for them."""
    (place / "slides").mkdir()
    (place / "regions").mkdir()
    image = np.full((256, 512, 3), (200, 120, 170), np.uint8)
    image[:, 256:] = (120, 80, 160)
    for name in slides:
        png(place / "slides" / name, image)
    left = np.array([[0.0, 0], [256, 0], [256, 256], [0, 256]])
    for name in files:
        halves = [("Tumor", left), ("Stroma", left + np.array([256, 0]))]
        write_geojson(place / "regions" / name, [feature(Polygon(r, (), c)) for c, r in halves])
    return {"slides": "slides", "regions": "regions", "mpp": 0.5, "tile_px": 64}


@pytest.mark.parametrize(
    ("slides", "files", "trained"),
    [
        (("P1.s1.png", "P1.s2.png"), ("P1.s1.png.geojson", "P1.s2.geojson"), {"P1.s1", "P1.s2"}),
        (("P1.a-b-c.png", "P2.png"), ("P1.geojson",), {"P1.a-b-c"}),
    ],
)
def test_outlines_go_to_the_slide_of_their_name(
    tmp_path: Path, slides: tuple[str, ...], files: tuple[str, ...], trained: set[str]
) -> None:
    options = write_outlines(tmp_path, slides, files)
    got = run(context(tmp_path), "patch_train", **options)
    card = json.loads((tmp_path / "out" / got["card"]).read_text())
    assert set(card["training_slides"]) == trained


@pytest.mark.parametrize(
    ("slides", "files", "words"),
    [
        (("P1.s1.png", "P1.s2.png"), ("P1.s3.geojson",), r"P1\.s3\.geojson: no slide "
                                                         r"with this name"),
        (("P1.s1.png",), ("P1.s1.geojson", "P1.s1.tissue.geojson"),
         r"P1\.s1\.geojson and P1\.s1\.tissue\.geojson: two outline files for one slide"),
        (("P1.png", "P1.jpg"), ("P1.geojson",), r"matches both P1\.jpg and P1\.png"),
    ],
)  # fmt: skip
def test_outlines_without_a_slide_of_their_own_are_refused(
    tmp_path: Path, slides: tuple[str, ...], files: tuple[str, ...], words: str
) -> None:
    options = write_outlines(tmp_path, slides, files)
    with pytest.raises(InputError, match=words):
        run(context(tmp_path), "patch_train", **options)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("P1.s1,A\nP1.s9,B\n", r"no patient given for P1\.s2"),
        (
            "P1.s1,A\nP1.s2,B\nP1.s2.png,C\n",
            r'rows 3 and 4 .*"P1\.s2" two different patients, "B" and "C"',
        ),
    ],
)
def test_a_patient_is_never_guessed_from_a_part_of_a_name(
    tmp_path: Path, rows: str, words: str
) -> None:
    slides = ("P1.s1.png", "P1.s2.png")
    options = write_outlines(tmp_path, slides, ("P1.s1.geojson", "P1.s2.geojson"))
    (tmp_path / "p.csv").write_text("slide,patient\n" + rows)
    with pytest.raises(InputError, match=words):
        run(context(tmp_path), "patch_train", **options, patients="p.csv")


def test_patients_are_found_with_and_without_the_ending_of_the_image(tmp_path: Path) -> None:
    slides = ("P1.s1.png", "P1.s2.png")
    options = write_outlines(tmp_path, slides, ("P1.s1.geojson", "P1.s2.geojson"))
    (tmp_path / "p.csv").write_text("slide,patient\nP1.s1.png,A\nP1.s2,B\nP1.s2.png,B\n")
    got = run(context(tmp_path), "patch_train", **options, patients="p.csv")
    table = pd.read_csv(tmp_path / "out" / got["predictions"])
    assert set(zip(table["slide"], table["patient"], strict=True)) == {
        ("P1.s1", "A"),
        ("P1.s2", "B"),
    }
