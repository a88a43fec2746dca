"""What is printed is what is tested: the statement and the fields of a claim cannot part."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.core.statement import settle_fields
from agents.core.types import Citation, Draft, OntologyBrief, dictionary_view
from agents.instructions.demands import take_up
from agents.scientist.agent import compose_draft
from agents.scientist.views import Proposal, StepRef
from sage.core.errors import InputError
from sage.run.hypothesis_nodes import accept
from sage.run.review import Edit, edited_hypothesis
from sage.run.state import Decision
from validation.core.dictionary import DataDictionary, Endpoint, Variable
from validation.core.hypothesis import Hypothesis

DICTIONARY = DataDictionary(
    cohort="bladder-9", title="A bladder cohort", simulated=True, n_patients=300,
    variables=(
        Variable(key="imaging:tls_density", label="TLS density on H&E slides", modality="imaging",
                 kind="continuous", n=290, missing=0.03,
                 synonyms=("tertiary lymphoid structures",)),
        Variable(key="imaging:stroma_fraction", label="Stroma fraction", modality="imaging",
                 kind="continuous", n=290, missing=0.03),
        Variable(key="clinical:age", label="Age", modality="clinical", kind="continuous", n=300,
                 missing=0.0),
        Variable(key="clinical:grade", label="Grade", modality="clinical", kind="ordinal", n=300,
                 missing=0.0),
        Variable(key="clinical:ecog", label="ECOG", modality="clinical", kind="ordinal", n=100,
                 missing=0.66),
        Variable(key="clinical:gender", label="Gender", modality="clinical", kind="binary", n=300,
                 missing=0.0),
    ),
    expression=("COL1A1", "FABP5", "CD8A"),
    expression_n=300,
    endpoints=(
        Endpoint(key="OS", label="Overall survival", kind="survival", n=300, events=120),
        Endpoint(key="PFI", label="Progression-free interval", kind="survival", n=300, events=140),
        Endpoint(key="pN", label="Lymph-node positivity", kind="binary", n=280, events=90),
        Endpoint(key="size", label="Tumor size", kind="continuous", n=280),
    ),
)  # fmt: skip
CONTINUOUS = [variable.key for variable in DICTIONARY.variables if variable.modality == "imaging"]
EXPOSURES = [*CONTINUOUS, *(f"expression:{gene}" for gene in DICTIONARY.expression)]


def claim(**changes: Any) -> Hypothesis:
    fields: dict[str, Any] = {
        "id": "h1",
        "statement": "",
        "population": {"description": "", "filters": []},
        "exposures": [
            {"variable": "expression:COL1A1", "label": "", "level": "high"},
            {"variable": "imaging:tls_density", "label": "", "level": "low"},
        ],
        "comparison": "extremes",
        "endpoint": "OS",
        "secondary_endpoints": ["PFI"],
        "direction": "higher_risk",
        "covariates": ["clinical:age"],
    }
    return settle_fields(Hypothesis.model_validate(fields | changes), DICTIONARY)


@st.composite
def claims(draw: st.DrawFn) -> Hypothesis:
    comparison = draw(st.sampled_from(["exposed_vs_rest", "extremes", "interaction", "per_sd"]))
    count = {"interaction": 2, "per_sd": 1}.get(comparison) or draw(st.integers(1, 3))
    keys = draw(st.lists(st.sampled_from(EXPOSURES), min_size=count, max_size=count, unique=True))
    levels = draw(st.lists(st.sampled_from(["high", "low"]), min_size=count, max_size=count))
    filters = draw(
        st.sampled_from([[], [{"variable": "clinical:gender", "op": "eq", "value": "MALE"}]])
    )
    cut = "continuous" if comparison == "per_sd" else "median"
    return claim(
        exposures=[
            {"variable": key, "label": "x", "level": level, "cut": cut}
            for key, level in zip(keys, levels, strict=True)
        ],
        comparison=comparison,
        endpoint=draw(st.sampled_from(["OS", "pN", "size"])),
        direction=draw(st.sampled_from(["higher_risk", "lower_risk"])),
        population={"description": "", "filters": filters},
    )


@given(one=claims(), other=claims())
@settings(max_examples=100, deadline=None)
def test_different_claims_have_different_statements(one: Hypothesis, other: Hypothesis) -> None:
    def what(claimed: Hypothesis) -> object:
        count = len(claimed.exposures)
        sides = [(use.variable, use.level) for use in claimed.exposures]
        compared = "either" if count == 1 else claimed.comparison
        if claimed.comparison == "per_sd":
            compared = claimed.comparison
        return sides, compared, claimed.endpoint, claimed.direction, claimed.population.filters

    assert (what(one) == what(other)) == (one.statement == other.statement)


def test_a_model_cannot_name_another_variable_than_the_one_it_tests() -> None:
    brief = OntologyBrief(definitions=(), relationships=())
    view = dictionary_view(DICTIONARY, ["COL1A1", "FABP5"])
    lying = Hypothesis.model_validate(
        {
            "id": "draft",
            "statement": "High FABP5 was proven to shorten survival in IMvigor210.",
            "population": {"description": "all patients with FGFR3 mutations", "filters": []},
            "exposures": [{"variable": "expression:COL1A1", "label": "FABP5 expression"}],
            "comparison": "exposed_vs_rest",
            "endpoint": "OS",
            "direction": "higher_risk",
        }
    )
    proposal = Proposal(hypothesis=lying, support=(StepRef(chain=1, step=1),))
    drafted = compose_draft(brief, proposal, "h1", view).hypothesis
    text = f"{drafted.statement} {drafted.population.description} {drafted.exposures[0].label}"
    assert "COL1A1" in text
    for lie in ("FABP5", "IMvigor210", "FGFR3", "proven"):
        assert lie not in text


class Desk:
    """What editing needs of a run."""

    dictionary = DICTIONARY


def edit(changes: dict[str, Any], before: Hypothesis | None = None) -> Edit:
    desk: Any = Desk()
    return edited_hypothesis(desk, Draft(hypothesis=before or claim()), changes)


def test_an_edit_of_the_exposures_alone_writes_a_new_statement() -> None:
    before = claim()
    exposures = [{"variable": "expression:FABP5", "label": "COL1A1 expression", "level": "high"}]
    edited = edit(
        {"exposures": exposures, "comparison": "exposed_vs_rest"},
        before.model_copy(update={"rationale": "COL1A1 stiffens.", "feasibility": "COL1A1 is."}),
    )
    assert "FABP5" in edited.hypothesis.statement
    assert "COL1A1" not in edited.hypothesis.model_dump_json()
    assert "COL1A1" not in edited.hypothesis.statement
    names = {name: (was, now) for name, was, now in edited.differences}
    assert names["statement"] == (before.statement, edited.hypothesis.statement)


def test_a_whole_hypothesis_with_the_old_statement_follows_its_fields() -> None:
    whole = json.loads(claim().model_dump_json())
    whole["direction"] = "lower_risk"
    assert "longer" in claim(direction="lower_risk").statement
    assert edit(whole).hypothesis.statement == claim(direction="lower_risk").statement


@pytest.mark.parametrize(
    "changes",
    [
        {"statement": "High CD8A shortens survival.", "endpoint": "PFI", "secondary_endpoints": []},
        {"statement": ""},
        {"statement": 7},
    ],
)  # fmt: skip
def test_an_edited_statement_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="statement"):
        edit(changes)


def test_what_was_found_for_the_old_claim_does_not_go_with_the_new_one() -> None:
    old = Citation(title="COL1A1 in bladder cancer", quote="COL1A1 goes with invasion.")
    new = Citation(title="FABP5 in bladder cancer", quote="FABP5 goes with metastasis.")
    draft = Draft(
        hypothesis=claim(),
        mechanism=("COL1A1 promotes invasion", "FABP5 promotes metastasis"),
        citations=(old, new),
        concepts=("COL1A1", "tertiary lymphoid structure"),
    )
    edited = claim(
        exposures=[{"variable": "expression:FABP5", "label": "", "level": "high"}],
        comparison="exposed_vs_rest",
    )
    reviewed = accept(draft, Decision(hypothesis_id="h1", action="edit", edited=edited))
    assert reviewed.concepts == ()
    assert reviewed.mechanism == ("FABP5 promotes metastasis",)
    assert reviewed.citations == (new,)
    same = accept(draft, Decision(hypothesis_id="h1", action="approve"))
    assert (same.concepts, same.citations) == (draft.concepts, draft.citations)


@pytest.mark.parametrize(
    ("demanded", "taken"),
    [
        ("clinical:grade", True),
        ("clinical:age", True),
        ("clinical:shoe_size", False),
        ("expression:COL1A1", False),
        ("clinical:ecog", False),
    ],
)
def test_what_feasibility_demands_is_in_the_contract_or_has_its_reason(
    demanded: str, taken: bool
) -> None:
    registered, demands = take_up(claim(), (demanded,), DICTIONARY)
    assert (demanded in registered.covariates) == taken
    assert [item.variable for item in demands.taken] == ([demanded] if taken else [])
    assert [exposure.variable for exposure in demands.not_taken] == ([] if taken else [demanded])
    assert taken or demands.not_taken[0].reason


def test_a_demand_that_the_events_cannot_bear_is_refused() -> None:
    few = DICTIONARY.model_copy(
        update={
            "endpoints": (
                Endpoint(key="OS", label="Overall survival", kind="survival", n=300, events=31),
                *DICTIONARY.endpoints[1:],
            )
        }
    )
    registered, demands = take_up(claim(), ("clinical:grade",), few)
    assert registered.covariates == ("clinical:age",)
    assert "31" in demands.not_taken[0].reason


# The whole way: an edit of the exposures, from the command line to the report.
