"""Merges on data whose truth is known."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

from benchmarks.adapters.fusion import (
    KnownNames,
    calibrate,
    cluster_names,
    load_identities,
    score_fusion,
)
from kg.embedding import embed
from kg.embedding.cache import VectorCache
from kg.embedding.embed import MiniLM
from kg.fusion.merge import Clusters
from kg.fusion.model import FusionOptions
from kg.types import EntityType
from sage.core.errors import InputError
from tests.kg.gr_helpers import EMBEDDER, D, G

SHARED = Path(os.environ.get("SAGE_SHARED", Path(__file__).parents[2].parent / "shared"))


def shared(path: str) -> Path:
    found = SHARED / "data" / "knowledge" / path
    if not found.exists():
        pytest.skip(f"shared data are not here: {path}")
    return found


FULL = MiniLM()

KNOWN = KnownNames(
    names=tuple(
        (n, D) for n in ("Bladder Cancer", "bladder cancers", "renal cyst", "cyst, renal", "gout")
    ),
    identity={
        "Bladder Cancer": 0,
        "bladder cancers": 0,
        "renal cyst": 1,
        "cyst, renal": 1,
        "gout": 2,
    },
)


def test_a_score_counts_pairs() -> None:
    got = score_fusion(KNOWN, FusionOptions(similarity=False), None)
    assert (got.true_pairs, got.merged_pairs, got.correct_pairs) == (2, 2, 2)
    assert (got.precision, got.recall) == (1.0, 1.0)


def test_wrong_merges_are_counted_and_shown() -> None:
    known = KnownNames(KNOWN.names, {**KNOWN.identity, "bladder cancers": 9})
    got = score_fusion(known, FusionOptions(similarity=False), None)
    assert got.precision == 0.5
    assert got.wrong == (("Bladder Cancer", "bladder cancers"),)


def test_an_identity_table_links_names_by_shared_identifiers(tmp_path: Path) -> None:
    path = tmp_path / "names.tsv"
    path.write_text(
        "MESH\tM1\tone\tDOID\tD1\tuno\nMESH\tM2\tein\tDOID\tD1\tuno\nMESH\tM3\ttwo\tHGNC\t7\tdos\n"
    )
    known = load_identities(path)
    assert known.identity["one"] == known.identity["ein"] != known.identity["two"]
    assert dict(known.names)["dos"] == EntityType.GENE


def test_a_bad_identity_table_names_the_row(tmp_path: Path) -> None:
    path = tmp_path / "names.tsv"
    path.write_text("MESH\tM1\tone\tDOID\tD1\tuno\nMESH\tM2\n")
    with pytest.raises(InputError, match="row 2: 2 columns"):
        load_identities(path)


def test_calibration_takes_the_lowest_threshold_that_holds() -> None:
    names, identity = [], {}
    for n in range(60):
        stem = f"{'abcdefghij'[n % 10] * 4}{'klmnop'[n // 10] * 4} growth of renal pelvis"
        names += [(stem, D), (f"{stem.split()[0]} growing of renal pelves", D)]
        identity |= {names[-2][0]: n, names[-1][0]: n}
    known = KnownNames(tuple(names), identity)
    tau, scores = calibrate(known, EMBEDDER, precision=0.9, taus=(0.3, 0.6, 0.75, 0.9))
    assert tau is not None
    below = [s for s in scores if s.tau < tau]
    assert all(s.precision >= 0.9 for s in scores if s.tau >= tau)
    assert not below or below[-1].precision < 0.9


def test_calibration_refuses_too_few_names() -> None:
    with pytest.raises(InputError, match="at least 50"):
        calibrate(KNOWN, EMBEDDER)


@pytest.mark.shared
@pytest.mark.slow
def test_merges_of_names_with_known_identity_are_right_often_enough() -> None:
    known = load_identities(shared("name_identity/mesh_to_other.tsv"))
    # Every third pair of names: a third of the time, the same kinds of names.
    keep = {n for n, i in known.identity.items() if i % 3 == 0}
    part = KnownNames(tuple(x for x in known.names if x[0] in keep), known.identity)
    got = score_fusion(part, FusionOptions(), FULL)
    assert got.precision >= 0.80
    assert got.recall >= 0.19
    assert got.merges_by_tier["cosine"] > 5


@pytest.mark.shared
@pytest.mark.slow
def test_the_default_merges_names_as_its_weights_in_float32_do() -> None:
    known = load_identities(shared("name_identity/mesh_to_other.tsv"))
    names = tuple(x for x in known.names if known.identity[x[0]] % 120 == 0)
    part = KnownNames(names, {n: known.identity[n] for n, _ in names})
    options = FusionOptions(lexical=False)
    default, full = (score_fusion(part, options, e) for e in (embed.default(), FULL))
    assert default == full.model_copy(update={"embedder": default.embedder})
    assert default.merges_by_tier["cosine"] > 0


def mixed_clusters(
    clusters: Clusters, identifiers: dict[str, list[str]]
) -> list[tuple[str, tuple[str, ...]]]:
    """Clusters whose names carry different identifiers: (cluster id, its names)."""
    out = []
    for cluster in clusters.clusters:
        names = sorted({m[0] for m in cluster.members})
        groups: defaultdict[str, set[str]] = defaultdict(set)
        for name in names:
            for identifier in identifiers.get(name, ()):
                groups[identifier].add(name)
        if len(names) > 1 and len(groups) > 1:
            out.append((cluster.id, tuple(names)))
    return out


@pytest.mark.shared
@pytest.mark.slow
def test_no_two_hetionet_genes_share_a_cluster_by_cosine_alone(tmp_path: Path) -> None:
    rows = [
        line.split("\t")
        for line in shared("hetionet/hetionet-v1.0-nodes.tsv").read_text().splitlines()[1:]
    ]
    genes = {name: [id_] for id_, name, kind in rows if kind == "Gene"}
    options = FusionOptions(tau=0.9, lexical=False)
    # A fifth of the genes and all pathways, in which gene names occur.
    names = [(n, G) for n in sorted(genes)[::5]]
    names += [(n, EntityType.PATHWAY) for _, n, kind in rows if kind == "Pathway"]
    embedder = MiniLM(VectorCache(tmp_path / "vectors"))
    clusters = cluster_names(names, options, embedder)
    assert mixed_clusters(clusters, genes) == []
    paper = cluster_names(names, FusionOptions.paper(), embedder)
    assert len(mixed_clusters(paper, genes)) > 20  # the bare rule does what it is known for
