"""Paths as mechanisms: signs, bridges, hubs, classes of nodes, and what is printed of them."""

from __future__ import annotations

import pytest

from kg.graph.belief import CAUSAL
from kg.paths.concepts import parse_prompt
from kg.paths.find import PathOptions, find_between, find_paths
from kg.types import EntityType, Polarity
from tests.kg.gr_helpers import EMBEDDER, D, E, G, P, graph, triple

UP, DOWN = Polarity.POSITIVE, Polarity.NEGATIVE
PLAIN = PathOptions()
ANY = PathOptions(rank="paper")


def act(head, tail, relation="activates", polarity=UP, types=(G, G), **more):  # type: ignore[no-untyped-def]
    return triple(head, tail, relation=relation, polarity=polarity, types=types, **more)


@pytest.mark.parametrize(
    ("first", "second", "sign"),
    [
        (UP, UP, UP), (UP, DOWN, DOWN), (DOWN, UP, DOWN), (DOWN, DOWN, UP),
        (UP, Polarity.NEUTRAL, Polarity.NEUTRAL),
    ],
)  # fmt: skip
def test_signs_compose_along_a_path(first: Polarity, second: Polarity, sign: Polarity) -> None:
    g = graph([act("AAA1", "BBB1", polarity=first), act("BBB1", "CCC1", polarity=second)])
    path = find_between(g, "AAA1", "CCC1", PLAIN, EMBEDDER).paths[0]
    assert path.mechanism is not None
    assert path.mechanism.sign == sign
    word = {UP: "goes with more", DOWN: "goes with less", Polarity.NEUTRAL: "AAA1 activates"}[sign]
    assert word in path.account()


def test_a_hub_explains_less_than_a_node_with_few_neighbors() -> None:
    told = [act("AAA1", "HUB1"), act("HUB1", "CCC1"), act("AAA1", "MID1"), act("MID1", "CCC1")]
    told += [act("HUB1", f"LEAF{n}") for n in range(8)]
    found = find_between(graph(told), "AAA1", "CCC1", PLAIN, EMBEDDER).paths
    assert [path.nodes[1].name for path in found] == ["MID1", "HUB1"]
    strengths = [path.mechanism.strength for path in found if path.mechanism]
    assert strengths[0] > strengths[1] > 0


@pytest.mark.parametrize(
    ("bridge", "kind"),
    [
        ("overall survival", E),
        ("tumor stage", EntityType.CLINICAL_FACTOR),
        ("patients", EntityType.ORGANISM),
        ("hematoxylin and eosin", EntityType.STAINING_METHOD),
        ("TCGA cohort", EntityType.COHORT),
        ("poor prognosis", D),
        ("gastric cancer", D),
    ],
)
def test_endpoints_methods_and_settings_are_no_bridges(bridge: str, kind: EntityType) -> None:
    told = [act("AAA1", bridge, types=(G, kind)), act("CCC1", bridge, types=(G, kind))]
    g = graph(told)
    found = find_between(g, "AAA1", "CCC1", PLAIN, EMBEDDER)
    assert found.paths == ()
    assert any("studied together" in note for note in found.notes)
    assert any(bridge in note for note in found.notes)


def test_microrna_is_a_class_of_nodes_that_paths_run_through() -> None:
    hypoxia, resistance = "hypoxia", "cisplatin resistance"
    told = [
        act(hypoxia, "miR-210", types=(P, G)),
        act("miR-210", "MDR1"),
        act("MDR1", resistance, types=(G, P)),
        act(hypoxia, "HIF1A", types=(P, G)),
        act("HIF1A", resistance, types=(G, P)),
        act("let-7a", "MDR1", "inhibits", DOWN),
    ]
    question = "Which microRNAs link hypoxia and cisplatin resistance?"
    g = graph(told)
    said = parse_prompt(g, question, EMBEDDER)
    assert [words for words, _ in said.classes] == ["microRNAs"]
    assert not said.unmatched
    found = find_paths(g, question, PLAIN, EMBEDDER).paths
    assert found
    for path in found:
        assert any(node.name in ("miR-210", "let-7a") for node in path.nodes)
    assert [node.name for node in found[0].nodes] == [hypoxia, "miR-210", "MDR1", resistance]


def test_where_there_is_no_mechanism_the_notes_say_why_and_what_is_nearest() -> None:
    question = "Which microRNAs link hypoxia and cisplatin resistance?"
    told = [
        act("hypoxia", "HIF1A", types=(P, G)),
        act("cisplatin resistance", "HIF1A", types=(P, G)),
    ]
    found = find_paths(graph(told), question, PLAIN, EMBEDDER)
    assert not found.paths
    notes = " ".join(found.notes)
    assert 'no node of the class "microRNAs"' in notes
    assert "Nearest: hypoxia activates HIF1A; cisplatin resistance activates HIF1A" in notes
    apart = [act("hypoxia", "HIF1A", types=(P, G)), act("cisplatin resistance", "MDR1")]
    notes = " ".join(find_paths(graph(apart), question, PLAIN, EMBEDDER).notes)
    assert "hypoxia is linked to HIF1A. cisplatin resistance is linked to MDR1." in notes


def test_the_account_names_the_weakest_link_and_the_contradiction() -> None:
    told = [
        act("AAA1", "BBB1", confidence=0.9, doc="a"),
        act("BBB1", "CCC1", confidence=0.6, doc="b", year=2012),
        act("BBB1", "CCC1", "inhibits", DOWN, confidence=0.5, doc="c", year=2018,
            text="BBB1 inhibited CCC1 in our hands."),
    ]  # fmt: skip
    path = find_between(graph(told), "AAA1", "CCC1", PLAIN, EMBEDDER).paths[0]
    account = path.account()
    assert account.startswith("AAA1 activates BBB1, which activates CCC1; ")
    assert "weakest link: BBB1 activates CCC1 (belief 0." in account
    assert "1 paper up to 2012" in account
    assert 'contradicted that BBB1 activates CCC1: "BBB1 inhibited CCC1 in our hands." (2018)' in (
        account
    )
    assert ". " not in account
    assert account.endswith(".")


def test_linked_ends_are_marked_and_papers_on_both_are_counted() -> None:
    told = [
        act("AAA1", "BBB1", doc="a"), act("BBB1", "CCC1", doc="a"), act("AAA1", "CCC1", doc="b"),
    ]  # fmt: skip
    found = find_between(graph(told), "AAA1", "CCC1", PathOptions(), EMBEDDER).paths
    for path in found:
        assert path.linked
        assert path.papers == 2
        assert path.understudied == pytest.approx(1 / (1 + 1.0986), abs=1e-3)


R = EntityType.TISSUE_REGION


def told(head, tail, types):  # type: ignore[no-untyped-def]
    return act(head, tail, "associated_with", Polarity.NEUTRAL, types=types)


@pytest.mark.parametrize(
    ("edges", "carried"),
    [
        pytest.param([act("AA", "BB"), act("BB", "CC")], True, id="a chain"),
        pytest.param([act("BB", "AA", "inhibits"), act("CC", "BB")], True, id="a chain back"),
        pytest.param([act("BB", "AA"), act("BB", "CC")], False, id="a common cause"),
        pytest.param([act("AA", "BB", "binds"), act("BB", "CC", "expressed_in")], False,
                     id="where things are"),
        pytest.param([act("AA", "BB"), act("CC", "BB")], False, id="a common effect"),
        pytest.param([act("AA", "BB", "binds"), act("BB", "CC")], True, id="a complex"),
        pytest.param([act("AA", "BB"), act("BB", "CC", "expressed_in", types=(G, R))], True,
                     id="acts where it is"),
        pytest.param([act("AA", "BB"), act("BB", "CC", "overexpressed_in", types=(G, D))], False,
                     id="a level in a disease"),
        pytest.param([told("AA", "BB", (P, P)), act("BB", "CC", types=(P, P))], False,
                     id="studied together"),
        pytest.param([told("AA", "BB", (D, P)), act("CC", "BB", types=(G, P))], True,
                     id="a disease at the end"),
        pytest.param([act("AA", "BB"), told("BB", "CC", (G, D))], True, id="up to a disease"),
        pytest.param([act("AA", "BB"), told("BB", "DD", (G, D)), act("DD", "CC", types=(D, P))],
                     False, id="an association within"),
        pytest.param([told("AA", "CC", (P, P))], True, id="a direct link"),
        pytest.param([act("AA", "BB"), act("BB", "AA", confidence=0.95), act("BB", "CC")], True,
                     id="a stronger feedback"),
        pytest.param([act("AA", "BB", confidence=0.95), act("BB", "AA"), act("CC", "BB")], True,
                     id="a weaker feedback, walked back"),
        pytest.param([act("AA", "BB", "binds"), act("BB", "AA"), act("BB", "CC")], True,
                     id="a complex of what acts back"),
    ],
)  # fmt: skip
def test_what_runs_on_from_end_to_end_is_a_mechanism(edges, carried) -> None:  # type: ignore[no-untyped-def]
    found = find_between(graph(edges), "AA", "CC", PLAIN, EMBEDDER)
    assert bool(found.paths) is carried
    ahead = {e.forward for p in found.paths for e in p.edges if e.relation in CAUSAL}
    assert len(ahead) < 2  # the steps shown are those that run one way
    assert carried or any("no effect passes between" in note for note in found.notes)
    assert find_between(graph(edges), "AA", "CC", ANY, EMBEDDER).paths
