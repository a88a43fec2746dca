"""The array graph: belief, years, evidence, look-up, the sidecar."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kg.graph.belief import combine
from kg.graph.model import Graph
from kg.paths.find import PathOptions, find_between
from kg.types import EntityType, Polarity
from sage.core.errors import InputError
from tests.kg.gr_helpers import EMBEDDER, D, E, G, bladder, graph, triple


def edge_of(g: Graph, head: str, relation: str, tail: str):  # type: ignore[no-untyped-def]
    return next(e for e in g.evidence(head, tail) if e.relation == relation)


def test_weight_sums_the_highest_confidence_of_each_document() -> None:
    g = graph(
        [
            triple("a1", "b1", doc="x", confidence=0.6),
            triple("a1", "b1", doc="x", confidence=0.9, start=50),
            triple("a1", "b1", doc="y", confidence=0.7),
        ]
    )
    edge = edge_of(g, "a1", "associated_with", "b1")
    assert edge.weight == pytest.approx(1.6)
    assert edge.documents == 2
    assert len(edge.supports) == 3


def test_belief_is_a_damped_noisy_or_over_independent_documents() -> None:
    g = graph([triple("a1", "b1", doc=d, confidence=c) for d, c in (("x", 0.6), ("y", 0.7))])
    assert edge_of(g, "a1", "associated_with", "b1").belief == pytest.approx(
        1 - 0.05 - 0.35 * 0.25, abs=1e-6
    )


def test_the_view_shows_what_enough_papers_support_and_the_graph_keeps_all() -> None:
    g = graph(
        [
            triple("a1", "b1", confidence=0.9, speculative=True),
            triple("b1", "c1", doc="x", confidence=0.6),
            triple("b1", "c1", doc="y", confidence=0.6),
            triple("c1", "d1", confidence=0.6),
        ]
    )
    seen = g.view(0.75)
    assert {(seen.names[h], seen.names[t]) for h, t in zip(seen.head, seen.tail, strict=True)} == {
        ("a1", "b1"),
        ("b1", "c1"),
    }
    assert g.view() is g
    assert g.n_edges == 3


def test_two_files_of_one_paper_are_one_witness() -> None:
    g = graph(
        [
            triple("a1", "b1", doc="pdf", confidence=0.6, doi="10.1/Same"),
            triple("a1", "b1", doc="xml", confidence=0.6, doi="10.1/same"),
        ]
    )
    edge = edge_of(g, "a1", "associated_with", "b1")
    assert edge.belief == pytest.approx(0.6)
    assert edge.documents == 1
    assert len(edge.supports) == 2


def test_speculation_counts_for_half_and_a_retracted_paper_for_nothing() -> None:
    g = graph(
        [
            triple("a1", "b1", confidence=0.8, speculative=True),
            triple("a1", "c1", confidence=0.8, retracted=True),
        ]
    )
    assert edge_of(g, "a1", "associated_with", "b1").belief == pytest.approx(0.4)
    retracted = edge_of(g, "a1", "associated_with", "c1")
    assert retracted.belief == 0.0
    assert len(retracted.supports) == 1


def test_contradiction_lowers_belief_and_is_shown() -> None:
    g = graph(bladder())
    up = edge_of(g, "CXCL13", "associated_with", "overall survival")
    assert up.belief == pytest.approx(0.8 * 0.2 / (1 - 0.64), abs=1e-6)
    assert [s.evidence.doc_id for s in up.contradicting] == ["c"]


def test_a_denial_contradicts_the_relation_it_denies() -> None:
    g = graph(
        [
            triple("a1", "b1", relation="binds", doc="x"),
            triple("a1", "b1", relation="binds", doc="y", negated=True),
            triple("a1", "b1", relation="marks", doc="z"),
        ]
    )
    edges = {(e.relation, e.negated): e for e in g.evidence("a1", "b1")}
    assert [s.evidence.doc_id for s in edges["binds", False].contradicting] == ["y"]
    assert edges["marks", False].contradicting == ()
    assert edges["binds", False].belief < 0.5 < edges["marks", False].belief


def test_paths_do_not_walk_denied_edges() -> None:
    g = graph([triple("a1", "b1", negated=True), triple("a1", "c1"), triple("c1", "b1")])
    found = find_between(g, "a1", "b1", PathOptions(rank="paper"), EMBEDDER)
    assert [[n.name for n in p.nodes] for p in found.paths] == [["a1", "c1", "b1"]]


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_belief_rises_with_support_and_falls_with_contradiction(
    s: float, more: float, c: float
) -> None:
    low, high = sorted((s, more))
    against = np.array([c])
    assert combine(np.array([low]), against)[0] <= combine(np.array([high]), against)[0] + 1e-12
    assert combine(against, np.array([high]))[0] <= combine(against, np.array([low]))[0] + 1e-12
    assert combine(np.array([s]), np.array([0.0]))[0] == pytest.approx(s)


def test_the_graph_as_of_a_year_has_only_what_was_known() -> None:
    g = graph(bladder())
    past = g.as_of(2016)
    assert past.stats().last_year == 2016
    assert "FABP5" not in past.names
    only = edge_of(past, "CXCL13", "associated_with", "overall survival")
    assert only.belief == pytest.approx(0.8)  # the contradiction came in 2019
    assert only.contradicting == ()


def test_a_node_is_found_by_id_name_alias_prefix_and_misspelling() -> None:
    g = graph(bladder())
    assert g.find("TLS")[0].how == "exact"
    assert g.find("Gene:FABP5")[0].how == "id"
    assert g.find("tertiary")[0].how == "prefix"
    assert g.find("survival")[0].name == "overall survival"
    assert g.find("bladdr cancer")[0].name == "bladder cancer"
    assert g.find("bladder cancer", limit=1)[0].score == 1.0


def test_an_unknown_node_is_named_with_its_nearest() -> None:
    with pytest.raises(InputError, match='Closest names: "bladder cancer"'):
        graph(bladder()).node("bladdr canser")


def test_neighbors_carry_direction_and_relations() -> None:
    got = {n.node.name: n for n in graph(bladder()).neighbors("FABP5")}
    assert got["lipid metabolism"].forward
    assert got["lipid metabolism"].relations == ("regulates",)
    assert got["tertiary lymphoid structures"].relations == ("inhibits",)


def test_the_sidecar_gives_back_the_same_graph(tmp_path: Path) -> None:
    g = graph(bladder())
    back = Graph.load(g.save_sidecar(tmp_path / "graph.kg"))
    assert back.stats() == g.stats()
    assert [back.edge(n) for n in range(back.n_edges)] == [g.edge(n) for n in range(g.n_edges)]
    assert [back.node(n) for n in range(9)] == [g.node(n) for n in range(9)]
    assert back.merges() == g.merges()
    assert np.array_equal(back.vectors, g.vectors)


def test_a_write_that_is_killed_leaves_the_former_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "graph.kg"
    graph(bladder()).save_sidecar(target)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        graph(bladder()[:5]).save_sidecar(target)
    monkeypatch.undo()
    assert Graph.load(target).n_nodes == 9
    graph(bladder()[:5]).save_sidecar(target)
    assert len(list(target.glob("v-*"))) == 1


def test_a_part_of_a_graph_is_saved_as_it_is(tmp_path: Path) -> None:
    past = graph(bladder()).as_of(2016)
    back = Graph.load(past.save_sidecar(tmp_path / "graph.kg"))
    assert [back.edge(n) for n in range(back.n_edges)] == [
        past.edge(n) for n in range(past.n_edges)
    ]
    assert back.node("TLS").degree == past.node("TLS").degree


@pytest.mark.parametrize("what", ["head.bin", "names.txt", "edge_rows.jsonl", "vectors.bin"])
def test_a_damaged_sidecar_is_an_input_error(tmp_path: Path, what: str) -> None:
    folder = graph(bladder()).save_sidecar(tmp_path / "graph.kg")
    file = next(folder.glob(f"v-*/{what}"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(InputError):
        g = Graph.load(folder)
        [g.edge(n) for n in range(g.n_edges)]


def test_a_sidecar_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    folder = graph(bladder()).save_sidecar(tmp_path / "graph.kg")
    meta = json.loads((folder / "meta.json").read_text())
    shutil.copytree(folder / meta["data"], tmp_path / "elsewhere")
    meta["data"] = "../elsewhere"
    (folder / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(InputError, match="outside"):
        Graph.load(folder)


def test_a_foreign_folder_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all my work")
    with pytest.raises(InputError, match="is not empty"):
        graph(bladder()).save_sidecar(tmp_path)


def test_types_of_one_name_are_decided_by_the_best_attested() -> None:
    g = graph(
        [
            triple("FABP5", "x1", types=(G, D)),
            triple("FABP5", "x2", types=(EntityType.PROTEIN, D), doc="b"),
            triple("FABP5", "x3", types=(G, E), doc="c", polarity=Polarity.POSITIVE),
        ]
    )
    assert g.node("FABP5").type == G
