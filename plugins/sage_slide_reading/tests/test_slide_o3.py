"""Pathologist-o3: thumbnail, router, regions of a behavior, reasoning, summary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.simulate.scenes import Scene, render_scene
from mcp_servers.slides.slide import Slide
from sage_slide_reading.behavior.model import Behavior, BehaviorCard, BehaviorModel, save
from sage_slide_reading.behavior.network import RegionNet
from sage_slide_reading.reader import computed
from sage_slide_reading.reader.eyes import computed_eyes, model_eyes
from sage_slide_reading.reader.o3 import o3_scope, read_guided
from sage_slide_reading.reader.types import Proposed, Question, Reading
from sage_slide_reading.tests.test_slide_reader import fields_of, player
from tests.end_to_end.harness import sage
from tests.openai_server import chat_reasoner, serve

QUESTION = Question(text="Is there metastatic tumor in this lymph node?", options=("yes", "no"))
MPP = 0.65
BANK = ("find metastatic tumor", "glance at the slide", "screen the whole slide row by row")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node of 1.2 x 0.9 mm with a deposit of 260 µm to the left and a follicle to the right."""
    path = tmp_path_factory.mktemp("o3") / "node.tiff"
    scene = Scene(tumor=((380.0, 430.0, 130.0),), hilum=(600.0, 760.0, 90.0))
    render_scene(path, seed=4, size_px=(1846, 1384), mpp=MPP, aggregates=[(820.0, 430.0, 110.0)],
                 germinal_centers=1, scene=scene)  # fmt: skip
    return path


def make_visit(x_um: float, y_um: float, side_um: float = 140.0, score: float = 1.0) -> Proposed:
    side = side_um / MPP
    return Proposed(x=x_um / MPP - side / 2, y=y_um / MPP - side / 2, w=side, h=side, score=score,
                 bin=10.0)  # fmt: skip


@dataclass(frozen=True)
class RecordedVisits:
    """Regions that a reader visited on this slide."""

    recorded: tuple[Proposed, ...]
    name: str = "a recorded reader"
    behaviors: tuple[str, ...] = ("recorded",)

    def predict(self, slide: Slide, task: str, most: int | None) -> list[Proposed]:
        return list(self.recorded[:most])


DEPOSIT, FOLLICLE, PARENCHYMA = make_visit(380, 430), make_visit(820, 430), make_visit(600, 250)


def read_node(path: Path, guide: Any, **options: Any) -> Reading:
    with Slide.open(path) as slide:
        return read_guided(o3_scope(slide), computed_eyes(), guide, QUESTION, **options)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank of three behaviors that learned nothing: what matters is that it is followed."""
    folder = tmp_path_factory.mktemp("bank") / "bank"
    torch.manual_seed(1)
    net = RegionNet(3, 1, (8, 8, 8, 8))
    with torch.no_grad():
        assert net.head.bias is not None
        net.head.bias.zero_()
    card = BehaviorCard(
        behaviors=tuple(
            Behavior(task=task, sessions=1, slides=1, regions=3.0, sides=(0.1,), usual_bin=10.0)
            for task in BANK
        ),
        bins=(10.0,), widths=(8, 8, 8, 8), thumbnail_px=128, seed=0, epochs=1, slides=1,
        patients=1, data_sha256="0" * 64, parameters=1, folds=0, training_data="nothing",
    )  # fmt: skip
    save(folder, net.state_dict(), card)
    return folder


# -- reading ----------------------------------------------------------------------------------


def test_a_deposit_that_is_looked_at_is_found_and_one_that_is_not_is_not(node: Path) -> None:
    found = read_node(node, RecordedVisits((PARENCHYMA, DEPOSIT)))
    assert found.answer == "yes"
    assert all(name.startswith("r2") for name in found.rests_on)
    missed = read_node(node, RecordedVisits((PARENCHYMA, make_visit(600, 540))))
    assert missed.answer == "no"


def test_a_germinal_center_is_no_tumor_and_a_packed_deposit_without_a_mantle_is(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_node(node, RecordedVisits((FOLLICLE,))).answer == "no"
    monkeypatch.setattr(computed, "has_mantle", lambda *_: False)
    assert read_node(node, RecordedVisits((FOLLICLE,))).answer == "yes"


@pytest.mark.parametrize(
    ("around", "sides", "found"),
    [(60, 8, True), (60, 5, True), (60, 4, False), (190, 8, False), (150, 8, False)],
)
def test_a_mantle_is_darker_on_most_sides(around: int, sides: int, found: bool) -> None:
    away = np.indices((400, 400)) - 200
    turn = (np.arctan2(away[0], away[1]) + np.pi / 8) % (2 * np.pi)
    rim = (np.hypot(*away) > 25) & (np.hypot(*away) < 55) & (turn < sides * np.pi / 4)
    level = np.where(rim, around, 150).astype(np.uint8)
    image = np.stack((level, level // 2, level), axis=-1)
    view = SimpleNamespace(mpp=4.0, scale=4.0, read=lambda x, y, w, h: image[y : y + h, x : x + w])
    scope: Any = SimpleNamespace(slide=SimpleNamespace(view=lambda mpp: view))
    assert computed.has_mantle(scope, 800.0, 800.0) == found


def test_a_reading_has_the_thumbnail_then_a_step_per_region_and_says_who_guided(
    node: Path,
) -> None:
    reading = read_node(node, RecordedVisits((DEPOSIT, FOLLICLE)))
    first, *regions = reading.steps
    assert first.seen[0].region.id == "thumbnail"
    assert (first.seen[0].region.box.width, first.seen[0].region.box.height) == reading.size
    assert [step.round for step in regions] == [1, 2]
    assert all(step.predicted is not None for step in regions)
    assert reading.guidance is not None
    assert reading.guidance.visits == (DEPOSIT, FOLLICLE)
    assert reading.guidance.why == "it is the bank's first"
    assert "not findings" in reading.statement and "Not for diagnosis" in reading.statement
    assert 0 < reading.read.high_power_share < 0.5


def test_the_cap_and_the_order_of_regions(node: Path) -> None:
    guide = RecordedVisits((PARENCHYMA, make_visit(600, 540), DEPOSIT))
    steps = read_node(node, guide).steps[1:]
    names = [step.seen[0].region.id.partition(".")[0] for step in steps]
    assert names == ["r1", "r2", "r3"]
    assert read_node(node, guide, most=2).answer == "no", "the deposit is the third region"


def test_without_a_region_nothing_is_claimed(node: Path) -> None:
    reading = read_node(node, RecordedVisits(()))
    assert reading.answer is None and "no region of this slide" in reading.reasoning


# -- a model's eyes ---------------------------------------------------------------------------


def replies(behavior: str) -> dict[str, Any]:
    return {
        "Perceived": {"description": "Solid groups of large cells are seen here."},
        "Routed": {"behavior": behavior, "why": "It asks for tumor."},
        "Prediction": lambda body: {
            "answer": "yes", "thinking_steps": "Large cells.", "regions": fields_of(body)[:1],
        },
    }  # fmt: skip


def read_by_model(node: Path, model: Path, folder: Path, behavior: str) -> Reading:
    with serve(player(replies(behavior))) as server, Slide.open(node, threads=1) as slide:
        reasoner = chat_reasoner(server.url, folder)
        reasoner.settings = reasoner.settings.model_copy(update={"vision": True})
        eyes = model_eyes(reasoner)
        return read_guided(o3_scope(slide), eyes, BehaviorModel(model), QUESTION, most=2)


def test_a_model_sees_each_region_as_one_picture_and_routes(
    node: Path, model: Path, tmp_path: Path
) -> None:
    reading = read_by_model(node, model, tmp_path, BANK[2])
    assert reading.answer == "yes"
    assert reading.guidance is not None
    assert (reading.guidance.behavior, reading.guidance.why) == (BANK[2], "It asks for tumor.")
    assert [len(step.seen) for step in reading.steps] == [1, 1, 1]


# -- the command line, the table --------------------------------------------------------------


def test_the_command_line_reads_with_a_behavior(node: Path, model: Path, tmp_path: Path) -> None:
    done = sage(
        "reading", "read", str(node), QUESTION.text, "--answer", "yes", "--answer", "no", "--agent",
        "o3", "--behavior", str(model), "--most", "2", "--out", "r", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert len(done.json["guidance"]["visits"]) == 2
    assert (tmp_path / "r" / "node.reading.geojson").is_file()
    assert f'by the behavior model "{model.name}": ' in done.json["statement"]
    for more, words in (
        (["--out", "r"], "r already exists; choose another folder"),
        (["--most", "2"], "require --agent o3"),
        (["--agent", "o3", "--intervene"], "require --agent pathagent"),
        (["--agent", "o3", "--behavior", str(tmp_path)], "behavior.safetensors not found"),
    ):
        wrong = sage("reading", "read", str(node), QUESTION.text, *more, cwd=tmp_path)
        assert wrong.code == 2 and words in wrong.err
