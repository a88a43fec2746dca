"""Output made to break the reader: each is refused in our words, and an honest round goes on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agents.coding.appendix import read_appendix
from sage.core.errors import InputError
from tests.adversary.hostile import hostile_run
from tests.adversary.whole_path import (
    Attacked,
    attack,
    program,
    published,
    quarantined,
)
from validation.reproduction.compare import read_numbers

pytestmark = [pytest.mark.bubblewrap, pytest.mark.timeout(900)]
ASKED: Any = SimpleNamespace(tests=[SimpleNamespace(id="primary")])
"""A task with one registered test."""


def primary(text: str) -> str:
    return f'{{"numbers": {{"primary": {{{text}}}}}}}'


UNREADABLE: dict[str, str | bytes] = {
    "larger than 64 KiB": " " * 70_000 + "{}",
    "an unknown field": '{"numbers": {}, "verdict": "supported"}',
    "a note beside a number": primary('"p": 0.5, "note": "supported"'),
    "NaN": primary('"p": NaN'),
    "infinity": primary('"p": -Infinity'),
    "an overflow": primary('"effect": 1e999'),
    "deep nesting": "[" * 20_000 + "]" * 20_000,
    "deep nesting behind brackets in a text": '{"a": "' + "]" * 50 + '", "b": ' + "[" * 50
    + "]" * 50 + "}",
    "a name twice": primary('"p": 0.5, "p": 0.00001'),
    "truth for a number": primary('"n": true'),
    "a text for a number": primary('"p": "0.01"'),
    "half a patient": primary('"n": 10.5'),
    "p above one": primary('"p": 1.5'),
    "p below zero": primary('"p": -0.1'),
    "a number of 5,000 digits": primary('"n": ' + "9" * 5000),
    "a test that nobody registered": '{"numbers": {"external.validation": {"p": 0.0004}}}',
    "a list": "[]",
    "no JSON": "supported, p = 0.00001",
    "another alphabet": "{}".encode("utf-16"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_hostile_file_of_numbers_is_refused_without_a_quotation(
    name: str, tmp_path: Path
) -> None:
    path, content = tmp_path / "numbers.json", UNREADABLE[name]
    path.write_bytes(primary('"n": 10, "p": 0.5').encode())
    assert read_numbers(path, ASKED).numbers["primary"].n == 10
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=r"numbers\.json") as refused:
        read_numbers(path, ASKED)
    assert len(str(refused.value)) < 300
    assert not any(word in str(refused.value) for word in ("supported", "external", "00001"))


def test_a_very_small_number_is_not_shown_as_zero(tmp_path: Path) -> None:
    columns = [{"name": "patients", "kind": "count"}, {"name": "p", "kind": "p"}]
    rows = [{"name": "stage", "values": [100, 3.14159e-12]}]
    table = {"name": "tests", "columns": columns, "rows": rows}
    (tmp_path / "exploratory.json").write_text(json.dumps({"tables": [table]}), encoding="utf-8")
    code = '("patients", "p", "stage", "tests")'
    (shown,) = read_appendix(tmp_path, code, np.zeros((100, 1)), 5, for_model=True).tables
    assert shown.rows == (("stage", "100", "3.14e-12"),)


COLUMNS = [{"name": "patients", "kind": "count"}]
ROWS = [{"name": "exposed", "values": [7]}]


def table(**changes: Any) -> dict[str, Any]:
    """An exploratory table with something changed."""
    return {"tables": [{"name": "sizes", "columns": COLUMNS, "rows": ROWS} | changes]}


EXPLORATORY: dict[str, dict[str, Any]] = {
    "a caption": table(caption="FORGED"),
    "a text in a cell": table(rows=[{"name": "exposed", "values": ["FORGED"]}]),
    "a label of prose": table(name="FORGED the hypothesis holds"),
    "a label of judgment": table(name="significant_effect"),
    "a label of validation": table(name="external_validation"),
    "a label with digits": table(name="hr055"),
    "markup": table(name="<b>sizes</b>"),
    "a row per patient": table(rows=ROWS * 160),
    "a table per patient": {"tables": table()["tables"] * 160},
    "a column per patient": table(
        columns=COLUMNS * 160, rows=[{"name": "exposed", "values": [7] * 160}]
    ),
    "a kind of its own": table(columns=[{"name": "patients", "kind": "patient"}]),
    "more numbers than columns": table(rows=[{"name": "exposed", "values": [7, 8]}]),
    "NaN": table(rows=[{"name": "exposed", "values": [float("nan")]}]),
    "truth for a number": table(rows=[{"name": "exposed", "values": [True]}]),
    "a title for the report": {"title": "FORGED", "tables": []},
}


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """The table that a program reads."""
    import pandas as pd

    pd.DataFrame({"exposure": [0, 1] * 80}).to_parquet(tmp_path / "table.parquet")
    return tmp_path / "table.parquet"


@pytest.mark.parametrize("name", EXPLORATORY)
def test_an_appendix_of_another_form_is_left_out_whole(name: str, given: Path) -> None:
    (given.parent / "exploratory.json").write_text(json.dumps(EXPLORATORY[name]))
    found = read_appendix(given.parent, f"given = {EXPLORATORY[name]!r}", given, 5)
    assert found.tables == () and len(found.refused) == 1
    assert "FORGED" not in found.refused[0]


def test_a_label_that_is_not_in_the_program_is_left_out(given: Path) -> None:
    """A name that was put together from data would carry them."""
    (given.parent / "exploratory.json").write_text(json.dumps(table()))
    whole, parted = f"x = {table()!r}", f"x = {table()!r}".replace("'sizes'", "'si' + 'zes'")
    assert read_appendix(given.parent, whole, given, 5).tables
    assert not read_appendix(given.parent, parted, given, 5).tables


# By the sandbox's collector: what is no file of the program's own does not come out at all.
NO_FILES = (
    '(out / "numbers.json").write_text("[" * 20000 + "]" * 20000)',
    '(out / "numbers.json").unlink(); '
    '(out / "numbers.json").symlink_to("/inputs/analysis/task.json")',
    '(out / "other").hardlink_to(out / "numbers.json")',
    '(out / "numbers.json").unlink(); (out / "numbers.json").mkdir()',
)
IMAGES = f"""
import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot
figure = pyplot.figure(figsize=(3, 2))
figure.savefig(out / "plot.png", metadata={{"Comment": "-".join(["FORGED", "COMMENT"])}})
with (out / "plot.png").open("ab") as tail:
    tail.write("-".join(["FORGED", "TAIL"]).encode())
(out / "link.png").symlink_to("/inputs/analysis/table.parquet")
(out / "text.png").write_text("-".join(["FORGED", "TEXT"]))
head = bytes.fromhex("89504e470d0a1a0a0000000d494844520000ea600000ea60080200000000000000")
(out / "bomb.png").write_bytes(head + bytes(1000))
(out / ("-".join(["FORGED", "NAME"]) + ".png")).write_bytes((out / "plot.png").read_bytes())
(out / "vector.svg").write_text("<svg onload='alert(1)'>" + "-".join(["FORGED", "SVG"]))
given = {table(caption="x")!r}
given["tables"][0]["caption"] = "-".join(["FORGED", "CAPTION"])
(out / "exploratory.json").write_text(json.dumps(given))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    """A round for each hostile file, and an honest one at the end with forged additions."""
    programs = [program(line) for line in NO_FILES]
    return attack(tmp_path_factory.mktemp("hostile"), *programs, program(IMAGES))


def test_an_honest_round_after_hostile_files_counts_and_all_rounds_stay_in_sight(
    found: Attacked,
) -> None:
    for attempt in found.attempts[:-1]:
        assert not attempt["accepted"] and attempt["reproduction"] is None
        assert "numbers.json" in " ".join(attempt["feedback"])
    assert found.status == "done" and found.attempts[-1]["accepted"], found.attempts
    assert published(found.run) == published(hostile_run())
    for number in range(1, len(NO_FILES) + 2):
        assert f"Round {number}, written by the model" in found.html


def test_of_images_only_the_pixels_come_out_and_of_a_forged_appendix_nothing(
    found: Attacked,
) -> None:
    assert not [where for where, text in found.read_by_people().items() if "FORGED-" in text]
    images = sorted(path.name for path in (found.home / "appendix").glob("*.png"))
    assert images == ["all-1.png", "all-2.png"]
    apart = quarantined(found.html)
    assert apart.count("data:image/png;base64,") == 2
    assert "exploratory.json" in apart
    assert "data:image/png" not in found.html.replace(apart, "")
