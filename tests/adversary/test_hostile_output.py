"""Output made to break the reader: each is refused in our words, and an honest round goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.coding.appendix import read_appendix
from tests.adversary.whole_path import (
    Attacked,
    attack,
    finished_run,
    program,
    published,
    quarantined,
)

pytestmark = [pytest.mark.bubblewrap, pytest.mark.timeout(900)]
WRITE = '(out / "numbers.json").write_text({0})'
HUGE = 'json.dumps({"numbers": {"primary": {"n": 1}}, "x": "' + "A" * 10 + '" * 100000})'
UNREADABLE = {
    "five megabytes": (WRITE.format('" " * 5_000_000 + "{}"'), "larger than 64 KiB"),
    "an unknown field": (WRITE.format(HUGE.replace("100000", "10")), "must be"),
    "NaN": (WRITE.format('\'{"numbers": {"primary": {"p": NaN}}}\''), "NaN or infinity"),
    "infinity": (WRITE.format('\'{"numbers": {"primary": {"p": -Infinity}}}\''), "NaN or inf"),
    "an overflow": (WRITE.format('\'{"numbers": {"primary": {"effect": 1e999}}}\''), "finite"),
    "deep nesting": (WRITE.format('"[" * 20000 + "]" * 20000'), "numbers.json"),
    "deep nesting behind brackets in a text": (
        WRITE.format('\'{"a": "\' + "]" * 50 + \'", "b": \' + "[" * 50 + "]" * 50 + "}"'),
        "nested deeper",
    ),
    "a name twice": (
        WRITE.format('\'{"numbers": {"primary": {"p": 0.5, "p": 0.00001}}}\''),
        "a name twice",
    ),
    "truth for a number": (WRITE.format('\'{"numbers": {"primary": {"n": true}}}\''), "must be"),
    "a text for a number": (WRITE.format('\'{"numbers": {"primary": {"p": "0.01"}}}\''), "must be"),
    "half a patient": (WRITE.format('\'{"numbers": {"primary": {"n": 10.5}}}\''), "must be"),
    "p above one": (WRITE.format('\'{"numbers": {"primary": {"p": 1.5}}}\''), "must be"),
    "p below zero": (WRITE.format('\'{"numbers": {"primary": {"p": -0.1}}}\''), "must be"),
    "a number of 5,000 digits": (
        WRITE.format('\'{"numbers": {"primary": {"n": \' + "9" * 5000 + "}}}"'),
        "numbers.json",
    ),
    "a verdict": (
        WRITE.format('\'{"numbers": {}, "verdict": "supported"}\''),
        "no other field",
    ),
    "a note beside a number": (
        WRITE.format('\'{"numbers": {"primary": {"p": 0.5, "note": "supported"}}}\''),
        "no other field",
    ),
    "a test that nobody registered": (
        WRITE.format('\'{"numbers": {"external.validation": {"p": 0.0004}}}\''),
        "a test that is not asked for",
    ),
    "a list": (WRITE.format('"[]"'), "must be"),
    "another alphabet": ('(out / "numbers.json").write_bytes("{}".encode("utf-16"))', "not UTF-8"),
    "a symbolic link": (
        '(out / "numbers.json").unlink(); '
        '(out / "numbers.json").symlink_to("/inputs/analysis/task.json")',
        "left no numbers.json",
    ),
    "a hard link": (
        '(out / "other").hardlink_to(out / "numbers.json")',
        "left no numbers.json",
    ),
    "a folder": (
        '(out / "numbers.json").unlink(); (out / "numbers.json").mkdir()',
        "left no numbers.json",
    ),
}


def test_a_very_small_number_is_not_shown_as_zero(tmp_path: Path) -> None:
    columns = [{"name": "patients", "kind": "count"}, {"name": "p", "kind": "p"}]
    rows = [{"name": "stage", "values": [100, 3.14159e-12]}]
    table = {"name": "tests", "columns": columns, "rows": rows}
    (tmp_path / "exploratory.json").write_text(json.dumps({"tables": [table]}), encoding="utf-8")
    code = '("patients", "p", "stage", "tests")'
    (shown,) = read_appendix(tmp_path, code, np.zeros((100, 1)), 5, for_model=True).tables
    assert shown.rows == (("stage", "100", "3.14e-12"),)


@pytest.fixture(scope="module")
def unreadable(tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    """A round for each hostile file, and an honest one at the end."""
    programs = [program(line) for line, _ in UNREADABLE.values()]
    return attack(tmp_path_factory.mktemp("unreadable"), *programs, program())


@pytest.mark.parametrize("at", range(len(UNREADABLE)), ids=list(UNREADABLE))
def test_a_hostile_file_of_numbers_is_refused_in_our_words(unreadable: Attacked, at: int) -> None:
    attempt = unreadable.attempts[at]
    assert not attempt["accepted"] and attempt["reproduction"] is None
    assert list(UNREADABLE.values())[at][1] in " ".join(attempt["feedback"])


def test_an_honest_round_after_them_counts_and_all_rounds_stay_in_sight(
    unreadable: Attacked,
) -> None:
    assert unreadable.status == "done" and unreadable.attempts[-1]["accepted"]
    assert published(unreadable.run) == published(finished_run())
    for number in range(1, len(UNREADABLE) + 2):
        assert f"Round {number}, written by the model" in unreadable.html


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


@pytest.mark.parametrize("name", EXPLORATORY)
def test_an_appendix_of_another_form_is_left_out_whole(name: str, tmp_path: Path) -> None:
    import pandas as pd

    pd.DataFrame({"exposure": [0, 1] * 80}).to_parquet(tmp_path / "table.parquet")
    text = json.dumps(EXPLORATORY[name])
    (tmp_path / "exploratory.json").write_text(text)
    code = f"given = {EXPLORATORY[name]!r}"
    found = read_appendix(tmp_path, code, tmp_path / "table.parquet", 5)
    assert found.tables == () and len(found.refused) == 1
    assert "FORGED" not in found.refused[0]


def test_a_label_that_is_not_in_the_program_is_left_out(tmp_path: Path) -> None:
    """A name that was put together from data would carry them."""
    import pandas as pd

    pd.DataFrame({"exposure": [0, 1] * 80}).to_parquet(tmp_path / "table.parquet")
    (tmp_path / "exploratory.json").write_text(json.dumps(table()))
    whole, parted = f"x = {table()!r}", f"x = {table()!r}".replace("'sizes'", "'si' + 'zes'")
    assert read_appendix(tmp_path, whole, tmp_path / "table.parquet", 5).tables
    assert not read_appendix(tmp_path, parted, tmp_path / "table.parquet", 5).tables


def test_a_forged_appendix_is_left_out_of_the_report(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    given = table(caption="x")
    write = f"given = {given!r}\ngiven['tables'][0]['caption'] = '-'.join(['FORGED', 'CAPTION'])"
    write += "\n(out / 'exploratory.json').write_text(json.dumps(given))"
    found = attack(tmp_path_factory.mktemp("appendix"), program(write))
    assert "exploratory.json has another form" in quarantined(found.html)
    assert not [where for where, text in found.read_by_people().items() if "FORGED-" in text]


IMAGES = """
import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot
figure = pyplot.figure(figsize=(3, 2))
figure.savefig(out / "plot.png", metadata={"Comment": "-".join(["FORGED", "COMMENT"])})
with (out / "plot.png").open("ab") as tail:
    tail.write("-".join(["FORGED", "TAIL"]).encode())
(out / "link.png").symlink_to("/inputs/analysis/table.parquet")
(out / "text.png").write_text("-".join(["FORGED", "TEXT"]))
head = bytes.fromhex("89504e470d0a1a0a0000000d494844520000ea600000ea60080200000000000000")
(out / "bomb.png").write_bytes(head + bytes(1000))
(out / ("-".join(["FORGED", "NAME"]) + ".png")).write_bytes((out / "plot.png").read_bytes())
(out / "vector.svg").write_text("<svg onload='alert(1)'>" + "-".join(["FORGED", "SVG"]))
(out / "exploratory.json").write_text(json.dumps({"tables": [], "note": "-".join(["FORGED", "N"])}))
"""


def test_of_images_only_the_pixels_come_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = attack(tmp_path_factory.mktemp("images"), program(IMAGES))
    assert found.attempts[0]["accepted"], found.attempts
    for where, text in found.read_by_people().items():
        assert "FORGED-" not in text, where
    images = sorted(path.name for path in (found.home / "appendix").glob("*.png"))
    assert images == ["all-1.png", "all-2.png"]
    apart = quarantined(found.html)
    assert apart.count("data:image/png;base64,") == 2
    assert "an image that is too large, or no PNG" in apart
    assert "data:image/png" not in found.html.replace(apart, "")
