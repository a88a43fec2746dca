"""The notes of the demonstration corpus: identifiers, years, and what a retraction notice is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kg.in_helpers import ROOT, shared

NOTES = sorted((ROOT / "data" / "corpus").glob("*.md"))


def front(path: Path) -> dict[str, str]:
    head = path.read_text(encoding="utf-8").split("---\n")[1]
    pairs = (line.partition(": ") for line in head.splitlines())
    return {key: value.strip('"') for key, _, value in pairs}


def test_a_note_names_its_paper_by_year_and_identifier() -> None:
    assert len(NOTES) == 156
    for path in NOTES:
        told = front(path)
        assert "None" not in told.values(), path.name
        year = told.get("year", "")
        assert path.name.startswith(f"{year}-" if year else "undated-"), path.name
        assert not year or re.fullmatch(r"(19|20)\d\d", year)
        assert re.fullmatch(r"PMC\d+", told.get("pmcid", "PMC1")), path.name
    assert sum("pmcid" in front(path) for path in NOTES) >= 39
    assert sum("doi" in front(path) or "pmid" in front(path) for path in NOTES) >= 140


@pytest.mark.parametrize("kind", ["doi", "pmid", "pmcid"])
def test_no_identifier_of_a_paper_is_that_of_its_retraction_notice(kind: str) -> None:
    seen: dict[str, str] = {}
    for path in NOTES:
        told = front(path)
        if kind in told:
            assert told[kind] != told.get(f"retraction_notice_{kind}"), path.name
            assert told[kind] not in seen, (path.name, seen.get(told[kind]))
            seen[told[kind]] = path.name


@pytest.mark.shared
def test_every_identifier_is_one_that_was_seen() -> None:
    lines = shared("literature", "identifiers.tsv").read_text(encoding="utf-8").splitlines()
    known = {line.split("\t")[1].lower() for line in lines}
    for path in NOTES:
        told = front(path)
        for kind in ("doi", "pmid"):
            assert kind not in told or told[kind].lower() in known, path.name
