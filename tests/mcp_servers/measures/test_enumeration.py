"""Measurements enumerated by rule, and docs/measurements.md, which lists them."""

from __future__ import annotations

from pathlib import Path

from mcp_servers.measures.compute import compute
from mcp_servers.measures.enumeration import enumerate_measurements, suite_of
from mcp_servers.measures.formula import parse
from mcp_servers.measures.maps import held_in, write_maps
from mcp_servers.measures.prepared import Prepared
from tests.mcp_servers.measures.test_patterns import a_slide

TYPES = ("neoplastic", "lymphoid", "stromal", "other")


def test_thousands_with_names_and_sentences_of_their_own() -> None:
    found = enumerate_measurements(
        TYPES, ("tls", "germinal_center"), ("tumor", "stroma"), {"area_um2": "µm²"}
    )
    assert len(found) > 2000
    for key in ("name", "formula", "sentence"):
        assert len({getattr(measurement, key) for measurement in found}) == len(found), key
    assert all(parse(measurement.formula) == measurement for measurement in found)
    assert found == enumerate_measurements(
        TYPES, ("tls", "germinal_center"), ("tumor", "stroma"), {"area_um2": "µm²"}
    )


def test_a_standard_suite_is_part_of_the_full_one() -> None:
    standard, full = (
        {m.name for m in enumerate_measurements(TYPES, ("tls",), ("tumor",), {"od": "OD"}, suite)}
        for suite in ("standard", "full")
    )
    assert standard < full and 100 < len(standard) < 400


def test_each_has_a_value_or_a_reason_on_a_slide(tmp_path: Path) -> None:
    slide = Prepared(a_slide(1, cells=500))
    suite = suite_of([held_in(write_maps(slide.maps, tmp_path))], "full")
    found = [compute(measurement, slide) for measurement in suite]
    known = [value for value in found if value.value is not None]
    assert len(known) > 0.35 * len(found)
    assert all(value.why_not for value in found if value.value is None)
    assert not any(value.why_not for value in known)
