"""The rules extractor: what it reads in sentences, above all what it must never invert."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.corpus.chunks import chunk
from kg.extract.base import Statement
from kg.extract.rules import RulesExtractor
from kg.sources import read_file
from kg.types import Document, Section
from tests.kg.in_helpers import extractor, note, ontology, read, said


def kept(sentence: str) -> list[Statement]:
    """The statements of a sentence that are likely enough to be kept."""
    return [s for s in read(sentence) if s.confidence >= extractor().shown]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("High FABP5 expression is associated with longer median overall survival in bladder "
         "cancer (53.8 vs 29.3 months; p=0.029).",
         ("FABP5", "associated_with", "overall survival", "positive")),
        ("Loss of FABP4 is associated with shorter overall survival in bladder cancer.",
         ("FABP4", "associated_with", "overall survival", "positive")),
        ("ADRM1 knockdown reduces migration of gastric cancer cells.",
         ("ADRM1", "upregulates", "cell migration", "positive")),
        ("CCL2 secretion by M2 macrophages is inhibited by metformin.",
         ("metformin", "inhibits", "CCL2", "negative")),
        ("Metformin is associated with better recurrence and overall survival.",
         ("metformin", "associated_with", "recurrence", "negative")),
        ("TGF-β1 correlates negatively with CD8+ T cells.",
         ("TGFB1", "correlates_negatively_with", "CD8 T cell", "negative")),
        ("FABP5 compensates for FABP4 loss.", ("FABP5", "compensates_for", "FABP4", "positive")),
    ],
)  # fmt: skip
def test_direction_follows_the_sentence(sentence: str, expected: tuple[str, str, str, str]) -> None:
    assert expected in said(sentence)


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("TGFB1 reduced cell migration and increased apoptosis.",
         {("TGFB1", "downregulates", "cell migration"), ("TGFB1", "upregulates", "apoptosis")}),
        ("IL6 induced STAT3, activated AKT1, and inhibited apoptosis.",
         {("IL6", "activates", "STAT3"), ("IL6", "activates", "AKT1"),
         ("IL6", "inhibits", "apoptosis")}),
        ("Depletion of STAT3 decreased cell migration but increased apoptosis.",
         {("STAT3", "upregulates", "cell migration"), ("STAT3", "downregulates", "apoptosis")}),
        ("Treated cells demonstrated greater cell proliferation, stimulated angiogenesis, and "
         "decreased caspase-3 activity.", set()),
        ("FGF2 greatly potentiates vascular endothelial growth factor- (VEGF-) induced "
         "endothelial cell proliferation.", set()),
        ("TGFB1, via SMAD3, activates fibroblasts.", {("TGFB1", "activates", "fibroblast")}),
        ("Cisplatin induced apoptosis and decreased cell migration was accompanied by hypoxia.",
         {("cisplatin", "activates", "apoptosis")}),
        ("Metformin had no effect on AKT1 and increased apoptosis.",
         {("metformin", "affects", "AKT1")}),
    ],
)  # fmt: skip
def test_each_verb_of_a_list_has_its_own_object_and_the_first_one_s_subject(
    sentence: str, told: set[tuple[str, str, str]]
) -> None:
    assert {(s.head, s.relation, s.tail) for s in kept(sentence)} == told


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("Metformin did not suppress MYC or induce apoptosis.",
         {("metformin", "MYC"): True, ("metformin", "apoptosis"): True}),
        ("Neither metformin nor cisplatin suppressed MYC and increased apoptosis.",
         {("metformin", "MYC"): True, ("metformin", "apoptosis"): True}),
        ("Neither PD-L1 nor CD4 predicted overall survival.",
         {("CD274", "overall survival"): True}),
        ("CCR7 expression failed to predict overall survival.",
         {("CCR7", "overall survival"): True}),
        ("No systemic inflammation marker is associated with recurrence-free survival after BCG.",
         {("systemic inflammation marker", "recurrence-free survival"): True}),
        ("BCG treatment predicts disease-free survival but not progression-free survival.",
         {("BCG", "disease-free survival"): False, ("BCG", "progression-free survival"): True}),
        ("PSMA6 is not overexpressed in colorectal cancer and PSMA5 is not overexpressed in "
         "kidney cancer.",
         {("PSMA6", "colorectal cancer"): True, ("PSMA5", "kidney cancer"): True}),
        ("FABP5 and CXCL13, but not FABP4, predict survival.",
         {("FABP5", "overall survival"): False, ("CXCL13", "overall survival"): False,
          ("FABP4", "overall survival"): True}),
        ("There is no evidence that FABP5 promotes invasion.", {("FABP5", "invasion"): True}),
        ("We did not find that FABP5 promotes invasion.", {("FABP5", "invasion"): True}),
        ("These data refute the notion that FABP5 promotes invasion.",
         {("FABP5", "invasion"): True}),
    ],
)  # fmt: skip
def test_what_is_denied_is_kept_as_negated_and_nothing_else(
    sentence: str, told: dict[tuple[str, str], bool]
) -> None:
    found = read(sentence)
    assert {(s.head, s.tail): s.negated for s in found} == told
    assert all(s.polarity.value == "neutral" for s in found)


def test_a_viral_protein_is_no_human_gene_of_its_name() -> None:
    text = "MYC of Epstein-Barr virus was cloned. MYC promotes cell proliferation."
    document = Document(id="d" * 64, path="x", title="t", text=text)
    [piece] = chunk(document)
    assert not extractor().read_chunk(piece).statements
    human = next(
        chunk(document.model_copy(update={"text": text.replace("Epstein-Barr virus", "mice")}))
    )
    assert extractor().read_chunk(human).statements


@pytest.mark.parametrize(
    "sentence",
    [
        "We investigated whether FABP5 promotes proliferation of bladder cancer cells.",
        "The aim of this study was to determine if CXCL13 predicts overall survival.",
        "It remains unclear whether TLS predict overall survival.",
    ],
)
def test_questions_and_aims_state_nothing(sentence: str) -> None:
    assert read(sentence) == []


def test_speculation_is_flagged_and_believed_less() -> None:
    sure = read("CXCL13-producing Tfh cells trigger TLS formation.")
    unsure = read("CXCL13-producing Tfh cells may trigger TLS formation.")
    assert [s.speculative for s in sure + unsure] == [False, True]
    assert unsure[0].confidence < sure[0].confidence


def test_abbreviations_of_the_document_outrank_the_lexicon() -> None:
    text = (
        "Tumor-specific stromal index (TSI) was measured. Patients had total lesion sum (TLS) "
        "recorded. TLS is associated with overall survival."
    )
    document = Document(id="0" * 64, path="x", title="t", text=text)
    names = {m.name for piece in chunk(document) for m in extractor().read_chunk(piece).mentions}
    assert "tertiary lymphoid structure" not in names


def test_weak_notes_are_believed_less(tmp_path) -> None:
    finding = ["High USP15 is associated with poorer prognosis in bladder cancer."]
    confidences = []
    for name, basis in (("strong", "abstract_or_body_excerpt"), ("weak", "title_or_intro_only")):
        path = note(tmp_path, name, finding, findings_basis=basis)
        document = read_file(path).documents[0]
        piece = next(iter(chunk(document)))
        confidences.append(max(s.confidence for s in extractor().read_chunk(piece).statements))
    assert confidences[0] > confidences[1]


@pytest.mark.parametrize(
    ("sentence", "expected", "never"),
    [
        # What acts against or for a thing is an entity of its own.
        ("MET inhibitors reduce invasion.", "MET inhibitor", "MET"),
        ("Antagonists of CXCR4 suppress metastasis.", "CXCR4 antagonist", "CXCR4"),
        ("EGFR agonists promote cell proliferation.", "EGFR agonist", "EGFR"),
        ("Blockade of CXCR4 suppresses metastasis.", "CXCR4 inhibitor", "CXCR4"),
        ("CXCR4 neutralizing antibodies suppress metastasis.", "CXCR4 inhibitor", "CXCR4"),
        ("Anti-EGFR antibodies inhibit cell proliferation.", "EGFR inhibitor", "EGFR"),
    ],
)
def test_an_agent_is_never_the_thing_it_acts_on(sentence: str, expected: str, never: str) -> None:
    heads = {s.head for s in kept(sentence)}
    assert heads == {expected}
    assert never not in heads


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Loss of PTEN promotes invasion.", ("PTEN", "inhibits", "invasion", "negative")),
        ("FABP5 induced degradation of AKT1.", ("FABP5", "inhibits", "AKT1", "negative")),
        ("Inhibition of FGFR3 by erdafitinib was seen.",
         ("erdafitinib", "inhibits", "FGFR3", "negative")),
        ("Erdafitinib-induced apoptosis was seen.",
         ("erdafitinib", "activates", "apoptosis", "positive")),
        ("AKT1 phosphorylation by MTOR was seen.", ("MTOR", "phosphorylates", "AKT1", "positive")),
        ("Invasion is promoted by FABP5.", ("FABP5", "promotes", "invasion", "positive")),
        ("TLS are associated with lack of recurrence.",
         ("tertiary lymphoid structure", "associated_with", "recurrence", "negative")),
    ],
)  # fmt: skip
def test_signs_are_composed_and_phrases_say_relations(
    sentence: str, expected: tuple[str, str, str, str]
) -> None:
    found = {(s.head, s.relation, s.tail, s.polarity.value) for s in kept(sentence)}
    relation = {expected[1]} | ({"upregulates"} if expected[1] == "promotes" else set())
    relation |= {"downregulates"} if expected[1] == "inhibits" else set()
    assert any((expected[0], name, *expected[2:]) in found for name in relation), found


@pytest.mark.parametrize(
    "sentence",
    [
        "TGF-β attenuates response to PD-L1 blockade in bladder cancer.",
        "Proximal mediators of FGFR3 are associated with resistance to erdafitinib.",
        "FABP5-binding protein promotes invasion.",
        "CAF-conditioned medium promotes invasion.",
        "An attempt to inhibit FABP5 with metformin failed.",
        "If FABP5 promotes invasion, treatment would help.",
        "FABP5 is not sufficient to promote invasion.",
        "The combination of metformin and erdafitinib inhibits invasion.",
        "Metformin was given and a new compound inhibits invasion.",
        "Drugs that bind FABP5 inhibit the response to chemotherapy.",
        "Metformin enhanced or reduced FABP5 and FABP4, respectively.",
        "Smith J, Jones AB, Lee C. FABP5 promotes invasion. J Clin Oncol 2019;37:1234-45.",
        "FABP5 promotes invasion doi:10.1000/xyz.",
    ],
)
def test_what_a_sentence_does_not_say_is_not_kept(sentence: str) -> None:
    assert kept(sentence) == []


def test_reference_sections_state_nothing() -> None:
    text = "FABP5 promotes invasion of bladder cancer cells."
    whole = Document(id="0" * 64, path="x", title="t", text=text)
    listed = whole.model_copy(
        update={"sections": (Section(title="References", start=0, end=len(text)),)}
    )
    counts = [len(extractor().read_chunk(next(iter(chunk(d)))).statements) for d in (whole, listed)]
    assert counts[0] > 0
    assert counts[1] == 0


def _statements(text: str) -> set[tuple[str, str, str]]:
    whole = Document(id="0" * 64, path="x", title="t", text=text)
    return {
        (s.head, s.relation, s.tail)
        for part in chunk(whole)
        for s in extractor().read_chunk(part).statements
    }


LETTER = "We disagree. CXCL13 promotes the formation of tertiary lymphoid structures. "


@pytest.mark.parametrize(
    "listed",
    [
        "References 1. Smith AB, Jones C. FGFR3 activates proliferation in bladder cancer. J Urol "
        "2019;12:33-40. 2. Doe J. VEGF inhibits apoptosis of cells. Cancer Res 2001;61:100-6.",
        "Smith, A. B., & Jones, C. (2019). FGFR3 activates proliferation in bladder cancer. "
        "Journal of Urology, 12, 33-40. Doe, J. (2001). VEGF inhibits apoptosis. Cell, 61, 1-9.",
        "1. Smith et al. FGFR3 activates proliferation in bladder cancer. J Urol 2019. 2. Doe et "
        "al. VEGF inhibits apoptosis in bladder cancer cells. Cancer Res 2001.",
        "Smith, A. B., Doe, C., et al. (2018). FGFR3 activates proliferation in bladder cancer. "
        "Nature 554, 544–548. doi: 10.5555/made-up.",
    ],
)
def test_titles_of_a_short_reference_list_state_nothing(listed: str) -> None:
    said = _statements(LETTER + listed)
    assert said == _statements(LETTER) != set()
    assert _statements("FGFR3 activates proliferation. VEGF inhibits apoptosis of cells.")


def test_a_sentence_before_a_journal_s_own_line_is_no_title() -> None:
    sentence = "FGFR3 activates proliferation in bladder cancer."
    assert _statements(f"{sentence} Cancer 2017;123:390-400.") == _statements(sentence) != set()
    names = "Smith et al. showed that FGFR3 activates proliferation in bladder cancer."
    assert _statements(f"{names} It is known.") == _statements(names) != set()


@pytest.mark.parametrize(
    "search",
    [
        "The following search string was used: CXCL13 AND associated with AND bladder cancer.",
        "We searched PubMed for ('FGFR3' AND 'promotes bladder cancer').",
        'The keywords "FGFR3 mutation" and "predicts recurrence of bladder cancer" were used.',
    ],
)
def test_what_was_searched_for_is_not_said(search: str) -> None:
    assert not _statements(search)


def test_what_a_search_found_is_said() -> None:
    found = "TLS are associated with longer overall survival in bladder cancer."
    wanted = _statements(found)
    assert wanted
    assert (
        _statements(f"A search of PubMed for ('TLS' AND 'bladder') showed that {found}") == wanted
    )
    assert _statements("A PubMed search showed that CXCL13 promotes lymphoid neogenesis.")
    ratio = "Searching further, smoking (OR 2.1) promotes bladder cancer OR = 3."
    assert _statements(ratio) == _statements(ratio.replace("Searching further, s", "S"))


def test_broad_reading_adds_associations_and_keeps_what_was_read() -> None:
    broad = RulesExtractor(ontology(), broad=True)
    assert broad.key != extractor().key
    text = (
        "FABP5 gene and bladder cancer. FABP5 variants were identified in bladder cancer. FABP5 "
        "inhibits AKT1."
    )
    piece = next(iter(chunk(Document(id="0" * 64, path="x", title="t", text=text))))
    narrow = {(s.head, s.relation, s.tail) for s in extractor().read_chunk(piece).statements}
    wide = {(s.head, s.relation, s.tail) for s in broad.read_chunk(piece).statements}
    assert narrow < wide


def test_a_model_does_not_cause_an_outcome() -> None:
    assert read("Deep learning on H&E slides improves and promotes overall survival.") == []


_WORDS = st.sampled_from([
    "FABP5", "CXCL13", "TLS", "is", "are", "not", "associated", "with", "promotes", ",", "and",
    "in", "bladder", "cancer", "survival", "(", ")", "which", "high", "low", "by", ".",
    "expression", "no", "overall", "either", "nor", "95%", "CI",
])  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(_WORDS, max_size=30))
def test_any_sequence_of_words_gives_grounded_statements(words: list[str]) -> None:
    sentence = " ".join(words)
    names = {m.name for m in extractor().mentions.find(sentence)}
    for statement in read(sentence):
        assert {statement.head, statement.tail} <= names
        assert 0.0 <= statement.confidence <= 1.0
        assert statement.relation_text in sentence
        assert statement.head != statement.tail
