"""Choice of adjustment covariates from a declared causal diagram.

A diagram is a list of arrows (`age -> stage`). The adjustment set is a minimal set that
closes every back-door path from exposure to outcome (Pearl, Causality, 2009, section
3.3). Covariates that would bias the effect are reported: mediators and other effects of
the exposure, and colliders.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from sage.core.errors import InputError
from sage.core.models import Strict

if TYPE_CHECKING:
    import networkx as nx

MOST_ARROWS = 200
MOST_PATHS = 200


class Warned(Strict):
    """A covariate that should not be adjusted for, and the reason."""

    variable: str
    role: str
    text: str


class Adjustment(Strict):
    """Adjustment for confounding implied by a causal diagram.

    `covariates` is a minimal sufficient set among the measured variables, or None if there is
    none; in that case `open_path` is a back-door path that no measured variable closes.
    """

    exposure: str
    outcome: str
    covariates: tuple[str, ...] | None
    open_path: tuple[str, ...] = ()
    mediators: tuple[str, ...] = ()
    colliders: tuple[str, ...] = ()
    warned: tuple[Warned, ...] = ()

    def lines(self) -> list[str]:
        """Describe the adjustment in sentences."""
        if self.covariates is None:
            path = " - ".join(self.open_path)
            found = [
                f"No measured set of covariates removes the confounding of {self.exposure} and "
                f"{self.outcome}: the path {path} stays open. Measure a variable on it."
            ]
        elif not self.covariates:
            found = [f"Nothing confounds {self.exposure} and {self.outcome}: adjust for nothing."]
        else:
            found = [
                f"Adjusting for {', '.join(self.covariates)} closes every back-door path from "
                f"{self.exposure} to {self.outcome}."
            ]
        if self.mediators:
            found.append(
                f"Mediators (adjusting for them removes part of the effect): "
                f"{', '.join(self.mediators)}."
            )
        if self.colliders:
            found.append(
                f"Colliders (adjusting for them opens a path): {', '.join(self.colliders)}."
            )
        return [*found, *(warning.text for warning in self.warned)]


def read_arrows(arrows: Iterable[str]) -> list[tuple[str, str]]:
    """Parse arrows into pairs of cause and effect; a line may chain several (`a -> b -> c`).

    Raises `InputError` if a line is not an arrow, or the arrows form a cycle.
    """
    found: list[tuple[str, str]] = []
    for line in arrows:
        names = [part.strip() for part in line.split("->")]
        if len(names) < 2 or not all(names):
            raise InputError(f'causal diagram: "{line}" is not an arrow; write "cause -> effect"')
        found += list(pairwise(names))
    if len(found) > MOST_ARROWS:
        raise InputError(f"causal diagram: {len(found)} arrows, but the maximum is {MOST_ARROWS}")
    if not found:
        return found
    import networkx as nx  # takes as long to import as a small claim's tests

    graph = nx.DiGraph(found)
    if not nx.is_directed_acyclic_graph(graph):
        circle = [cause for cause, _ in nx.find_cycle(graph)]
        raise InputError(
            f"causal diagram: {' -> '.join([*circle, circle[0]])} is a cycle; a cause must precede "
            "its effect"
        )
    return found


def adjust(
    arrows: Iterable[str],
    exposures: Collection[str],
    outcome: str,
    *,
    measured: Collection[str] | None = None,
    chosen: Collection[str] = (),
) -> Adjustment:
    """Find the adjustment set implied by a diagram, and problems in a chosen set.

    Parameters
    ----------
    arrows : lines of the form "cause -> effect"
    measured : variables that can be adjusted for; None for all variables in the diagram

    Raises
    ------
    InputError
        If the diagram is malformed, lacks an exposure or the outcome, or puts the outcome
        before an exposure.
    """
    import networkx as nx

    graph = nx.DiGraph(read_arrows(arrows))
    for name in (*exposures, outcome):
        if name not in graph:
            raise InputError(
                f'causal diagram: unknown variable "{name}"; available variables: '
                f"{', '.join(sorted(graph))}"
            )
    causes = set(exposures)
    effects: set[str] = set().union(*(nx.descendants(graph, name) for name in causes)) - causes
    if outcome not in effects and any(outcome in nx.ancestors(graph, name) for name in causes):
        raise InputError(
            f"causal diagram: {outcome} precedes the exposure, so there is no effect to estimate"
        )
    before = nx.ancestors(graph, outcome)
    mediators = tuple(sorted(effects & before))
    usable = set(graph) if measured is None else set(measured) & set(graph)
    allowed = usable - effects - causes - {outcome}
    # After removing the arrows out of the exposures, any remaining connection is confounding.
    backdoor = graph.copy()
    backdoor.remove_edges_from([edge for edge in graph.edges if edge[0] in causes])
    found = nx.find_minimal_d_separator(backdoor, causes, {outcome}, restricted=allowed)
    path = () if found is not None else _open_path(backdoor, causes, outcome, allowed)
    confounders = set() if found is None else set(found)
    colliders = {
        name
        for name in (allowed | (effects & usable)) - {outcome}
        if graph.in_degree(name) > 1 and _opens(graph, backdoor, causes, outcome, name, confounders)
    } | (effects & nx.descendants(graph, outcome) & usable)
    return Adjustment(
        exposure=" and ".join(exposures),
        outcome=outcome,
        covariates=None if found is None else tuple(sorted(found)),
        open_path=path,
        mediators=mediators,
        colliders=tuple(sorted(colliders - set(mediators))),
        warned=tuple(
            warning
            for name in chosen
            if (warning := _warning(name, graph, effects, mediators, colliders, outcome))
        ),
    )


def _opens(
    graph: nx.DiGraph,
    backdoor: nx.DiGraph,
    causes: set[str],
    outcome: str,
    name: str,
    adjusted: set[str],
) -> bool:
    """Check whether adding `name` to the `adjusted` set reconnects exposure and outcome."""
    import networkx as nx

    if name in adjusted:
        return False
    closed = nx.is_d_separator(backdoor, causes, {outcome}, adjusted)
    return bool(closed and not nx.is_d_separator(backdoor, causes, {outcome}, adjusted | {name}))


def _open_path(
    backdoor: nx.DiGraph, causes: set[str], outcome: str, allowed: set[str]
) -> tuple[str, ...]:
    """Find a shortest path from exposure to outcome that adjusting for `allowed` cannot close."""
    import networkx as nx

    between = allowed & set().union(
        *(nx.ancestors(backdoor, cause) for cause in (*causes, outcome))
    )
    routes = backdoor.to_undirected()
    for name in sorted(causes):
        if not nx.has_path(routes, name, outcome):
            continue
        for count, path in enumerate(nx.shortest_simple_paths(routes, name, outcome)):
            if count == MOST_PATHS:
                break
            inner = [
                (at, backdoor.has_edge(a, at) and backdoor.has_edge(b, at))
                for a, at, b in zip(path, path[1:], path[2:], strict=False)
            ]
            closed = any(
                (at not in between and not nx.descendants(backdoor, at) & between)
                if collides
                else at in between
                for at, collides in inner
            )
            if not closed:
                return tuple(path)
    return (*sorted(causes), outcome)


def _warning(
    name: str,
    graph: nx.DiGraph,
    effects: set[str],
    mediators: Collection[str],
    colliders: Collection[str],
    outcome: str,
) -> Warned | None:
    if name not in graph:
        text = f"{name} is not in the causal diagram: its part in it is not known."
        return Warned(variable=name, role="unknown", text=text)
    if name in mediators:
        text = f"{name} is a mediator: adjusting for it removes part of the effect on {outcome}."
        return Warned(variable=name, role="mediator", text=text)
    if name in colliders:
        text = f"{name} is a collider: adjusting for it opens a path that was closed."
        return Warned(variable=name, role="collider", text=text)
    if name in effects:
        text = f"{name} is an effect of the exposure: adjusting for it can bias the estimate."
        return Warned(variable=name, role="effect of the exposure", text=text)
    return None
