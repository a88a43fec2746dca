"""Articles of four layouts: running text whole and in order, everything else apart from it."""

from __future__ import annotations

import io
import re
from bisect import bisect_left
from functools import cache
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter

from kg.sources import read_file
from kg.sources.pdf_blocks import Line, PageLines, parts
from kg.sources.pdf_layout import assemble
from kg.types import Document
from tests.kg.in_helpers import shared
from tests.kg.pdf_articles import LAYOUTS, PAGES, Article

APART = {"Figure or table caption", "Footnote"}


@cache
def made(name: str) -> Article:
    return LAYOUTS[name](7)


@pytest.fixture(scope="module", params=sorted(LAYOUTS))
def read(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Article, Document]:
    """An article and what is read of it."""
    article = made(request.param)
    path = tmp_path_factory.mktemp("articles") / f"{request.param}.pdf"
    path.write_bytes(article.data)
    result = read_file(path)
    assert result.report.status == "read", result.report
    assert result.report.pages == PAGES
    return article, result.documents[0]


def running(document: Document) -> str:
    """The text of all sections but those that stand apart."""
    return "\n".join(
        document.text[s.start : s.end] for s in document.sections if s.title not in APART
    )


def longest_in_order(numbers: list[int]) -> int:
    """Length of the longest rising subsequence."""
    tails: list[int] = []
    for number in numbers:
        at = bisect_left(tails, number)
        tails[at : at + 1] = [number]
    return len(tails)


def test_running_text_is_whole_and_in_order(read: tuple[Article, Document]) -> None:
    article, document = read
    numbers = [int(n) for n in re.findall(r"BD(\d{4})x", running(document))]
    expected = article.truth["BD"]
    assert len(set(numbers)) >= 0.995 * len(expected)
    assert len(numbers) == len(set(numbers))
    assert longest_in_order(numbers) >= 0.995 * len(numbers)


def test_what_is_not_running_text_stays_apart(read: tuple[Article, Document]) -> None:
    _, document = read
    text = running(document)
    wrong = {
        kind: found
        for kind in ("HD", "WM", "MN", "CP", "TB", "LB", "FN", "RF")
        if (found := re.findall(rf"{kind}\d{{4}}x", text))
    }
    assert {kind: len(found) for kind, found in wrong.items()} == {}
    assert not re.search(r"Downloaded from|ACCEPTED MANUSCRIPT|\bHead1\b", document.text)


def test_captions_and_notes_are_kept_in_sections_of_their_own(
    read: tuple[Article, Document],
) -> None:
    article, document = read
    apart = "\n".join(document.text[s.start : s.end] for s in document.sections if s.title in APART)
    for kind in ("CP", "FN"):
        expected = article.truth.get(kind, [])
        assert set(re.findall(rf"{kind}\d{{4}}x", apart)) == set(expected)
    assert not re.search(r"(?:RF|TB|LB|MN)\d{4}x", document.text)


def test_words_broken_at_a_line_end_are_whole(read: tuple[Article, Document]) -> None:
    _, document = read
    assert not re.search(r"multi-? variable|infil-? tration|treat-? ment", running(document))


def test_a_file_that_breaks_every_word_is_prose_and_no_table() -> None:
    words = ["the", "expression", "of", "this", "gene", "was", "associated", "with", "survival"]
    lines = [
        Line(word, 50 + 24 * k, 70 + 24 * k, 700 - 12 * row, 10.0)
        for row in range(20)
        for k, word in enumerate([*words, f"BD{row:04d}x"])
    ]
    (text,) = parts([PageLines(tuple(lines), 595, 842)]).pages
    assert [line.split()[-1] for line in text.split("\n")] == [f"BD{n:04d}x" for n in range(20)]


@pytest.mark.shared
def test_what_is_lost_of_a_real_article_is_its_furniture() -> None:
    path = shared("literature", "biomedical", "hindawi_ccby_tables.pdf")
    (document,) = read_file(path).documents
    assert "have been found to improve physical status" in document.text
    assert "the discipline of the programme was also a factor" in document.text.lower()
    assert "Rehabilitation Research and Practice 3" not in document.text
    assert "E. Braunwald" not in document.text


@pytest.mark.shared
@pytest.mark.parametrize("name", ["rotated_page_01.pdf", "right_to_left_02.pdf"])
def test_pages_set_sideways_or_from_the_right_are_read_as_they_come(name: str) -> None:
    (document,) = read_file(shared("literature", "edge", name)).documents
    assert len(document.text) > 800


@pytest.mark.parametrize(
    "entries",
    [
        ["1. Smith AB, Doe C. A title. J Pathol 12:1-9, 2001."],
        ["[1] A. Smith and C. Doe, “A title,” Journal, vol. 3, pp. 1–9, 2001."],
        ["Smith A, Doe C (2001) A title. J Pathol 12:1-9."],
        ["Smith, A., Doe, C., 2001. A title that is long", "and goes on. J. Pathol. 12, 1-9."],
    ],
)
@pytest.mark.parametrize("heading", ["References", "LITERATURE CITED", "Bibliography", None])
def test_reference_lists_of_four_styles_go_with_and_without_heading(
    entries: list[str], heading: str | None
) -> None:
    body = [f"Sentence {n} of the text is here and says something." for n in range(30)]
    listed = [line for _ in range(12) for line in entries]
    after = ["Methods", *[f"We measured thing {n} in all the patients." for n in range(15)]]
    lines = [*body, *([heading] if heading else []), *listed, *after]
    text, _ = assemble(["\n".join(lines)])
    assert "Smith" not in text
    assert all(f"Sentence {n} " in text for n in range(30))
    assert all(f"thing {n} " in text for n in range(15))


def test_prose_that_cites_is_no_reference_list() -> None:
    body = [
        "Smith et al. (2001) found that the gene was lost in tumors.",
        "This was confirmed by Doe et al. (2005) in 120 patients,",
        "and denied by Li et al. (2011); see also Rossi (2012).",
    ] * 8
    text, _ = assemble(["\n".join(body)])
    assert text.count("Smith et al.") == 8


def locked(data: bytes) -> bytes:
    writer = PdfWriter()
    for page in PdfReader(io.BytesIO(data)).pages[:1]:
        writer.add_page(page)
    writer.encrypt("secret")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def scanned(_data: bytes) -> bytes:
    from PIL import Image
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out)
    for _ in range(3):
        canvas.drawImage(ImageReader(Image.new("L", (60, 80), 200)), 0, 0, 500, 700)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (locked, "encrypted: a password is required to open it"),
        (scanned, "no text layer (scanned, or drawn as outlines); try the OCR option"),
        (lambda data: data[:400], "malformed PDF"),
        (lambda data: b"%PDF-1.7\n" + b"\x00\xff" * 500, "malformed PDF"),
        (lambda data: data[5:], "not a PDF (no %PDF header)"),
        (lambda data: b"", "empty file"),
    ],
)
def test_a_file_that_cannot_be_read_has_one_clear_reason(
    spoil: object, reason: str, tmp_path: Path
) -> None:
    assert callable(spoil)
    path = tmp_path / "x.pdf"
    path.write_bytes(spoil(made("letter").data))
    report = read_file(path).report
    assert report.status == "failed"
    assert reason in (report.reason or "")
    assert "\n" not in (report.reason or "")
