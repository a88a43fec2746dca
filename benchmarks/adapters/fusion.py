"""Fusion: merges of names against known identities, over thresholds of similarity."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.runner import Report, Row
from kg.embedding.embed import Embedder
from kg.fusion.mentions import Mentions
from kg.fusion.merge import Clusters, merge_guarded, merge_paper
from kg.fusion.model import FusionOptions, OntologyLike
from kg.types import EntityType
from sage.core.errors import InputError
from sage.core.models import Strict

#: Types of the namespaces that identity files name.
NAMESPACE_TYPES: Mapping[str, EntityType] = {
    "CHEBI": EntityType.CHEMICAL,
    "DOID": EntityType.DISEASE,
    "MONDO": EntityType.DISEASE,
    "EFO": EntityType.DISEASE,
    "HP": EntityType.DISEASE,
    "HGNC": EntityType.GENE,
    "FPLX": EntityType.PROTEIN,
    "GO": EntityType.BIOLOGICAL_PROCESS,
    "UBERON": EntityType.TISSUE_REGION,
    "CL": EntityType.CELL_TYPE,
}


@dataclass(frozen=True)
class KnownNames:
    """Names with types; `identity` numbers the concept of each name."""

    names: tuple[tuple[str, EntityType], ...]
    identity: Mapping[str, int]


class FusionScore(Strict):
    """Merged pairs of names against pairs of one concept.

    Known identity is incomplete, so `precision` is a lower bound.
    """

    mode: str
    tau: float
    embedder: str | None
    names: int
    true_pairs: int
    merged_pairs: int
    correct_pairs: int
    precision: float
    recall: float
    clusters: int
    largest_cluster: int
    merges_by_tier: dict[str, int]
    wrong: tuple[tuple[str, str], ...] = ()


def load_identities(path: str | Path) -> KnownNames:
    """Load names of known identity from a table of mappings.

    Columns, tab-separated, no header: namespace, id, name, other namespace, other id, other name.

    Raises
    ------
    InputError
        If the file is missing, or a row has other than six columns.
    """
    path = Path(path)
    parent: dict[str, str] = {}

    def root(x: str) -> str:
        parent.setdefault(x, x)
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    types: dict[str, EntityType] = {}
    names: list[str] = []
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for number, row in enumerate(csv.reader(stream, delimiter="\t", quoting=3), start=1):
                if len(row) != 6:
                    raise InputError(
                        f"{path}, row {number}: {len(row)} columns, expected 6 (namespace, id, "
                        "name, other namespace, other id, other name; separated by tabs)."
                    )
                space, id_, name, other_space, other_id, other = row
                ids = (f"{space}\0{id_}", f"{other_space}\0{other_id}")
                keys = [*ids, f"name\0{name}", f"name\0{other}"]
                for key in keys[1:]:
                    parent[root(key)] = root(keys[0])
                type_ = NAMESPACE_TYPES.get(other_space, EntityType.OTHER)
                for each in (name, other):
                    if each not in types:
                        names.append(each)
                        types[each] = type_
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}).") from error
    number_of: dict[str, int] = {}
    identity = {n: number_of.setdefault(root(f"name\0{n}"), len(number_of)) for n in names}
    return KnownNames(tuple((n, types[n]) for n in names), identity)


def cluster_names(
    names: Iterable[tuple[str, EntityType]],
    options: FusionOptions,
    embedder: Embedder | None,
    ontology: OntologyLike | None = None,
    pair_cache: Path | None = None,
) -> Clusters:
    """Fuse bare names, each mentioned once, as a build does.

    Raises
    ------
    InputError
        If the options need an embedding model and there is none.
    """
    mentions = Mentions()
    for name, type_ in names:
        mentions.add_name(name, type_)
    if options.mode == "paper":
        if embedder is None:
            raise InputError("paper mode needs an embedding model.")
        return merge_paper(mentions, options, embedder, pair_cache)
    return merge_guarded(mentions, options, embedder, ontology, {}, pair_cache)


def score_fusion(
    known: KnownNames,
    options: FusionOptions,
    embedder: Embedder | None,
    *,
    ontology: OntologyLike | None = None,
    pair_cache: Path | None = None,
    show: int = 20,
) -> FusionScore:
    """Score merges of known names pairwise; `show` wrong pairs are returned as examples."""
    clusters = cluster_names(known.names, options, embedder, ontology, pair_cache)
    groups = [sorted({m[0] for m in c.members}) for c in clusters.clusters]
    merged, correct = 0, 0
    wrong: list[tuple[str, str]] = []
    for group in groups:
        inside = Counter(known.identity[n] for n in group if n in known.identity)
        merged += _pairs(len(group))
        correct += sum(_pairs(c) for c in inside.values())
        if len(inside) > 1 and len(wrong) < show:
            first = known.identity[group[0]]
            other = next((n for n in group if known.identity[n] != first), None)
            if other is not None:
                wrong.append((group[0], other))
    true = sum(_pairs(c) for c in Counter(known.identity.values()).values())
    tiers = Counter(m.tier.value for m in clusters.merges({c.id for c in clusters.clusters}))
    return FusionScore(
        mode=options.mode,
        tau=options.tau,
        embedder=embedder.name if embedder else None,
        names=len(known.names),
        true_pairs=true,
        merged_pairs=merged,
        correct_pairs=correct,
        precision=correct / merged if merged else 1.0,
        recall=correct / true if true else 1.0,
        clusters=len(groups),
        largest_cluster=max(map(len, groups), default=0),
        merges_by_tier=dict(sorted(tiers.items())),
        wrong=tuple(wrong),
    )


def _pairs(n: int) -> int:
    return n * (n - 1) // 2


def calibrate(
    known: KnownNames,
    embedder: Embedder,
    *,
    precision: float = 0.8,
    taus: tuple[float, ...] = (0.85, 0.875, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99),
    options: FusionOptions | None = None,
    pair_cache: Path | None = None,
) -> tuple[float | None, list[FusionScore]]:
    """Find the lowest threshold from which on merges reach a precision, with all scores.

    Raises
    ------
    InputError
        If there are fewer than 50 pairs of known identity.
    """
    base = options or FusionOptions()
    scores = [
        score_fusion(known, base.model_copy(update={"tau": tau}), embedder, pair_cache=pair_cache)
        for tau in sorted(taus)
    ]
    if scores[0].true_pairs < 50:
        raise InputError(f"only {scores[0].true_pairs} pairs of known identity; at least 50 needed")
    chosen = None
    for score in reversed(scores):
        if score.precision < precision:
            break
        chosen = score.tau
    return chosen, scores


def run(
    identities: Annotated[Path, typer.Argument(help="Table of mapped names.")],
    precision: Annotated[float, typer.Option(min=0.01, max=1)] = 0.8,
) -> Report:
    """Score merges over thresholds, and choose one."""
    from sage.run.wiring import make_embedder
    from sage.settings import load

    tau, scores = calibrate(load_identities(identities), make_embedder(load()), precision=precision)
    rows = tuple(
        Row(
            benchmark=f"Fusion, threshold {score.tau:g}{' (chosen)' * (score.tau == tau)}",
            measured=f"{score.names:,} names, {score.true_pairs:,} pairs of one concept",
            sage=f"precision {score.precision:.3f}, recall {score.recall:.3f}",
            notes=("known identities are incomplete: precision is a lower bound.",),
        )
        for score in scores
    )  # fmt: skip
    return Report(rows=rows, data=[score.model_dump() for score in scores])
