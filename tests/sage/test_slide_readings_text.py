"""What a reading saw, in words that a person reads: whole words, figures written out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError
from sage.core.files import write_json
from sage.core.printable import as_cell
from sage.report.results import _readings
from sage_slide_reading.reader.computed import worded
from sage_slide_reading.reader.types import Finding
from sage_slide_reading.run_readings import (
    ABOUT,
    FOLDER,
    ExposureRead,
    Readings,
    RegionSeen,
    SlideRead,
    _draw,
    _nameless,
    _regions,
)
from validation.simulate.slide import write_tiff


def test_what_a_region_shows_is_never_cut_within_a_word() -> None:
    region = SimpleNamespace(id="p1", um=(0.0, 0.0, 1.0, 1.0), magnification=20.0)
    seen = SimpleNamespace(region=region, text="tissue " * 100)
    reading: Any = SimpleNamespace(regions=lambda: {"p1": seen}, rests_on=("p1",))
    (found,) = _regions(reading)
    assert len(found.seen) <= 300
    assert set(found.seen.split()) == {"tissue", "…"}


def test_a_picture_has_a_scale_bar_and_the_first_region_enlarged(tmp_path: Path) -> None:
    image = np.full((1200, 1600, 3), 200, np.uint8)
    write_tiff(tmp_path / "s.tiff", image, 0.5, 1)
    region = RegionSeen(x_um=100, y_um=100, width_um=60, height_um=60, magnification=20,
                        seen="x", answer_rests_on_it=True)  # fmt: skip
    with Slide.open(tmp_path / "s.tiff") as slide:
        _draw(slide, (region,), 0.5, tmp_path / "p.png")
    drawn = np.asarray(Image.open(tmp_path / "p.png").convert("RGB"))
    assert (drawn[10, 488:968] == 200).all()  # 120 pixels fill the whole field
    for left, below, pixels in ((0, 374, 200 / (0.5 * 1600 / 480)), (488, 494, 160.0)):
        white = drawn[below, left + 4 : left + 480].min(axis=1) > 20
        assert abs(int(white.argmax()) - pixels) <= 2


def test_large_figures_are_written_out() -> None:
    dense = Finding(name="cellularity", value=9816.2, unit="nuclei/mm²")
    assert worded(dense) == "cellularity 9,816 nuclei/mm²"
    assert worded(dense.model_copy(update={"value": 41.52})) == "cellularity 41.5 nuclei/mm²"
    one = Finding(name="mitosis_like", value=1, unit="figures")
    assert worded(one) == "1 mitosis-like figure"


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
            ExposureRead(variable="a", label="<b>TLS</b>", question="Where?", reads=reads, among=3),
            ExposureRead(variable="b", label="Age", note="nothing bears on it"),
        ),
    )
    write_json(tmp_path / FOLDER / ABOUT, found)
    one, other = _readings(tmp_path, "h1")
    assert not one.source and one.caption.endswith("Not read: the slide: truncated.")
    assert "(chosen by it alone, of 3 patients whose slide is named)" in one.caption
    assert other.caption == "Slides by Age were not read: nothing bears on it."


def test_a_cell_that_a_spreadsheet_would_compute_is_quoted() -> None:
    assert [as_cell(text) for text in ("=1+1", "@x", "-3.5", "-cmd", "a=1")] == [
        "'=1+1", "'@x", "-3.5", "'-cmd", "a=1",
    ]  # fmt: skip
