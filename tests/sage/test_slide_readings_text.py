"""What a reading saw, in words that a person reads: whole words, figures written out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.slide_reader.computed import worded
from agents.slide_reader.types import Finding
from sage.core.errors import InputError
from sage.core.files import write_json
from sage.core.printable import as_cell
from sage.machine.slide_readings import (
    ABOUT,
    FOLDER,
    ExposureRead,
    Readings,
    SlideRead,
    _nameless,
    _regions,
)
from sage.report.results import _readings


def test_what_a_region_shows_is_never_cut_within_a_word() -> None:
    region = SimpleNamespace(id="p1", um=(0.0, 0.0, 1.0, 1.0), magnification=20.0)
    seen = SimpleNamespace(region=region, text="tissue " * 100)
    reading: Any = SimpleNamespace(regions=lambda: {"p1": seen}, rests_on=("p1",))
    (found,) = _regions(reading)
    assert len(found.seen) <= 300
    assert set(found.seen.split()) == {"tissue", "…"}


def test_large_figures_are_written_out() -> None:
    dense = Finding(name="cellularity", value=9816.2, unit="nuclei/mm²")
    assert worded(dense) == "cellularity 9,816 nuclei/mm²"
    assert worded(dense.model_copy(update={"value": 41.52})) == "cellularity 41.5 nuclei/mm²"


@pytest.mark.parametrize(
    ("who", "said", "told"),
    [
        ("3", "/c/3.svs: 34 of 308 tiles", "the slide: 34 of 308 tiles"),
        ("TCGA-01", "TCGA-01_x is bad: TCGA-01.svs", "the slide_x is bad: the slide"),
        ("p1", "", "InputError"),
    ],
)
def test_an_error_is_told_without_the_words_that_name_the_slide(
    who: str, said: str, told: str
) -> None:
    assert _nameless(InputError(said), Path(f"/c/{who}.svs"), who) == told


def test_the_report_tells_what_was_not_read(tmp_path: Path) -> None:
    reads = (SlideRead(end="highest", rank=1, why_not="the slide: truncated"),)
    found = Readings(
        population="()",
        exposures=(
            ExposureRead(variable="a", label="<b>TLS</b>", question="Where?", reads=reads),
            ExposureRead(variable="b", label="Age", note="nothing bears on it"),
        ),
    )
    write_json(tmp_path / FOLDER / ABOUT, found)
    one, other = _readings(tmp_path, "h1")
    assert not one.source and one.caption.endswith("Not read: the slide: truncated")
    assert other.caption == "Slides by Age were not read: nothing bears on it."


def test_a_cell_that_a_spreadsheet_would_compute_is_quoted() -> None:
    assert [as_cell(text) for text in ("=1+1", "@x", "-3.5", "-cmd", "a=1")] == [
        "'=1+1", "'@x", "-3.5", "'-cmd", "a=1",
    ]  # fmt: skip
