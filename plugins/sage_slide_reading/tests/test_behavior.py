"""Behavior models: learned from sessions, held against what they must beat, and attacked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from mcp_servers.context import ToolContext
from mcp_servers.formats.geojson import read_objects
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError
from sage.core.seeds import generator
from sage_slide_reading.behavior import baselines, training
from sage_slide_reading.behavior.examples import Example, read_examples
from sage_slide_reading.behavior.model import (
    WEIGHTS,
    BehaviorModel,
    save,
)
from sage_slide_reading.behavior.network import (
    complete_iou,
    decode_outputs,
    loss,
)
from sage_slide_reading.behavior.training import (
    MODEL,
    Trained,
    TrainSettings,
    measure,
    train,
)
from sage_slide_reading.sessions.format import Session, SessionHeader, ViewEvent, write_session
from tests.end_to_end.harness import sage

WIDE, HIGH = 1280, 960
TASK, OTHER = "find the dark spot", "look at the middle"
SMALL = TrainSettings(thumbnail_px=128, epochs=40, batch=4, folds=2, widths=(8, 16, 24, 32))


def paint(path: Path, seed: int) -> tuple[float, float]:
    """An ellipse of tissue with one dark spot, whose center is returned."""
    rng = generator(seed)
    y, x = np.mgrid[0:HIGH, 0:WIDE]
    image = np.full((HIGH, WIDE, 3), 245, dtype=np.uint8)
    image[((x / WIDE - 0.5) / 0.45) ** 2 + ((y / HIGH - 0.5) / 0.45) ** 2 < 1] = (220, 160, 205)
    way, far = rng.uniform(0, 2 * np.pi), rng.uniform(0.15, 0.3)
    spot = (WIDE * (0.5 + far * np.cos(way)), HIGH * (0.5 + far * np.sin(way)))
    image[np.hypot(x - spot[0], y - spot[1]) < 70] = (90, 60, 140)
    Image.fromarray(image).save(path)
    return float(spot[0]), float(spot[1])


def session(name: str, task: str, x: float, y: float, **header: Any) -> Session:
    """An overview, then two seconds around a place."""

    def view(t: float, kind: Any, x: float, y: float, w: float) -> ViewEvent:
        return ViewEvent(t=t, kind=kind, x=x - w / 2, y=y - 0.375 * w, w=w, h=0.75 * w,
                         magnification=10.0 * 640 / w)  # fmt: skip

    head = SessionHeader(slide=name, width=WIDE, height=HIGH, screen=(640, 480), reader="r1",
                         task=task, started="2026-01-01T00:00:00", **header)  # fmt: skip
    whole = (WIDE / 2, HIGH / 2, WIDE)
    return Session(header=head, events=(
        view(0, "open", *whole), view(3.0, "zoom", x, y, 120), view(5, "zoom", *whole),
        view(5.5, "close", *whole),
    ))  # fmt: skip


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten slides of five patients; a reader found each spot, and on some saw the middle."""
    place = tmp_path_factory.mktemp("behavior")
    (place / "slides").mkdir()
    (place / "sessions").mkdir()
    rows = ["slide,patient"]
    for number in range(10):
        name = f"s{number}.png"
        x, y = paint(place / "slides" / name, number)
        rows.append(f"{name},p{number // 2}")
        for turn in range(2):
            path = place / "sessions" / f"{number}-{turn}.session.jsonl"
            write_session(path, session(name, TASK, x + 8 * turn, y))
        middle = session(name, OTHER, WIDE / 2, HIGH / 2)
        write_session(place / "sessions" / f"{number}-m.session.jsonl", middle)
    (place / "patients.csv").write_text("\n".join(rows) + "\n")
    return place


def examples_of(recording: Path, **more: Any) -> list[Example]:
    return read_examples(
        recording / "sessions", recording / "slides", 128,
        patient=lambda name: f"p{int(name[1:-4]) // 2}", **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained_model(recording: Path) -> Trained:
    return train(examples_of(recording), SMALL, "spots")


@pytest.fixture(scope="module")
def model(trained_model: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "spots"
    save(folder, trained_model.net.state_dict(), trained_model.card)
    return folder


# -- learning ---------------------------------------------------------------------------------


def test_it_finds_what_readers_look_for_on_slides_not_seen(trained_model: Trained) -> None:
    """The spot is where center bias does not look; cellularity finds it, since it is dark."""
    found = {
        (score.behavior, score.guide, score.metric): score.value or 0
        for score in trained_model.card.scores
    }
    assert found[TASK, MODEL, "completeness"] >= 0.8
    assert found[TASK, MODEL, "mAP"] > found[TASK, "center bias", "mAP"] + 0.3
    assert found[OTHER, MODEL, "completeness"] >= 0.8


def test_every_score_is_of_patients_that_the_network_did_not_see(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    every = examples_of(recording)

    def measured_on(net: Any, card: Any, unseen: list[Example]) -> Any:
        held = {example.patient for example in unseen}
        seen.extend(held)
        assert card.behaviors[0].sessions == sum(
            len(e.visits[card.behaviors[0].task]) for e in every if e.patient not in held
        ), "the bank of a fold counts no session of its unseen slides"
        return measure(net, card, unseen)

    monkeypatch.setattr(training, "measure", measured_on)
    measured = train(every, SMALL.model_copy(update={"epochs": 1}), "x").measured
    assert {row.slide for row in measured} == {example.slide for example in every}
    assert sorted(seen) == sorted({e.patient for e in every})


def test_training_is_repeatable(recording: Path) -> None:
    settings = SMALL.model_copy(update={"epochs": 2, "folds": 0})
    first, second = (train(examples_of(recording), settings, "x") for _ in range(2))
    assert first.card == second.card
    for key, value in first.net.state_dict().items():
        assert torch.equal(value, second.net.state_dict()[key])


# -- network ----------------------------------------------------------------------------------


def ciou_by_hand(a: list[float], b: list[float]) -> float:
    """As Zheng and others print it."""
    left, top = min(a[0], b[0]), min(a[1], b[1])
    right, bottom = max(a[0] + a[2], b[0] + b[2]), max(a[1] + a[3], b[1] + b[3])
    wide = max(0.0, min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0]))
    high = max(0.0, min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1]))
    iou = wide * high / (a[2] * a[3] + b[2] * b[3] - wide * high)
    rho = (a[0] + a[2] / 2 - b[0] - b[2] / 2) ** 2 + (a[1] + a[3] / 2 - b[1] - b[3] / 2) ** 2
    v = 4 / np.pi**2 * (np.arctan(b[2] / b[3]) - np.arctan(a[2] / a[3])) ** 2
    alpha = v / (1 - iou + v) if v else 0.0
    return float(iou - rho / ((right - left) ** 2 + (bottom - top) ** 2) - alpha * v)


def test_complete_iou_is_the_printed_formula() -> None:
    rng = np.random.default_rng(0)
    first, second = (np.column_stack((rng.uniform(0, 50, (30, 2)), rng.uniform(5, 40, (30, 2))))
                  for _ in range(2))  # fmt: skip
    expected = [ciou_by_hand(a, b) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    found = complete_iou(torch.from_numpy(first), torch.from_numpy(second))
    assert found.numpy() == pytest.approx(np.array(expected), abs=1e-6)
    assert float(complete_iou(torch.tensor([[1.0, 2, 3, 4]]), torch.tensor([[1.0, 2, 3, 4]]))) == (
        pytest.approx(1.0)
    )


def test_the_loss_falls_to_that_of_a_perfect_answer() -> None:
    """Raw outputs are optimized directly: the least loss puts the box where the goal is."""
    torch.manual_seed(0)
    goal = torch.tensor([[20.0, 36.0, 24.0, 24.0, 0.0, 1.0]])
    out = torch.zeros(1, 1, 6, 8, 8, requires_grad=True)
    sides = torch.tensor([[20.0]])
    optimizer = torch.optim.Adam([out], lr=0.1)
    # Ever smaller steps: where it ends does not depend on how a processor rounds.
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)
    for _ in range(500):
        total = loss(out, sides, [[goal]], [True])
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        slower.step()
    logits, boxes, order = decode_outputs(out.detach(), sides)
    row, column = np.unravel_index(int(logits[0, 0, 0].argmax()), (8, 8))
    assert boxes[0, 0, 0, row, column].numpy() == pytest.approx(goal[0, :4].numpy(), abs=1.0)
    assert float(order[0, 0, row, column]) > 0.9
    assert int((logits[0, 0, 0] > 0).sum()) <= 4
    assert float(loss(out.detach(), sides, [[None]], [True])) == 0.0, "what nobody showed is free"


# -- examples and baselines -------------------------------------------------------------------


def test_a_session_of_a_slide_that_is_not_there_is_named(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "slides").mkdir()
    (tmp_path / "sessions").mkdir()
    with pytest.raises(InputError, match=r"no \*.session.jsonl found"):
        read_examples(tmp_path / "sessions", tmp_path / "slides", 128, str)
    write_session(tmp_path / "sessions" / "a.session.jsonl", session("gone.png", TASK, 9, 9))
    with pytest.raises(InputError, match=r"a\.session\.jsonl: gone\.png: no such slide"):
        read_examples(tmp_path / "sessions", tmp_path / "slides", 128, str)
    Image.new("RGB", (64, 64)).save(tmp_path / "slides" / "gone.png")
    with pytest.raises(InputError, match=r"1280 x 960 pixels, but gone\.png has 64 x 64"):
        read_examples(tmp_path / "sessions", tmp_path / "slides", 128, str)
    (tmp_path / "slides" / "b").mkdir()
    shutil.copy(tmp_path / "slides" / "gone.png", tmp_path / "slides" / "b")
    with pytest.raises(InputError, match="several slides with this name"):
        read_examples(tmp_path / "sessions", tmp_path / "slides", 128, str)


def test_baselines_see_what_they_are_named_for() -> None:
    image = np.full((60, 80, 3), 250, dtype=np.uint8)
    image[10:50, 5:35] = (230, 150, 200)
    image[20:30, 10:20] = (80, 50, 130)
    assert np.unravel_index(baselines.cellularity(image).argmax(), (60, 80)) == (
        pytest.approx((25, 15), abs=2)
    )
    assert np.unravel_index(baselines.center_bias(image).argmax(), (60, 80)) in {
        (29, 39), (29, 40), (30, 39), (30, 40)
    }  # fmt: skip


# -- the file ---------------------------------------------------------------------------------


def test_a_model_survives_its_file(recording: Path, trained_model: Trained, model: Path) -> None:
    loaded = BehaviorModel(model)
    assert loaded.card == trained_model.card
    assert json.loads((model / "card.json").read_text()) == trained_model.card.model_dump(
        mode="json"
    )
    with Slide.open(recording / "slides" / "s3.png") as slide:
        regions = loaded.predict(slide, TASK, 3)
        with pytest.raises(InputError, match="several behaviors; choose one of: find the dark"):
            loaded.predict(slide)
        with pytest.raises(InputError, match='no behavior "x"'):
            loaded.predict(slide, "x")
    scores = [region.score for region in regions]
    assert scores == sorted(scores, reverse=True) and 1 <= len(regions) <= 3
    assert 0 <= regions[0].order <= 1


@pytest.mark.parametrize(
    "damage",
    ["absent", "garbage", "no card", "NaN", "other numbers", "huge widths"],
)  # fmt: skip
def test_what_is_no_model_is_refused(model: Path, tmp_path: Path, damage: str) -> None:
    tensors = load_file(model / WEIGHTS)
    with safe_open(model / WEIGHTS, framework="numpy") as file:
        card = file.metadata()["card"]
    path = tmp_path / WEIGHTS
    if damage == "garbage":
        path.write_bytes(b"\x80\x04}q\x00." * 20)
    elif damage == "no card":
        save_file(tensors, path)
    elif damage == "NaN":
        key = next(iter(tensors))
        save_file(tensors | {key: tensors[key] * float("nan")}, path, metadata={"card": card})
    elif damage == "other numbers":
        key = next(iter(tensors))
        save_file({k: v for k, v in tensors.items() if k != key}, path, metadata={"card": card})
    elif damage == "huge widths":
        values = json.loads(card) | {"widths": [10**9] * 4}
        save_file(tensors, path, metadata={"card": json.dumps(values)})
    with pytest.raises(InputError, match=r"behavior|match the card|not finite"):
        BehaviorModel(tmp_path)


# -- the command line and MCP -----------------------------------------------------------------


def test_the_command_line_trains_and_predicts(recording: Path, tmp_path: Path) -> None:
    done = sage(
        "reading", "train", str(recording / "sessions"), "--slides", str(recording / "slides"),
        "--out", "model", "--patients", str(recording / "patients.csv"), "--folds", "2",
        "--epochs", "2", "--thumbnail-px", "64", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.json["patients"] == 5 and done.json["folds"] == 2 and done.json["scores"]
    slide = str(recording / "slides" / "s0.png")
    said = sage("reading", "predict", slide, "--model", "model", "--behavior", TASK, "--most",
                "2", "--out", "r.geojson", "--json", cwd=tmp_path)  # fmt: skip
    assert said.code == 0, said.err
    assert len(read_objects(tmp_path / "r.geojson").objects) == len(said.json) <= 2
    for words, more in (
        ('no behavior "x"', ["--model", "model", "--behavior", "x"]),
        ("behavior.safetensors not found", ["--model", str(recording)]),
    ):
        wrong = sage("reading", "predict", slide, *more, cwd=tmp_path)
        assert wrong.code == 2 and words in wrong.err
    for words, more in (
        ("6 folds require", ["--folds", "6"]),
        ("columns slide and patient", ["--patients", str(tmp_path / "r.geojson")]),
    ):
        wrong = sage("reading", "train", str(recording / "sessions"), "--slides",
                     str(recording / "slides"), "--out", "m2", "--patients",
                     str(recording / "patients.csv"), *more, cwd=tmp_path)  # fmt: skip
        assert wrong.code == 2 and words in wrong.err, wrong.err
        assert not (tmp_path / "m2").exists()


def test_predict_regions_is_a_tool_and_stays_within_its_roots(
    recording: Path, model: Path, tmp_path: Path
) -> None:
    registry = load("reading")
    roots = Roots.resolve([recording / "slides", model.parent], tmp_path)
    asked = {"slide": "s0.png", "model": "spots", "behavior": TASK, "most": 2}
    result = registry.run("predict_regions", asked, ToolContext(roots)).result
    assert result["behavior"] == TASK and result["behaviors"] == sorted((TASK, OTHER))
    assert len(result["regions"]) <= 2 and "Not for diagnosis" in result["use"]
    assert len(read_objects(tmp_path / result["geojson"]).objects) == len(result["regions"])
    outside = Roots.resolve([recording / "slides"], tmp_path)
    with pytest.raises(InputError):
        registry.run("predict_regions", asked | {"model": str(model)}, ToolContext(outside))
    with pytest.raises(InputError, match="several behaviors"):
        registry.run("predict_regions", asked | {"behavior": None}, ToolContext(roots))
