"""Images and slides with a truth that was painted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.adapters.slidequest_twins.tables import write_table
from benchmarks.adapters.slidequest_twins.twin import Row


def _slide(folder: Path, rng: Generator, mpp: float = 0.5, size: int = 1536) -> Any:
    from validation.simulate.slide import Scene, render_slide

    scene = Scene(tumor=((size * mpp * 0.35, size * mpp * 0.5, size * mpp * 0.2),))
    spots = [(size * mpp * 0.7, size * mpp * 0.5, 80.0)]
    return render_slide(
        folder / "slide.tiff", seed=int(rng.integers(1 << 30)), size_px=size, mpp=mpp,
        aggregates=spots, scene=scene,
    )  # fmt: skip


def slide_of_some_size(folder: Path, rng: Generator) -> Row:
    """A slide; its size, pixel and levels."""
    mpp = float(rng.choice([0.25, 0.5, 1.0]))
    made = _slide(folder, rng, mpp, int(rng.integers(4, 7)) * 256)
    return {"width": made.width, "height": made.height, "mpp": mpp, "levels": 3}


def colored_square(folder: Path, rng: Generator) -> Row:
    """A slide with a square of one color; that color."""
    from validation.simulate.slide import write_tiff

    image = np.full((1024, 1024, 3), 240, np.uint8)
    x, y = (int(v) for v in rng.integers(1, 3, 2) * 256)
    color = rng.integers(60, 200, 3)
    image[y : y + 256, x : x + 256] = color
    write_tiff(folder / "slide.tiff", image, 0.5, 2)
    (folder / "where.json").write_text(json.dumps({"x": x, "y": y, "side": 256}))
    return {"red": float(color[0]), "green": float(color[1]), "blue": float(color[2])}


def tissue_of_tiles(folder: Path, rng: Generator) -> Row:
    """A rectangle of tissue on a slide; tiles and area."""
    from validation.simulate.slide import write_tiff

    across, down = (int(v) for v in rng.integers(4, 8, 2))
    image = np.full((256 * (down + 2), 256 * (across + 2), 3), 243, np.uint8)
    grain = rng.integers(-18, 18, (256 * down, 256 * across, 1))
    image[256:-256, 256:-256] = (np.array([186, 112, 160]) + grain).clip(0, 255)
    write_tiff(folder / "slide.tiff", image, 0.5, 3)
    return {"tiles": across * down, "tissue_mm2": across * down * (256 * 0.5e-3) ** 2}


def three_images(folder: Path, rng: Generator) -> Row:
    """Three images; which is the darkest, its mean and height."""
    from PIL import Image

    means = {}
    for name in ("a", "b", "c"):
        held = rng.integers(0, 255, (int(rng.integers(40, 90)), 64, 3), dtype=np.uint8)
        held //= int(rng.integers(1, 4))
        Image.fromarray(held).save(folder / f"{name}.png")
        means[name] = (held.mean(), held.shape[0])
    darkest = min(means, key=lambda name: means[name][0])
    return {"darkest": darkest, "mean": float(means[darkest][0]), "height": means[darkest][1]}


def texture(folder: Path, rng: Generator) -> Row:
    """Eight gray levels in noise or stripes; the contrast of neighbors."""
    from PIL import Image

    held = rng.integers(0, 8, (48, 48)) if rng.random() < 0.5 else np.repeat(
        rng.integers(0, 8, (48, 12)), 4, axis=1)  # fmt: skip
    Image.fromarray((held * 32).astype(np.uint8)).save(folder / "texture.png")
    difference = held[:, 1:].astype(float) - held[:, :-1]
    return {"contrast": float((difference**2).mean())}


def noisy_discs(folder: Path, rng: Generator) -> Row:
    """Dark discs under salt-and-pepper noise; how many."""
    from PIL import Image

    held = np.full((240, 240), 220, np.uint8)
    count = int(rng.integers(5, 12))
    places = rng.permutation(16)[:count]
    y, x = np.mgrid[:240, :240]
    for place in places:
        held[(x - 30 - 60 * (place % 4)) ** 2 + (y - 30 - 60 * (place // 4)) ** 2 < 15**2] = 60
    salt = rng.random(held.shape)
    held[salt < 0.04] = 0
    held[salt > 0.96] = 255
    Image.fromarray(held).save(folder / "noisy.png")
    return {"discs": count}


def two_stains(folder: Path, rng: Generator) -> Row:
    """An image of two dyes; the vector of hematoxylin."""
    from PIL import Image

    first = np.array([0.65, 0.70, 0.29]) + rng.normal(0, 0.03, 3)
    second = np.array([0.07, 0.99, 0.11]) + np.abs(rng.normal(0, 0.02, 3))
    first, second = first / np.linalg.norm(first), second / np.linalg.norm(second)
    amounts = rng.gamma(1.2, 0.5, (128, 128, 2))
    pure = rng.random((128, 128))
    amounts[pure < 0.25, 1] = 0.02
    amounts[pure > 0.75, 0] = 0.02
    density = amounts[..., :1] * first + amounts[..., 1:] * second
    Image.fromarray((255 * 10**-density).clip(0, 255).astype(np.uint8)).save(folder / "he.png")
    return {"hematoxylin_red": float(first[0]), "hematoxylin_green": float(first[1]),
            "hematoxylin_blue": float(first[2])}  # fmt: skip


def square_on_slide(folder: Path, rng: Generator) -> Row:
    """A square in pixels of a slide; its area, and a field at 10x."""
    mpp = float(rng.choice([0.25, 0.5]))
    _slide(folder, rng, mpp, 768)
    side = int(rng.integers(40, 120))
    (folder / "square.json").write_text(json.dumps({"side_px": side}))
    return {"area_um2": (side * mpp) ** 2, "crop_px_at_10x": 512 * 1.0 / mpp}


def _roi(folder: Path, rng: Generator) -> tuple[Any, int, int, int]:
    """A field of a slide as an image, and where it lies in level-0 pixels."""
    from PIL import Image

    from mcp_servers.slides.slide import Slide

    made = _slide(folder, rng)
    x, y, side = 300, 400, 700
    (folder / "images").mkdir()
    with Slide.open(folder / "slide.tiff") as slide:
        Image.fromarray(slide.read(x, y, side, side)).save(folder / "images" / "field.png")
    return made, x, y, side


def _within(spots: Any, x: int, y: int, side: int) -> int:
    held = np.asarray(spots, dtype=float).reshape(-1, np.asarray(spots).shape[-1])[:, :2]
    inside = (held[:, 0] >= x) & (held[:, 0] < x + side)
    inside &= (held[:, 1] >= y) & (held[:, 1] < y + side)
    return int(inside.sum())


def nuclei(folder: Path, rng: Generator) -> Row:
    """A field of a slide; how many nuclei are in it."""
    made, x, y, side = _roi(folder, rng)
    found = [made.tumor_nuclei, made.stroma_nuclei, made.lymphocytes]
    return {"nuclei": sum(_within(spots, x, y, side) for spots in found)}


def nuclear_types(folder: Path, rng: Generator, steps: int | None = None) -> Row:
    """A field whose nuclei look as those of their type, and weights; shares of two types.

    Weights are trained for `steps` steps, as many as it takes where None; with 0 they stay as they
    were drawn.
    """
    from PIL import Image

    from benchmarks.adapters.slidequest_twins.field import paint
    from benchmarks.adapters.slidequest_twins.typed_nuclei import STEPS, train

    field = paint(700, rng)
    counts = field.counts
    (folder / "images").mkdir()
    Image.fromarray(field.image).save(folder / "images" / "field.png")
    train(folder / "typed.pt", rng, STEPS if steps is None else steps)
    total = sum(counts.values())
    return {"neoplastic_share": counts["neoplastic"] / total,
            "inflammatory_share": counts["inflammatory"] / total}  # fmt: skip


def tissue(folder: Path, rng: Generator) -> Row:
    """A slide; the area of its tissue."""
    return {"tissue_mm2": float(_slide(folder, rng).tissue_mm2)}


def pen(folder: Path, rng: Generator) -> Row:
    """Tissue under a stroke of blue pen; its pixels."""
    from PIL import Image

    held = np.full((400, 400, 3), 240, np.uint8)
    held[100:300, 60:340] = (200, 140, 180)
    wide = int(rng.integers(20, 60))
    held[150 : 150 + wide, 40:360] = (30, 60, 190)
    Image.fromarray(held).save(folder / "pen.png")
    return {"pen_px": wide * 320}


def _two_tissues(folder: Path, rng: Generator, each: int = 8) -> list[str]:
    """Images of dense and of sparse nuclei; their names tell nothing."""
    import cv2
    from PIL import Image

    kinds = list(rng.permutation(["dense", "sparse"] * each))
    (folder / "images").mkdir()
    for number, kind in enumerate(kinds):
        held = np.full((256, 256, 3), (222, 170, 205), np.uint8)
        for x, y in rng.integers(0, 256, (180 if kind == "dense" else 12, 2)):
            cv2.circle(held, (int(x), int(y)), 6, (80, 50, 130), -1)
        held = (held.astype(int) + rng.integers(-8, 8, held.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(held).save(folder / "images" / f"i{number:02d}.png")
    write_table(folder / "known.csv", {
        "image": np.array([f"i{n:02d}" for n in range(2 * each)]), "kind": np.array(kinds),
    })  # fmt: skip
    return [str(kind) for kind in kinds]


def like_the_first(folder: Path, rng: Generator) -> Row:
    """Images of two tissues; how many are like the first."""
    kinds = _two_tissues(folder, rng)
    (folder / "known.csv").write_text(f"image,kind\ni00,{kinds[0]}\n")
    return {"like_the_first": kinds.count(kinds[0])}


def few_known(folder: Path, rng: Generator) -> Row:
    """Images of two tissues, of which four are known; how many are of one."""
    kinds = _two_tissues(folder, rng)
    shots = [kinds.index(kind, at) for kind in ("dense", "sparse")
             for at in (0, kinds.index(kind) + 1)]  # fmt: skip
    lines = [f"i{n:02d},{kinds[n]}" for n in shots]
    (folder / "known.csv").write_text("\n".join(["image,kind", *lines]) + "\n")
    return {"dense": kinds.count("dense")}


def odd_slide(folder: Path, rng: Generator) -> Row:
    """Three slides of which one shows another tissue; which."""
    from validation.simulate.slide import Scene, render_slide

    odd = int(rng.integers(3))
    for number in range(3):
        scene = Scene(tumor=((384.0, 384.0, 330.0),)) if number == odd else Scene()
        render_slide(
            folder / f"s{number}.tiff", seed=int(rng.integers(1 << 30)), size_px=1536,
            aggregates=[], scene=scene, scattered_per_mm2=150,
        )  # fmt: skip
    return {"odd_one": f"s{odd}"}


def turned_copy(folder: Path, rng: Generator) -> Row:
    """Six images of which one is another, turned; which."""
    from PIL import Image

    turned = int(rng.integers(1, 6))
    first = rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)
    for number in range(6):
        held = rng.integers(0, 255, first.shape, dtype=np.uint8)
        if number in (0, turned):
            held = np.rot90(first, int(rng.integers(1, 4)) if number else 0)
        Image.fromarray(np.ascontiguousarray(held)).save(folder / f"i{number}.png")
    return {"copy_of_i0": f"i{turned}"}
