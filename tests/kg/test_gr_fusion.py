"""Fusion: names as keys, the guard, tiers, the paper's mode, edges, pruning."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.fusion.fuse import fuse
from kg.fusion.mentions import find_definitions
from kg.fusion.model import FusionOptions, MergeTier
from kg.fusion.names import guard_allows, guard_signature, lexical_key
from kg.fusion.pairs import similar_pairs
from kg.types import EntityType, Polarity
from tests.kg.gr_helpers import EMBEDDER, D, E, G, O, P, T, bladder, fused, graph, triple


class Table:
    """An embedder whose cosines are set by hand."""

    name = "table"
    dimension = 8

    def __init__(self, vectors: dict[str, list[float]]) -> None:
        self._vectors = vectors
        self.asked: list[str] = []

    def embed(self, texts: object) -> np.ndarray:
        out = np.zeros((len(texts), 8), dtype=np.float32)  # type: ignore[arg-type]
        for n, text in enumerate(texts):  # type: ignore[arg-type, var-annotated]
            self.asked.append(text)
            v = np.zeros(8)
            v[: len(self._vectors.get(text, []))] = self._vectors.get(text, [])
            if not v.any():
                v[3 + sum(text.encode()) % 5] = 1.0
            out[n] = v / np.linalg.norm(v)
        return out


CHEMICAL = EntityType.CHEMICAL


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("PD-L1", "PD L1", O), ("T cells", "T-cell", O), ("TNF-α", "TNF alpha", O),
        ("Carcinoma, Transitional Cell", "transitional cell carcinoma", O),
        ("CD8⁺ T cells", "CD8+ T cell", O), ("metastases", "Metastases", O),
        ("tumour necrosis", "tumor necrosis", O), ("grade III", "grade 3", O),
        ("Episodic Ataxia, Type 2", "episodic ataxia type 2", O), ("biopsies", "biopsy", O),
        ("L-arginine", "arginine", CHEMICAL), ("eupatoriopicrine", "Eupatoriopicrin", CHEMICAL),
        ("Antiprotozoal Agents", "antiprotozoal drug", CHEMICAL),
    ],
)  # fmt: skip
def test_spellings_of_one_name_share_a_key(one: str, other: str, kind: EntityType) -> None:
    assert lexical_key(one, kind) == lexical_key(other, kind)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CD8+", "CD8"), ("CD8+", "CD8-"), ("1,2-dichloroethane", "12-dichloroethane"),
        ("IL-1", "IL-11"), ("KRAS", "KRA"), ("PD-1", "PD-L1"), ("grade II", "grade III"),
        ("D-serine", "L-serine"),
    ],
)  # fmt: skip
def test_different_things_have_different_keys(one: str, other: str) -> None:
    assert lexical_key(one, G) != lexical_key(other, G)
    assert lexical_key(one) != lexical_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("type 1 diabetes", "type 2 diabetes"), ("stage II tumor", "stage III tumor"),
        ("interferon alpha response", "interferon gamma response"),
        ("T cell infiltration", "B cell infiltration"), ("ER positive tumor", "ER negative tumor"),
        ("hypermethylation of promoter", "hypomethylation of promoter"),
        ("keratin associated protein 1-3", "keratin associated protein 3-1"),
        ("Castleman disease", "multicentric Castleman disease"), ("CD4 T cell", "CD8 T cell"),
    ],
)  # fmt: skip
def test_the_guard_keeps_opposites_and_siblings_apart(one: str, other: str) -> None:
    assert not guard_allows(one, other, D, D)


def test_the_guard_never_merges_gene_symbols() -> None:
    assert not guard_allows("FABP5", "FABP4", G, G)
    assert not guard_allows("HOXA", "HOXB", G, EntityType.PROTEIN)


@given(st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_text_has_a_key_and_a_signature(text: str) -> None:
    assert isinstance(lexical_key(text), str)
    assert guard_signature(text) == guard_signature(text)


def test_abbreviations_are_read_from_the_text() -> None:
    text = "Tertiary lymphoid structures (TLS) and programmed death-ligand 1 (PD-L1) (n = 12)."
    assert dict(find_definitions(text)) == {
        "TLS": "Tertiary lymphoid structures",
        "PD-L1": "programmed death-ligand 1",
    }


def test_an_abbreviation_with_two_meanings_joins_nothing() -> None:
    text = "Magnetic resonance imaging (MRI) was done."
    other = "The mortality risk index (MRI) was low."
    got = fused(
        [
            triple("MRI", "bladder cancer", text=text),
            triple("magnetic resonance imaging", "bladder cancer", text=other, doc="b"),
            triple("mortality risk index", "bladder cancer", doc="c"),
        ],
        prune_below=1,
    )
    assert not [m for m in got.merges if m.tier == MergeTier.ABBREVIATION]


def test_names_merge_lexically_and_by_abbreviation_with_reasons() -> None:
    got = fused(bladder())
    reasons = {(m.joined, m.tier) for m in got.merges}
    assert ("TLS", MergeTier.ABBREVIATION) in reasons
    assert ("B cell", MergeTier.LEXICAL) in reasons
    assert all(m.reason for m in got.merges)


def test_similarity_joins_a_leader_and_never_chains() -> None:
    vectors = {
        "bladder carcinoma growth": [1.0, 0.0],
        "growth in bladder carcinomata": [0.96, 0.28],
        "bladdery carcinomatous grow": [0.8432, 0.5376],  # 0.96 to the second, 0.843 to the first
    }
    names, model = list(vectors), Table(vectors)
    triples = [
        triple(name, "outcome", doc=f"{name}-{n}", types=(D, E))
        for k, name in enumerate(names)
        for n in range(3 - k)
    ]
    guarded = fuse(triples, FusionOptions(tau=0.95, prune_below=1), model)
    chained = fuse(triples, FusionOptions(mode="paper", tau=0.95, prune_below=1), model)
    assert len(guarded.nodes) == 3  # two diseases and the outcome
    assert len(chained.nodes) == 2
    assert {m.tier for m in guarded.merges} == {MergeTier.COSINE}
    assert {m.tier for m in chained.merges} == {MergeTier.COSINE_CHAINED}


@dataclass(frozen=True)
class FakeEntry:
    id: str
    name: str
    type: EntityType
    synonyms: tuple[str, ...] = ()
    definition: str | None = None
    identifiers: dict[str, str] = field(default_factory=dict)


class FakeOntology:
    """Entries found by exact name or synonym."""

    def __init__(self, *entries: FakeEntry) -> None:
        self._of = {n.casefold(): e for e in entries for n in (e.name, *e.synonyms)}

    def find(self, name: str) -> FakeEntry | None:
        return self._of.get(name.casefold())


ONTOLOGY = FakeOntology(
    FakeEntry(
        "HGNC:3560", "FABP5", G, ("E-FABP",), "A fatty acid binding protein.", {"HGNC": "3560"}
    ),
    FakeEntry("HGNC:3559", "FABP4", G, ("A-FABP",), None, {"HGNC": "3559"}),
)


def test_names_of_one_ontology_entry_are_one_node_with_its_identifiers() -> None:
    triples = [
        triple("FABP5", "bladder cancer", types=(G, D)),
        triple("E-FABP", "lipid metabolism", types=(G, P)),
        triple("FABP4", "lipid metabolism", types=(G, P)),
    ]
    got = fuse(triples, FusionOptions(prune_below=1), EMBEDDER, ONTOLOGY)
    node = next(n for n in got.nodes if n.name == "FABP5")
    assert set(node.names) == {"FABP5", "E-FABP"}
    assert node.identifiers == {"HGNC": "3560"}
    assert node.definition == "A fatty acid binding protein."
    assert [m.reason for m in got.merges if m.joined == "E-FABP"] == ["names HGNC:3560 (FABP5)"]
    assert any(n.name == "FABP4" for n in got.nodes)


def test_names_of_different_entries_never_merge_by_similarity() -> None:
    ontology = FakeOntology(
        FakeEntry("D:1", "renal tumor mass", D), FakeEntry("D:2", "mass renal tumor", D)
    )
    model = Table({"renal tumor mass": [1.0], "mass renal tumor": [1.0]})
    triples = [
        triple("renal tumor mass", "x", types=(D, O)),
        triple("mass renal tumor", "x", types=(D, O)),
    ]
    got = fuse(triples, FusionOptions(prune_below=1), model, ontology)
    assert len([n for n in got.nodes if n.type == D]) == 2


def test_a_merge_that_was_undone_stays_undone() -> None:
    options = FusionOptions(prune_below=1, apart=(("B cells", "B cell"),))
    got = fuse(bladder(), options, EMBEDDER)
    assert {"B cells", "B cell"} <= {n.name for n in got.nodes}


def test_the_same_name_with_incompatible_types_stays_two_nodes() -> None:
    got = fused(
        [triple("CAT", "x", types=(G, O)), triple("cat", "y", types=(EntityType.ORGANISM, O))],
        prune_below=1,
    )
    assert len([n for n in got.nodes if n.name.casefold() == "cat"]) == 2


def test_low_confidence_empty_names_and_self_loops_are_dropped_and_counted() -> None:
    got = fused(
        [
            *bladder(),
            triple("a", "b", confidence=0.29),
            triple("  ", "b"),
            triple("TLS", "tertiary lymphoid structures", types=(T, T)),
        ]
    )
    assert got.dropped["low confidence"] == 1
    assert got.dropped["empty name"] == 1
    assert got.dropped["self-loop"] == 1
    nothing = fused([triple("a", "b", confidence=0.29)])
    assert nothing.vectors is not None and nothing.vectors.shape == (0, EMBEDDER.dimension)


def test_control_characters_and_bidirectional_marks_are_cleaned_from_names() -> None:
    got = fused([triple("FAB\u202eP5\x00", "blad\u200bder  cancer", types=(G, D))], prune_below=1)
    assert {n.name for n in got.nodes} == {"FABP5", "bladder cancer"}


def test_old_names_are_not_compared_again_and_the_pairs_are_the_same(tmp_path: Path) -> None:
    words = ["bladder", "tumor", "growth", "cell", "stroma"]
    names = [f"{a} {b} {c}" for a in words for b in words for c in words]
    cache = tmp_path / "pairs.npz"
    whole = similar_pairs(names, 0.8, EMBEDDER, None)
    similar_pairs(names[:100], 0.8, EMBEDDER, cache)
    model = Table({})
    model.name, model.dimension = EMBEDDER.name, EMBEDDER.dimension  # type: ignore[misc]
    model.embed = lambda texts: (model.asked.extend(texts), EMBEDDER.embed(texts))[1]  # type: ignore[method-assign]
    grown = similar_pairs(names, 0.8, model, cache)
    assert sorted(model.asked) == sorted(names[100:])
    assert grown.left.tolist() == whole.left.tolist()
    assert grown.right.tolist() == whole.right.tolist()
    assert len(whole) > 50


@pytest.mark.parametrize(
    "broken", ["pairs.npz", "pairs.vectors", "of another fusion", "truncated", "missing"]
)
def test_a_damaged_pair_cache_is_computed_again(tmp_path: Path, broken: str) -> None:
    cache, vectors = tmp_path / "pairs.npz", tmp_path / "pairs.vectors"
    similar_pairs(["bladder", "bladder tumor"], 0.7, EMBEDDER, cache)
    if broken == "of another fusion":  # two fusions that wrote at once
        vectors.write_bytes(EMBEDDER.embed(["bladder", "tumor stroma"]).tobytes())
    elif broken == "truncated":
        vectors.write_bytes(vectors.read_bytes()[:-4])
    elif broken == "missing":
        vectors.unlink()
    else:
        (tmp_path / broken).write_bytes(b"PK\x03\x04 damaged")
    for _ in range(2):
        found = similar_pairs(["bladder tumor", "bladder tumors"], 0.7, EMBEDDER, cache)
        assert (found.left.tolist(), found.right.tolist()) == ([0], [1])


_SPELLED = (
    "tumour growth", "Tumor growth", "tumor-growth", "growth of the tumor", "growth of tumors",
    "B cells", "B cell", "stroma", "stromal cells", "cell stroma",
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(_SPELLED), st.sampled_from(_SPELLED), st.integers(0, 3)),
        min_size=2,
        max_size=14,
    ),
    st.integers(1, 13),
    st.sampled_from(["guarded", "paper"]),
)
def test_statements_that_come_and_go_give_what_fusing_them_at_once_gives(
    said: list[tuple[str, str, int]], cut: int, mode: str
) -> None:
    told = [triple(head, tail, doc=f"doc-{doc}") for head, tail, doc in said]
    options = FusionOptions.model_validate({"mode": mode, "tau": 0.7, "prune_below": 1})
    with TemporaryDirectory() as folder:
        cache = Path(folder) / "pairs.npz"
        for some in (told[:cut], told, told[cut:] or told[:1]):
            steps = fuse(some, options, EMBEDDER, pair_cache=cache)
            once = fuse(some, options, EMBEDDER)
            assert replace(steps, vectors=None) == replace(once, vectors=None)
            assert np.array_equal(steps.vectors, once.vectors)


def test_readings_of_opposite_sign_speak_against_each_other() -> None:
    told = [
        triple("A1", "B1", polarity=Polarity.POSITIVE, confidence=0.9),
        triple("A1", "B1", polarity=Polarity.NEGATIVE, confidence=0.6, doc="b"),
        triple("A1", "B1", polarity=Polarity.NEUTRAL, confidence=0.5, doc="c"),
    ]
    up, down = fused(told, prune_below=1).edges
    assert (up.polarity, down.polarity) == (Polarity.POSITIVE, Polarity.NEGATIVE)
    assert [s.evidence.doc_id for s in up.supports] == ["doc-1", "c"]  # neutral goes with most
    of = graph(told)
    assert of.against(0) == [1] and of.against(1) == [0]
    assert of.belief[0] < graph(told[::2]).belief[0]
