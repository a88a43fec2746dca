"""Scripted readers do what their strategies say, and the viewer records what they do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.adapters.behavior import patient_of_node, session_name, write_streams
from benchmarks.adapters.scripted_readers import (
    STRATEGIES,
    TASKS,
    Scenery,
    Spot,
    Strategy,
    header_of,
    plan,
    scenery_of,
    stream,
)
from benchmarks.simulate.node import plant_node
from mcp_servers.slides.arrays import F64
from mcp_servers.slides.slide import Slide
from sage_slide_reading.behavior.examples import boxes_of
from sage_slide_reading.behavior.scores import recall_at
from sage_slide_reading.sessions.actions import Action, actions_of
from sage_slide_reading.sessions.format import read_session, write_session
from tests.mcp_servers.slide_tools import blobs

WIDE, HIGH = 2800, 2100


def scenery() -> Scenery:
    """An ellipse of tissue with one deposit, one germinal center and a plain follicle."""
    y, x = np.mgrid[0:210, 0:280]
    tissue = ((x / 280 - 0.5) / 0.46) ** 2 + ((y / 210 - 0.5) / 0.46) ** 2 < 1
    spots = (Spot(700, 900, 120, 1.0), Spot(1900, 700, 150, 0.5), Spot(1500, 1500, 100, 0.1))
    return Scenery(WIDE, HIGH, tissue, spots)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("real") / "real.png"
    Image.fromarray(np.ascontiguousarray(blobs(1050, 1400))).save(path)
    return path


def read(strategy: Strategy, seed: int, image: Path) -> list[Action]:
    with Slide.open(image) as slide:
        header = header_of(slide, strategy, "r").model_copy(update={"width": WIDE, "height": HIGH})
    return actions_of(stream(plan(scenery(), strategy, seed), header))


def covered(boxes: F64, tissue: np.ndarray) -> float:
    """Share of the tissue that lies in a box."""
    seen = np.zeros_like(tissue)
    for x, y, w, h in (boxes / 10).tolist():
        seen[max(0, int(y)) : int(y + h), max(0, int(x)) : int(x + w)] = True
    return float((seen & tissue).sum() / tissue.sum())


def test_strategies_are_what_they_are_called(image: Path) -> None:
    tissue = scenery().tissue
    deposit = np.array([[700 - 105.0, 900 - 105.0, 210, 210]])
    every = {name: [read(name, seed, image) for seed in range(12)] for name in STRATEGIES}

    def mean(name: Strategy, value: object) -> float:
        assert callable(value)
        return float(np.mean([value(boxes_of(tuple(own))) for own in every[name]]))

    area = {name: mean(name, lambda boxes: covered(boxes, tissue)) for name in STRATEGIES}
    found = {name: mean(name, lambda boxes: recall_at(boxes, deposit, 99)) for name in STRATEGIES}
    assert area["systematic"] > 0.6 and area["lazy"] < 0.12
    assert area["lazy"] < area["mixed"] < area["systematic"]
    assert area["target-driven"] < 0.15
    assert found["target-driven"] >= 0.8 and found["mixed"] >= 0.8
    assert {len(own) for own in every["lazy"]} <= {1, 2, 3}
    for actions in every["systematic"]:
        assert {action.bin for action in actions} == {5.0}
        tops = [action.y + action.h / 2 for action in actions]
        assert np.corrcoef(tops, range(len(tops)))[0, 1] > 0.9, "row by row, from above"
    target = [action for own in every["target-driven"] for action in own]
    assert np.mean([action.bin == 10.0 for action in target]) > 0.9


def test_a_hand_is_repeatable_and_not_steady() -> None:
    for strategy in STRATEGIES:
        one, again, other = (plan(scenery(), strategy, seed) for seed in (1, 1, 2))
        assert one == again != other
    steady = np.diff([look.x for look in plan(scenery(), "systematic", 1) if look.width < 900])
    assert len(np.unique(np.round(np.abs(steady)))) > len(steady) / 2
    looks = [look for seed in range(20) for look in plan(scenery(), "systematic", seed)]
    assert sum(look.dwell_s < 0.4 for look in looks) > 20, "some looks overshoot and come back"


def test_planted_deposits_come_before_what_resembles_them(image: Path) -> None:
    node = plant_node(3, 1, "isolated tumor cells")
    with Slide.open(image, mpp=0.65 * 5600 / 1400) as slide:
        known = scenery_of(slide, node)
        unknown = scenery_of(slide)
    planted = [(x / slide.need_mpp(), y / slide.need_mpp()) for x, y, _ in node.deposits]
    found = [(spot.x, spot.y) for spot in known.spots[: len(planted)]]
    assert np.array(found) == pytest.approx(np.array(planted))
    interests = [spot.interest for spot in known.spots]
    assert interests == sorted(interests, reverse=True)
    assert len(unknown.spots) == 5, "without planted truth: the densest places"
    for spot in unknown.spots:
        assert unknown.share(spot.x, spot.y, 60, 60) > 0


def test_sessions_are_written_once_and_say_that_nobody_looked(image: Path, tmp_path: Path) -> None:
    assert write_streams([(image, None)], 2, tmp_path) == 8
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    write_streams([(image, None)], 2, tmp_path)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}
    session = read_session(tmp_path / session_name(image, "lazy", 1))
    assert session.header.task == TASKS["lazy"] and session.header.reader == "lazy-1"
    assert "scripted" in (session.header.note or "")
    write_session(tmp_path / "again.session.jsonl", session)
    assert patient_of_node("node-p003-00007.tiff") == "node-p003"
    assert patient_of_node("real.svs") == "real.svs"
