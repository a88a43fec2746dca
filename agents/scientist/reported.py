"""Findings in papers on a claim's variables and clinical endpoints, from typed graph edges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from agents.core.types import Citation, Reported
from agents.scientist.chains import SIGN, harm
from agents.scientist.tools import Workbench
from kg.graph.types import EdgeView
from kg.types import EntityType
from validation.core.hypothesis import Hypothesis

Risk = Literal["higher", "lower", "none"]


def list_reported(
    bench: Workbench, hypothesis: Hypothesis, concepts: tuple[str, ...]
) -> tuple[Reported, ...]:
    """List findings on whether more of an exposure is associated with a better or worse outcome.

    An edge counts if it joins an exposure's node to a clinical endpoint and has a sign, or
    denies an association; edges from speculative or retracted sources do not count.
    """
    endpoint = bench.cohort.dictionary.endpoint(hypothesis.endpoint)
    if endpoint is None or endpoint.kind not in ("survival", "competing"):
        return ()
    graph, found = bench.graph, dict[tuple[str, str, str], Reported]()
    tails = (item.variable.split(":")[-1].replace("_", " ") for item in hypothesis.exposures)
    nodes = {graph.exact(name) for name in (*concepts, *tails)} - {None}
    for at in sorted(node for node in nodes if node is not None):
        node = graph.node(at)
        held = {*bench.find_variables(node.name, *node.aliases)}
        for exposure in hypothesis.exposures:
            if exposure.variable not in held:
                continue
            for edge, risk in _outcome_edges(bench, at):
                for support in edge.supports:
                    if support.speculative or support.evidence.retracted:
                        continue
                    cited = Citation.of(support.evidence, support.evidence.text)
                    reported = Reported(variable=exposure.variable, risk=risk, citation=cited)
                    found.setdefault((exposure.variable, cited.key, risk), reported)
    return tuple(found.values())


def _outcome_edges(bench: Workbench, at: int) -> Iterator[tuple[EdgeView, Risk]]:
    """Yield the edges between a node and clinical endpoints, with the reported risk."""
    graph = bench.graph
    indptr, indices = graph.adjacency
    for other in indices[indptr[at] : indptr[at + 1]].tolist():
        outcome = graph.node(other)
        if outcome.type is not EntityType.CLINICAL_ENDPOINT:
            continue
        for pair in ((at, other), (other, at)):
            for edge in map(graph.edge, graph.edges_between(*pair)):
                sign = SIGN[edge.polarity] * harm(outcome.name, outcome.type)
                if edge.negated or sign:
                    yield edge, "none" if edge.negated else "higher" if sign > 0 else "lower"
