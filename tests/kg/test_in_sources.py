"""Readers of every format, and what happens to files that are not what they seem."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

from kg.corpus.textnorm import abbreviations, clean, dehyphenate, sentences, viral
from kg.sources import SourceReport, read_file
from kg.types import Document
from tests.kg.in_helpers import note, read_documents, shared

JATS = """<?xml version="1.0"?><article article-type="research-article"><front>
<journal-meta><journal-title-group><journal-title>Journal of Tests</journal-title>
</journal-title-group></journal-meta><article-meta>
<article-id pub-id-type="pmid">123</article-id>
<article-id pub-id-type="doi">10.1000/x.1</article-id>
<title-group><article-title>On <italic>FABP5</italic></article-title></title-group>
<pub-date><year>2019</year></pub-date><abstract><p>FABP5 is high.</p></abstract>
</article-meta></front>
<body><sec><title>Results</title>
<p>FABP5 rose <xref ref-type="bibr">[1]</xref>, CD8<sup>+</sup> fell.</p>
<table-wrap><caption><p>Caption text.</p></caption>
<table><tr><td>secret cell</td></tr></table></table-wrap>
</sec></body><back><ref-list><ref>A reference.</ref></ref-list></back></article>"""

PUBMED = """<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>77</PMID><Article>
<Journal><JournalIssue><PubDate><Year>2015</Year></PubDate></JournalIssue><Title>J</Title></Journal>
<ArticleTitle>A title.</ArticleTitle><Abstract><AbstractText Label="RESULTS">It rose.</AbstractText>
</Abstract><PublicationTypeList><PublicationType>Retracted Publication</PublicationType>
</PublicationTypeList></Article></MedlineCitation><PubmedData><ArticleIdList>
<ArticleId IdType="doi">10.1000/y</ArticleId></ArticleIdList>
<ReferenceList><Reference><ArticleIdList>
<ArticleId IdType="doi">10.1000/other</ArticleId></ArticleIdList></Reference></ReferenceList>
</PubmedData></PubmedArticle></PubmedArticleSet>"""


BIB = r"""@comment{ignored}
@article{muller2020, title = {{FABP5} in {B}l\"{a}dder \& more}, year = 2020,
 abstract = "It rose by 5\% (p {\textless} 0.05) &amp; fell.",
 doi = {https://doi.org/10.1000/B.}, pmid = {99}}
@article{broken, title = {No end"""


def _one(tmp_path: Path, name: str, text: str):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_file(path)


def test_jats_keeps_title_sections_year_and_identifiers_and_drops_the_rest(tmp_path: Path) -> None:
    (document,) = _one(tmp_path, "a.nxml", JATS).documents
    assert (document.title, document.year, document.venue) == ("On FABP5", 2019, "Journal of Tests")
    assert (document.doi, document.pmid) == ("10.1000/x.1", "123")
    assert [s.title for s in document.sections] == ["Abstract", "Results"]
    results = document.sections[1]
    assert document.text[results.start : results.end].startswith("FABP5 rose, CD8+ fell.")
    assert "secret" not in document.text
    assert "reference" not in document.text


def test_pubmed_xml_takes_its_own_identifiers_and_the_retraction(tmp_path: Path) -> None:
    (document,) = _one(tmp_path, "a.xml", PUBMED).documents
    assert (document.pmid, document.doi, document.year) == ("77", "10.1000/y", 2015)
    assert document.retracted
    assert document.sections[0].title == "Results"


def test_bibtex_is_freed_of_markup_and_survives_a_broken_entry(tmp_path: Path) -> None:
    documents = _one(tmp_path, "a.bib", BIB).documents
    assert documents[0].title == "FABP5 in Blädder & more"
    assert documents[0].text == "It rose by 5% (p < 0.05) & fell."
    assert (documents[0].doi, documents[0].pmid) == ("10.1000/B", "99")
    assert [document.path.rpartition("#")[2] for document in documents] == ["muller2020"]


def test_bibtex_keeps_entries_of_one_key_and_resolves_its_strings(tmp_path: Path) -> None:
    first = "@article{a, title = {T}, journal = j, YEAR = {2020}}"
    second = '@article{a, title = {U}, journal = "Cell", YEAR = 2020}'
    documents = _one(tmp_path, "a.bib", f'@string{{j = "Cell"}}\n{first}\n{second}\n').documents
    assert [document.title for document in documents] == ["T", "U"]
    assert {(document.venue, document.year) for document in documents} == {("Cell", 2020)}


def test_front_matter_of_a_note_becomes_fields(tmp_path: Path) -> None:
    path = note(
        tmp_path, "n", ["FABP5 rose."], title='"A: \\"quoted\\" title"', doi="10.1000/n", pmid="7",
        retracted="true", topics="[a, b]", venue="Cell", findings_basis="title_or_intro_only",
    )  # fmt: skip
    (document,) = read_file(path).documents
    assert document.title == 'A: "quoted" title'
    assert document.retracted
    assert document.topics == ("a", "b")
    assert document.basis == "title_or_intro_only"
    assert document.text == "- FABP5 rose."


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("bomb.xml", b'<!DOCTYPE a [<!ENTITY x "y"><!ENTITY z "&x;&x;">]><article>&z;</article>',
         "XML entities"),
        ("evil.xml", b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
         "XML entities"),
        ("cut.xml", b"<article><front>", "malformed XML"),
        ("other.xml", b"<html><p>x</p></html>", "neither JATS nor PubMed"),
        ("nul.txt", b"a\x00" * 500, "binary content"),
        ("empty.md", b"", "empty file"),
        ("blank.md", b"---\ntitle: x\n---\n\n", "no text"),
        ("fake.pdf", b"not a pdf at all", "not a PDF"),
        ("cut.pdf", b"%PDF-1.4\n1 0 obj\n<<", "malformed PDF"),
        ("none.bib", b"nothing here", "no BibTeX entry"),
        ("none.nbib", b"nothing here", "no MEDLINE record"),
        ("none.ris", b"nothing here", "no RIS record"),
    ],
)  # fmt: skip
def test_a_bad_file_is_reported_with_its_reason(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    result = read_file(path)
    assert result.documents == []
    assert result.report.status == "failed"
    assert reason in (result.report.reason or "")


def test_lengths_of_a_record_are_bounded_and_what_was_cut_is_said(tmp_path: Path) -> None:
    path = tmp_path / "hostile.nbib"
    record = "PMID- {n}\nTI  - {title}\nJT  - {journal}\nAB  - CXCL13 promotes TLS.\n\n"
    path.write_text(
        record.format(n=1, title="A" * 3_000_000, journal="B" * 3_000_000)
        + record.format(n=2, title="A plain title", journal="Cancer")
        + "PMID- 3\nTI  - Endless\nAB  - " + "word " * 4_100_000 + "\n"
    )  # fmt: skip
    result = read_file(path)
    assert [(d.pmid, len(d.title)) for d in result.documents] == [("1", 1000), ("2", 13)]
    assert len(result.documents[0].venue or "") == 1000
    reason = result.report.reason or ""
    assert "1 titles or journals truncated" in reason and "1 documents of more than" in reason
    assert result.report.status == "read"


def test_a_reader_that_stumbles_says_so_in_plain_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(path: Path, data: bytes) -> list[Document]:
        raise KeyError("_xref")

    monkeypatch.setattr("kg.sources.plain.read_text", stumble)
    (tmp_path / "a.txt").write_text("text")
    reason = read_file(tmp_path / "a.txt").report.reason
    assert reason == "damaged, or its content does not match its suffix"


def test_xml_nested_ten_thousand_deep_does_not_stop_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "deep.xml"
    path.write_text(
        "<article><body>" + "<sec>" * 10_000 + "x" + "</sec>" * 10_000 + "</body></article>"
    )
    assert read_file(path).report.status == "failed"


def test_a_folder_is_walked_in_order_and_strangers_are_reported(tmp_path: Path) -> None:
    note(tmp_path / "b", "two", ["x y."])
    note(tmp_path / "a", "one", ["x y."])
    (tmp_path / "a" / "data.xlsx").write_bytes(b"x")
    (tmp_path / "README.md").write_text("about")
    (tmp_path / "out.md").symlink_to("/etc/hostname")
    reports: list[SourceReport] = []
    assert [Path(d.path).stem for d in read_documents(tmp_path, None, reports)] == ["one", "two"]
    skipped = {Path(r.path).name: r.reason for r in reports if r.status == "skipped"}
    assert skipped == {
        "data.xlsx": "unsupported file type (.xlsx)",
        "README.md": "description of the folder, not a document",
        "out.md": "link that leaves the folder",
    }


def test_sentences_hold_together_at_abbreviations_and_decimals() -> None:
    text = (
        "Smith et al. found E. coli in Fig. 2 (p = 0.05). miR-21 rose vs. controls. It fell, i.e. "
        "by 3.5 mg.\n- A bullet\n- Another"
    )
    assert [text[s:e] for s, e in sentences(text)] == [
        "Smith et al. found E. coli in Fig. 2 (p = 0.05).",
        "miR-21 rose vs. controls.",
        "It fell, i.e. by 3.5 mg.",
        "A bullet",
        "Another",
    ]


def test_words_broken_at_line_ends_are_joined_and_compounds_kept() -> None:
    assert (
        dehyphenate("expres-\nsion of non-\nmuscle CD8-\nT") == "expression of non-muscle CD8-\nT"
    )
    assert clean("e\u0301 \ufb01 a\u00adb\r\nc") == "é fi ab\nc"


def test_abbreviations_need_their_letters_in_the_long_form() -> None:
    found = abbreviations(
        "tertiary lymphoid structures (TLSs) and overall survival (OS; n = 3), in mice (Figure 2) "
        "and bladder cancer (XYZ) by 3,6-di(2,3-epoxypropoxy)xanthone (EPOX)"
    )
    assert found == {
        "TLS": "tertiary lymphoid structures",
        "OS": "overall survival",
        "EPOX": "3,6-di-2,3-epoxypropoxy-xanthone",
    }


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("The LMP1 gene of EBV and HPV16 E6 oncoprotein", {"LMP1", "E6"}),
        ("EBV-encoded EBNA2 in B cells; DNA of mice; EBV-LMP1, HBV-HCC", {"EBNA2", "LMP1"}),
        ("Expression of CD8A in hepatitis B virus carriers, TP53 of tumors", set()),
        ("Adenovirus-encoded TP53, retrovirus-derived IL10, AAV-IL10, MMTV-ERBB2 mice", set()),
    ],
)
def test_names_that_the_text_gives_to_a_virus(text: str, names: set[str]) -> None:
    assert set(viral(text)) == names


def test_names_of_viruses_are_looked_for_in_time_that_grows_with_the_text() -> None:
    started = process_time()
    viral("Ab-" * 10_000)
    assert process_time() - started < 0.5


@pytest.mark.shared
@pytest.mark.parametrize(
    "folder", ["jats_plos_ccby", "jats_elife", "jats_pmc", "pubmed_efetch_xml"]
)
def test_every_shared_record_is_read(folder: str) -> None:
    reports: list[SourceReport] = []
    documents = list(read_documents(shared("literature", folder), None, reports))
    assert documents
    assert [r for r in reports if r.status == "failed"] == []
    for document in documents:
        assert document.title
        assert document.year
        assert document.doi or document.pmid
        for section in document.sections:
            assert document.text[section.start : section.end].strip()


RIS = """TY  - JOUR\r
AU  - Doe, J\r
T1  - A long title that\r
goes on\r
Y1  - 2021/03//\r
N2  - <p>FABP5 rose &amp; fell.</p>\r
JO  - Journal\r
DO  - https://doi.org/10.1000/r\r
ER  - \r
\r
TY  - CHAP\r
TI  - Another\r
PY  - 2019\r
"""


def test_ris_keeps_the_fields_of_both_dialects_and_a_record_without_its_end(tmp_path: Path) -> None:
    first, second = _one(tmp_path, "a.ris", "\ufeff" + RIS).documents
    assert (first.title, first.text) == ("A long title that goes on", "FABP5 rose & fell.")
    assert (first.doi, first.year, first.venue) == ("10.1000/r", 2021, "Journal")
    assert (second.title, second.text, second.year) == ("Another", "Another", 2019)
