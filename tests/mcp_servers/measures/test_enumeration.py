"""Measurements enumerated by rule, and docs/measurements.md, which lists them."""

from __future__ import annotations

import re
from pathlib import Path

from mcp_servers.measures.compute import compute
from mcp_servers.measures.enumeration import enumerate_measurements, suite_of
from mcp_servers.measures.formula import KINDS, parse
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


PAGE = (Path(__file__).parents[3] / "docs" / "measurements.md").read_text(encoding="utf-8")


def test_formulas_and_sentences_of_the_page() -> None:
    rows = re.findall(r"^\| `(\w+\(.+\))` \| (.+\.) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for formula, sentence in rows:
        assert (parse(formula).formula, parse(formula).sentence) == (formula, sentence)


def test_every_measure_is_on_the_page() -> None:
    listed = PAGE[PAGE.index("| measure |") : PAGE.index("Rules:")]
    others = ("log2", "quantity", "code")  # a program has a section of its own
    assert all(f"`{kind}`" in listed or kind in others for kind in KINDS)
    assert "`+ - * /`, `log2`, `quantity`" in listed


def test_counts_of_the_page() -> None:
    held = (
        ("neoplastic", "lymphoid", "stromal", "other"),
        ("tls", "germinal_center"),
        ("tumor", "stroma"),
        {"area_um2": "µm²"},
    )
    assert f"{len(enumerate_measurements(*held, 'full')):,} measurements" in PAGE
    assert f"holds {len(enumerate_measurements(*held, 'standard'))}." in PAGE
