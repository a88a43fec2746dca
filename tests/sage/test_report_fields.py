"""The report's pictures: the patients whose value it says, the formula, and nobody's name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import pytest

from benchmarks.adapters.measures import COHORT, simulate, write_table
from mcp_servers.measures import picture
from mcp_servers.measures.formula import parse
from mcp_servers.measures.maps import SlideMaps, write_maps
from mcp_servers.measures.table import measure_patients
from sage.core.errors import InputError
from sage.report.fields import draw_measured, field_of, pictures
from validation.cohort import load
from validation.cohort.cohort import Cohort

FORMULA = "mean(ripley_l(cells.b_cell, 30))"
KEY = "imaging:mean_ripley_l_cells_b_cell_30"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("simulated")
    slides, _ = simulate(8, 21)
    write_table(measure_patients([parse(FORMULA)], slides), tmp_path)
    rows = [f"{maps.patient},{60 + i},{100 + i},{i % 2}" for i, maps in enumerate(slides)]
    (tmp_path / "clinical.csv").write_text("patient,age,days,dead\n" + "\n".join(rows) + "\n")
    text = COHORT.replace("simulated = true", 'simulated = true\nmaps = "maps"')
    (tmp_path / "cohort.toml").write_text(text + (tmp_path / "measured.toml").read_text())
    for maps in slides:
        write_maps(maps, tmp_path / "maps" / maps.slide)
    return tmp_path


@pytest.fixture
def cohort(simulated: Path, tmp_path: Path) -> Cohort:
    return load(Path(shutil.copytree(simulated, tmp_path, dirs_exist_ok=True)))


def test_the_patients_drawn_are_those_of_the_values(cohort: Cohort, tmp_path: Path) -> None:
    seen: list[tuple[str, SlideMaps]] = []
    real = picture.draw_fields

    def draw(measurement: object, slides: list[tuple[str, SlideMaps]], path: Path) -> object:
        seen.extend(slides)
        return real(parse(FORMULA), slides, path)

    with patch.object(picture, "draw_fields", draw):
        (drawn,) = draw_measured(cohort, [KEY, "clinical:age"], tmp_path / "h1" / "fields")
    values = sorted(cohort.column(KEY))
    for (title, maps), place, word in zip(seen, (18, 2), ("high", "low"), strict=True):
        own = measure_patients([parse(FORMULA)], [maps]).table[0, 0]
        assert own == pytest.approx(values[place]) and title == f"{word}: {own:.3g} µm"
        assert maps.patient not in drawn["caption"] + title
    assert f"Formula: {FORMULA}; in µm." in drawn["caption"]
    assert (tmp_path / "h1" / "fields" / drawn["file"]).read_bytes().startswith(b"\x89PNG")
    assert pictures(tmp_path / "h1") == [drawn] and pictures(tmp_path / "h2") == []


def test_a_picture_leads_back_to_its_place_on_the_slide(cohort: Cohort) -> None:
    values = sorted(cohort.column(KEY))
    sides: tuple[tuple[Literal["high", "low"], int], ...] = (("high", 18), ("low", 2))
    for side, place in sides:
        maps, (x, y, wide) = field_of(cohort, KEY, side)
        assert measure_patients([parse(FORMULA)], [maps]).table[0, 0] == pytest.approx(
            values[place]
        )
        assert (x, y, wide) == picture.densest_field(parse(FORMULA), maps)
        x0, y0, x1, y1 = maps.window.bounds
        assert x0 <= x <= x1 and y0 <= y <= y1 and 0 < wide <= max(x1 - x0, y1 - y0)
    with pytest.raises(InputError, match="no longer available"):
        field_of(cohort, "clinical:age", "high")


def test_maps_that_do_not_give_the_value_are_not_drawn(cohort: Cohort, tmp_path: Path) -> None:
    others, _ = simulate(9, 21)
    for maps in others:
        write_maps(maps, tmp_path / "maps" / maps.slide)
    assert draw_measured(cohort, [KEY], tmp_path / "fields") == []
    assert not (tmp_path / "fields").exists()
