"""docs/measurements.md: its formulas can be read, its sentences are theirs, its counts hold."""

from __future__ import annotations

import re
from pathlib import Path

from mcp_servers.measures.enumeration import enumerate_measurements
from mcp_servers.measures.formula import KINDS, parse

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
