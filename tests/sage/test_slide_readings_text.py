"""What a reading saw, in words that a person reads: whole words, figures written out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agents.slide_reader.computed import worded
from agents.slide_reader.types import Finding
from sage.machine.slide_readings import _regions


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
