"""Logs: one line per record whatever is in it, no secrets, and never in the way of the work."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sage
import sage.core.log as log
from sage.core.clock import using
from sage.run.folder import RunFolder
from tests.core.clocks import SetClock
from tests.warm import run_warm

HOUSE = str(Path(sage.__file__).parents[1])
say = log.logger("kg.sources.pdf")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger("sage")
    handlers, level, hidden = root.handlers[:], root.level, set(log._hidden)
    yield
    root.handlers[:], log._hidden = handlers, hidden
    root.setLevel(level)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def test_a_record_is_one_json_object_with_time_level_and_module(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    log.configure("info", file)
    with using(SetClock(1.5)):
        say.info("retrying", service="pubmed", wait_s=0.25, level="mine")
    say.debug("too small")
    assert lines(file) == [
        {
            "time": "1970-01-01T00:00:01.500+00:00", "level": "info",
            "logger": "sage.kg.sources.pdf", "event": "retrying", "service": "pubmed",
            "wait_s": 0.25, "_level": "mine",
        }
    ]  # fmt: skip


HOSTILE = (
    'x\n{"level": "info", "event": "forged"}\r\x1b[2J\x1b]8;;evil\x07'
    " \u202e\u2066 \u2028 \x7f\ud800"
)


def test_nothing_in_a_value_forges_a_line_or_moves_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log.jsonl"
    log.configure("info", file)
    say.info(HOSTILE, title=HOSTILE, number=3)
    (record,) = lines(file)
    assert record["event"] == record["title"] == HOSTILE and record["number"] == 3
    assert all(32 <= ord(char) < 127 for char in file.read_text(encoding="ascii")[:-1])
    shown = capsys.readouterr().err
    assert shown.endswith("[sage.kg.sources.pdf]\n") and shown.count("\n") == 1
    assert "\\u202e" in shown and "\\x1b" in shown and "\x1b" not in shown


@given(st.text(st.characters(codec=None)))
def test_every_text_is_shown_on_one_line_without_what_a_terminal_obeys(text: str) -> None:
    shown = log.escape(text)
    assert all(char == " " or unicodedata.category(char)[0] not in "CZ" for char in shown)
    assert shown.splitlines() in ([shown], [])


SECRETS = [
    "sk-proj-abc123DEF456", "hf_abcdefghijkl", "Authorization: Bearer eyJhbGciOi.x-y",
    "https://api.x.org/s?api_key=SECRET99&term=FABP5", "postgresql://sage:SECRET99@db/ledger",
    "token=SECRET99", "my-own-key-77", '{"api_key": "SECRET99", "n": 1}', "x-api-key: SECRET99",
    "Authorization: Basic SECRET99", "https://x.org/?term=a&access_token=SECRET99",
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_are_struck_out_everywhere(
    secret: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log.jsonl"
    log.hide("my-own-key-77")
    log.configure("info", file)
    say.info(f"call {secret}", url=secret, nested={"key": [secret]})
    for text in (file.read_text(), capsys.readouterr().err):
        for bare in ("SECRET99", "abc123DEF456", "abcdefghijkl", "eyJ", "my-own-key"):
            assert bare not in text
        assert log.STRUCK in text


@pytest.mark.parametrize("name", ["S2_API_KEY", "password"])
def test_a_value_that_is_named_a_secret_is_struck_out(name: str, tmp_path: Path) -> None:
    log.configure("info", tmp_path / "log.jsonl")
    say.info("asked", **{name: "plain words", "prompt_tokens": 17, "gene": "KEAP1"})
    (record,) = lines(tmp_path / "log.jsonl")
    assert record[name] == log.STRUCK
    assert (record["prompt_tokens"], record["gene"]) == (17, "KEAP1")


def test_a_failure_says_where_it_came_up_but_not_what_the_data_were(tmp_path: Path) -> None:
    log.configure("info", tmp_path / "log.jsonl")
    try:
        float("TCGA-BT-A3 dead")
    except ValueError as error:
        say.failed("column not read", error, column="OS")
    (record,) = lines(tmp_path / "log.jsonl")
    assert record["error"] == "ValueError" and "test_log.py" in record["traceback"]
    assert "TCGA" not in record["traceback"].replace('float("TCGA-BT-A3 dead")', "")


def test_a_disk_that_takes_no_log_does_not_end_the_work(tmp_path: Path) -> None:
    log.keep_in(tmp_path / "log.jsonl")
    say.info("one")
    (tmp_path / "log.jsonl").unlink()
    (tmp_path / "log.jsonl").mkdir()
    say.info("two")
    (tmp_path / "log.jsonl").rmdir()
    say.info("three")
    assert [record["event"] for record in lines(tmp_path / "log.jsonl")] == ["three"]


def test_a_run_that_is_held_keeps_its_own_log(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "one"), RunFolder(tmp_path / "two")
    for folder in (first, second):
        folder.root.mkdir()
        folder.hold()
        say.info("in", run=folder.id)
        say.debug("never")
    second.release()
    say.info("afterwards")
    for folder in (first, second):
        events = [(line["event"], line.get("run")) for line in lines(folder.root / "log.jsonl")]
        assert events == [("run held", None), ("in", folder.id)]


def test_a_run_s_log_does_not_name_who_is_to_be_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["sage", "hospital", "forget", "SIM-0001", "--cohort", "demo"])
    folder = RunFolder(tmp_path)
    folder.hold()
    folder.release()
    said = (tmp_path / "log.jsonl").read_text()
    assert "hospital" in said
    assert "SIM-0001" not in said


def test_the_command_line_logs_to_a_file_and_shows_its_level(tmp_path: Path) -> None:
    def told(*words: str) -> subprocess.CompletedProcess[str]:
        return run_warm(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": HOUSE}, timeout=120)

    ended = told("--log-level", "info", "--log-file", "l.jsonl", "show", "nosuch")
    assert ended.returncode == 2
    (record,) = lines(tmp_path / "l.jsonl")
    assert (record["event"], record["exit_code"]) == ("command failed", 2)
    assert "info: command failed" in ended.stderr and "error: " in ended.stderr
    quiet = told("show", "nosuch")
    assert quiet.returncode == 2 and len(quiet.stderr.strip().splitlines()) == 1
    assert told("--log-level", "loud", "show", "x").returncode == 2
    assert told("--log-file", "no/l", "show").returncode == 2
