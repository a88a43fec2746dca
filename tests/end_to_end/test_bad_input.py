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


def _refused(*args: str, cwd: Path, **variables: str) -> str:
    ended = sage(*args, cwd=cwd, **variables)
    assert ended.code == 2, (ended.code, ended.err[-2000:])
    assert "Traceback" not in ended.err
    return ended.err


def test_unknown_cohort(tmp_path: Path) -> None:
    message = _refused("run", PROMPT, "--cohort", "no-such-cohort", cwd=tmp_path)
    assert "no-such-cohort" in message
    assert not (tmp_path / "runs").exists()


def test_cohort_that_names_a_missing_column(tmp_path: Path) -> None:
    folder = tmp_path / "cohort"
    folder.mkdir()
    (folder / "cohort.toml").write_text(COHORT.format(time="os_days"))
    (folder / "clinical.csv").write_text("patient,dead,time\nA,1,100\nB,0,200\n")
    message = _refused("run", PROMPT, "--cohort", str(folder), cwd=tmp_path)
    assert "os_days" in message


def test_empty_graph(tmp_path: Path) -> None:
    graph = tmp_path / "empty.graphml"
    graph.write_text(EMPTY_GRAPHML)
    message = _refused("run", PROMPT, "--kg", str(graph), cwd=tmp_path)
    assert "empty.graphml" in message or "no" in message.lower()


def test_prompt_that_matches_nothing(tmp_path: Path) -> None:
    message = _refused("run", "zzqx wvut", cwd=tmp_path)
    assert "off topic" in message
    assert not (tmp_path / "runs").exists()


def test_empty_prompt(tmp_path: Path) -> None:
    assert "empty" in _refused("run", "  ", cwd=tmp_path)


def test_missing_graph_file(tmp_path: Path) -> None:
    message = _refused("run", PROMPT, "--kg", "nowhere.graphml", cwd=tmp_path)
    assert "nowhere.graphml" in message
    assert "sage kg build" in message


def test_unknown_run(tmp_path: Path) -> None:
    assert "sage run" in _refused("show", "last", cwd=tmp_path)


def test_output_folder_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").write_text("mine")
    message = _refused("run", PROMPT, "--out", "taken", cwd=tmp_path)
    assert "not empty" in message
    assert (tmp_path / "taken/file").read_text() == "mine"


@pytest.mark.parametrize("text", ["novelty_threshold = 40", "no_such_setting = 1", "paths = ["])
def test_wrong_settings_name_the_field_and_the_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "sage.toml").write_text(text)
    message = _refused("run", PROMPT, cwd=tmp_path)
    assert "sage.toml" in message


def test_budget_without_prices(tmp_path: Path) -> None:
    message = _refused(
        "run", PROMPT, "--reasoner", "chat", "--budget-usd", "1", cwd=tmp_path,
        SAGE_BASE_URL="http://127.0.0.1:9/v1",
    )  # fmt: skip
    assert "price_in" in message
