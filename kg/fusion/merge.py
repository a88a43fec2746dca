"""Merging of names into clusters, by the guarded mode's tiers or by the paper's rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kg.embedding.embed import Embedder
from kg.fusion.mentions import Mention, Mentions
from kg.fusion.model import Entry, FusionOptions, Merge, MergeTier, OntologyLike
from kg.fusion.names import (
    Signature,
    are_compatible,
    clean_name,
    guard_allows,
    guard_signature,
    lexical_key,
)
from kg.fusion.pairs import similar_pairs
from kg.types import EntityType


@dataclass(slots=True)
class Cluster:
    """The names for an entity; the leader is the best attested name."""

    leader: Mention
    members: list[Mention]
    key: str
    entry: Entry | None = None
    why: dict[Mention, tuple[MergeTier, str, float | None]] = field(default_factory=dict)
    id: str = ""

    @property
    def type(self) -> EntityType:
        return self.entry.type if self.entry else self.leader[1]

    @property
    def name(self) -> str:
        return self.entry.name if self.entry else self.leader[0]

    def absorb(
        self, other: Cluster, tier: MergeTier, reason: str, score: float | None = None
    ) -> None:
        """Merge another cluster into this one and record the reason for its leader.

        Parameters
        ----------
        reason : explanation shown to users in the list of merges
        score : cosine of the two names in [-1, 1]; None for rules that do not measure similarity
        """
        for member in other.members:
            self.why[member] = other.why.get(member, (tier, reason, score))
        self.why[other.leader] = (tier, reason, score)
        self.members.extend(other.members)


class Clusters:
    """Clusters with identifiers, and the cluster of each mention."""

    def __init__(self, clusters: list[Cluster]) -> None:
        self.clusters = clusters
        self.of: dict[Mention, int] = {}
        used: dict[str, int] = {}
        for position, cluster in enumerate(clusters):
            stem = f"{cluster.type}:{cluster.name.replace(' ', '_')}"
            used[stem] = used.get(stem, 0) + 1
            cluster.id = stem if used[stem] == 1 else f"{stem}~{used[stem]}"
            for member in cluster.members:
                self.of[member] = position

    def merges(self, ids: Collection[str]) -> Iterator[Merge]:
        """Yield every merge into the nodes `ids`, in order of node and name."""
        joined = (c for c in self.clusters if (c.why or c.entry) and c.id in ids)
        for cluster in sorted(joined, key=lambda c: c.id):
            why = dict(cluster.why)
            if cluster.entry is not None and cluster.leader[0] != cluster.name:
                reason = f"names {cluster.entry.id} ({cluster.entry.name})"
                why[cluster.leader] = (MergeTier.DICTIONARY, reason, None)
            for mention in sorted(why):
                if mention == (cluster.name, cluster.type):
                    continue
                tier, reason, score = why[mention]
                yield Merge(
                    node=cluster.id,
                    kept=cluster.name,
                    joined=mention[0],
                    kept_type=cluster.type,
                    joined_type=mention[1],
                    tier=tier,
                    reason=reason,
                    score=score,
                )


class Apart:
    """Pairs of names declared to be different."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._of: defaultdict[str, set[str]] = defaultdict(set)
        for name, other in pairs:
            self._of[clean_name(name)].add(clean_name(other))
            self._of[clean_name(other)].add(clean_name(name))

    def forbids(self, cluster: Cluster, members: Iterable[Mention]) -> bool:
        """Check whether any name of the cluster is declared different from any of the members."""
        if not self._of:
            return False
        names = {m[0] for m in cluster.members}
        return any(self._of.get(m[0], set()) & names for m in members)


def merge_guarded(
    mentions: Mentions,
    options: FusionOptions,
    embedder: Embedder | None,
    ontology: OntologyLike | None,
    aliases: Mapping[str, str],
    pair_cache: Path | None,
) -> Clusters:
    """Merge by lexical key, then dictionary and abbreviations, then guarded similarity to a leader.

    Parameters
    ----------
    embedder : maps names to unit vectors; without it, the similarity tier is skipped
    ontology : finds an entry by any of its names; without it, only abbreviations are looked
        up
    aliases : short forms mapped to long forms, as defined in the texts or given by the user
    pair_cache : file of similar pairs from an earlier fusion, which is updated; None for no
        cache

    Returns
    -------
    Clusters with identifiers; each records the rule by which each member joined. Pairs in
    `options.apart` stay in different clusters even if a tier would merge them.
    """
    apart = Apart(options.apart)
    clusters = _lexical(mentions, options, apart)
    if options.dictionary:
        clusters = _dictionary(clusters, ontology, aliases, apart)
    if options.similarity and embedder is not None:
        clusters = _leaders(clusters, options, embedder, apart, pair_cache)
    return Clusters(clusters)


def _lexical(mentions: Mentions, options: FusionOptions, apart: Apart) -> list[Cluster]:
    by_key: defaultdict[str, list[Cluster]] = defaultdict(list)
    out: list[Cluster] = []
    for mention in mentions.rank():
        key = lexical_key(*mention) if options.lexical else mention[0]
        for cluster in by_key[key]:
            if are_compatible(cluster.leader[1], mention[1]) and not apart.forbids(
                cluster, [mention]
            ):
                cluster.members.append(mention)
                if mention[0] != cluster.leader[0] or mention[1] != cluster.leader[1]:
                    cluster.why[mention] = (MergeTier.LEXICAL, f'same key "{key}"', None)
                break
        else:
            cluster = Cluster(mention, [mention], key)
            by_key[key].append(cluster)
            out.append(cluster)
    return out


def _dictionary(
    clusters: list[Cluster],
    ontology: OntologyLike | None,
    aliases: Mapping[str, str],
    apart: Apart,
) -> list[Cluster]:
    if ontology is not None:
        by_entry: dict[str, Cluster] = {}
        kept: list[Cluster] = []
        for cluster in clusters:
            entry = _entry(cluster, ontology)
            first = by_entry.get(entry.id) if entry else None
            if entry is None or (first and apart.forbids(first, cluster.members)):
                kept.append(cluster)
            elif first is not None:
                first.absorb(
                    cluster, MergeTier.DICTIONARY, f"both are names of {entry.id} ({entry.name})"
                )
            else:
                cluster.entry = entry
                by_entry[entry.id] = cluster
                kept.append(cluster)
        clusters = kept
    # An abbreviation joins the cluster of its long form, where the texts mention both.
    at: defaultdict[str, list[Cluster]] = defaultdict(list)
    for cluster in clusters:
        for member in cluster.members:
            at[lexical_key(*member)].append(cluster)
    gone: set[int] = set()
    for short in sorted(aliases):
        long = aliases[short]
        for small in at.get(lexical_key(short), []):
            if id(small) in gone or small.entry is not None:
                continue
            for large in at.get(lexical_key(long), []):
                if (
                    large is small
                    or id(large) in gone
                    or not are_compatible(large.type, small.type)
                ):
                    continue
                if apart.forbids(large, small.members):
                    continue
                large.absorb(small, MergeTier.ABBREVIATION, f"{short} is defined as {long}")
                gone.add(id(small))
                break
    return [c for c in clusters if id(c) not in gone]


def _entry(cluster: Cluster, ontology: OntologyLike) -> Entry | None:
    for name, type_ in cluster.members:
        entry = ontology.find(name)
        if entry is not None and are_compatible(entry.type, type_):
            return entry
    return None


def _leaders(
    clusters: list[Cluster],
    options: FusionOptions,
    embedder: Embedder,
    apart: Apart,
    pair_cache: Path | None,
) -> list[Cluster]:
    """Merge each cluster, in order of leader rank, into a similar earlier cluster if allowed."""
    # Names are compared, not clusters' content: the pair cache then serves every later fusion.
    names = [c.leader[0] for c in clusters]
    pairs = similar_pairs(names, options.tau, embedder, pair_cache)
    # Most pairs differ in their guard signature; sorting those out on arrays leaves few.
    number: dict[Signature, int] = {}
    signature = np.full(len(names), -1, dtype=np.int64)
    for n in np.unique(np.concatenate([pairs.left, pairs.right])).tolist():
        signature[n] = number.setdefault(guard_signature(names[n]), len(number))
    keep = signature[pairs.left] == signature[pairs.right]
    similar: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for i, j, cosine in zip(
        pairs.left[keep].tolist(),
        pairs.right[keep].tolist(),
        pairs.cosine[keep].tolist(),
        strict=True,
    ):
        similar[j].append((-cosine, i))
    leads = [True] * len(clusters)
    for position, cluster in enumerate(clusters):
        for negative, other in sorted(similar.get(position, ())):
            leader = clusters[other]
            if not leads[other] or (leader.entry and cluster.entry):
                continue  # two dictionary entries are two things, however alike
            if apart.forbids(leader, cluster.members):
                continue
            if guard_allows(leader.leader[0], cluster.leader[0], leader.type, cluster.type):
                if cluster.entry is not None and leader.entry is None:
                    leader.entry = cluster.entry
                leader.absorb(
                    cluster,
                    MergeTier.COSINE,
                    f"cosine {-negative:.4f} >= {options.tau:g} to the leader, guard passed",
                    round(-negative, 6),
                )
                leads[position] = False
                break
    return [c for c, lead in zip(clusters, leads, strict=True) if lead]


def merge_paper(
    mentions: Mentions, options: FusionOptions, embedder: Embedder, pair_cache: Path | None
) -> Clusters:
    """Merge identical names, then chain all names with cosine >= tau, regardless of type.

    Parameters
    ----------
    options : only tau is used, the minimum cosine for merging two names
    pair_cache : file of similar pairs from an earlier fusion, which is updated; None for no
        cache

    Returns
    -------
    Clusters with identifiers. A name may join through other names even if its own cosine with
    the leader is below tau; its score is its highest cosine with any name.

    Source: SAGE, 3.1.
    """
    by_name: dict[str, Cluster] = {}
    for mention in mentions.rank():
        if mention[0] in by_name:
            cluster = by_name[mention[0]]
            cluster.members.append(mention)
            cluster.why[mention] = (MergeTier.LEXICAL, "same name", None)
        else:
            by_name[mention[0]] = Cluster(mention, [mention], mention[0])
    ordered = list(by_name.values())
    pairs = similar_pairs([c.leader[0] for c in ordered], options.tau, embedder, pair_cache)
    parent = list(range(len(ordered)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    best: dict[int, float] = {}
    for i, j, cosine in zip(
        pairs.left.tolist(), pairs.right.tolist(), pairs.cosine.tolist(), strict=True
    ):
        a, b = sorted((root(i), root(j)))
        parent[b] = a
        for end in (i, j):
            best[end] = max(best.get(end, 0.0), cosine)
    kept: list[Cluster] = []
    for position, cluster in enumerate(ordered):
        at = root(position)
        if at == position:
            kept.append(cluster)
        else:
            score = round(best[position], 6)
            ordered[at].absorb(
                cluster,
                MergeTier.COSINE_CHAINED,
                f"chained: nearest name in the cluster at cosine {score:.4f} >= {options.tau:g}",
                score,
            )
    return Clusters(kept)
