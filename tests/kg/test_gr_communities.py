"""Communities are Leiden's, and no sentence about one says what its statements do not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from kg.communities.find import Community, find_communities, partition
from kg.communities.summary import ChatSummaries, Checker, summarize_by_rule
from kg.graph.model import Graph
from kg.lexicon.ontology import Ontology
from kg.types import EntityType, Polarity
from sage.cli.kg import app
from sage.core.errors import InputError
from sage.core.llm.budget import BudgetError, Charge, Meter
from sage.core.llm.client import Answer
from sage.core.llm.messages import ModelChoice, Reply, Request
from tests.kg.gr_helpers import D, G, bladder, graph, triple

P = EntityType.BIOLOGICAL_PROCESS
UP, DOWN, SIGNLESS = Polarity.POSITIVE, Polarity.NEGATIVE, Polarity.NEUTRAL
MODEL = ModelChoice(name="m", price_in=1.0, price_out=2.0)


def simple(of: Graph) -> nx.Graph:
    """The undirected graph that communities are sought in, by another library."""
    made = nx.Graph()
    for e in range(of.n_edges):
        head, tail = int(of.head[e]), int(of.tail[e])
        if not of.negated[e] and head != tail:
            before = made.get_edge_data(head, tail, {"weight": 0.0})["weight"]
            made.add_edge(head, tail, weight=before + float(of.belief[e]))
    return made


def linked(pairs: list[tuple[int, int]]) -> Graph:
    return graph([triple(f"item {a}x", f"item {b}x", types=(G, D)) for a, b in pairs])


def test_the_two_halves_of_a_barbell() -> None:
    halves = [
        ["FABP5", "COL1A1", "ERBB2", "FGFR3", "TP53"],
        ["CXCL13", "CD19", "MS4A1", "BANK1", "GATA3"],
    ]
    pairs = [(a, b) for half in halves for n, a in enumerate(half) for b in half[:n]]
    pairs.append(("FABP5", "CXCL13"))
    found = find_communities(graph([triple(a, b, types=(G, G)) for a, b in pairs]))
    assert {frozenset(one.concepts) for one in found} == {frozenset(half) for half in halves}
    assert {one.concepts[0] for one in found} <= {*halves[0], *halves[1]}
    assert [(one.relations, one.outside, one.ties) for one in found] == [
        (10, 1, ((2, 1),)), (10, 1, ((1, 1),)),
    ]  # fmt: skip


_PAIRS = st.lists(
    st.tuples(st.integers(0, 25), st.integers(0, 25)).filter(lambda p: p[0] != p[1]),
    min_size=3, max_size=80, unique_by=lambda p: (min(p), max(p)),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(_PAIRS)
def test_every_community_is_connected_and_better_than_louvain_within_a_hundredth(
    pairs: list[tuple[int, int]],
) -> None:
    of = linked(pairs)
    groups, other = partition(of), simple(of)
    assert sorted(n for group in groups for n in group) == sorted(other.nodes)
    assert all(nx.is_connected(other.subgraph(group)) for group in groups)
    louvain = nx.community.louvain_communities(other, seed=0)
    modularity = nx.community.modularity
    assert modularity(other, groups) >= modularity(other, louvain) - 0.01
    assert partition(of) == groups


def test_a_higher_resolution_divides_further_and_zero_is_refused() -> None:
    of = linked([(a, b) for a in range(12) for b in range(a) if (a + b) % 3])
    assert len(partition(of, 3.0)) > len(partition(of, 0.2))
    with pytest.raises(InputError, match="above 0"):
        partition(of, 0.0)
    for endless in (float("nan"), float("inf")):
        with pytest.raises(InputError, match="finite"):
            partition(of, endless)


def test_a_graph_of_denials_alone_has_no_community() -> None:
    assert partition(graph([triple("a1", "b1", negated=True)])) == []


# -- what is said of them -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def ontology() -> Ontology:
    return Ontology.load(Path(__file__).resolve().parents[2] / "data" / "ontology")


@pytest.fixture
def community() -> Community:
    told = [
        triple("FN1", "cell migration", types=(G, P), relation="promotes", polarity=UP, doi="10/a"),
        triple("FABP5", "FN1", types=(G, G), relation="inhibits", polarity=DOWN, doi="10/b"),
        triple("FN1", "bladder cancer", types=(G, D), relation="associated_with", doi="10/c"),
        triple("FABP5", "cell migration", types=(G, P), relation="activates", polarity=SIGNLESS,
               negated=True, doi="10/d"),
    ]  # fmt: skip
    (found,) = find_communities(graph(told))
    return found


def numbers(of: Community) -> dict[str, int]:
    return {statement.words(): statement.number for statement in of.statements}


MIGRATION, INHIBITS = "FN1 promotes cell migration (positive)", "FABP5 inhibits FN1 (negative)"
CANCER, DENIED = "FN1 associated with bladder cancer", "not: FABP5 activates cell migration"

HONEST = [
    ("FN1 promotes cell migration.", [MIGRATION]),
    ("FN1 is associated with bladder cancer.", [CANCER]),
    ("FABP5 does not activate cell migration.", [DENIED]),
    ("FN1 promotes cell migration and is associated with bladder cancer.", [MIGRATION, CANCER]),
]

ATTACKS = [
    ("FN1 promotes cell migration.", []),
    ("FN1 promotes cell migration.", ["unknown"]),
    ("FN1 promotes cell migration.", [INHIBITS]),
    ("FN1 promotes cell migration.", [MIGRATION, INHIBITS]),
    ("FN1 inhibits cell migration.", [MIGRATION]),
    ("FN1 does not promote cell migration.", [MIGRATION]),
    ("FABP5 activates cell migration.", [DENIED]),
    ("FN1 causes bladder cancer.", [CANCER]),
    ("FN1 promotes cell migration in 87% of patients.", [MIGRATION]),
    ("FN1 promotes cell migration and should be treated with bortezomib.", [MIGRATION]),
    ("FN1 promotes cell migration <script>alert(1)</script>.", [MIGRATION]),
    ("Inhibition of FN1 promotes cell migration.", [MIGRATION]),
    ("Does FN1 promote cell migration?", [MIGRATION]),
    ("", [MIGRATION]),
]


@pytest.mark.parametrize(("text", "cited"), HONEST)
def test_a_sentence_that_says_what_it_cites_stands(
    text: str, cited: list[str], community: Community, ontology: Ontology
) -> None:
    known = numbers(community)
    cites = [known[words] for words in cited]
    assert Checker(ontology).fault(text, cites, community.statements) is None


@pytest.mark.parametrize(("text", "cited"), ATTACKS)
def test_a_sentence_that_says_anything_else_is_removed(
    text: str, cited: list[str], community: Community, ontology: Ontology
) -> None:
    known = numbers(community)
    cites = [known.get(words, 99) for words in cited]
    assert Checker(ontology).fault(text, cites, community.statements) is not None


class Scripted:
    """A model that answers from a list, then with the last answer."""

    def __init__(self, *answers: Any, budget: float | None = None) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []
        self.meter = Meter(budget_usd=budget)

    def ask(self, request: Request) -> Answer:
        usd = request.model.cost(100, 10)
        with self.meter.reserve(usd) as reserved:
            self.asked.append(request)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            reserved.settle(Charge(request.agent, "m", 100, 10, usd))
        text = answer if isinstance(answer, str) else json.dumps({"sentences": answer})
        return Answer(Reply(text, "stop", 100, 10, "m"), usd, key="")

    async def ask_async(self, request: Request) -> Answer:
        return await asyncio.to_thread(self.ask, request)


def said(text: str, *cites: int) -> dict[str, Any]:
    return {"text": text, "cites": list(cites)}


def test_a_models_text_keeps_what_stands_and_counts_the_rest(
    community: Community, ontology: Ontology
) -> None:
    known = numbers(community)
    model = Scripted([
        said("FN1 promotes cell migration.", known[MIGRATION]),
        said("FN1 promotes cell migration, as does CXCL13.", known[MIGRATION]),
        said("FABP5 inhibits FN1.", 99),
    ])  # fmt: skip
    found = ChatSummaries(model, MODEL, ontology).summarize(community)
    assert [s.text for s in found.sentences] == ["FN1 promotes cell migration."]
    assert found.written_by == "m" and found.note is None
    assert found.dropped == {
        "mentions something that it does not cite": 1,
        "cites a statement that was not given": 1,
    }


@pytest.mark.parametrize("reply", ["no JSON", '{"sentences": [{"text": 1}]}', []])
def test_where_nothing_stands_the_rule_writes_and_says_so(
    reply: Any, community: Community, ontology: Ontology
) -> None:
    model = Scripted(reply)
    found = ChatSummaries(model, MODEL, ontology).summarize(community)
    assert found.sentences == summarize_by_rule(community).sentences
    assert found.written_by == "rules" and found.note
    assert len(model.asked) == 2
    assert "Your last reply was rejected" in model.asked[1].messages[1].text


def test_the_cost_limit_stops(community: Community, ontology: Ontology) -> None:
    with pytest.raises(BudgetError):
        ChatSummaries(Scripted([], budget=0.0), MODEL, ontology).summarize(community)


def test_the_command(tmp_path: Path) -> None:
    folder = str(graph(bladder()).save_sidecar(tmp_path / "g.kg"))
    told = CliRunner().invoke(app, ["communities", "-g", folder, "--json"])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)
    assert sum(len(row["concepts"]) for row in rows) == 9
    assert all(row["summary"]["written_by"] == "rules" for row in rows)
    shown = CliRunner().invoke(app, ["communities", "-g", folder, "--limit", "1"])
    assert f"1 of {len(rows)} communities over 9 concepts (Leiden)" in shown.stdout
