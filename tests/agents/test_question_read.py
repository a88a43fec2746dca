"""Questions read by rules: the gold that ships, metamorphic changes, and what must not happen."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.question.agent import check_reading
from agents.question.carried import filters_of
from agents.question.correct import apply_corrections, check_edited
from agents.question.ground import ground
from agents.question.names import is_english
from agents.question.read import read_by_rules
from agents.question.types import (
    Asked,
    GraphName,
    Intent,
    PartRole,
    Question,
    QuestionInput,
    Reading,
    find_lost_sides,
    lacks_outcome,
)
from agents.question.vocabulary import Vocabulary
from benchmarks.adapters.questions import Answer, GoldQuestion, compare, list_carriers, load_gold
from kg.types import EntityType
from sage.core.errors import InputError
from sage.run.questions import describe_lost, question_input, refuse
from tests.kg.in_helpers import ontology
from validation import cohort as cohorts
from validation.simulate import write_world

ROOT = Path(__file__).resolve().parents[2]
ONTOLOGY = ontology()
GRAPH = (
    GraphName(name="bladder cancer", kind=EntityType.DISEASE, degree=30),
    GraphName(name="FGFR3", kind=EntityType.GENE, degree=5),
    GraphName(name="macrophage", kind=EntityType.CELL_TYPE, degree=4),
)
COHORTS = ("demo", "gbsg2", "klinik", "centre")
"""Cohorts of the gold whose data ship; the last two have German and French headers."""
OURS = [item for item in load_gold() if item.cohort in COHORTS]
GOLD = [item for item in OURS if item.language == "en"]
Known = dict[str, tuple[QuestionInput, Vocabulary]]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Known:
    place = tmp_path_factory.mktemp("cohorts") / "world"
    write_world(place, seed=7, patients=200)
    out = {}
    folder = ROOT / "data" / "questions" / "cohorts"
    loaded = (cohorts.load(place), cohorts.load("gbsg2"),
              *(cohorts.load(folder / f"{name}.toml") for name in COHORTS[2:]))  # fmt: skip
    for name, cohort in zip(COHORTS, loaded, strict=True):
        words = question_input("", cohort.dictionary(), None)
        words = words.model_copy(update={"graph": GRAPH})
        out[name] = (words, Vocabulary(words, ONTOLOGY))
    return out


def ask(known: Known, prompt: str, cohort: str = "demo") -> Question:
    words, vocabulary = known[cohort]
    words = words.model_copy(update={"prompt": prompt})
    return ground(words, read_by_rules(prompt, vocabulary), vocabulary)


def answer(known: Known, item: GoldQuestion) -> Answer:
    question = ask(known, item.prompt, item.cohort)
    refusal = " ".join((*question.refusals, *describe_lost(question)))
    asked = [text for text in question.setting.mismatches if "and the cohort" in text]
    return Answer(question, refusal or (f"diseases: {' '.join(asked)}" if asked else ""))


def test_no_part_of_the_gold_is_lost_without_a_word(known: Known) -> None:
    scores = [compare(item, answer(known, item)) for item in GOLD]
    seen = [score for score in scores if not score.held_out]
    assert len(GOLD) >= 75
    assert sum(score.silent for score in seen) == 0
    for listed in (scores, seen):
        assert sum(score.parsed for score in listed) >= 0.95 * sum(s.parts for s in listed)
        assert sum(score.answered for score in listed) >= 0.95 * len(listed)


@pytest.mark.parametrize("word", ["intraglandular", "XQ7", "non-frobnic"])
def test_a_word_that_nothing_explains_is_never_silent(known: Known, word: str) -> None:
    """Wherever it is put, it is a part that stops the question, or a note says how it is read."""
    for item in [item for item in GOLD if item.outcome == "answer"][::9]:
        words = item.prompt.split()
        for at in range(1, len(words), 2):
            prompt = " ".join([*words[:at], word, *words[at:]])
            question = ask(known, prompt, item.cohort)
            shown = [
                *(part.words for part in question.unknown),
                *question.notes,
                *question.refusals,
            ]
            assert any(word in text for text in shown), prompt


@pytest.mark.parametrize(
    ("cohort", "prompt", "role", "kept"),
    [
        ("gbsg2", "Is age related to survival in node-positive patients?",
         "population", {"clinical:positive_nodes gt 0"}),
        ("gbsg2", "Is tumor size related to survival in patients aged 50 or older?",
         "population", {"clinical:age ge 50"}),
        ("gbsg2", "Is tumor size related to recurrence, age-adjusted?",
         "covariate", {"clinical:age"}),
        ("gbsg2", "Is tumor size, taking the grade into account, related to recurrence?",
         "covariate", {"clinical:tumor_grade"}),
        ("gbsg2", "Compare tumor size with the number of nodes as predictors of recurrence",
         "exposure", {"clinical:tumor_size", "clinical:positive_nodes"}),
        ("gbsg2", "Is tumor size related to recurrence in premenopausal but not in postmenopausal"
         " patients?",
         "modifier", {"clinical:menopausal_status", "clinical:menopausal_status=Pre"}),
        ("gbsg2", "Excluding patients with node-positive disease, is age related to recurrence?",
         "population", {"clinical:positive_nodes le 0"}),
    ],
)  # fmt: skip
def test_kinds_of_words_that_a_second_author_used(
    known: Known, cohort: str, prompt: str, role: str, kept: set[str]
) -> None:
    question = ask(known, prompt, cohort)
    listed = [list_carriers(part) for part in question.list_parts(PartRole(role))]
    assert {name for carriers in listed for name in carriers} == kept


def test_better_means_more_of_a_good_event_and_nothing_for_an_unknown_one(known: Known) -> None:
    words, _ = known["demo"]
    for label, direction in (
        ("Objective response", "higher_risk"),
        ("Overall survival", "lower_risk"),
        ("Frobnic state", None),
    ):
        kind = "survival" if "survival" in label else "binary"
        endpoint = words.cohort.endpoints[0].model_copy(
            update={"key": "E", "label": label, "kind": kind}
        )
        cohort = words.cohort.model_copy(update={"endpoints": (endpoint,)})
        vocabulary = Vocabulary(words.model_copy(update={"cohort": cohort}), ONTOLOGY)
        prompt = f"Do patients with high FABP5 have a better {label}?"
        found = read_by_rules(prompt, vocabulary)
        assert (found.direction and found.direction.value) == direction, label


@pytest.mark.parametrize(
    "change", [str.strip, lambda text: f"  {text} ", lambda text: f"Please: {text}"]
)
def test_a_question_asked_otherwise_has_the_same_parts(known: Known, change) -> None:
    for item in GOLD[:12]:
        before, after = (
            ask(known, text, item.cohort) for text in (item.prompt, change(item.prompt))
        )
        assert [(part.role, part.name, part.variables) for part in before.parts] == [
            (part.role, part.name, part.variables) for part in after.parts
        ]


def test_an_unknown_symbol_is_never_corrected_into_a_known_one(known: Known) -> None:
    for symbol in ("FGFR33", "FABP55", "COL1A9", "TP63"):
        question = ask(known, f"Does {symbol} relate to overall survival?")
        (part,) = question.list_parts(PartRole.EXPOSURE)
        assert not part.testable and part.words == symbol
        assert symbol.lower() in " ".join(question.refusals).lower()


@pytest.mark.parametrize(
    ("prompt", "english"),
    [
        ("Does FGFR3 relate to survival?", True),
        ("FGFR3 è associato alla sopravvivenza nel tumore della vescica?", False),
        ("膀胱癌", False),
    ],
)
def test_other_languages_are_refused_by_rules(known: Known, prompt: str, english: bool) -> None:
    assert is_english(prompt) is english
    question = ask(known, prompt)
    assert any("English" in refusal for refusal in question.refusals) is not english


@pytest.mark.parametrize("named", ["atezolizumab", "PD-1/PD-L1 blockade"])
def test_a_treatment_that_all_received_is_not_said_to_be_unrecorded(
    known: Known, named: str
) -> None:
    words, _ = known["demo"]
    title = "IMvigor210: metastatic urothelial carcinoma under atezolizumab"
    words = words.model_copy(update={"cohort": words.cohort.model_copy(update={"title": title})})
    vocabulary = Vocabulary(words, ONTOLOGY)
    prompt = f"Does FGFR3 expression relate to overall survival under {named}?"
    words = words.model_copy(update={"prompt": prompt})
    question = ground(words, read_by_rules(prompt, vocabulary), vocabulary)
    (treatment,) = [part for part in question.parts if part.role is PartRole.TREATMENT]
    assert treatment.setting and not treatment.supply
    assert any("atezolizumab" in note for note in question.notes)


def test_a_question_is_corrected_by_role_and_by_leaving_out(known: Known) -> None:
    words, vocabulary = known["demo"]
    prompt = "Which biomarkers predict response to cisplatin?"
    reading = read_by_rules(prompt, vocabulary)
    words = words.model_copy(update={"prompt": prompt})
    question = apply_corrections(
        words,
        reading,
        vocabulary,
        {PartRole.ENDPOINT: ("pN+",), PartRole.EXPOSURE: ("FGFR3",)},
        ("cisplatin",),
    )
    assert not question.refusals
    assert question.endpoint == "nodes"
    assert [part.words for part in question.parts if part.left_out] == ["cisplatin"]
    with pytest.raises(InputError, match="carboplatin"):
        apply_corrections(words, reading, vocabulary, {}, ("carboplatin",))


def test_a_qualifier_is_dropped_by_its_words_and_others_stay(known: Known) -> None:
    words, vocabulary = known["gbsg2"]
    prompt = "Is tumor size of the left side related to recurrence-free survival in Denmark?"
    words = words.model_copy(update={"prompt": prompt})
    reading = read_by_rules(prompt, vocabulary)
    lost = [part.words for part in ground(words, reading, vocabulary).unknown]
    assert lost == ["left side", "Denmark"]
    question = apply_corrections(
        words, reading, vocabulary, {PartRole.EXPOSURE: ("age",)}, ("left side",)
    )
    assert [part.words for part in question.unknown if not part.left_out] == ["Denmark"]
    assert [part.words for part in question.parts if part.left_out] == ["left side"]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    words, vocabulary = small()
    words = QuestionInput(prompt=text, cohort=words.cohort, graph=GRAPH)
    question = ground(words, read_by_rules(text, vocabulary), vocabulary)
    assert question.parts or question.refusals
    assert Question.model_validate_json(question.model_dump_json()) == question


@lru_cache(maxsize=1)
def small() -> tuple[QuestionInput, Vocabulary]:
    """A cohort without expression, and its words."""
    given_ = question_input("", cohorts.load("gbsg2").dictionary(), None)
    return given_, Vocabulary(given_, ONTOLOGY)


@pytest.mark.parametrize(
    ("prompt", "exposures", "endpoint", "said"),
    [
        ("Does stage modify FABP5's effect on survival?", {"FABP5"}, "OS", ""),
        ("Do patients with high FABP5/CXCL13 have shorter survival?",
         {"FABP5", "CXCL13"}, "OS", ""),
        ("Does the ratio of CD8A to CXCL13 relate to survival?",
         {"CD8A", "CXCL13"}, "OS", '"ratio"'),
        ("Does CXCL13 relate to 5-year survival?", {"CXCL13"}, "OS", '"5-year"'),
        ("Does TLS density within 100 um of vessels relate to survival?",
         {"TLS density on H&E slides"}, "OS", '"within 100 um'),
        ("Does CXCL13 relate to survival in patients above 60 years?", {"CXCL13"}, "OS", ""),
        ("Does a CXCL13 signature relate to overall survival?", set(), "OS", "signature"),
    ],
)  # fmt: skip
def test_what_makes_another_quantity_is_said(
    known: Known, prompt: str, exposures: set[str], endpoint: str, said: str
) -> None:
    question = ask(known, prompt)
    asked = question.list_parts(PartRole.EXPOSURE) + question.list_parts(PartRole.POPULATION)
    assert exposures <= {part.name for part in asked}
    assert question.endpoint == endpoint
    aside = [part.quoted for part in question.unknown if part.supply and not part.name]
    assert said in " ".join(aside) if said else not aside


@pytest.mark.parametrize(
    "changed",
    [
        {"prompt": "Does FABP5 relate to age?"},
        {"filters": [{"variable": "clinical:age", "op": "lt", "value": "x"}]},
        {"filters": [{"variable": "clinical:age", "op": "in", "value": None}]},
        {"filters": [{"variable": "clinical:age", "op": "eq", "value": [1.0]}]},
        {"role": "endpoint"},
        {"variables": ["expression:NOPE"]},
    ],
)
def test_an_edited_contract_of_nonsense_is_refused(
    known: Known, changed: dict[str, object]
) -> None:
    question = ask(known, "Does CXCL13 relate to overall survival?")
    given_ = known["demo"][0].model_copy(update={"prompt": question.prompt})
    assert check_edited(question, given_, question) == question
    output = question.model_dump(mode="json")
    (output if "prompt" in changed else output["parts"][0]).update(changed)
    with pytest.raises(InputError):
        check_edited(Question.model_validate(output), given_, question)


def test_what_the_asker_points_elsewhere_is_said(known: Known) -> None:
    question = ask(known, "Does FABP5 relate to overall survival?")
    words = known["demo"][0].model_copy(update={"prompt": question.prompt})
    marker, endpoint = question.parts
    other = marker.model_copy(update={"variables": ("expression:COL1A1",)})
    found = check_edited(question.model_copy(update={"parts": (other, endpoint)}), words, question)
    assert found.parts[0].stands_in == "the asker's own choice"
    assert any('"FABP5"' in note for note in found.notes)
    found = check_edited(question.model_copy(update={"parts": (marker,)}), words, question)
    assert any("endpoint" in note for note in found.notes)


READ: list[tuple[str, str, dict[str, Any]]] = [
    ("demo", "Do patients with many B cells live longer?",
     {"level": "high", "endpoint": "OS", "direction": "lower_risk"}),
    ("demo", "Is FABP5 protective or harmful in bladder cancer?",
     {"level": None, "endpoint": "", "direction": None}),
    ("gbsg2", "Do patients with low progesterone receptor benefit more from tamoxifen?",
     {"direction": "lower_risk"}),
    ("demo", "Do stage II versus stage IV tumors differ in survival?",
     {"exposure": ["clinical:stage"], "kept": {("clinical:stage", "in")}}),
    ("demo", "Is FABP5 linked to survival, but not in low-grade tumors or patients younger than"
     " 60?",
     {"kept": {("clinical:grade", "ne"), ("clinical:age", "ge")}}),
    ("demo", "Does CXCL13 predict overall survival in men versus women?",
     {"modifier": ["clinical:gender"]}),
    ("gbsg2", "Does hormonal therapy prolong survival more in postmenopausal than in premenopausal"
     " women?", {"modifier": ["clinical:menopausal_status=Post"]}),
    ("demo", "Does FGFR3 expression relate to overall survival, adjusting for age and stage?",
     {"covariate": ["clinical:age", "clinical:stage"], "exposure": ["expression:FGFR3"]}),
    ("demo", "Given age, does FABP5 relate to overall survival?",
     {"covariate": ["clinical:age"], "exposure": ["expression:FABP5"]}),
    ("demo", "Does FGFR3 relate to survival in patients given cisplatin?", {"covariate": []}),
    ("demo", "Do women outlive men?",
     {"exposure": ["clinical:gender"], "comparator": ["clinical:gender"], "level": "low",
      "direction": "lower_risk"}),
    ("gbsg2", "Do pre- and postmenopausal women differ in survival?",
     {"exposure": ["clinical:menopausal_status=Pre"],
      "comparator": ["clinical:menopausal_status"]}),
]  # fmt: skip


@pytest.mark.parametrize(
    "prompt",
    [
        "Do premenopausal patients relapse later than patients with lynch syndrome?",
        "Do irinotecan patients relapse later than patients on hormonal therapy?",
        "Do older patients relapse later than postmenopausal ones?",
        "Is progesterone receptor a better predictor of survival than estrogen receptor?",
        "Are grade 2 or grade 3 tumors associated with worse survival?",
    ],
)
def test_a_comparison_that_lost_a_side_cannot_go_on(known: Known, prompt: str) -> None:
    question = ask(known, prompt, "gbsg2")
    assert find_lost_sides(question.parts)
    with pytest.raises(InputError):
        refuse(question, yes=True)
    with pytest.raises(ValidationError, match="lacks"):
        Question.model_validate(question.model_dump() | {"refusals": ()})


@pytest.mark.parametrize(
    "prompt",
    [
        "Is hormonal therapy associated with menopausal status?",
        "Is progesterone receptor independent of tumor grade?",
    ],
)
def test_a_relation_without_an_outcome_cannot_go_on(known: Known, prompt: str) -> None:
    question = ask(known, prompt, "gbsg2")
    assert question.refusals and lacks_outcome(question.intent, question.parts)
    with pytest.raises(ValidationError, match="outcome"):
        Question.model_validate(question.model_dump() | {"refusals": ()})
    words, vocabulary = known["gbsg2"]
    given = words.model_copy(update={"prompt": prompt})
    reading = read_by_rules(prompt, vocabulary)
    named = {PartRole.ENDPOINT: ["survival"]}
    assert not apply_corrections(given, reading, vocabulary, named).refusals


def test_what_is_absent_is_never_read_as_present(known: Known) -> None:
    question = ask(known, "Do men without frobnication or lymphocytes live longer?")
    without = [part for part in question.parts if "frobnic" in part.words]
    assert [part.role for part in without] == [PartRole.QUALIFIER]
    assert describe_lost(question)


def test_an_exposure_outside_the_population_is_a_contradiction(known: Known) -> None:
    prompt = "Who relapses sooner among premenopausal women, postmenopausal patients?"
    reading = Reading(
        intent=Intent.RELATE,
        parts=(
            Asked(words="premenopausal", role=PartRole.POPULATION, name="premenopausal"),
            Asked(words="postmenopausal", role=PartRole.EXPOSURE, name="postmenopausal"),
        ),
    )
    words, vocabulary = known["gbsg2"]
    assert ground(words.model_copy(update={"prompt": prompt}), reading, vocabulary).refusals


@pytest.mark.parametrize(("cohort", "prompt", "expected"), READ, ids=[row[1] for row in READ])
def test_the_table_of_readings(
    known: Known, cohort: str, prompt: str, expected: dict[str, Any]
) -> None:
    question = ask(known, prompt, cohort)
    found: dict[str, Any] = {
        role.value: [key for part in question.list_parts(role) for key in part.variables]
        for role in PartRole
    } | {
        "level": question.list_parts(PartRole.EXPOSURE)[0].level,
        "endpoint": question.endpoint,
        "direction": question.direction,
        "kept": {(item.variable, item.op) for item in filters_of(question)},
    }
    assert {name: found[name] for name in expected} == expected
    assert not any(part.negated for part in question.list_parts(PartRole.POPULATION))


def test_a_model_may_name_more_than_the_thing(known: Known) -> None:
    words, vocabulary = known["demo"]

    def ground_part(prompt: str, **part: object) -> Question:
        asked = Asked.model_validate({"role": "exposure", **part})
        reading = Reading(intent=Intent.RELATE, parts=(asked,))
        return ground(words.model_copy(update={"prompt": prompt}), reading, vocabulary)

    name = "density of tertiary lymphoid structures on H&E slides"
    (part,) = ground_part(name, words=name, name=name).parts
    assert part.variables == ("imaging:tls_density",)
    (part,) = ground_part("CD8A protein", words="CD8A protein", name="CD8A protein").parts
    assert not part.testable, "a transcript is no protein"
    part, lost = ground_part(
        "Does BCG prolong survival?", words="BCG", name="BCG", role="treatment"
    ).parts
    assert part.role is PartRole.EXPOSURE
    assert (lost.words, lost.role) == ("survival", PartRole.QUALIFIER), "what a model left out"


def test_a_symbol_is_not_corrected_by_a_model(known: Known) -> None:
    words = known["demo"][0].model_copy(update={"prompt": "Does FGFR33 relate to survival?"})
    wrong = Asked(words="FGFR33", role=PartRole.EXPOSURE, name="FGFR3", corrected_from="FGFR33")
    (problem,) = check_reading(words, Reading(intent=Intent.RELATE, parts=(wrong,)))
    assert "FGFR33" in problem


def test_one_side_of_a_measured_amount_is_a_level(known: Known) -> None:
    """The ontology has a node "high tumor mutational burden"; the cohort has the amount."""
    words, _ = known["demo"]
    amount = words.cohort.variables[0].model_copy(
        update={"key": "mutation:load", "label": "Tumor mutational burden", "synonyms": ("TMB",)}
    )
    cohort = words.cohort.model_copy(update={"variables": (*words.cohort.variables, amount)})
    prompt = "Is high tumor mutational burden associated with overall survival?"
    given = words.model_copy(update={"cohort": cohort, "prompt": prompt})
    vocabulary = Vocabulary(given, ONTOLOGY)
    question = ground(given, read_by_rules(prompt, vocabulary), vocabulary)
    (part,) = question.list_parts(PartRole.EXPOSURE)
    assert part.variables == ("mutation:load",) and part.level == "high"


def test_what_is_no_question_any_more_is_refused() -> None:
    with pytest.raises(InputError, match="2,000"):
        question_input("FGFR3 " * 400, cohorts.load("gbsg2").dictionary(), None)
