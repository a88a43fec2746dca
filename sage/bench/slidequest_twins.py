"""Twins of what SlideQuest's questions need: data with a known truth, and a program that solves it.

SlideQuest's slides are not ours to ship. Each capability that its questions name (notes.csv) has a
task of the same kind on data made here, with a truth that was painted or planted, and a program
written by hand with the tools and modules that the agent has. A capability counts as there when the
programs solve all its twins in the sandbox, to 15% as in the benchmark; a question when all its
capabilities are. This says what the tools suffice for, not how well a model uses them.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from sage.bench.slidequest import CATEGORIES, Question, score
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.seeds import generator

Row = dict[str, Any]
PURPOSE = 63
TOLERANCE = 0.15
VARIANTS = 2


@dataclass(frozen=True)
class Twin:
    """A task: who makes its data and truth, and the program that solves it.

    `make(folder, rng)` writes the data and returns the truth by name; numbers are held to
    `tolerance`, texts have to be equal. The program leaves answer.json.
    """

    capability: str
    make: Callable[[Path, Generator], Row]
    program: str
    tolerance: float = TOLERANCE


class Solved(Strict):
    """How a program did on one variant of a twin."""

    capability: str
    variant: int
    score: float
    problem: str = ""
    seconds: float = 0.0


class Coverage(Strict):
    """Questions of a category whose capabilities all have solved twins."""

    category: str
    questions: int
    covered: int
    missing: dict[str, int]


WRITE = "import json\ndef answer(**values):\n    json.dump([values], open('answer.json', 'w'))\n"
"""Begins every program."""


# --- data with a truth -----------------------------------------------------------------------


def _slide(folder: Path, rng: Generator, mpp: float = 0.5, size: int = 1536) -> Any:
    from validation.simulate.slide import Scene, render_slide

    scene = Scene(tumor=((size * mpp * 0.35, size * mpp * 0.5, size * mpp * 0.2),))
    spots = [(size * mpp * 0.7, size * mpp * 0.5, 80.0)]
    return render_slide(
        folder / "slide.tiff", seed=int(rng.integers(1 << 30)), size_px=size, mpp=mpp,
        aggregates=spots, scene=scene,
    )  # fmt: skip


def _metadata(folder: Path, rng: Generator) -> Row:
    mpp = float(rng.choice([0.25, 0.5, 1.0]))
    made = _slide(folder, rng, mpp, int(rng.integers(4, 7)) * 256)
    return {"width": made.width, "height": made.height, "mpp": mpp, "levels": 3}


def _blocks(folder: Path, rng: Generator) -> Row:
    from validation.simulate.slide import write_tiff

    image = np.full((1024, 1024, 3), 240, np.uint8)
    x, y = (int(v) for v in rng.integers(1, 3, 2) * 256)
    color = rng.integers(60, 200, 3)
    image[y : y + 256, x : x + 256] = color
    write_tiff(folder / "slide.tiff", image, 0.5, 2)
    (folder / "where.json").write_text(json.dumps({"x": x, "y": y, "side": 256}))
    return {"red": float(color[0]), "green": float(color[1]), "blue": float(color[2])}


def _tiles(folder: Path, rng: Generator) -> Row:
    from validation.simulate.slide import write_tiff

    across, down = (int(v) for v in rng.integers(4, 8, 2))
    image = np.full((256 * (down + 2), 256 * (across + 2), 3), 243, np.uint8)
    grain = rng.integers(-18, 18, (256 * down, 256 * across, 1))
    image[256:-256, 256:-256] = (np.array([186, 112, 160]) + grain).clip(0, 255)
    write_tiff(folder / "slide.tiff", image, 0.5, 3)
    return {"tiles": across * down, "tissue_mm2": across * down * (256 * 0.5e-3) ** 2}


def _images(folder: Path, rng: Generator) -> Row:
    from PIL import Image

    means = {}
    for name in ("a", "b", "c"):
        held = rng.integers(0, 255, (int(rng.integers(40, 90)), 64, 3), dtype=np.uint8)
        held //= int(rng.integers(1, 4))
        Image.fromarray(held).save(folder / f"{name}.png")
        means[name] = (held.mean(), held.shape[0])
    darkest = min(means, key=lambda name: means[name][0])
    return {"darkest": darkest, "mean": float(means[darkest][0]), "height": means[darkest][1]}


def _table(folder: Path, rng: Generator, rows: int = 240) -> dict[str, np.ndarray[Any, Any]]:
    columns = {
        "patient": np.array([f"P{n:03d}" for n in range(rows)]),
        "stage": rng.choice(["I", "II", "III"], rows),
        "age": rng.normal(62, 9, rows).round(1),
        "area": rng.gamma(4.0, 12.0, rows).round(2),
        "solidity": rng.normal(0.9, 0.03, rows).round(4),
    }
    _write(folder / "table.csv", columns)
    return columns


def _write(path: Path, columns: dict[str, np.ndarray[Any, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _csv(folder: Path, rng: Generator) -> Row:
    held = _table(folder, rng)
    mine = (held["stage"] == "II") & (held["age"].astype(float) > 60)
    return {"patients": int(mine.sum()), "mean_area": float(held["area"][mine].mean())}


def _summary(folder: Path, rng: Generator) -> Row:
    held = _table(folder, rng)
    area = held["area"].astype(float)
    return {"mean": float(area.mean()), "sd": float(area.std(ddof=1)),
            "median": float(np.median(area)),
            "most_common_stage": max(["I", "II", "III"], key=[*held["stage"]].count)}  # fmt: skip


def _embeddings(folder: Path, rng: Generator) -> Row:
    import h5py

    features = rng.normal(0, 2, (int(rng.integers(20, 60)), 32)).astype(np.float32)
    with h5py.File(folder / "slide.h5", "w") as file:
        file.create_dataset("features", data=features)
    norms = np.sqrt((features.astype(float) ** 2).sum(1))
    return {"patches": len(features), "mean_norm": float(norms.mean())}


def _texture(folder: Path, rng: Generator) -> Row:
    from PIL import Image

    held = rng.integers(0, 8, (48, 48)) if rng.random() < 0.5 else np.repeat(
        rng.integers(0, 8, (48, 12)), 4, axis=1)  # fmt: skip
    Image.fromarray((held * 32).astype(np.uint8)).save(folder / "texture.png")
    difference = held[:, 1:].astype(float) - held[:, :-1]
    return {"contrast": float((difference**2).mean())}


def _noisy(folder: Path, rng: Generator) -> Row:
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


def _stains(folder: Path, rng: Generator) -> Row:
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


def _contours(folder: Path, rng: Generator) -> Row:
    turns = np.sort(rng.uniform(0, 2 * np.pi, 40))
    radius = 50 + 12 * np.sin(3 * turns)
    points = np.stack([100 + radius * np.cos(turns), 90 + radius * np.sin(turns)], axis=1)
    (folder / "contour.json").write_text(json.dumps(points.tolist()))
    following = np.roll(points, -1, axis=0)
    area = 0.5 * abs((points[:, 0] * following[:, 1] - points[:, 1] * following[:, 0]).sum())
    return {"area": float(area), "perimeter": float(np.hypot(*(following - points).T).sum())}


def _calibration(folder: Path, rng: Generator) -> Row:
    mpp = float(rng.choice([0.25, 0.5]))
    _slide(folder, rng, mpp, 768)
    side = int(rng.integers(40, 120))
    (folder / "square.json").write_text(json.dumps({"side_px": side}))
    return {"area_um2": (side * mpp) ** 2, "crop_px_at_10x": 512 * 1.0 / mpp}


def _distances(folder: Path, rng: Generator) -> Row:
    tumor, lymph = rng.uniform(0, 1000, (80, 2)), rng.uniform(0, 1000, (150, 2))
    every = np.concatenate([tumor, lymph])
    _write(folder / "cells.csv", {
        "x": every[:, 0].round(2), "y": every[:, 1].round(2),
        "type": np.array(["tumor"] * 80 + ["lymphocyte"] * 150),
    })  # fmt: skip
    gaps = np.sqrt(((tumor[:, None] - lymph[None]) ** 2).sum(-1)).min(1)
    return {"mean_nearest": float(gaps.mean())}


def _groups(folder: Path, rng: Generator) -> Row:
    group = np.array(["wt", "mut"] * 40)
    shifted = str(rng.choice(["area", "solidity", "density"]))
    columns: dict[str, Any] = {"group": group}
    for name in ("area", "solidity", "density"):
        columns[name] = (rng.normal(5, 1, 80) + 2.0 * ((name == shifted) & (group == "mut"))).round(
            3
        )
    _write(folder / "groups.csv", columns)
    return {"differs": shifted}


def _labelled(folder: Path, rng: Generator, shift: float = 4.0, rows: int = 120) -> Row:
    label = np.array([0, 1] * (rows // 2))
    features = rng.normal(0, 1, (rows, 6))
    features[:, 2] += shift * label
    _write(folder / "features.csv", {
        **{f"f{n}": features[:, n].round(4) for n in range(6)}, "label": label,
        "part": np.where(np.arange(rows) < rows * 3 // 4, "train", "test"),
    })  # fmt: skip
    return {"accuracy": 1.0}


def _scores(folder: Path, rng: Generator) -> Row:
    label = rng.integers(0, 2, 200)
    given = rng.normal(0, 1, 200) + rng.uniform(0.3, 1.5) * label
    _write(folder / "scores.csv", {"label": label, "score": given.round(5)})
    yes, no = given[label == 1].round(5), given[label == 0].round(5)
    return {"auc": float((yes[:, None] > no[None]).mean())}


def _bags(folder: Path, rng: Generator) -> Row:
    import h5py

    (folder / "features").mkdir()
    rows = ["slide_id,case_id,status"]
    for number in range(24):
        bag = rng.normal(0, 1, (30, 16)).astype(np.float32)
        if number % 2:
            bag[4:7, 0] += 6
        with h5py.File(folder / "features" / f"s{number}.h5", "w") as file:
            file.create_dataset("features", data=bag)
        rows.append(f"s{number}.svs,p{number},{'mut' if number % 2 else 'wt'}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return {"auc": 1.0}


def _bags_top(folder: Path, rng: Generator) -> Row:
    _bags(folder, rng)
    return {"share_of_top_patches_planted": 1.0}


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


def _nuclei(folder: Path, rng: Generator) -> Row:
    made, x, y, side = _roi(folder, rng)
    found = [made.tumor_nuclei, made.stroma_nuclei, made.lymphocytes]
    return {"nuclei": sum(_within(spots, x, y, side) for spots in found)}


def _nuclear_types(folder: Path, rng: Generator) -> Row:
    made, x, y, side = _roi(folder, rng)
    parts = [_within(s, x, y, side) for s in (made.tumor_nuclei, made.stroma_nuclei,
                                              made.lymphocytes)]  # fmt: skip
    return {"neoplastic_share": parts[0] / sum(parts), "inflammatory_share": parts[2] / sum(parts)}


def _tissue(folder: Path, rng: Generator) -> Row:
    return {"tissue_mm2": float(_slide(folder, rng).tissue_mm2)}


def _pen(folder: Path, rng: Generator) -> Row:
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
    _write(folder / "known.csv", {
        "image": np.array([f"i{n:02d}" for n in range(2 * each)]), "kind": np.array(kinds),
    })  # fmt: skip
    return [str(kind) for kind in kinds]


def _patches(folder: Path, rng: Generator) -> Row:
    kinds = _two_tissues(folder, rng)
    (folder / "known.csv").write_text(f"image,kind\ni00,{kinds[0]}\n")
    return {"like_the_first": kinds.count(kinds[0])}


def _few(folder: Path, rng: Generator) -> Row:
    kinds = _two_tissues(folder, rng)
    shots = [kinds.index(kind, at) for kind in ("dense", "sparse")
             for at in (0, kinds.index(kind) + 1)]  # fmt: skip
    lines = [f"i{n:02d},{kinds[n]}" for n in shots]
    (folder / "known.csv").write_text("\n".join(["image,kind", *lines]) + "\n")
    return {"dense": kinds.count("dense")}


def _similar_slides(folder: Path, rng: Generator) -> Row:
    from validation.simulate.slide import Scene, render_slide

    odd = int(rng.integers(3))
    for number in range(3):
        scene = Scene(tumor=((384.0, 384.0, 330.0),)) if number == odd else Scene()
        render_slide(
            folder / f"s{number}.tiff", seed=int(rng.integers(1 << 30)), size_px=1536,
            aggregates=[], scene=scene, scattered_per_mm2=150,
        )  # fmt: skip
    return {"odd_one": f"s{odd}"}


def _survival(folder: Path, rng: Generator) -> Row:
    size = 1500
    ratio = float(rng.choice([1.5, 2.0, 2.5]))
    exposed = rng.integers(0, 2, size)
    times = rng.exponential(1000 / ratio**exposed)
    ends = rng.uniform(300, 3000, size)
    _write(folder / "survival.csv", {
        "exposed": exposed, "days": np.minimum(times, ends).round(1) + 1,
        "event": (times <= ends).astype(int),
    })  # fmt: skip
    return {"hazard_ratio": ratio}


def _clusters(folder: Path, rng: Generator) -> Row:
    sizes = sorted(int(v) for v in rng.integers(20, 60, 3))
    points = np.concatenate([
        rng.normal(10 * n, 0.7, (size, 4)) for n, size in enumerate(sizes)
    ])  # fmt: skip
    points = rng.permutation(points)
    _write(folder / "points.csv", {f"f{n}": points[:, n].round(4) for n in range(4)})
    return {"smallest": sizes[0], "largest": sizes[2]}


def _copies(folder: Path, rng: Generator) -> Row:
    from PIL import Image

    turned = int(rng.integers(1, 6))
    first = rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)
    for number in range(6):
        held = rng.integers(0, 255, first.shape, dtype=np.uint8)
        if number in (0, turned):
            held = np.rot90(first, int(rng.integers(1, 4)) if number else 0)
        Image.fromarray(np.ascontiguousarray(held)).save(folder / f"i{number}.png")
    return {"copy_of_i0": f"i{turned}"}


# --- programs ---------------------------------------------------------------------------------

_PD = "import pandas as pd\n"
_NP = "import numpy as np\n"
_IMG = "import numpy as np\nfrom PIL import Image\n"
_NUCLEI = (
    "found = segment_and_classify_nuclei_in_histology_roi_tool(input_dir='/inputs/data/images',"
    " level0_mpp_of_imgs=0.5)\nheld = json.load(open(found['jsons'][0]))['nuc']\n"
    "kinds = [str(n['type']) for n in held.values()]\n"
)
_MIL = (
    "clean = prepare_wsi_classification_metadata(metadata_path='/inputs/data/labels.csv',"
    " label_column='status')\n"
    "split = create_wsi_classification_splits("
    "cleaned_metadata_path=clean['cleaned_metadata_path'], label_column='status', n_folds=3)\n"
    "done = train_test_wsi_classification_mil_model(splits_path=split['split_metadata_path'],"
    " patch_features_path='/inputs/data/features', label_column='status', head_dim=32,"
    " hidden_dim=16, num_epochs=40, num_folds=3, device='cpu')\n"
)
_MIL_LONG = _MIL.replace("num_epochs=40", "num_epochs=100")
_EMBED = (
    "import h5py\n"
    "made = call_together([('encode_histology_roi_tool', {'img_path':"
    " f'/inputs/data/images/i{n:02d}.png', 'histology_roi_encoder_name': 'handcrafted',"
    " 'output_dir': 'e'}) for n in range(16)])\nX = []\nfor one in made:\n"
    "    with h5py.File(one['embedding_path']) as f:\n"
    "        X.append(np.ravel(np.asarray(f[list(f)[0]], dtype=float)))\n"
    "X = np.stack(X)\nX = (X - X.mean(0)) / (X.std(0) + 1e-9)\n"
)
_XY = (
    "t = pd.read_csv('/inputs/data/features.csv')\nX = t[[f'f{n}' for n in range(6)]].to_numpy()\n"
    "y = t['label'].to_numpy()\nfrom sklearn.linear_model import LogisticRegression\n"
)
_ZERO = (
    "r = score_single_histology_image_using_text_tool(image_path='/inputs/data/images/i00.png',"
    " classes=['tumor', 'normal tissue'])\nanswer(tumor=r['scores'][0] > r['scores'][1])\n"
)


# Answered only with the user's weights; without them the tool refuses, and the twin is not solved.
def _zero_shot(folder: Path, rng: Generator) -> Row:
    _two_tissues(folder, rng, each=1)
    return {"tumor": True}


TWINS: tuple[Twin, ...] = (
    Twin("WSI metadata retrieval", _metadata, (
        "p = retrieve_properties_from_wsi_tool(wsi_path='/inputs/data/slide.tiff')\n"
        "answer(width=p['base_width'], height=p['base_height'], mpp=p['base_mpp'],"
        " levels=p['n_levels'])\n"), 0.001),
    Twin("WSI reading", _blocks, _IMG + (
        "w = json.load(open('/inputs/data/where.json'))\n"
        "r = read_rectangle_region_from_wsi_tool(wsi_path='/inputs/data/slide.tiff', region={"
        "'top_left_x': w['x'], 'top_left_y': w['y'], 'base_width': w['side'],"
        " 'base_height': w['side']})\n"
        "m = np.asarray(Image.open(r['region_save_path']).convert('RGB')).mean((0, 1))\n"
        "answer(red=m[0], green=m[1], blue=m[2])\n")),
    Twin("WSI patching", _tiles, (
        "s = dict(wsi_path='/inputs/data/slide.tiff')\nt = extract_tissue_in_wsi_tool(**s)\n"
        "n = extract_tissue_tiles_in_wsi_tool(tile_px=256, mpp=0.5, **s)\n"
        "answer(tiles=n['num_patches'], tissue_mm2=t['total_area_mm2'])\n")),
    Twin("tissue segmentation", _tissue, (
        "t = extract_tissue_in_wsi_tool(wsi_path='/inputs/data/slide.tiff')\n"
        "answer(tissue_mm2=t['total_area_mm2'])\n")),
    Twin("image reading", _images, _IMG + (
        "held = {n: np.asarray(Image.open(f'/inputs/data/{n}.png')) for n in 'abc'}\n"
        "d = min(held, key=lambda n: held[n].mean())\n"
        "answer(darkest=d, mean=float(held[d].mean()), height=held[d].shape[0])\n")),
    Twin("CSV reading", _csv, _PD + (
        "t = pd.read_csv('/inputs/data/table.csv')\n"
        "t = t[(t['stage'] == 'II') & (t['age'] > 60)]\n"
        "answer(patients=len(t), mean_area=float(t['area'].mean()))\n")),
    Twin("summary statistics", _summary, _PD + (
        "t = pd.read_csv('/inputs/data/table.csv')\na = t['area']\n"
        "answer(mean=a.mean(), sd=a.std(), median=a.median(),"
        " most_common_stage=t['stage'].mode()[0])\n")),
    Twin("embeddings reading", _embeddings, _NP + (
        "import h5py\nwith h5py.File('/inputs/data/slide.h5') as f:\n    x = f['features'][:]\n"
        "answer(patches=len(x), mean_norm=float(np.linalg.norm(x, axis=1).mean()))\n")),
    Twin("texture analysis", _texture, _IMG + (
        "from skimage.feature import graycomatrix, graycoprops\n"
        "x = np.asarray(Image.open('/inputs/data/texture.png')) // 32\n"
        "g = graycomatrix(x, [1], [0], levels=8, symmetric=True, normed=True)\n"
        "answer(contrast=float(graycoprops(g, 'contrast')[0, 0]))\n")),
    Twin("image filtering", _noisy, _IMG + (
        "import cv2\nx = cv2.medianBlur(np.asarray(Image.open('/inputs/data/noisy.png')), 5)\n"
        "x = cv2.medianBlur(x, 5)\n"
        "n, _, stats, _ = cv2.connectedComponentsWithStats((x < 140).astype('uint8'))\n"
        "answer(discs=int((stats[1:, 4] > 200).sum()))\n")),
    Twin("stain estimation", _stains, _IMG + (
        "x = np.asarray(Image.open('/inputs/data/he.png'), dtype=float).reshape(-1, 3)\n"
        "d = -np.log10((x + 1) / 256)\nd = d[d.sum(1) > 0.3]\n"
        "_, v = np.linalg.eigh(np.cov(d.T))\nv = v[:, [2, 1]]\nv = v * np.sign(v.sum(0))\n"
        "v[:, 0] *= np.sign(v[:, 0].sum())\na = np.arctan2(d @ v[:, 1], d @ v[:, 0])\n"
        "ends = [v @ [np.cos(q), np.sin(q)] for q in np.percentile(a, [1, 99])]\n"
        "h = max(ends, key=lambda e: e[0] / np.linalg.norm(e))\nh = h / np.linalg.norm(h)\n"
        "answer(hematoxylin_red=h[0], hematoxylin_green=h[1], hematoxylin_blue=h[2])\n")),
    Twin("morphometry", _contours, (
        "c = json.load(open('/inputs/data/contour.json'))\n"
        "a, p = call_together([('get_contour_area', {'contour': c}),"
        " ('get_contour_perimeter', {'contour': c})])\n"
        "answer(area=a['contour_area'], perimeter=p['contour_perimeter'])\n")),
    Twin("spatial calibration", _calibration, (
        "p = retrieve_properties_from_wsi_tool(wsi_path='/inputs/data/slide.tiff')\n"
        "s = json.load(open('/inputs/data/square.json'))['side_px']\nm = p['base_mpp']\n"
        "answer(area_um2=(s * m) ** 2, crop_px_at_10x=512 / m)\n")),
    Twin("scalar calculation", _calibration, (
        "p = retrieve_properties_from_wsi_tool(wsi_path='/inputs/data/slide.tiff')\n"
        "s = json.load(open('/inputs/data/square.json'))['side_px']\nm = p['base_mpp']\n"
        "answer(area_um2=s * s * m * m, crop_px_at_10x=512 * 1.0 / m)\n")),
    Twin("distance computation", _distances, _PD + (
        "from scipy.spatial import cKDTree\nt = pd.read_csv('/inputs/data/cells.csv')\n"
        "a, b = (t[t['type'] == k][['x', 'y']].to_numpy() for k in ('tumor', 'lymphocyte'))\n"
        "answer(mean_nearest=float(cKDTree(b).query(a)[0].mean()))\n")),
    Twin("statistical analysis", _groups, _PD + (
        "from scipy.stats import mannwhitneyu\nt = pd.read_csv('/inputs/data/groups.csv')\n"
        "p = {n: mannwhitneyu(t[t['group'] == 'mut'][n], t[t['group'] == 'wt'][n]).pvalue"
        " for n in ('area', 'solidity', 'density')}\nanswer(differs=min(p, key=p.get))\n")),
    Twin("cross-validation", _labelled, _PD + _XY + (
        "from sklearn.model_selection import cross_val_score\n"
        "answer(accuracy=float(cross_val_score(LogisticRegression(), X, y, cv=5).mean()))\n")),
    Twin("supervised learning", _labelled, _PD + _XY + (
        "tr = (t['part'] == 'train').to_numpy()\nm = LogisticRegression().fit(X[tr], y[tr])\n"
        "answer(accuracy=float(m.score(X[~tr], y[~tr])))\n")),
    Twin("model evaluation", _scores, _PD + (
        "from sklearn.metrics import roc_auc_score\nt = pd.read_csv('/inputs/data/scores.csv')\n"
        "answer(auc=float(roc_auc_score(t['label'], t['score'])))\n"), 0.01),
    Twin("multiple-instance learning", _bags, _MIL + "answer(auc=done['mean_auc'])\n"),
    Twin("attention-based patch retrieval", _bags_top, _NP + _MIL_LONG + (
        "import h5py\nhits = []\nfor path in done['attention']:\n"
        "    number = int(path.rsplit('/s', 1)[1][:-3])\n    if number % 2:\n"
        "        with h5py.File(path) as f:\n            w = np.ravel(f['attention_scores'][:])\n"
        "        hits += [int(i in (4, 5, 6)) for i in np.argsort(-w)[:3]]\n"
        "answer(share_of_top_patches_planted=float(np.mean(hits)))\n")),
    Twin("nuclei segmentation", _nuclei, _NUCLEI + "answer(nuclei=len(kinds))\n"),
    Twin("nuclei detection", _nuclei, _NUCLEI + "answer(nuclei=len([n['centroid'] for n in"
         " held.values()]))\n"),
    Twin("nuclei cell type classification", _nuclear_types, _NUCLEI + (
        "print(set(kinds), found['classes'])\nnames = found['classes']\n"
        "kinds = [names[int(k)] if k.isdigit() and int(k) < len(names) else k for k in kinds]\n"
        "answer(neoplastic_share=kinds.count('Neoplastic') / len(kinds),"
        " inflammatory_share=kinds.count('Inflammatory') / len(kinds))\n")),
    Twin("artefact segmentation", _pen, _IMG + (
        "x = np.asarray(Image.open('/inputs/data/pen.png')).astype(int)\n"
        "answer(pen_px=int(((x[..., 2] > x[..., 0] + 60) & (x[..., 0] < 120)).sum()))\n")),
    Twin("patch embedding", _patches, _NP + _EMBED + (
        "from sklearn.cluster import KMeans\n"
        "k = KMeans(2, n_init=10, random_state=0).fit_predict(X)\n"
        "answer(like_the_first=int((k == k[0]).sum()))\n")),
    Twin("few-shot learning", _few, _PD + _NP + _EMBED + (
        "known = pd.read_csv('/inputs/data/known.csv')\n"
        "at = [int(n[1:]) for n in known['image']]\nfrom sklearn.neighbors import"
        " KNeighborsClassifier\nm = KNeighborsClassifier(1).fit(X[at], known['kind'])\n"
        "answer(dense=int((m.predict(X) == 'dense').sum()))\n")),
    Twin("WSI embedding", _similar_slides, _NP + (
        "import h5py\nE = []\nfor n in range(3):\n"
        "    s = dict(wsi_path=f'/inputs/data/s{n}.tiff')\n    extract_tissue_in_wsi_tool(**s)\n"
        "    extract_tissue_tiles_in_wsi_tool(tile_px=224, **s)\n"
        "    extract_patch_features_in_wsi_tool(model='handcrafted', **s)\n"
        "    e = encode_wsi_tool(slide_encoder='mean', **s)\n"
        "    with h5py.File(e['features_path']) as f:\n"
        "        E.append(np.ravel(np.asarray(f[list(f)[0]], dtype=float)))\n"
        "E = np.stack(E)\nE = (E - E.mean(0)) / (E.std(0) + 1e-9)\n"
        "d = np.linalg.norm(E[:, None] - E[None], axis=2).sum(1)\n"
        "answer(odd_one=f's{int(d.argmax())}')\n")),
    Twin("survival modelling", _survival, _PD + (
        "from lifelines import CoxPHFitter\nt = pd.read_csv('/inputs/data/survival.csv')\n"
        "m = CoxPHFitter().fit(t, 'days', 'event')\n"
        "answer(hazard_ratio=float(m.hazard_ratios_['exposed']))\n")),
    Twin("clustering", _clusters, _PD + _NP + (
        "from sklearn.cluster import KMeans\nt = pd.read_csv('/inputs/data/points.csv')\n"
        "n = np.bincount(KMeans(3, n_init=10, random_state=0).fit_predict(t))\n"
        "answer(smallest=int(n.min()), largest=int(n.max()))\n"), 0.001),
    Twin("problem solving", _copies, _IMG + (
        "held = [np.asarray(Image.open(f'/inputs/data/i{n}.png')) for n in range(6)]\n"
        "same = [n for n in range(1, 6) if any((np.rot90(held[0], k) == held[n]).all()"
        " for k in range(1, 4))]\nanswer(copy_of_i0=f'i{same[0]}')\n")),
    Twin("zero-shot WSI interpretation", _zero_shot, _ZERO),
    Twin("zero-shot multi-patch interpretation", _zero_shot, _ZERO),
)  # fmt: skip
"""One per capability of SlideQuest's notes; the six labels of nuclear types are one."""


def capability_of(label: str) -> str:
    """A label of notes.csv without what stands in parentheses."""
    return re.sub(r"\s*\(.*\)", "", label).strip()


def solve(
    twin: Twin,
    variant: int,
    folder: Path,
    run: Callable[[Path, Path, str], tuple[float, str]],
    seed: int = 0,
) -> Solved:
    """Make a variant's data, run the program on them, and score what it left.

    Parameters
    ----------
    twin, variant : which
    folder : a new folder for data and session
    run : runs a program on a data folder in a session folder, whose files/ it fills; gives seconds
        and the program's error
    seed : of the data
    """
    data = folder / "data"
    truth = data_of(twin, variant, data, seed)
    found = Solved(capability=twin.capability, variant=variant, score=0.0)
    seconds, error = run(data, folder / "session", WRITE + twin.program)
    left = folder / "session" / "files" / "answer.json"
    if not left.is_file():
        return found.model_copy(update={"seconds": seconds, "problem": error or "no answer.json"})
    got, problem = held_to(twin, truth, json.loads(left.read_text(encoding="utf-8")))
    return found.model_copy(update={"score": got, "seconds": seconds, "problem": problem[:500]})


def data_of(twin: Twin, variant: int, folder: Path, seed: int = 0) -> Row:
    """Write a variant's data, and return its truth.

    Parameters
    ----------
    twin, variant : which
    folder : a new one for the data
    seed : of the data

    Returns
    -------
    The planted values by name.
    """
    folder.mkdir(parents=True)
    number = [one.capability for one in TWINS].index(twin.capability)
    return twin.make(folder, generator(seed, PURPOSE, number, variant))


def held_to(twin: Twin, truth: Row, rows: list[Row]) -> tuple[float, str]:
    """The score of an answer's rows, and what is wrong with them."""
    question = Question(
        category="twin", number=0, id_column=None,
        tolerances=dict.fromkeys(truth, twin.tolerance), truth=(truth,),
    )  # fmt: skip
    got = score(question, rows, repaired=True)
    return got, "" if got == 1 else f"{rows[0]} where {truth} was planted"


def cover(benchmark: Path, solved: list[Solved]) -> list[Coverage]:
    """For each category, how many questions need only capabilities whose twins are all solved.

    Raises
    ------
    InputError
        If a notes.csv is absent or names a capability that has no twin.
    """
    there = {one.capability for one in solved}
    lost = {one.capability for one in solved if one.score < 1}
    out = []
    for category in CATEGORIES:
        path = benchmark / category / "notes.csv"
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                needs = [
                    {capability_of(part) for part in row["capabilities"].split(",")}
                    for row in csv.DictReader(file)
                ]
        except (OSError, KeyError) as error:
            raise InputError(f"{path}: not SlideQuest's notes: {error}") from error
        if unknown := sorted(set().union(*needs) - there):
            raise InputError(f"{path}: no twin for {unknown[0]!r}")
        missing: dict[str, int] = {}
        for need in needs:
            for one in need & lost:
                missing[one] = missing.get(one, 0) + 1
        out.append(
            Coverage(
                category=category,
                questions=len(needs),
                covered=sum(not need & lost for need in needs),
                missing=dict(sorted(missing.items())),
            )
        )
    return out
