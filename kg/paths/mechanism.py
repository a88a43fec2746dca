"""Strength of a path as a mechanism, judged by its relations, inner nodes and overall sign.

A path of associations shows only that entities were studied together. In a mechanism,
each step is an action of one entity on another, all steps run in the same direction, and
the path does not turn at hubs.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from kg.graph.arrays import TYPES, GraphArrays
from kg.graph.belief import CAUSAL, POLARITIES, SIGNS
from kg.paths.score import Rows
from kg.types import EntityType, PathMechanism

Floats = NDArray[np.float64]

#: Relations in which two entities form a complex, without a direction.
PHYSICAL = frozenset(["binds", "target_of", "interacts_with", "complexes_with", "contains"])
#: Relations that state the location of an entity.
LOCATED = frozenset({
    "expressed_in", "overexpressed_in", "underexpressed_in", "mutated_in", "expresses",
    "participates_in", "acts_in",
})  # fmt: skip
_CAUSAL, _PHYSICAL, _LOCATED, _ASSOCIATED = 1.0, 0.8, 0.5, 0.3

#: Factor on the strength of a path without any causal step.
NO_CAUSE = 0.25
#: ... for each inner node that both of its steps act on: two causes of an effect.
COLLIDER = 0.4
#: ... for each inner node that acts on both of its neighbors: two effects of a cause.
FORK = 0.85
#: ... for each inner node whose two steps only associate: studied with each.
STUDIED_ALIKE = 0.4
#: ... for each step beyond the second.
LONGER = 0.9

#: Minimum number of neighbors of a hub, however small the graph.
_SMALLEST_HUB = 10

#: Types that link entities that were only measured or studied alike.
NO_BRIDGES = (
    EntityType.CLINICAL_ENDPOINT,
    EntityType.COHORT,
    EntityType.ALGORITHM,
    EntityType.STAINING_METHOD,
    EntityType.ORGANISM,
    EntityType.CELL_LINE,
)
_READOUT = re.compile(
    r"\b(survival|prognos\w*|outcomes?|mortality|death|recurrences?|progression|stage|grade|staging|"
    r"grading|cohorts?|patients?|h&e|hematoxylin|immunohistochemi\w*|sequencing|microarray|"
    r"follow-up|tumou?r size|multifocality|age|sex|margins?|nodal|(lymph )?node metastas[ie]s|"
    r"performance status|adverse (events?|effects?|reactions?)|side effects?|complications?|"
    r"biomarkers?|expression|levels?|risk|tissues?|samples?|cases?|controls?)$",
    re.IGNORECASE,
)
# Types that are observed in tissue or patients.
_OBSERVED = (
    EntityType.DISEASE, EntityType.CLINICAL_ENDPOINT, EntityType.CLINICAL_FACTOR,
    EntityType.IMAGING_FEATURE, EntityType.TISSUE_REGION,
)  # fmt: skip
_READ_OUT_TYPES = frozenset(
    {EntityType.CLINICAL_FACTOR, EntityType.DISEASE, EntityType.OTHER, EntityType.IMAGING_FEATURE}
)
_SETTING = re.compile(
    r"(cancers?|carcinomas?|tumou?rs?|neoplasms?|malignanc\w+|lymphomas?|melanomas?|sarcomas?|"
    r"gliomas?|leuka?emias?|diseases?|disorders?)$",
    re.IGNORECASE,
)


def list_blocked_nodes(graph: GraphArrays, types: tuple[EntityType, ...]) -> NDArray[np.int32]:
    """List nodes to exclude from path interiors: given types, readouts, and named settings.

    Settings are excluded because a cancer links everything that was studied in it.
    """

    def is_barred(node: int) -> bool:
        kind, name = TYPES[graph.types[node]], graph.names[node]
        if kind in _READ_OUT_TYPES and _READOUT.search(name):
            return True
        return kind in types or (kind == EntityType.DISEASE and bool(_SETTING.search(name)))

    found = [node for node in range(graph.n_nodes) if is_barred(node)] if types else []
    return np.array(found, dtype=np.int32)


def weigh_relations(graph: GraphArrays) -> Floats:
    """Score how strongly each edge's relation implies a mechanism, from 0.3 to 1; shape (m,)."""
    weight = dict.fromkeys(CAUSAL, _CAUSAL)
    weight |= dict.fromkeys(PHYSICAL, _PHYSICAL)
    weight |= dict.fromkeys(LOCATED, _LOCATED)
    by_relation = np.array([weight.get(name, _ASSOCIATED) for name in graph.relations])
    return by_relation[graph.relation] if graph.n_edges else np.zeros(0)


def strength(
    rows: Rows,
    edges: NDArray[np.int64],
    forward: NDArray[np.bool_],
    graph: GraphArrays,
) -> Floats:
    """Compute the strength of each path as a mechanism, in [0, 1].

    The strength is the geometric mean, over steps, of belief times role, multiplied by the
    geometric mean of the information content of the inner nodes. The latter is -log2(degree /
    sum of degrees), divided by its largest possible value, so that a hub explains little.
    Long paths, paths that turn and paths that only associate are penalized.

    Parameters
    ----------
    rows : (n, m) node positions, -1 at the end of short rows
    edges, forward : (n, m - 1) the edge for each step, -1 where there is none, and whether
        the path traverses it in its own direction
    """
    there = edges >= 0
    steps = np.maximum(there.sum(axis=1), 1)
    role = weigh_relations(graph)
    causal = role >= _CAUSAL
    held = np.asarray(graph.belief, dtype=np.float64) * role
    with np.errstate(divide="ignore"):
        logs = np.where(there, np.log(np.maximum(held, 1e-6))[edges], 0.0)
    value: Floats = np.exp(logs.sum(axis=1) / steps)
    acts = there & causal[edges]
    value *= np.where(acts.any(axis=1), 1.0, NO_CAUSE)
    inner = rows[:, 1:-1] if rows.shape[1] > 2 else rows[:, :0]
    passed = (inner >= 0) & (rows[:, 2:] >= 0) if rows.shape[1] > 2 else inner >= 0
    total = max(float(graph.degree.sum()), 2.0)
    content = -np.log(np.maximum(graph.degree, 1) / total) / np.log(total)
    content = np.maximum(content, 1e-6)
    logs = np.where(passed, np.log(content)[inner], 0.0)
    value *= np.exp(logs.sum(axis=1) / np.maximum(passed.sum(axis=1), 1))
    into, out_of = forward[:, :-1] & acts[:, :-1], forward[:, 1:] & acts[:, 1:]
    into_back, out_back = ~forward[:, 1:] & acts[:, 1:], ~forward[:, :-1] & acts[:, :-1]
    value *= COLLIDER ** (passed & into & into_back).sum(axis=1)
    value *= FORK ** (passed & out_of & out_back).sum(axis=1)
    value *= STUDIED_ALIKE ** (passed & ~acts[:, :-1] & ~acts[:, 1:]).sum(axis=1)
    value *= LONGER ** np.maximum(steps - 2, 0)
    return value


def find_hubs(graph: GraphArrays) -> NDArray[np.bool_]:
    """Find nodes linked to so many others that they explain nothing by themselves, (n,).

    Two nodes whose degrees exceed the structural cutoff sqrt(2 m) in a graph with m links are
    expected to be linked regardless of their identity (Boguñá, Pastor-Satorras and
    Vespignani, 2004).
    """
    cutoff = max(_SMALLEST_HUB, float(np.sqrt(graph.degree.sum())))
    return np.asarray(graph.degree > cutoff, dtype=np.bool_)


def acting(graph: GraphArrays) -> NDArray[np.bool_]:
    """Check whether each edge is causal, (m,)."""
    return np.asarray(weigh_relations(graph) >= _CAUSAL, dtype=np.bool_)


def turns(acts: NDArray[np.bool_], forward: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Check whether each path has causal steps in both directions, (n,), given (n, m) steps."""
    return np.logical_and((acts & forward).any(axis=1), (acts & ~forward).any(axis=1))


def carries(
    rows: Rows, edges: NDArray[np.int64], forward: NDArray[np.bool_], graph: GraphArrays
) -> NDArray[np.bool_]:
    """Check whether an effect can propagate along each path, so that it can be a mechanism, (n,).

    A direct link always carries an effect. A longer path does if its steps act in the same
    direction: two causes of the same effect do not influence each other, and neither do two
    effects of the same cause. Entities that bind each other are interchangeable. A step that
    only associates may end the path at an entity observed in tissue or patients (a disease,
    an endpoint, a feature). A step that only states a location may end it at a tissue or a
    feature, but not at a disease, because a level in a disease does not explain either of
    them. At least one inner node must not be a hub (`find_hubs`).

    Parameters
    ----------
    rows : (n, m) node positions, -1 at the end of short rows
    edges, forward : (n, m - 1) the edge for each step, -1 where there is none, and whether
        the path traverses it in its own direction
    """
    there = edges >= 0
    role = weigh_relations(graph)
    acts = there & acting(graph)[edges]
    idle = there & ~acts
    inner = there[:, 1:]
    last = there & ~np.pad(inner, ((0, 0), (0, 1)))
    observed, disease = (
        np.isin(graph.types, [TYPES.index(kind) for kind in kinds])[rows]
        for kinds in (_OBSERVED, [EntityType.DISEASE])
    )
    seen, ill = last & observed[:, 1:], last & disease[:, 1:]
    seen[:, 0] |= there[:, 0] & observed[:, 0]
    ill[:, 0] |= there[:, 0] & disease[:, 0]
    located = there & (role == _LOCATED)[edges]
    vague = (there & (role <= _ASSOCIATED)[edges] & ~seen) | (located & (ill | ~seen))
    broken = turns(acts, forward) | vague.any(axis=1) | (idle[:, :-1] & idle[:, 1:]).any(axis=1)
    direct = there.sum(axis=1) == 1
    passed = (rows[:, 1:-1] >= 0) & (rows[:, 2:] >= 0)
    borne = (passed & ~find_hubs(graph)[rows[:, 1:-1]]).any(axis=1)
    passes: NDArray[np.bool_] = np.logical_or(direct, acts.any(axis=1) & ~broken & borne)
    return passes


def mechanism_of(
    graph: GraphArrays,
    edges: NDArray[np.int64],
    forward: NDArray[np.bool_],
    value: float,
    noise: Floats | None = None,
) -> PathMechanism:
    """Describe a path as a mechanism by its overall sign, direction and weakest link.

    Parameters
    ----------
    edges : (s,) the path's edges in order, not empty
    forward : (s,) whether the path traverses each edge in its own direction
    value : the path's strength in [0, 1], from `strength`
    noise : strength of the best path on each rewired graph; None if not compared. A direct
        link is a statement in the literature and is not compared.

    Returns
    -------
    `sign` is the product of the steps' polarities; `directed` indicates whether every step
    acts in the same direction; `weakest` is the index of the step with the smallest belief
    times role.
    """
    role = weigh_relations(graph)[edges]
    signs = SIGNS[graph.polarity[edges]].astype(int)
    sign = int(np.prod(signs))
    causal = role >= _CAUSAL
    ahead = forward[causal]
    return PathMechanism(
        strength=value,
        noise=None if noise is None or len(edges) == 1 else float((noise >= value).mean()),
        sign=POLARITIES[int(np.flatnonzero(sign == SIGNS)[0])],
        causal_steps=int(causal.sum()),
        directed=bool(causal.all() and (ahead.all() or not ahead.any())),
        weakest=int(np.argmin(np.asarray(graph.belief)[edges] * role)),
    )
