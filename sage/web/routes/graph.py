"""Routes for the knowledge graph: a concept's neighborhood and evidence, and a run's paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter

from kg.types import ScoredPath
from sage.core.files import read_json

if TYPE_CHECKING:
    from sage.web.site import Site

router = APIRouter(prefix="/graph")

MOST = 120
"""Maximum number of nodes drawn together."""
DOCUMENT_POLICY = (
    "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none';"
    " style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""Security policy for a concept's page, a scriptless document that only its links can leave."""


@router.get("")
def describe_graph(request: Request) -> dict[str, Any]:
    """Return the graph's size and the years it covers."""
    site: Site = request.app.state.site
    return site.graph_as_of(0).stats().model_dump(mode="json")


@router.get("/find")
def find(q: str, request: Request) -> list[dict[str, Any]]:
    """Find concepts whose name equals, contains or resembles the search text."""
    site: Site = request.app.state.site
    found = site.graph_as_of(0).find(q[:200], 12) if q.strip() else []
    return [{"id": match.node_id, "name": match.name, "type": match.type.value} for match in found]


@router.get("/around")
def around(node: str, request: Request, as_of: int = 0, most: int = 30) -> dict[str, Any]:
    """Return the nodes nearest to a concept with their positions, edges and evidence.

    Parameters
    ----------
    node : id, name or alias of the concept, of at most 500 characters
    as_of : the last year whose papers count; 0 for all
    most : maximum number of nodes, from 2 to 120

    Returns
    -------
    Nodes and edges as the page draws them, and the concept's name.

    Raises
    ------
    InputError
        If that year's graph has no such concept; returned to the client with status 422.
    """
    from kg.graph.export_page import page_data, select

    site: Site = request.app.state.site
    graph = site.graph_as_of(as_of)
    found = graph.node(node[:500])
    shown = select(graph, found.id, max(2, min(most, MOST)))
    return {**page_data(graph, shown, found.id), "name": found.name}


@router.get("/concept")
def concept(node: str, request: Request, as_of: int = 0) -> HTMLResponse:
    """Return a concept's page with its relations and the papers for and against them by year."""
    from kg.graph.concept import describe_concept, render_concept

    site: Site = request.app.state.site
    graph = site.graph_as_of(as_of)
    page = render_concept(describe_concept(graph, node[:500], as_of or None))
    return HTMLResponse(page, headers={"content-security-policy": DOCUMENT_POLICY})


@router.get("/paths/{name}")
def paths(name: str, request: Request) -> list[dict[str, Any]]:
    """Return the paths used in a run, as sentences with the names of their nodes."""
    path = request.app.state.site.run(name).verify_resting().output("paths")
    if not path.exists():
        return []
    found = TypeAdapter(list[ScoredPath]).validate_python(read_json(path)["paths"])
    return [
        {
            "sentence": item.sentence(),
            "contradicted": any(edge.contradicted for edge in item.edges),
            "nodes": list(
                dict.fromkeys(name for edge in item.edges for name in (edge.head, edge.tail))
            ),
        }
        for item in found
    ]
