"""The nuclei network: scores by a second implementation, training from the shell, its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from sage.core.errors import InputError
from sage_training.nuclei.scores import otsu_watershed, score
from tests.end_to_end.harness import sage
from tests.mcp_servers.slide_tools import Image, context, png, run, shared

torch = pytest.importorskip("torch")
Labels = Any


def scattered(seed: int, count: int = 12, side: int = 48) -> Labels:
    """Random rectangles as labels, later ones over earlier ones."""
    rng = np.random.default_rng(seed)
    out = np.zeros((side, side), np.int32)
    for label in range(1, count + 1):
        y, x = rng.integers(0, side - 4, 2)
        h, w = rng.integers(3, 12, 2)
        out[y : y + h, x : x + w] = label * 3  # numbers with gaps
    return out


def slow_scores(truth: Labels, found: Labels) -> dict[str, float]:
    """F1, Dice, AJI and PQ as their papers print them: loops over sets of pixels."""
    a = [set(map(tuple, np.argwhere(truth == k))) for k in np.unique(truth) if k > 0]
    b = [set(map(tuple, np.argwhere(found == k))) for k in np.unique(found) if k > 0]
    pairs = [(i, j, len(p & q) / len(p | q)) for i, p in enumerate(a) for j, q in enumerate(b)]
    hits = [iou for _, _, iou in pairs if iou > 0.5]
    missed, extra = len(a) - len(hits), len(b) - len(hits)
    every, other = set().union(*a), set().union(*b)
    inter = union = 0
    used = set()
    for i, p in enumerate(a):
        own = [(iou, -j) for k, j, iou in pairs if k == i and iou > 0]
        if not own:
            union += len(p)
            continue
        j = -max(own)[1]
        used.add(j)
        inter, union = inter + len(p & b[j]), union + len(p | b[j])
    union += sum(len(q) for j, q in enumerate(b) if j not in used)
    return {
        "f1": 2 * len(hits) / (2 * len(hits) + missed + extra),
        "dice": 2 * len(every & other) / (len(every) + len(other)),
        "aji": inter / union,
        "pq": sum(hits) / (len(hits) + missed / 2 + extra / 2),
    }


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_their_definitions(seed: int) -> None:
    truth = scattered(seed)
    found = np.roll(truth, (seed % 3, 1), (0, 1)) if seed % 2 else scattered(seed + 100)
    fast, slow = score(truth, found), slow_scores(truth, found)
    for name, value in slow.items():
        assert getattr(fast, name) == pytest.approx(value), name


def test_a_perfect_and_an_empty_answer() -> None:
    truth = scattered(1)
    best = score(truth, truth * 7)
    assert (best.f1, best.dice, best.aji, best.pq) == (1, 1, 1, 1)
    none = score(truth, np.zeros_like(truth))
    assert (none.f1, none.dice, none.aji, none.pq) == (0, 0, 0, 0)
    assert score(np.zeros_like(truth), np.zeros_like(truth)).f1 == 1


def paint_tile(seed: int, side: int = 160) -> tuple[Image, Labels]:
    """Dark disks on pink, some of them touching, and their labels."""
    import cv2

    rng = np.random.default_rng(seed)
    image = np.full((side, side, 3), (225, 165, 200), np.uint8)
    labels = np.zeros((side, side), np.int32)
    for label in range(1, 26):
        at = tuple(int(v) for v in rng.integers(8, side - 8, 2))
        axes = (int(rng.integers(4, 8)), int(rng.integers(4, 8)))
        free = np.zeros_like(image)
        cv2.ellipse(free, at, axes, 0, 0, 360, (1, 1, 1), -1)
        if (labels[free[..., 0] > 0] > 0).any():
            continue
        labels[free[..., 0] > 0] = label
        image[free[..., 0] > 0] = (85, 60, 135)
    noise = rng.normal(0, 4, image.shape)
    image = cv2.GaussianBlur(image, (0, 0), 0.7)
    return np.clip(image + noise, 0, 255).astype(np.uint8), labels


@pytest.fixture(scope="module")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six labelled tiles."""
    import cv2

    folder = tmp_path_factory.mktemp("tiles")
    for number in range(6):
        image, labels = paint_tile(number)
        png(folder / f"t{number}.png", image)
        cv2.imwrite(str(folder / f"t{number}_labels.png"), labels.astype(np.uint16))
    return folder


@pytest.fixture(scope="module")
def trained_folder(tiles: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of two steps, made from the shell."""
    from sage_training.cli import app
    from sage_training.nuclei import training

    out = tmp_path_factory.mktemp("trained") / "own.safetensors"
    words = ["--tiles", str(tiles), "--steps", "2", "--seed", "3", "--mpp", "0.5"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "BATCH", 1)
        done = CliRunner().invoke(app, ["train", "nuclei", "--out", str(out), *words])
    assert done.exit_code == 0, done.output
    return out


def test_a_network_trained_from_the_shell_has_its_card(trained_folder: Path, tiles: Path) -> None:
    from mcp_servers.pathology.nuclei_net.model import read_card
    from sage_training.nuclei.examples import content_hash, read_tiles

    card = json.loads(trained_folder.with_suffix(".json").read_text())
    assert card == read_card(trained_folder).model_dump()
    assert card["seed"] == 3 and card["steps"] == 2
    assert card["data_sha256"] == content_hash(read_tiles(tiles, 0.5))
    assert card["held_out"]["tiles"] + card["tiles"] == 6
    assert set(card["held_out"]["otsu_watershed"]) == {"f1", "dice", "aji", "pq"}


def test_the_same_seed_gives_the_same_network(tiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sage_training.nuclei import training
    from sage_training.nuclei.examples import read_tiles
    from sage_training.nuclei.training import train

    monkeypatch.setattr(training, "BATCH", 1)
    given = read_tiles(tiles, 0.5)
    silent: Any = {"steps": 1, "seed": 5, "say": lambda line: None}
    first, second = (train(given, **silent) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_users_network_is_used_by_the_tool(trained_folder: Path, tmp_path: Path) -> None:
    png(tmp_path / "a.png", paint_tile(9)[0])
    ctx = context(tmp_path, trained_folder.parent)
    got = run(ctx, "nuclei", slide="a.png", mpp=0.5, weights=str(trained_folder))
    assert (got["method"], got["model"]) == ("learned", "own.safetensors")


def test_scores_from_the_shell_stand_beside_otsu(tiles: Path, trained_folder: Path) -> None:
    words = (str(tiles), "--mpp", "0.5", "--weights", str(trained_folder), "--json")
    done = sage("training", "score", "nuclei", *words, cwd=tiles)
    found = json.loads(done.out)["organs"]["all"]
    assert found["tiles"] == 6
    assert found["otsu_watershed"]["f1"] > 0.8  # plain disks are what it is made for
    image, labels = paint_tile(2)
    assert score(labels, otsu_watershed(image, 0.5)).f1 > 0.8


def test_look_alikes_are_held_out_together(tiles: Path) -> None:
    from sage_training.nuclei.examples import Tile, read_tiles, split_tiles

    given = read_tiles(tiles)
    copies = [Tile(f"{t.name}b", t.image, t.labels) for t in given]
    training, held = split_tiles(given + copies, 1)
    assert held and len(training) + len(held) == 12
    names = {tile.name for tile in held}
    assert {f"{name}b" for name in names if not name.endswith("b")} <= names


def test_a_damaged_file_is_refused(trained_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    path.write_bytes(trained_folder.read_bytes()[:5000])
    png(tmp_path / "a.png", paint_tile(1)[0])
    with pytest.raises(InputError, match="not a SAGE nuclei network"):
        run(context(tmp_path), "nuclei", slide="a.png", mpp=0.5, weights="net.safetensors")


def test_tiles_that_do_not_fit_are_named(tmp_path: Path) -> None:
    import cv2

    from sage_training.nuclei.examples import read_tiles

    with pytest.raises(InputError, match=r"no NAME_labels\.png"):
        read_tiles(tmp_path)
    cv2.imwrite(str(tmp_path / "a_labels.png"), np.zeros((20, 20), np.uint16))
    with pytest.raises(InputError, match=r"image a\.png, \.tif or \.jpg not found"):
        read_tiles(tmp_path)
    png(tmp_path / "a.png", np.zeros((20, 30, 3), np.uint8))
    with pytest.raises(InputError, match="labels are 20 x 20 px, but the image is 30 x 20 px"):
        read_tiles(tmp_path)


def test_without_pytorch_the_classical_method_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcp_servers.pathology.nuclei_net import model

    monkeypatch.setattr(model, "find_spec", lambda name: None)
    png(tmp_path / "a.png", paint_tile(1)[0])
    got = run(context(tmp_path), "nuclei", slide="a.png", mpp=0.5)
    assert got["method"] == "classical" and got["model"] is None
    assert any("requires PyTorch" in note for note in got["warnings"])
    with pytest.raises(InputError, match="method=learned"):
        run(context(tmp_path), "nuclei", slide="a.png", mpp=0.5, method="learned")


def test_touching_disks_are_parted_and_one_is_not_split() -> None:
    from mcp_servers.pathology.nuclei_net.model import instances
    from sage_training.nuclei.examples import targets

    y, x = np.mgrid[:60, :80]
    labels = np.zeros((60, 80), np.int32)
    labels[(y - 30) ** 2 + (x - 25) ** 2 < 100] = 1
    labels[((y - 30) ** 2 + (x - 44) ** 2 < 100) & (labels == 0)] = 2
    assert score(labels, instances(targets(labels)[:2])).f1 == 1
    ellipse = (((y - 30) / 9) ** 2 + ((x - 40) / 22) ** 2 < 1).astype(np.int32)
    assert instances(targets(ellipse)[:2]).max() == 1


@pytest.mark.shared
def test_the_shipped_network_beats_both_on_tiles_that_it_never_saw() -> None:
    from mcp_servers.pathology.nuclei_net.model import NucleiNetwork, shipped_network
    from sage_training.nuclei.examples import read_tiles
    from sage_training.nuclei.scoring import means, own_methods, score_tiles

    path = shipped_network()
    assert path is not None and path.stat().st_size < 10_000_000
    network = NucleiNetwork(path)
    held = set(network.card.model_dump()["held_out_tiles"])
    folder = shared("nuclei/dsb2018_he")
    tiles = [tile for tile in read_tiles(folder) if tile.name in held]
    scored = score_tiles(
        tiles, own_methods() | {"network": lambda image: network.labels(image, 0.5)}
    )
    found = means(scored, "network")
    card = network.card.held_out
    assert found["f1"] == pytest.approx(card.f1, abs=0.01)
    for other in ("otsu_watershed", "classical"):
        assert found["f1"] > means(scored, other)["f1"] + 0.05
        assert found["aji"] > means(scored, other)["aji"] + 0.03
