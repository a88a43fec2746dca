"""Bad input: exit code 2, one message that names the thing and the remedy, nothing half-written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.harness import PROMPT, sage

EMPTY_GRAPHML = (
    '<?xml version="1.0" encoding="utf-8"?>'
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    '<graph edgedefault="directed"></graph></graphml>'
)
COHORT = """
id = "small"
title = "Small cohort"
patient = {{ table = "clinical" }}

[tables.clinical]
file = "clinical.csv"
key = "patient"

[endpoints.OS]
kind = "survival"
label = "Overall survival"
table = "clinical"
time = "{time}"
time_unit = "days"
event = "dead"
event_values = [1]
censored_values = [0]
"""


FILES = {
    "cohort/cohort.toml": COHORT.format(time="os_days"),
    "cohort/clinical.csv": "patient,dead,time\nA,1,100\nB,0,200\n",
    "empty.graphml": EMPTY_GRAPHML,
    "taken/file": "mine",
}


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("run", PROMPT, "--cohort", "no-such-cohort"), "no-such-cohort"),
        (("run", PROMPT, "--cohort", "cohort"), "os_days"),
        (("run", PROMPT, "--kg", "empty.graphml"), "empty.graphml"),
        (("run", PROMPT, "--kg", "nowhere.graphml"), "nowhere.graphml"),
        (("run", PROMPT, "--out", "taken"), "taken"),
        (("run", PROMPT, "--reasoner", "chat", "--budget-usd", "1"), "price_in"),
        (("run", "zzqx wvut"), "off topic"),
        (("run", "  "), "empty"),
        (("show", "last"), "sage run"),
    ],
)
def test_what_cannot_be_used_is_named(args: tuple[str, ...], named: str, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    _refused(*args, names=named, cwd=tmp_path)


@pytest.mark.parametrize("text", ["novelty_threshold = 40", "no_such_setting = 1", "paths = ["])
def test_wrong_settings_name_the_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "sage.toml").write_text(text)
    _refused("run", PROMPT, names="sage.toml", cwd=tmp_path)


def _refused(*args: str, names: str, cwd: Path) -> None:
    before = {path: path.read_bytes() for path in cwd.rglob("*") if path.is_file()}
    model = {"SAGE_BASE_URL": "http://127.0.0.1:9/v1"} if "chat" in args else {}
    ended = sage(*args, cwd=cwd, **model)
    assert ended.code == 2, (ended.code, ended.err[-2000:])
    assert "Traceback" not in ended.err
    assert names in ended.err
    assert {path: path.read_bytes() for path in cwd.rglob("*") if path.is_file()} == before
