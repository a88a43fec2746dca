"""The scientist's looks: they show what they should, and nothing of any outcome or patient."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agents.core.rules import RulesReasoner
from agents.core.types import EarlierClaim, History
from agents.scientist.agent import at_the_bench, proposal_problems
from agents.scientist.blind import BlindCohort
from agents.scientist.looks import Sources
from agents.scientist.tools import LOOKS
from agents.scientist.views import Proposal
from sage.core.errors import InputError
from sage.core.llm.trace import Trace, episodes, read_trace
from sage.core.llm.turns import replay
from sage.core.models import describe_schema
from tests.agents.bench import (
    FABP5,
    OS,
    RESOURCES,
    TLS,
    bench,
    clinical,
    given,
    with_permuted_outcomes,
    world,
    write_clinical,
)
from validation import cohort as cohorts
from validation.cohort.cohort import Cohort
from validation.contracts.contract import SplitRule
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Direction,
    Exposure,
    Filter,
    Hypothesis,
    Population,
)
from validation.disclosure import round_count, suppressed_cells
from validation.drafting.draft import draft
from validation.drafting.freezing import freeze
from validation.statistics.power import HALVES

GENES = ("CXCL13", "CXCR5", "FABP5", "COL1A1", "MS4A1")
CLINICAL = ("clinical:age", "clinical:stage", "clinical:gender", "clinical:grade")
IMAGING = ("imaging:tls_density", "imaging:til_density", "imaging:stroma_fraction")
EVERYTHING = (*(f"expression:{gene}" for gene in GENES), *CLINICAL, *IMAGING)


def claim(*keys: str, **more: Any) -> dict[str, Any]:
    """A hypothesis as a model would hand it to design_power."""
    hypothesis = Hypothesis(
        id="draft", statement="", population=Population(description=""),
        exposures=tuple(Exposure(variable=key, label=key) for key in keys),
        comparison=Comparison.EXTREMES if len(keys) > 1 else Comparison.EXPOSED_VS_REST,
        endpoint="OS", direction=Direction.HIGHER_RISK,
    )  # fmt: skip
    return hypothesis.model_copy(update=more).model_dump(mode="json")


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("graph_search", {"text": "CXCL13"}),
    ("graph_neighbors", {"name": "CXCL13"}),
    ("graph_paths", {"source": "FABP5", "target": "CXCL13"}),
    ("literature_search", {"query": "FABP5 survival bladder cancer", "phrases": ["FABP5"]}),
    ("cohort_describe", {"variables": list(EVERYTHING), "joint": list(EVERYTHING[:3])}),
    ("cohort_describe",
     {"variables": ["clinical:age"], "joint": ["clinical:grade", "clinical:age"]}),
    ("design_power", {"claims": [claim("expression:FABP5"),
     claim("expression:FABP5", "imaging:tls_density"), claim("clinical:age", endpoint="nodes"),
     claim("expression:FABP5", endpoint="PFI"), claim("expression:FABP5", population=Population(
     description="", filters=(Filter(variable="clinical:age", op="lt", value=60.0),)))]}),
    ("signature_define", {"genes": ["CXCL13", "CXCR5", "MS4A1", "CCL19", "CD3E", "NOTAGENE"]}),
    ("history", {}),
]  # fmt: skip


def replies(cohort: Cohort, calls: list[tuple[str, dict[str, Any]]] = CALLS) -> str:
    """Answers of the tools to `calls`, as a model reads them."""
    tools = {tool.name: tool for tool in bench(cohort).tools()}
    output = [tools[name].call(tools[name].takes.model_validate(asked)) for name, asked in calls]
    return json.dumps([entry.model_dump(mode="json") for entry in output], indent=1)


def test_no_tool_result_changes_when_outcomes_are_permuted(tmp_path: Path) -> None:
    cohort = world(tmp_path / "w")
    before = replies(cohort)
    agreed = cohort.table((), ("OS",))["OS.time"].tolist()
    for seed in range(2):
        permuted = with_permuted_outcomes(tmp_path / "w", seed)
        assert permuted.table((), ("OS",))["OS.time"].tolist() != agreed
        assert replies(permuted) == before


def test_outcomes_of_other_values_are_seen_by_no_tool(tmp_path: Path) -> None:
    """Not only who has them: times and codes of everybody change, with as many events."""
    before = replies(world(tmp_path / "w"))
    rows = clinical(tmp_path / "w")
    for at, row in enumerate(rows):
        for column in ("OS.time", "PFI.time", "DSS.time"):
            row[column] = f"{7770.5 + at}"
    write_clinical(tmp_path / "w", rows)
    after = replies(cohorts.load(tmp_path / "w"))
    assert after == before
    assert "7770" not in after


def test_no_patient_is_in_what_the_tools_say(tmp_path: Path) -> None:
    """Canaries: identifiers, pseudonyms, and values that one patient alone has."""
    world(tmp_path / "w")
    rows = clinical(tmp_path / "w")
    ages = [round(40 + at * 0.2371, 4) for at in range(len(rows))]
    for row, age in zip(rows, ages, strict=True):
        row["age"] = str(age)
    write_clinical(tmp_path / "w", rows)
    cohort = cohorts.load(tmp_path / "w")
    output = replies(cohort)
    assert not [age for age in ages if str(age) in output]
    names = {name for pair in cohort.pseudonyms.items() for name in pair}
    assert not [name for name in names if name in output]
    assert len(output) > 5000


@pytest.mark.parametrize("column", ["OS", "PFI.time", "smoking"])
def test_what_holds_an_outcome_or_came_late_is_withheld(column: str, tmp_path: Path) -> None:
    world(tmp_path / "w")
    text = (tmp_path / "w" / "cohort.toml").read_text()
    kind, late = ("binary", "known_at = 3.0\n") if column == "smoking" else ("continuous", "")
    text += (
        f'\n[variables.hidden]\ntable = "clinical"\ncolumn = "{column}"\nkind = "{kind}"\n'
        f'modality = "clinical"\n{late}'
    )
    (tmp_path / "w" / "cohort.toml").write_text(text)
    blind = BlindCohort(cohorts.load(tmp_path / "w"))
    (shown,) = blind.describe(("clinical:hidden",)).variables
    assert shown.withheld and shown.n is None and not shown.levels and not shown.quantiles
    with pytest.raises(InputError):
        blind.describe((), ("clinical:hidden", "clinical:age"))
    assert blind.power(Hypothesis.model_validate(claim("clinical:hidden"))).refused
    assert not bench(cohorts.load(tmp_path / "w")).find_variables("hidden")


def nodes_in_stage(folder: Path) -> None:
    """A cohort whose stage holds the outcome of its nodes."""
    world(folder)
    text = (folder / "cohort.toml").read_text()
    told = 'contained_in = ["clinical:stage"]\n'
    text = text.replace("[endpoints.nodes]\n", f"[endpoints.nodes]\n{told}")
    (folder / "cohort.toml").write_text(text.replace(told * 2, told))


def test_what_holds_an_outcome_in_it_is_shown_alone(tmp_path: Path) -> None:
    """Stage holds the nodes: beside an exposure it would show how that goes with them."""
    nodes_in_stage(tmp_path / "w")
    blind = BlindCohort(cohorts.load(tmp_path / "w"))
    output = blind.describe(("clinical:stage", "clinical:age", "expression:FABP5"))
    assert output.variables[0].levels
    pairs = {
        frozenset((correlation.first, correlation.second)) for correlation in output.correlations
    }
    assert pairs == {frozenset(("clinical:age", "expression:FABP5"))}
    with pytest.raises(InputError):
        blind.describe((), ("clinical:stage", "clinical:age"))


ALIASES = """
[tables.again]
file = "./clinical.csv"
key = "patient"
known_at = "baseline"

[variables.again]
table = "again"
column = "PFI.time"
kind = "continuous"
modality = "clinical"

[variables.hidden]
table = "clinical"
column = "PFI.time"
kind = "continuous"
modality = "clinical"

[derived.ratio]
formula = "ratio"
of = ["clinical:age", "clinical:again"]
"""


@pytest.mark.parametrize("key", ["clinical:hidden", "clinical:again", "derived:ratio"])
def test_no_way_round_to_an_outcome_s_column(key: str, tmp_path: Path) -> None:
    """Not as a filter of a claim, nor through a second table of the same file, nor derived."""
    world(tmp_path / "w")
    path = tmp_path / "w" / "cohort.toml"
    path.write_text(path.read_text() + ALIASES)
    cohort = cohorts.load(tmp_path / "w")
    blind = BlindCohort(cohort)
    assert blind.withheld(key)
    filtered = claim("expression:FABP5") | {
        "population": {
            "description": "some", "filters": [{"variable": key, "op": "gt", "value": 12}],
        },
    }  # fmt: skip
    output = blind.power(Hypothesis.model_validate(filtered))
    assert key in output.refused and output.exposed is None
    with pytest.raises(InputError, match=r"PFI\.time"):
        freeze(draft(Hypothesis.model_validate(filtered), cohort.dictionary()), cohort)


def test_a_claim_counts_nobody_by_what_holds_an_outcome(tmp_path: Path) -> None:
    """FABP5's groups within a stage, which holds the nodes, would show how FABP5 goes with them."""
    nodes_in_stage(tmp_path / "w")
    blind = BlindCohort(cohorts.load(tmp_path / "w"))
    within = claim("expression:FABP5") | {
        "population": {
            "description": "some",
            "filters": [{"variable": "clinical:stage", "op": "ge", "value": 3}],
        }
    }
    output = blind.power(Hypothesis.model_validate(within))
    assert not output.refused and output.power is not None
    assert output.exposed is None and output.reference is None


@settings(max_examples=60, deadline=None)
@drawn(
    counts=arrays(
        np.int64,
        st.lists(st.integers(1, 4), min_size=2, max_size=3).map(tuple),
        elements=st.integers(0, 12),
    ),
    minimum=st.integers(1, 6),
)
def test_no_suppressed_cell_follows_from_a_sum(counts: Any, minimum: int) -> None:
    hidden = suppressed_cells(counts, minimum)
    assert hidden[(counts > 0) & (counts < minimum)].all()
    for axis in range(counts.ndim):
        for line in np.moveaxis(hidden, axis, -1).reshape(-1, counts.shape[axis]):
            assert line.sum() != 1 or len(line) == 1
    if not ((counts > 0) & (counts < minimum)).any():
        assert not hidden.any()


def test_no_count_tells_one_patient_from_the_next(tmp_path: Path) -> None:
    """A claim's groups by ever higher thresholds move in steps of the minimum."""
    blind = BlindCohort(world(tmp_path / "w"))
    seen = set()
    for threshold in np.linspace(60, 70, 15):
        exposure = Exposure(
            variable="clinical:age", label="age", cut=CutRule.FIXED, threshold=float(threshold)
        )
        output = blind.power(
            Hypothesis.model_validate(claim("clinical:age", exposures=(exposure,)))
        )
        seen |= {output.exposed, output.reference}
    counts = seen - {None}
    assert counts and all(count % 5 == 0 for count in counts)


def test_power_is_that_of_the_contract_up_to_rounding(tmp_path: Path) -> None:
    cohort = world(tmp_path / "w", patients=240)
    hypothesis = Hypothesis.model_validate(claim("expression:FABP5", "imaging:tls_density"))
    output = BlindCohort(cohort).power(hypothesis)
    power = freeze(draft(hypothesis, cohort.dictionary()), cohort).contract.power
    assert output.detectable == pytest.approx(power.minimum_detectable, rel=0.03)
    assert output.events == pytest.approx(power.events, rel=0.05)


def test_a_claim_is_as_relevant_per_sd_as_between_halves(tmp_path: Path) -> None:
    blind = BlindCohort(world(tmp_path / "w", patients=240))
    halves, per_sd = (
        blind.power(
            Hypothesis.model_validate(claim("expression:FABP5", comparison=Comparison(comparison)))
        )
        for comparison in ("exposed_vs_rest", "per_sd")
    )
    assert halves.relevant == 1.5
    assert per_sd.relevant == pytest.approx(1.5 ** (1 / HALVES), abs=0.01)


def test_power_is_that_of_the_patients_who_confirm(tmp_path: Path) -> None:
    cohort = world(tmp_path / "w", patients=240)
    split = SplitRule(policy="discovery_confirmation", confirmation=0.5)
    for comparison in ("exposed_vs_rest", "per_sd"):
        hypothesis = Hypothesis.model_validate(
            claim("expression:FABP5", comparison=Comparison(comparison))
        )
        whole, half = (BlindCohort(cohort, 5, rule).power(hypothesis) for rule in (None, split))
        frozen = freeze(draft(hypothesis, cohort.dictionary(), split=split), cohort).contract.power
        assert half.events == pytest.approx((whole.events or 0) / 2, rel=0.05)
        assert half.events == pytest.approx(frozen.events, rel=0.25)
        assert (half.power or 1) < (whole.power or 0)


def test_the_description_is_right(tmp_path: Path) -> None:
    cohort = world(tmp_path / "w")
    table = cohort.table(["expression:FABP5", "imaging:tls_density"])
    output = BlindCohort(cohort).describe(tuple(table.columns), tuple(table.columns))
    first = output.variables[0]
    assert first.quantiles["50%"] == pytest.approx(table["expression:FABP5"].median(), rel=0.01)
    rho = table.dropna().corr(method="spearman").iloc[0, 1]
    assert output.correlations[0].rho == pytest.approx(rho, abs=0.006)
    assert output.joint is not None
    high = table.dropna() > table.dropna().median()
    cells = {cell.levels: cell.patients for cell in output.joint.cells}
    assert cells["high", "high"] == round_count(int(high.all(axis=1).sum()))


def test_a_source_that_a_search_gave_can_be_cited_with_its_sentence(tmp_path: Path) -> None:
    there = bench(world(tmp_path / "w"))
    tools = {tool.name: tool for tool in there.tools()}
    asked = tools["literature_search"].takes.model_validate(
        {"query": "FABP5 survival", "phrases": ["FABP5"]}
    )
    found = tools["literature_search"].call(asked)
    assert found.sources and found.covered.startswith("local index")
    for source in found.sources:
        assert there.found[source.key].title == source.title
        assert source.quotations and source.quotations[0] == there.found[source.key].quote


def test_a_score_of_genes_is_a_variable_like_any_other(tmp_path: Path) -> None:
    cohort = world(tmp_path / "w")
    tools = {tool.name: tool for tool in bench(cohort).tools()}

    def call(name: str, **asked: Any) -> Any:
        return tools[name].call(tools[name].takes.model_validate(asked))

    made = call("signature_define", genes=["CXCL13", "CXCR5", "MS4A1", "CD3E", "CCL19", "NOGENE"])
    assert made.absent == ("NOGENE",) and made.variable.startswith("signature:mean_z(CCL19,")
    assert made.score is not None and abs(made.score.quantiles["50%"]) < 0.3
    shown = call("cohort_describe", variables=[made.variable, "imaging:tls_density"])
    assert shown.correlations and not shown.variables[0].withheld
    (design,) = call("design_power", claims=[claim(made.variable)]).designs
    assert design.detectable is not None and design.detectable > 1
    refused = call("signature_define", genes=["CXCL13", "NOGENE", "NONE2"])
    assert refused.variable == "" and "1 of the 3" in refused.refused


def test_the_rules_use_what_they_see(tmp_path: Path) -> None:
    """Too much missing, too little expressed, the same twice, answered before: each is left."""
    world(tmp_path / "w")
    path = tmp_path / "w" / "expression.csv"
    lines = [line.split(",") for line in path.read_text().splitlines()]
    names = lines[0]
    for row in lines[1:]:
        row[names.index("CXCR5")] = "0.0"
        row[names.index("FABP5")] = row[names.index("CXCL13")]
    lines[5][names.index("CXCR5")] = "3.0"
    path.write_text("\n".join(",".join(row) for row in lines) + "\n")
    cohort = cohorts.load(tmp_path / "w")

    def drafts(**more: Any) -> list[set[str]]:
        cxcl13 = FABP5.model_copy(update={"words": "CXCL13", "variables": ("expression:CXCL13",)})
        asked = given(cohort, cxcl13, FABP5, OS, **more)
        reply = RulesReasoner(RESOURCES).ask(at_the_bench(bench(cohort, asked.history)), asked)
        return [
            {exposure.variable for exposure in proposal.hypothesis.exposures}
            for proposal in reply.output.candidates
        ]

    seen = drafts()
    assert not any("expression:CXCR5" in item for item in seen), "hardly expressed"
    assert {"expression:CXCL13", "expression:FABP5"} not in seen, "the same twice"
    assert {"expression:CXCL13"} in seen
    earlier = EarlierClaim(
        statement="s", exposures=("expression:CXCL13",), endpoint="OS", verdict="not supported"
    )
    assert {"expression:CXCL13"} not in drafts(history=History(claims=(earlier,)))


@pytest.mark.parametrize("said", [Direction.HIGHER_RISK, Direction.LOWER_RISK, None])
def test_the_rules_claim_the_direction_that_the_question_says(
    said: Direction | None, tmp_path: Path
) -> None:
    """CXCL13 is protective on the paths; a question that says otherwise is tested as it says."""
    cohort = world(tmp_path / "w")
    cxcl13 = FABP5.model_copy(update={"words": "CXCL13", "variables": ("expression:CXCL13",)})
    asked = given(cohort, cxcl13, OS)
    stated = asked.question.model_copy(update={"direction": said})
    asked = asked.model_copy(update={"question": stated})
    reply = RulesReasoner(RESOURCES).ask(at_the_bench(bench(cohort)), asked)
    claims = [candidate.hypothesis for candidate in reply.output.candidates]
    if said is None:
        wanted = ["expression:CXCL13"]
        alone = [it for it in claims if [each.variable for each in it.exposures] == wanted]
        assert {claim.direction for claim in alone} == {Direction.EITHER}
        return
    sides = {
        (exposure.level, claim.direction)
        for claim in claims
        for exposure in claim.exposures
        if exposure.variable == "expression:CXCL13"
    }
    other = Direction.LOWER_RISK if said is Direction.HIGHER_RISK else Direction.HIGHER_RISK
    assert ("high", said) in sides
    assert sides <= {("high", said), ("low", other)}


def test_a_claim_with_a_direction_does_not_answer_a_question_without_one(tmp_path: Path) -> None:
    cohort = world(tmp_path / "w")
    asked = given(cohort, FABP5, OS)
    hypothesis = Hypothesis.model_validate(claim("expression:FABP5"))
    proposal = Proposal(hypothesis=hypothesis, support_absent=True)

    def problems(direction: Direction) -> list[str]:
        changed = hypothesis.model_copy(update={"direction": direction})
        stated = proposal.model_copy(update={"hypothesis": changed})
        return proposal_problems(asked, stated, cohort.dictionary(), {})

    assert [len(problems(direction)) for direction in Direction] == [1, 1, 0]


@pytest.mark.parametrize("level", ["low", None])
def test_two_markers_are_compared_at_their_extremes_only_if_sides_are_asked_for(
    level: Any, tmp_path: Path
) -> None:
    cohort = world(tmp_path / "w")
    parts = [part.model_copy(update={"level": level}) for part in (TLS, FABP5)]
    reply = RulesReasoner(RESOURCES).ask(at_the_bench(bench(cohort)), given(cohort, *parts, OS))
    first = reply.output.candidates[0].hypothesis
    assert first.comparison == ("extremes" if level else "added")
    assert [exposure.variable for exposure in first.exposures] == [
        "imaging:tls_density",
        "expression:FABP5",
    ]


def test_the_rules_answer_the_question_first_and_their_turns_replay(tmp_path: Path) -> None:
    cohort = world(tmp_path / "w")
    trace = Trace(tmp_path / "trace.jsonl")
    agent = at_the_bench(bench(cohort))
    reply = RulesReasoner(RESOURCES, trace).ask(agent, given(cohort, TLS, FABP5, OS))
    first = reply.output.candidates[0].hypothesis
    assert {exposure.variable for exposure in first.exposures} == {
        "imaging:tls_density",
        "expression:FABP5",
    }
    assert first.endpoint == "OS"
    (episode,) = episodes(read_trace(tmp_path / "trace.jsonl"))
    used = {line.tool for line in episode if line.kind == "tool"}
    assert used >= {"graph_neighbors", "literature_search", "cohort_describe", "design_power"}
    assert replay(episode, agent.returns) == reply.output


def test_schemas_are_sent_without_what_repeats() -> None:
    """Titles repeat names of fields, and `design_power` the hypothesis of the reply."""
    (power,) = (takes for name, _, takes, _ in LOOKS if name == "design_power")
    sent = describe_schema(power)
    assert sent["title"] == "DesignClaims" and "$defs" not in sent
    assert "title" not in json.dumps(sent["properties"])
    fields = describe_schema(Sources)["$defs"]["Source"]["properties"]
    assert fields["title"]["type"] == "string" and "title" not in fields["year"]
