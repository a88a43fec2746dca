"""`sage sessions` from a log to training data, and its bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_servers.context import ToolContext
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from sage.core.errors import InputError
from sage_slide_reading.sessions.format import read_session
from tests.end_to_end.harness import sage
from validation.simulate import render_slide

LOG = [
    {"timestamp": 1500 * n, "bounds": {"x": 0.2 * n, "y": 0.1 * n, "width": 0.2, "height": 0.15}}
    for n in range(4)
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sessions")
    render_slide(folder / "node.tif", seed=1, size_px=1024)
    (folder / "log.json").write_text(json.dumps(LOG))
    words = ["import", "log.json", "--slide", "node.tif", "--reader", "r1", "--task", "find tumor"]
    done = sage("reading", *words, "--out", "kept/a.session.jsonl", cwd=folder)
    assert done.code == 0, done.err
    done = sage("reading", "draft", "kept/a.session.jsonl", "--slide", "node.tif", cwd=folder)
    assert done.code == 0, done.err
    return folder


def test_from_a_log_to_training_data(place: Path) -> None:
    listed = sage("reading", "sessions", "kept", "--json", cwd=place).json
    assert listed[0]["events"] == 4 and listed[0]["reviewed"] == "0/3"
    actions = sage("reading", "actions", "kept/a.session.jsonl", "--json", cwd=place).json
    assert [a["command"] for a in actions] == ["<5x-inspect>"] * 3
    decided = sage("reading", "review", "kept/a.drafts.json", "--accept", "1", "--reject", "2",
                   "--reviewer", "ana", "--json", cwd=place).json  # fmt: skip
    one = {"rounds": 1, "seconds": None}
    assert decided["decided"] == 2 and decided["states"]["accepted"] == one
    done = sage("reading", "export", "kept/a.drafts.json", "--out", "set", cwd=place)
    assert done.code == 0 and "set: 1 round in" in done.out
    again = ["export", "kept/a.drafts.json", "--out", "set"]
    before = (place / "set" / "boxes.coco.json").read_bytes()
    refused = sage("reading", *again, cwd=place)
    assert refused.code == 2 and "--replace" in refused.err
    assert (place / "set" / "boxes.coco.json").read_bytes() == before
    assert sage("reading", *again, "--replace", cwd=place).code == 0
    boxes = json.loads((place / "set" / "boxes.coco.json").read_text())
    assert len(boxes["annotations"]) == 1
    (line,) = (place / "set" / "conversations.jsonl").read_text().splitlines()
    assert json.loads(line)["review"] == ["accepted"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sessions", "nowhere"], "folder not found"),
        (["actions", "log.json"], "line 1"),
        (["import", "log.json", "--slide", "node.tif", "--reader", "r", "--out", "a.json"],
         "must end in .session.jsonl"),
        (["import", "log.json", "--slide", "node.tif", "--reader", " ", "--out",
          "b.session.jsonl"], "reader: must not be empty"),
        (["import", "node.tif", "--slide", "node.tif", "--reader", "r", "--out",
          "b.session.jsonl"], "not a log"),
        (["import", "log.json", "--slide", "node.tif", "--reader", "r", "--screen", "0x1", "--out",
          "b.session.jsonl"], "1920x1080"),
        (["draft", "kept/a.session.jsonl", "--slide", "node.tif"], "--replace"),
        (["review", "kept/a.session.jsonl"], "damaged"),
        (["review", "kept/a.drafts.json", "--accept", "9", "--reviewer", "ana"], "no round 9"),
        (["review", "kept/a.drafts.json", "--accept", "1"], "--reviewer"),
    ],
)  # fmt: skip
def test_bad_input_is_named_with_exit_code_2(place: Path, words: list[str], said: str) -> None:
    done = sage("reading", *words, cwd=place)
    assert done.code == 2, done.out + done.err
    assert said in done.err
    assert not (place / "b.session.jsonl").exists()


def test_record_session_is_a_tool(place: Path, tmp_path: Path) -> None:
    registry = load("sessions")
    context = ToolContext(Roots.resolve([place], tmp_path))
    views = [{"t": 2 * n, "x": 200 * n, "y": 100, "w": 200, "h": 150} for n in range(4)]
    asked = {"slide": "node.tif", "reader": "agent", "task": "find tumor", "views": views}
    result = registry.run("record_session", asked, context).result
    assert result["views"] == 4 and result["actions"] == 3
    kept = read_session(tmp_path / result["session"])
    assert [event.kind for event in kept.events] == ["open", "pan", "pan", "pan"]
    for changed, said in (
        ({"views": []}, "views"),
        ({"views": [{**views[0], "x": 5000}]}, "view 1 does not show"),
        ({"views": [{**views[0], "w": float("nan")}]}, "w"),
        ({"views": [views[1], views[0]]}, "^record_session: event 2 is at 0 s"),
        ({"reader": "\u200b"}, "^record_session: reader"),
        ({"slide": "/etc/passwd"}, "outside"),
    ):
        with pytest.raises(InputError, match=said):
            registry.run("record_session", asked | changed, context)
    assert [path.name for path in tmp_path.iterdir()] == [result["session"]]
