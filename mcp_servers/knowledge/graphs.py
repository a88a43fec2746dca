"""Tools that query a knowledge graph: entities, paths between them, and evidence with papers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from kg.communities.types import Sentence
from kg.graph.types import NodeView, Relation, YearCount
from kg.types import MAX_HOPS, PATHS, Evidence, PathScores
from mcp_servers.context import ToolContext
from mcp_servers.spec import InputPath, Resources, Validity, tool
from sage.core.errors import InputError
from sage.core.models import Strict

if TYPE_CHECKING:
    from kg.embedding.embed import Embedder
    from kg.fusion.model import Support
    from kg.graph.model import Graph

SUITE = "knowledge"
QUOTE = 400
"""Maximum length of a quoted passage, in characters."""

GRAPHS = Validity(
    known_failures=(
        "A relation was extracted from a text, which is evidence of a statement, not of a fact",
        "Relations that no document of the corpus states are missing",
    )
)


GraphPath = Annotated[
    InputPath, Field(description="Graph folder written by `sage kg build`, or a GraphML file")
]


class SearchInput(Strict):
    """Search text."""

    graph: GraphPath
    text: str = Field(min_length=1, max_length=200, description="Name, alias or identifier")
    limit: int = Field(default=10, ge=1, le=100)
    neighbors: int = Field(
        default=10, ge=0, le=100, description="Number of neighbors of the best match"
    )


class Entity(NodeView):
    """A matching node in the graph."""

    score: float
    how: str


class NeighborRow(BaseModel):
    """A neighbor of the best match. `forward` is true if the match is the head."""

    id: str
    name: str
    type: str
    relations: list[str]
    forward: bool
    belief: float


class SearchResult(BaseModel):
    """Matching entities, best first, and the neighbors of the best match."""

    nodes: int
    edges: int
    entities: list[Entity]
    neighbors: list[NeighborRow]
    notes: list[str] = Field(default_factory=list, description="What the file holds besides")


@tool(
    "graph_search",
    SUITE,
    "1.0.0",
    "Find entities (genes, cells, diseases, imaging features) in a knowledge graph by name or "
    "alias, with definitions and the neighbors of the best match.",
    Resources(memory_mb=1024, seconds_per_item=1),
    GRAPHS,
    title="Search the knowledge graph",
)
def graph_search(given: SearchInput, context: ToolContext) -> SearchResult:
    """Search entities by name or alias, and return their descriptions."""
    graph = open_graph(given.graph, context)
    matches = graph.find(given.text, given.limit)
    entities = [
        Entity(**dict(graph.node(match.node_id)), score=match.score, how=match.how)
        for match in matches
    ]
    near = graph.neighbors(entities[0].id, given.neighbors) if entities and given.neighbors else []
    neighbors = [
        NeighborRow(
            id=neighbor.node.id, name=neighbor.node.name, type=neighbor.node.type.value,
            relations=list(neighbor.relations), forward=neighbor.forward, belief=neighbor.belief,
        )
        for neighbor in near
    ]  # fmt: skip
    return SearchResult(
        nodes=graph.n_nodes,
        edges=graph.n_edges,
        entities=entities,
        neighbors=neighbors,
        notes=graph.meta.get("notes") or [],
    )


class PathsInput(Strict):
    """A prompt, or two entities."""

    graph: GraphPath
    prompt: str | None = Field(default=None, max_length=4000, description="A research question")
    source: str | None = Field(default=None, max_length=200)
    target: str | None = Field(default=None, max_length=200)
    k: int = Field(default=PATHS, ge=1, le=100, description="Maximum number of paths")
    max_hops: int = Field(default=MAX_HOPS, ge=1, le=8)
    seed: int = Field(default=0, ge=0)


class PathRow(BaseModel):
    """A path: its sentence, the strength of its mechanism, and its nodes.

    `supported` is false if graphs with randomly swapped links contain an equally strong path.
    `understudied` is 1 if no paper covers both ends, and decreases with the number of papers.
    `scores` are those in the SAGE paper; they do not predict later links.
    """

    sentence: str
    account: str
    mechanism: float
    supported: bool
    understudied: float
    nodes: list[str]
    scores: PathScores
    weakest_belief: float
    contradicted: bool
    papers: list[str]


class PathsResult(BaseModel):
    """Ranked paths, the concepts in the prompt, and notes on the search."""

    concepts: list[str]
    unmatched: list[str]
    candidates: int
    paths: list[PathRow]
    notes: list[str]


@tool(
    "graph_paths",
    SUITE,
    "4.0.0",
    "Find paths in a knowledge graph for a research question, or between two entities, "
    "strongest mechanism first.",
    Resources(memory_mb=2048, seconds_per_item=20),
    GRAPHS,
    title="Find paths in the knowledge graph",
)
def graph_paths(given: PathsInput, context: ToolContext) -> PathsResult:
    """Find paths with their scores and supporting papers."""
    from kg.paths.find import PathOptions, find_between, find_paths

    graph = open_graph(given.graph, context)
    embedder = load_embedder(graph, context)
    context.progress(0.3, "searching paths")
    options = PathOptions(k=given.k, max_hops=given.max_hops, seed=given.seed)
    ends = (given.source, given.target)
    if given.prompt is not None and ends == (None, None):
        found = find_paths(graph, given.prompt, options, embedder)
    elif given.source is not None and given.target is not None and given.prompt is None:
        found = find_between(graph, given.source, given.target, options, embedder)
    else:
        raise InputError("give a prompt, or both a source and a target")
    return PathsResult(
        concepts=[
            f"{concept.phrase} -> {concept.name} ({concept.type.value})"
            for concept in found.concepts
        ],
        unmatched=list(found.unmatched),
        candidates=found.candidates,
        paths=[
            PathRow(
                sentence=path.sentence(),
                account=path.account(),
                mechanism=path.mechanism.strength,
                supported=path.supported,
                understudied=path.understudied,
                nodes=[node.id for node in path.nodes],
                scores=path.scores,
                weakest_belief=min(edge.belief for edge in path.edges),
                contradicted=any(edge.contradicted for edge in path.edges),
                papers=_papers(evidence for edge in path.edges for evidence in edge.evidence),
            )
            for path in found.paths
            if path.mechanism is not None and path.understudied is not None
        ],
        notes=list(found.notes),
    )


class EvidenceInput(Strict):
    """Two entities, by name, alias or identifier."""

    graph: GraphPath
    head: str = Field(min_length=1, max_length=200)
    tail: str = Field(min_length=1, max_length=200)
    limit: int = Field(
        default=20, ge=1, le=200, description="Maximum number of passages per relation"
    )


class Passage(BaseModel):
    """A text's reading of a relation."""

    text: str
    paper: str
    year: int | None
    section: str
    confidence: float
    speculative: bool
    retracted: bool


class RelationRow(BaseModel):
    """A relation from head to tail, with the passages for and against it."""

    head: str
    relation: str
    tail: str
    belief: float
    negated: bool
    documents: int
    first_year: int | None
    last_year: int | None
    passages: list[Passage]
    against: list[Passage]


class EvidenceResult(BaseModel):
    """Relations between two entities, in both directions."""

    relations: list[RelationRow]
    note: str


@tool(
    "graph_evidence",
    SUITE,
    "1.0.0",
    "Show the passages behind the relations between two entities of a knowledge graph, for and "
    "against, with their papers.",
    Resources(memory_mb=1024, seconds_per_item=1),
    GRAPHS,
    title="Show evidence for a relation in the knowledge graph",
)
def graph_evidence(given: EvidenceInput, context: ToolContext) -> EvidenceResult:
    """Find relations in both directions, most believed first."""
    graph = open_graph(given.graph, context)
    edges = [
        *graph.evidence(given.head, given.tail),
        *(graph.evidence(given.tail, given.head) if given.head != given.tail else ()),
    ]
    edges.sort(key=lambda edge: -edge.belief)
    return EvidenceResult(
        relations=[
            RelationRow(
                head=edge.head_name,
                relation=edge.relation,
                tail=edge.tail_name,
                belief=edge.belief,
                negated=edge.negated,
                documents=edge.documents,
                first_year=edge.first_year,
                last_year=edge.last_year,
                passages=_passages(edge.supports, given.limit),
                against=_passages(edge.contradicting, given.limit),
            )
            for edge in edges
        ],
        note=""
        if edges
        else "No document of the corpus states a direct relation between these entities.",
    )


class ConceptInput(Strict):
    """A concept, and the last year of literature to count."""

    graph: GraphPath
    concept: str = Field(min_length=1, max_length=200, description="Name, alias or identifier")
    as_of: int | None = Field(
        default=None, ge=1800, le=2100, description="Last year of literature to count"
    )
    limit: int = Field(
        default=20, ge=1, le=200, description="Maximum number of relations, best supported first"
    )
    quotations: int = Field(
        default=2, ge=0, le=20, description="Maximum number of passages per relation and side"
    )


class ConceptResult(BaseModel):
    """A concept with its relations and the papers for and against them by year."""

    id: str
    name: str
    type: str
    definition: str | None
    identifiers: dict[str, str]
    papers_for: int
    papers_against: int
    years: tuple[YearCount, ...]
    relations_in_all: int
    relations: list[Relation]


@tool(
    "graph_concept",
    SUITE,
    "1.0.0",
    "Show one concept of a knowledge graph: its relations, and the number of papers for and "
    "against them in each year, with passages.",
    Resources(memory_mb=1024, seconds_per_item=2),
    GRAPHS,
    title="Show a concept and the evidence for and against it",
)
def graph_concept(given: ConceptInput, context: ToolContext) -> ConceptResult:
    """Report on the concept, limited to the requested length."""
    from kg.graph.concept import describe_concept

    graph = open_graph(given.graph, context)
    if given.as_of is not None:
        graph = graph.as_of(given.as_of)
    report = describe_concept(graph, given.concept, given.as_of)
    relations = []
    for relation in report.relations[: given.limit]:
        sides = [[q for q in relation.quotations if q.speaks_for is side] for side in (True, False)]
        shown = [q for side in sides for q in side[: given.quotations]]
        cut = tuple(q.model_copy(update={"text": q.text[:QUOTE]}) for q in shown)
        relations.append(relation.model_copy(update={"quotations": cut}))
    return ConceptResult(
        id=report.node.id,
        name=report.node.name,
        type=report.node.type.value,
        definition=report.node.definition,
        identifiers=report.node.identifiers,
        papers_for=report.papers_for,
        papers_against=report.papers_against,
        years=report.years,
        relations_in_all=len(report.relations),
        relations=relations,
    )


class CommunitiesInput(Strict):
    """Resolution of the partition, and the number of communities to describe."""

    graph: GraphPath
    limit: int = Field(
        default=10, ge=1, le=100, description="Number of communities to describe, largest first"
    )
    concepts: int = Field(
        default=10, ge=1, le=200, description="Number of concepts listed per community"
    )
    resolution: float = Field(
        default=1.0, gt=0, le=100, description="Values above 1 give more and smaller communities"
    )


class CommunityRow(BaseModel):
    """A community: concepts, size, best-supported statements in order, and a summary."""

    number: int
    concepts: list[str]
    concepts_in_all: int
    relations: int
    outside: int
    papers: int
    statements: list[str]
    summary: list[Sentence]


class CommunitiesResult(BaseModel):
    """The largest communities by Leiden's method, and the total number."""

    found: int
    communities: list[CommunityRow]


@tool(
    "graph_communities",
    SUITE,
    "1.0.0",
    "Divide a knowledge graph into communities of concepts (Leiden) and summarize each; every "
    "sentence cites its statements.",
    Resources(memory_mb=1024, seconds_per_item=10),
    GRAPHS,
    title="Find communities of the knowledge graph",
)
def graph_communities(given: CommunitiesInput, context: ToolContext) -> CommunitiesResult:
    """Divide the graph into communities and summarize them by rule."""
    from kg.communities.find import find_communities
    from kg.communities.summary import summarize_by_rule

    found = find_communities(open_graph(given.graph, context), given.resolution)
    return CommunitiesResult(
        found=len(found),
        communities=[
            CommunityRow(
                number=community.number,
                concepts=list(community.concepts[: given.concepts]),
                concepts_in_all=len(community.concepts),
                relations=community.relations,
                outside=community.outside,
                papers=community.papers,
                statements=[statement.words() for statement in community.statements],
                summary=list(summarize_by_rule(community).sentences),
            )
            for community in found[: given.limit]
        ],
    )


def open_graph(path: str, context: ToolContext) -> Graph:
    """Open a graph under the roots; it stays cached while its files are unchanged."""
    from kg.graph.model import Graph

    place = context.input(path)
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    for file in files:
        context.roots.input(file)  # no link that leads outside
    stamp = tuple(
        (str(file), file.stat().st_mtime_ns, file.stat().st_size)
        for file in files
        if file.is_file()
    )
    return context.share_handle(("graph", str(place), stamp), lambda: Graph.load(place))


def load_embedder(graph: Graph, context: ToolContext) -> Embedder:
    """Load a graph's embedding model if the model ships with SAGE.

    The name in a graph file must not determine which model is downloaded or loaded.
    """
    from kg.embedding import embed

    default = context.share_handle("embedder", embed.default)
    name = graph.embedder
    if name is None or name == default.name:
        return default
    if name.startswith("hashing"):
        return embed.by_name(name)
    raise InputError(
        f'the graph was embedded with "{name[:80]}", but these tools use SAGE\'s bundled model; '
        "rebuild the graph with that model"
    )


def _papers(evidence: Iterable[Evidence]) -> list[str]:
    """List each paper once, in order, identified by its identifier or title."""
    return list(dict.fromkeys(describe_paper(item) for item in evidence))[:20]


def describe_paper(evidence: Any) -> str:
    """Describe a paper by its title, year and identifier, as given by the source."""
    parts = [
        evidence.title or evidence.doc_id[:12],
        str(evidence.year) if evidence.year else "",
        f"doi:{evidence.doi}" if evidence.doi else "",
        f"PMID {evidence.pmid}" if evidence.pmid else "",
    ]
    return ", ".join(part for part in parts if part)


def _passages(supports: tuple[Support, ...], limit: int) -> list[Passage]:
    return [
        Passage(
            text=support.evidence.text[:QUOTE],
            paper=describe_paper(support.evidence),
            year=support.evidence.year,
            section=support.evidence.section,
            confidence=support.confidence,
            speculative=support.speculative,
            retracted=support.evidence.retracted,
        )
        for support in supports[:limit]
    ]
