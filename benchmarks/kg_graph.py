"""Speed of the graph half of `kg`, own figures beside peers' in one run.

    python benchmarks/kg_graph.py [--quick] [--only paths,fusion,...]

Graphs and vectors are synthetic, of the paper's size (41,053 nodes, 56,338 edges), made from a
fixed seed. Peers that are not installed are left out. Each figure is the best of a few.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kg.embedding.embed import FloatArray, HashingEmbedder, normalize
from kg.fusion.model import FusedEdge, FusedGraph, FusedNode, FusionOptions, Support
from kg.graph.model import Graph
from kg.types import EntityType, Evidence, Polarity

NODES, EDGES = 41_053, 56_338
PARTS = ("fusion", "paths", "scoring", "files", "embedding")


def synthetic(nodes: int, edges: int, seed: int = 7) -> Graph:
    """A connected graph with a heavy-tailed degree distribution and one reading per edge."""
    rng = np.random.default_rng(seed)
    types = list(EntityType)
    ends = np.zeros(2 * edges, dtype=np.int64)
    seen: set[tuple[int, int]] = set()
    m = 0
    while m < edges:
        # A tree first: each new node joins a hub, an end of an earlier edge, or any earlier node.
        a = m + 1 if m < nodes - 1 else int(rng.integers(nodes))
        luck = rng.random()
        if luck < 0.3:
            b = min(int(rng.zipf(1.5)) - 1, 199) if a > 200 else 0
        else:
            b = int(ends[rng.integers(0, 2 * m)]) if m and luck < 0.8 else int(rng.integers(a or 1))
        if a != b and (a, b) not in seen and (b, a) not in seen:
            seen.add((a, b))
            ends[2 * m : 2 * m + 2] = a, b
            m += 1
    made = []
    for n, (head, tail) in enumerate(sorted(seen)):
        text = f"Statement {n}: entity {head} was linked to entity {tail} in this cohort."
        evidence = Evidence(
            doc_id=f"doc-{n % 1650}",
            chunk_id=f"c{n}",
            section="Results",
            start=0,
            end=len(text),
            text=text,
            title=f"Paper {n % 1650}",
            year=2000 + n % 25,
        )
        support = Support(
            evidence=evidence, confidence=float(rng.uniform(0.5, 1.0)), relation_text="linked"
        )
        relation = f"relation_{int(rng.integers(24))}"
        made.append(FusedEdge(head, relation, tail, Polarity.NEUTRAL, False, (support,)))
    kinds = [types[k] for k in rng.integers(0, len(types), nodes)]
    names = [f"entity {n}" for n in range(nodes)]
    return Graph.from_fused(
        FusedGraph(
            nodes=tuple(
                FusedNode(f"{t.value}:{name.replace(' ', '_')}", name, t, (name,))
                for name, t in zip(names, kinds, strict=True)
            ),
            edges=tuple(made),
            merges=(),
            options=FusionOptions(),
            embedder="hashing-384",
            vectors=clustered(nodes, 384),
            dropped={},
        )
    )


def clustered(n: int, d: int, seed: int = 3) -> FloatArray:
    """Unit vectors with the falling spectrum of sentence embeddings and some near duplicates."""
    rng = np.random.default_rng(seed)
    spectrum = 1.0 / np.sqrt(1.0 + np.arange(d))
    x = rng.standard_normal((n, d)) * spectrum
    near = rng.choice(n, n // 5, replace=False)
    x[near] = x[rng.choice(n, n // 5)] + 0.35 * rng.standard_normal((n // 5, d)) * spectrum
    return normalize(x)


def best(act: Callable[[], Any], times: int = 3) -> float:
    """Seconds of the fastest of some runs."""
    out = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        out.append(time.perf_counter() - start)
    return min(out)


def line(what: str, seconds: float, target: str = "", note: str = "") -> None:
    """One row of the table."""
    figure = f"{seconds * 1000:10.2f} ms" if seconds < 1 else f"{seconds:10.2f} s "
    print(f"{what:<60}{figure}  {target:<10}{note}", flush=True)


def fusion(quick: bool) -> None:
    """All pairs above tau."""
    from kg.fusion.cosine import find_cross_pairs, find_pairs

    find_pairs(clustered(3000, 384), 0.9)  # compiles
    for n, target in ((NODES, "<= 5 s"), (100_000, "<= 20 s")):
        if quick and n > NODES:
            continue
        x = clustered(n, 384)
        tracemalloc.start()
        found = find_pairs(x, 0.9)
        extra = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        seconds = best(lambda x=x: find_pairs(x, 0.9), 2)
        note = f"{len(found):,} pairs, {extra:.0f} MiB extra"
        line(f"fusion pairs, {n:,} x 384, tau 0.9", seconds, target, note)
        if n > NODES:
            continue
        new = clustered(500, 384, seed=9)
        line(
            "  500 new names against them",
            best(lambda n=new, x=x: find_cross_pairs(n, x, 0.9)),
            "< 200 ms",
        )

        cached(x)

        def blocked(x: FloatArray = x) -> int:
            blocks = range(0, len(x), 1024)
            return sum(int((x[a : a + 1024] @ x[a:].T >= 0.9).sum()) for a in blocks)

        line("  peer: numpy, blocked full product", best(blocked, 1))
        if not quick:
            from sklearn.neighbors import radius_neighbors_graph

            radius = float(np.sqrt(0.2))
            seconds = best(lambda x=x, r=radius: radius_neighbors_graph(x, r, n_jobs=1), 1)
            line("  peer: scikit-learn radius_neighbors_graph", seconds)


class Given:
    """An embedder whose vectors are there already: what is left is comparison and files."""

    name = "given"
    dimension = 384

    def __init__(self, vectors: FloatArray) -> None:
        self._vectors = vectors

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Rows whose numbers are the texts."""
        return self._vectors[[int(t) for t in texts]]


def cached(x: FloatArray) -> None:
    """A fusion that meets 500 new names, with its cache of pairs read and written."""
    from kg.fusion.pairs import similar_pairs

    names = [str(n) for n in range(len(x))]
    with tempfile.TemporaryDirectory() as folder:
        file, kept = Path(folder) / "pairs.npz", Path(folder) / "kept.npz"
        similar_pairs(names[:-500], 0.9, Given(x), kept)
        times = []
        for _ in range(3):
            for suffix in (".npz", ".vectors"):
                shutil.copy(kept.with_suffix(suffix), file.with_suffix(suffix))
            start = time.perf_counter()
            similar_pairs(names, 0.9, Given(x), file)
            times.append(time.perf_counter() - start)
        line("  the same with the file of known pairs read and written", min(times))


def paths(quick: bool, graph: Graph) -> None:
    """Paths between random nodes and between hubs."""
    from kg.paths.search import Searcher

    indptr, indices = graph.adjacency
    hubs = np.argsort(-graph.degree, kind="stable")[:10].tolist()
    rng = np.random.default_rng(1)
    random = [tuple(rng.choice(graph.n_nodes, 2, replace=False).tolist()) for _ in range(50)]
    hub_pairs = [(a, b) for a in hubs[:5] for b in hubs[5:]]

    def k20(pair: tuple[int, int]) -> int:
        search = Searcher(indptr, indices, np.array([pair[1]], dtype=np.int32), 5)
        return len(search.shortest(pair[0], 20).rows)

    def everything(pair: tuple[int, int]) -> int:
        target = np.array([pair[1]], dtype=np.int32)
        search = Searcher(indptr, indices, target, 5, budget=10**12)
        return sum(search.count(pair[0], hops)[0] for hops in range(1, 6))

    k20(random[0])
    everything(random[0])
    for what, chosen, target in (
        ("20 paths, <= 5 hops, random pair (median of 50)", random, "<= 5 ms"),
        ("20 paths, <= 5 hops, between hubs (median of 25)", hub_pairs, "<= 10 ms"),
    ):
        each = [best(lambda p=p: k20(p)) for p in chosen]
        line(what, float(np.median(each)), target, f"worst {max(each) * 1000:.2f} ms")
    top = (hubs[0], hubs[1])
    note = f"{everything(top):,} paths, degrees {graph.degree[top[0]]}, {graph.degree[top[1]]}"
    line("all paths, <= 5 hops, two largest hubs", best(lambda: everything(top)), "<= 300 ms", note)
    ends = list(zip(graph.head.tolist(), graph.tail.tolist(), strict=True))
    try:
        import networkx as nx
    except ImportError:
        return
    g = nx.Graph(ends)

    def peer(pair: tuple[int, int]) -> int:
        return len(list(itertools.islice(nx.shortest_simple_paths(g, *pair), 20)))

    line("  peer: networkx shortest_simple_paths, 20, hubs", best(lambda: peer(hub_pairs[0]), 1))
    if not quick:
        seconds = best(lambda: sum(1 for _ in nx.all_simple_paths(g, *top, cutoff=4)), 1)
        line("  peer: networkx all_simple_paths, only <= 4 hops, hubs", seconds)
    try:
        import rustworkx as rx
    except ImportError:
        return
    r = rx.PyGraph()
    r.add_nodes_from(range(graph.n_nodes))
    r.add_edges_from_no_data(ends)
    seconds = best(lambda: rx.all_simple_paths(r, *top, cutoff=6), 1)
    line("  peer: rustworkx all_simple_paths, <= 5 hops, hubs", seconds)


def scoring(graph: Graph) -> None:
    """Relevance, Novelty, Surprise of 10,000 candidates, and a whole search."""
    from kg.graph.arrays import TYPES
    from kg.paths.find import PathOptions, find_between
    from kg.paths.score import score_candidates
    from kg.paths.search import Searcher

    indptr, indices = graph.adjacency
    hubs = np.argsort(-graph.degree, kind="stable")[:2].tolist()
    search = Searcher(indptr, indices, np.array([hubs[1]], dtype=np.int32), 5)
    rows = search.spread(hubs[0], 10_000, 1, 0).rows
    distances = np.random.default_rng(0).uniform(0.5, 1.5, graph.n_nodes)

    def score() -> Any:
        return score_candidates(rows, distances, graph.degree, graph.types, len(TYPES))

    line(f"scoring {len(rows):,} candidate paths (all but Logic)", best(score), "<= 20 ms")
    embedder = HashingEmbedder(384)
    names = [graph.ids[h] for h in hubs]
    options = PathOptions(max_candidates=2000)
    seconds = best(lambda: find_between(graph, *names, options, embedder))
    line("a whole search between hubs, 2,000 candidates, hashing", seconds)


def files(quick: bool, graph: Graph) -> None:
    """Sidecar and GraphML."""
    from kg.graph import graphml, graphml_read

    with tempfile.TemporaryDirectory() as folder:
        side = Path(folder) / "graph.kg"
        xml = Path(folder) / "graph.graphml"
        line("sidecar written", best(lambda: graph.save_sidecar(side)))
        line("sidecar loaded", best(lambda: Graph.load(side)), "<= 300 ms")

        def ready() -> Any:
            loaded = Graph.load(side)
            return loaded.adjacency, loaded.resolve("entity 17")

        line("sidecar loaded, adjacency and name index made", best(ready))
        seconds = best(lambda: graphml.write(graph, xml))
        line("GraphML written", seconds, "<= 1 s", f"{xml.stat().st_size / 2**20:.0f} MiB")
        line("GraphML read", best(lambda: graphml_read.read_graphml(xml), 1))
        try:
            import networkx as nx
        except ImportError:
            return
        if not quick:
            g = nx.read_graphml(xml)
            line("  peer: networkx read_graphml", best(lambda: nx.read_graphml(xml), 1))
            out = Path(folder) / "peer.graphml"
            line("  peer: networkx write_graphml", best(lambda: nx.write_graphml(g, out), 1))


def embedding(quick: bool) -> None:
    """Names embedded per second."""
    from kg.embedding.embed import default, minilm_folder

    words = (
        ("loss", "gain", "expression", "density"),
        ("stroma", "nucleus", "CD8+ T cell", "urothelium"),
        ("bladder cancer", "muscle", "TCGA", "cohort", "lymph node"),
    )
    some = [f"{a} of the {b} in {c}" for a, b, c in itertools.product(*words)]
    names = [f"{name} {n}" for n in range(2 if quick else 12) for name in some]
    model = default()
    model.embed(names[:4])
    line(f"{len(names)} names embedded, MiniLM in fp32", best(lambda: model.embed(names), 2))
    if quick:
        return
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(minilm_folder()))
    line("  peer: sentence-transformers, fp32", best(lambda: peer.encode(names), 1))
    agreement = float((model.embed(names) * normalize(peer.encode(names))).sum(axis=1).min())
    print(f"    least cosine between ours and the peer's: {agreement:.5f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="no slow peers, no 100,000 names")
    parser.add_argument("--only", default="", help=f"comma-separated: {','.join(PARTS)}")
    given = parser.parse_args()
    wanted = set(filter(None, given.only.split(","))) or set(PARTS)
    if "fusion" in wanted:
        fusion(given.quick)
    if wanted & {"paths", "scoring", "files"}:
        graph = synthetic(NODES, EDGES)
        if "paths" in wanted:
            paths(given.quick, graph)
        if "scoring" in wanted:
            scoring(graph)
        if "files" in wanted:
            files(given.quick, graph)
    if "embedding" in wanted:
        embedding(given.quick)


if __name__ == "__main__":
    main()
