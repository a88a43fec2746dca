"""PDF text: tiers by measured quality, layout, and files that cannot be read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kg.sources import ReadOptions, read_file
from kg.sources.pdf_layout import assemble
from kg.sources.pdf_quality import GOOD, measure
from tests.kg.in_helpers import pdf_bytes, shared

PROSE = (
    "The expression of FABP5 was higher in patients with bladder cancer than in those with "
    "normal tissue and it was associated with survival in this cohort of patients"
)


def test_quality_sees_interleaved_columns_glued_words_and_broken_encoding() -> None:
    good = measure(PROSE).score
    interleaved = PROSE.replace("expression", "expres- sion").replace("bladder", "blad- der")
    assert good >= GOOD
    assert measure(interleaved).score < GOOD
    assert measure(PROSE.replace(" ", "")[:400] + " end of it").score < GOOD
    assert measure(PROSE.replace("e", "\ufffd")).score < GOOD
    assert measure("12 3").score == 0.0


def test_running_lines_page_numbers_and_references_go() -> None:
    pages = [
        f"Journal of Tests 2020\nIntroduction\nThe gene was stud-\nied in page {n} and it was\n"
        f"found to be important.\n{n}"
        for n in range(1, 5)
    ]
    pages.append(
        "Journal of Tests 2020\nReferences\n1. Smith J. A paper. 2001.\n2. Doe J. 2002.\n5"
    )
    text, sections = assemble(pages)
    assert "Journal of Tests" not in text
    assert "Smith" not in text
    assert "was studied in page 1 and it was found to be important." in text
    assert {s.title for s in sections} == {"Introduction"}


def test_a_sentence_runs_on_across_a_page_break() -> None:
    filler = [f"Line {n} of the body is here." for n in range(6)]
    first = ["Header", *filler, "The first half of a long sentence that goes", "7"]
    second = ["Header", "on to the next page. End.", *filler, "8"]
    pages = ["\n".join(lines) for lines in (first, second, ["Header", *filler, "9"])]
    assert "sentence that goes on to the next page." in assemble(pages)[0]


def test_a_made_pdf_gives_title_year_doi_and_text(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    page = [
        "Published 12 May 2018, doi:10.1000/abc.5",
        "Abstract",
        *[PROSE[i : i + 80] for i in (0, 80)],
    ]
    path.write_bytes(pdf_bytes([page], title="A title that is long enough"))
    result = read_file(path)
    (document,) = result.documents
    assert document.title == "A title that is long enough"
    assert (document.year, document.doi, document.pages) == (2018, "10.1000/abc.5", 1)
    assert result.report.tier == "pypdfium2"
    assert "FABP5 was higher" in document.text


def test_five_hundred_pages_are_read_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "long.pdf"
    path.write_bytes(pdf_bytes([[f"Page {n} says: {PROSE[:80]}", PROSE[80:]] for n in range(500)]))
    start = time.process_time()
    result = read_file(path)
    assert result.report.pages == 500
    assert time.process_time() - start < 8
    limited = read_file(path, ReadOptions(max_pages=100))
    assert limited.report.reason == "500 pages, more than the limit of 100"


@pytest.mark.shared
def test_ligatures_are_resolved() -> None:
    (document,) = read_file(shared("literature", "edge", "ligatures_01.pdf")).documents
    assert not any(char in document.text for char in "ﬀﬁﬂﬃﬄ")
    assert "configur" in document.text or "defin" in document.text
