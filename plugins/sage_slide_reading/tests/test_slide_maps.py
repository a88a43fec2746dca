"""A reading's findings as maps: counted by measurements, gated like those, variables of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_servers.measures.maps import read_maps
from sage_slide_reading.reader.maps import findings_of
from sage_slide_reading.reader.types import (
    UNITS,
    Box,
    Described,
    Finding,
    Options,
    PixelsRead,
    Question,
    Reading,
    Region,
    Step,
)
from tests.end_to_end.harness import sage

SIDE_UM = 128.0


def reading(
    slide: str, tumor: list[tuple[int, int]], mitoses: int = 0, asked: str = "Where is the tumor?"
) -> Reading:
    """Ten by ten patches of 128 µm, some of them tumor; with so many figures in the first."""
    seen = []
    for row in range(10):
        for column in range(10):
            values = {"tumor_share": 0.9 if (row, column) in tumor else 0.0, "mitosis_like": 0.0}
            points = tuple((10.0 * k, 5.0) for k in range(mitoses)) if not seen else ()
            region = Region(
                id=f"p{row}-{column}",
                box=Box(x=256 * column, y=256 * row, width=256, height=256),
                um=(SIDE_UM * column, SIDE_UM * row, SIDE_UM, SIDE_UM),
                magnification=20.0,
            )
            findings = tuple(
                Finding(name=name, value=value, unit=UNITS[name][0],  # type: ignore[index]
                        points=points if name == "mitosis_like" else ())
                for name, value in values.items()
            )  # fmt: skip
            seen.append(Described(region=region, text="seen", findings=findings))
    step = Step(round=1, action="zoom", looked_for="tumor", magnification=20.0, seen=tuple(seen),
                relevance=(0.0,) * len(seen))  # fmt: skip
    read = PixelsRead(regions=len(seen), overview_share=1.0, high_power_share=1.0)
    return Reading(
        slide=slide, mpp=0.5, size=(2560, 2560), question=Question(text=asked),
        eyes="computed", statement="", options=Options(), answer="upper left", reasoning="",
        rests_on=(), steps=(step,), read=read,
    )  # fmt: skip


def test_neighbors_are_one_object_and_figures_are_points() -> None:
    tumor = [(0, 0), (0, 1), (5, 5)]
    readings = [reading("P-1", tumor), reading("P-1", tumor, 3, "Where are mitoses?")]
    maps = findings_of(readings)
    objects = maps.objects
    assert objects is not None and maps.patient == "P-1" and maps.cells is None
    assert objects.kinds == ("read_tumor", "read_mitosis")
    assert sorted(shape.area for shape in objects.of_kind("read_tumor")) == [
        pytest.approx(SIDE_UM**2), pytest.approx(2 * SIDE_UM**2),
    ]  # fmt: skip
    assert [(p.x, p.y) for p in objects.of_kind("read_mitosis")] == [(0, 2.5), (5, 2.5), (10, 2.5)]


def test_the_command_line_imports_a_reading(tmp_path: Path) -> None:
    own = reading("P-1", [(2, 2)])
    (tmp_path / "reading.json").write_text(own.model_dump_json())
    done = sage("reading", "maps", "reading.json", "--patient", "P-7", "--json",
                cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.err
    assert done.json[0]["objects"] == {"read_tumor": 1}
    kept = read_maps(tmp_path / "maps" / "P-1")
    assert kept.patient == "P-7" and "Where is the tumor?" in kept.provenance["objects"]
    for damage in ("{", json.dumps({"slide": "x"}), own.model_dump_json()[:-3]):
        (tmp_path / "reading.json").write_text(damage)
        refused = sage("reading", "maps", "reading.json", cwd=tmp_path)
        assert refused.code == 2 and "Traceback" not in refused.err
