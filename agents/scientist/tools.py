"""The scientist's tools to examine graph, literature and cohort, independent of any outcome.

A workbench contains the tools' data and records which sources were found, so that a claim
can cite them. Callers bind the tools to a workbench.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from agents.core.base import View
from agents.core.disclosure import require_bounded
from agents.core.types import Citation, History
from agents.scientist.blind import BlindCohort
from agents.scientist.looks import (
    CohortDescribe,
    DesignClaims,
    Designs,
    Entities,
    Entity,
    FoundPath,
    FoundPaths,
    GraphNeighbors,
    GraphPaths,
    GraphSearch,
    HistoryAsked,
    LiteratureSearch,
    MeasurementChecks,
    MeasurementDefine,
    Measures,
    Neighborhood,
    NeighborNode,
    Quotation,
    SignatureCheck,
    SignatureDefine,
    Source,
    Sources,
)
from sage.core.errors import InputError
from sage.core.llm.repair import describe_problems
from sage.core.llm.turns import Tool
from validation.core.signature import GeneSignature

if TYPE_CHECKING:
    from kg.embedding.embed import Embedder
    from kg.graph.model import Graph
    from kg.lexicon.ontology import Ontology
    from kg.literature.search import Literature
    from kg.literature.types import Record
    from kg.paths.find import PathOptions

LONGEST_QUOTE = 320
QUOTES_PER_RECORD = 3
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")


MOSTLY_UNDETECTED = 0.8
"""Minimum share of patients at the lowest value for a gene to count as not expressed."""


LOOKS: tuple[tuple[str, str, type[BaseModel], str], ...] = (
    (
        "graph_search",
        "Finds entities of the knowledge graph by name or alias, with definitions and the"
        " cohort's variables for them.",
        GraphSearch,
        "graph_search",
    ),
    (
        "graph_neighbors",
        "Lists what the knowledge graph relates to an entity, with beliefs and the"
        " cohort's variables.",
        GraphNeighbors,
        "graph_neighbors",
    ),
    (
        "graph_paths",
        "Finds paths between two entities of the knowledge graph, with a quotation and its"
        " key for each step.",
        GraphPaths,
        "graph_paths",
    ),
    (
        "literature_search",
        "Searches the literature. Returns records with their keys and the sentences that"
        " mention the query; cite a record by its key in `sources`.",
        LiteratureSearch,
        "literature_search",
    ),
    (
        "cohort_describe",
        "Describes any measured gene or variable without outcomes: distribution,"
        " missingness, rank correlations, and joint counts of two or three.",
        CohortDescribe,
        "cohort_describe",
    ),
    (
        "design_power",
        "Says for each claim how many patients its groups hold, and what effect it could"
        " detect; the count of events is the only thing known of outcomes.",
        DesignClaims,
        "design_power",
    ),
    (
        "signature_define",
        "Makes one variable of several genes (mean of z-scores, weighted, or ranks within"
        " the patient): its key, which genes are measured, and how well they go together.",
        SignatureDefine,
        "signature_define",
    ),
    (
        "history",
        "What earlier rounds tested, how it ended, and what that suggests.",
        HistoryAsked,
        "show_history",
    ),
)
"""Workbench tools: name, description, arguments, and the method that answers."""


@dataclass(kw_only=True, eq=False)
class Workbench:
    """Data for the scientist's tools, and the sources that they found."""

    graph: Graph
    literature: Literature
    cohort: BlindCohort
    ontology: Ontology
    embedder: Callable[[], Embedder]
    history: History | None = None
    measures: Measures | None = None
    paths: PathOptions
    as_of: date | None = None
    found: dict[str, Citation] = field(default_factory=dict)

    def find_variables(self, name: str, *more: str) -> tuple[str, ...]:
        """Return the cohort's variables for a concept, by its own and its ontology names."""
        entry = self.ontology.find(name)
        names = [name, *more, *([entry.name, *entry.synonyms] if entry else [])]
        return tuple(
            key for key in self.cohort.find_variables(*names) if not self.cohort.withheld(key)
        )

    def graph_search(self, asked: GraphSearch) -> Entities:
        """Find nodes by name or alias."""
        entities = []
        for match in self.graph.find(asked.text, asked.limit):
            node = self.graph.node(match.node_id)
            entities.append(
                Entity(
                    name=node.name,
                    type=node.type,
                    degree=node.degree,
                    aliases=node.aliases[:6],
                    definition=node.definition or "",
                    measured=self.find_variables(node.name, *node.aliases),
                    score=round(match.score, 3),
                )
            )
        return Entities(entities=tuple(entities))

    def graph_neighbors(self, asked: GraphNeighbors) -> Neighborhood:
        """List adjacent nodes, with the most strongly believed relations first."""
        found: list[NeighborNode] = []
        for neighbor in self.graph.neighbors(asked.name):
            node = neighbor.node
            if asked.types and node.type not in asked.types:
                continue
            measured = self.find_variables(node.name, *node.aliases)
            if asked.measured_only and not measured:
                continue
            found.append(
                NeighborNode(
                    name=node.name,
                    type=node.type,
                    relations=neighbor.relations,
                    forward=neighbor.forward,
                    belief=round(neighbor.belief, 3),
                    measured=measured,
                )
            )
            if len(found) == asked.limit:
                break
        name = self.graph.node(asked.name).name
        return Neighborhood(name=name, neighbors=tuple(found))

    def graph_paths(self, asked: GraphPaths) -> FoundPaths:
        """Find ranked paths between two concepts, with their source sentences."""
        from kg.paths.find import find_between

        options = self.paths.model_copy(update={"k": asked.limit})
        for name in (asked.source, asked.target):
            self.graph.resolve(name)
        found = find_between(self.graph, asked.source, asked.target, options, self.embedder())
        return FoundPaths(
            paths=tuple(
                FoundPath(
                    sentence=path.sentence(),
                    supported=path.supported,
                    weakest_belief=round(min(edge.belief for edge in path.edges), 3),
                    contradicted=any(edge.contradicted for edge in path.edges),
                    quotations=tuple(
                        self._keep(Citation.of(evidence, _quotation(evidence.text)))
                        for edge in path.edges
                        for evidence in edge.evidence[:1]
                    ),
                )
                for path in found.paths
            ),
            notes=found.notes,
        )

    def literature_search(self, asked: LiteratureSearch) -> Sources:
        """Search records, and return their sentences relevant to the query."""
        from kg.literature.expansion import list_synonyms
        from kg.literature.text import mentions, phrase_key
        from kg.literature.types import Query

        query = Query(text=asked.query, phrases=asked.phrases)
        answer = self.literature.search([query], asked.limit, self.as_of)
        names = [list_synonyms(phrase, self.ontology) for phrase in asked.phrases]
        together = None
        if names and self.literature.local is not None:
            together = self.literature.local.count(names, self.as_of)
        sources = []
        for record in answer.records:
            quotes = quotations(record, asked.query)
            text = phrase_key(record.body)
            if names and not any(mentions(text, group) for group in names):
                continue
            kept = [self._keep(Citation.of(record, quote)) for quote in quotes[:1] or ("",)]
            sources.append(
                Source(
                    key=kept[0].key,
                    title=record.title,
                    year=record.year,
                    retracted=record.retracted,
                    quotations=quotes,
                )
            )
        size = len(self.literature.local) if self.literature.local is not None else 0
        covered = ", ".join(
            f"{name} ({size} records)" if name == "local index" else name
            for name in answer.served_by
        )
        return Sources(
            sources=tuple(sources),
            together=together,
            covered=covered or "nothing answered",
            missing=tuple(f"{item.name}: {item.reason}" for item in answer.missing),
        )

    def _keep(self, citation: Citation) -> Quotation:
        """Record a source, so that a claim may cite it."""
        known = self.found.get(citation.key)
        if known is None or not known.quote:
            self.found[citation.key] = citation
        return Quotation(key=citation.key, quote=citation.quote)

    def cohort_describe(self, asked: CohortDescribe) -> View:
        """Describe distributions, missingness, correlations and joint counts, with no outcome."""
        return self.cohort.describe(asked.variables, asked.joint, asked.cut)

    def design_power(self, asked: DesignClaims) -> Designs:
        """Estimate the power of each claim."""
        return Designs(designs=tuple(self.cohort.power(claim) for claim in asked.claims))

    def signature_define(self, asked: SignatureDefine) -> SignatureCheck:
        """Score genes as a variable in this cohort, or refuse it.

        Raises
        ------
        InputError
            If the score cannot be computed in any cohort (weights that match no gene).
        """
        try:
            signature = GeneSignature(genes=asked.genes, method=asked.method, weights=asked.weights)
        except ValidationError as error:
            raise InputError(describe_problems(error)) from None
        matrix = frozenset(self.cohort.dictionary.expression)
        measured, absent = signature.split_measured(matrix)
        try:
            signature.require_measured(matrix, "signature", self.cohort.dictionary.cohort)
        except InputError as error:
            return SignatureCheck(measured=measured, absent=absent, refused=str(error))
        kept = signature.of_measured(matrix)
        genes = self.cohort.describe(tuple(f"expression:{gene}" for gene in measured[:40]))
        rhos = [correlation.rho for correlation in genes.correlations]
        return SignatureCheck(
            variable=kept.key,
            words=kept.text,
            measured=measured,
            absent=absent,
            undetected=tuple(
                variable.variable.removeprefix("expression:")
                for variable in genes.variables
                if variable.lowest is not None and variable.lowest >= MOSTLY_UNDETECTED
            ),
            coherence=round(sum(rhos) / len(rhos), 2) if rhos else None,
            score=self.cohort.describe((kept.key,)).variables[0],
        )

    def measurement_define(self, asked: MeasurementDefine) -> MeasurementChecks:
        """Return new variables measured on the slide maps, each checked by the quality gate.

        Raises
        ------
        InputError
            If the cohort has no maps.
        """
        if self.measures is None:
            raise InputError("the cohort has no slide maps to compute measurements from")
        checks, self.cohort = self.measures.define(tuple(dict.fromkeys(asked.formulas)))
        shown = self.cohort.describe(tuple(check.variable for check in checks if check.variable))
        scores = {variable.variable: variable for variable in shown.variables}
        return MeasurementChecks(
            checks=tuple(
                check.model_copy(update={"score": scores.get(check.variable)}) for check in checks
            )
        )

    def show_history(self, asked: HistoryAsked) -> History:
        """Show earlier claims, either all or those on a variable."""
        history = self.history or History()
        if not asked.variable:
            return history
        return History(
            claims=tuple(claim for claim in history.claims if asked.variable in claim.exposures)
        )

    def tools(self) -> tuple[Tool[Any], ...]:
        """Return the tools in the form a model calls; every result passes the disclosure gate."""
        *looks, history = (
            _tool(name, summary, takes, getattr(self, method))
            for name, summary, takes, method in LOOKS
        )
        return (*looks, *self._measuring(), history)

    def _measuring(self) -> tuple[Tool[Any], ...]:
        """Return the measurement tool, if there are maps to measure."""
        if self.measures is None:
            return ()
        return (
            _tool(
                "measurement_define",
                "Measures on the slides' maps by formula and makes a variable of each measurement"
                f" that is stable, without outcomes. The maps hold {self.measures.holds}. A formula"
                " is RULE(MEASURE): rules mean, median, max, min, area_weighted, pooled, only;"
                " measures density, count, area, share, ratio, nearest(A, B, median),"
                " share_near(A, B, RADIUS_UM), neighbors, neighbor_share, neighbor_entropy(A,"
                " RADIUS_UM), ripley_l(A, RADIUS_UM, to=B), pair_correlation(A, RADIUS_UM,"
                " HALFWIDTH_UM), clark_evans, cross_g, gradient(A, REGION, REACH_UM),"
                " hotspot(A, BANDWIDTH_UM), hot_window(A, SIDE_UM), heterogeneity(A, SIDE_UM, cv),"
                " each with within=regions.KIND or margin(regions.KIND, INSIDE_UM, OUTSIDE_UM).",
                MeasurementDefine,
                self.measurement_define,
            ),
        )


def _tool(
    name: str, description: str, takes: type[BaseModel], look: Callable[[Any], View]
) -> Tool[Any]:
    def gate(asked: BaseModel) -> View:
        result = look(asked)
        require_bounded(name, result)
        return result

    return Tool(name, description, takes, gate)


def quotations(record: Record, query: str) -> tuple[str, ...]:
    """Return the record's sentences that share the most words with the query, in original order."""
    from kg.literature.text import words

    wanted = set(words(query))
    texts = [*record.snippets, *_SENTENCE.split(record.abstract)]
    sentences = list(dict.fromkeys(_quotation(text) for text in texts if text.strip()))
    shared = {text: len(wanted & set(words(text))) for text in sentences}
    best = sorted((text for text in sentences if shared[text]), key=lambda text: -shared[text])
    kept = set(best[:QUOTES_PER_RECORD])
    return tuple(text for text in sentences if text in kept)


def _quotation(text: str) -> str:
    plain = " ".join(text.strip().lstrip("-•* ").split())
    return plain if len(plain) <= LONGEST_QUOTE else plain[:LONGEST_QUOTE].rsplit(" ", 1)[0] + " …"
