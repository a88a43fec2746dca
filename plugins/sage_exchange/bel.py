"""Export of a graph to Biological Expression Language (BEL 2.2), with a list of omissions.

Each reading becomes a statement with its citation and quotation. The following are
omitted, each with a reason: denied relations (BEL has no negation), readings from
retracted papers or from papers without an identifier, types that are not BEL functions
(endpoints, image features, cohorts), and relations that BEL cannot express (`treats`,
`acts_in`).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kg.graph.arrays import TYPES
from kg.graph.belief import POLARITIES
from kg.graph.identifiers import references
from kg.types import EntityType as T
from kg.types import Evidence, Polarity

if TYPE_CHECKING:
    from kg.graph.model import Graph

#: The BEL function of a type: abundance of a protein, a chemical, a cell population; a process, a
#: pathology. A treatment is an abundance only where it is a substance with an identifier.
_FUNCTIONS = {
    T.GENE: "p", T.PROTEIN: "p", T.CHEMICAL: "a", T.TREATMENT: "a", T.CELL_TYPE: "pop",
    T.CELL_LINE: "pop",
    T.BIOLOGICAL_PROCESS: "bp", T.PATHWAY: "bp", T.DISEASE: "path",
}  # fmt: skip
_SUBSTANCES = frozenset({"CHEBI", "DRUGBANK"})
_CAUSAL = frozenset({
    "promotes", "upregulates", "downregulates", "activates", "inhibits", "degrades", "regulates",
    "affects", "recruits", "compensates_for", "phosphorylates", "secretes",
})  # fmt: skip
_BY_SIGN = {
    Polarity.POSITIVE: "increases",
    Polarity.NEGATIVE: "decreases",
    Polarity.NEUTRAL: "regulates",
}
_CORRELATIVE = {
    "correlates_with": "positiveCorrelation",
    "correlates_negatively_with": "negativeCorrelation",
    "overexpressed_in": "positiveCorrelation",
    "underexpressed_in": "negativeCorrelation",
    "associated_with": "association",
    "prognostic_in": "prognosticBiomarkerFor",
}
_OWN = "SAGE"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A reading or relation that BEL cannot express, with the reason."""

    head: str
    relation: str
    tail: str
    reason: str


@dataclass(slots=True)
class Script:
    """A BEL script, its number of statements, and the items it omits."""

    text: str = ""
    statements: int = 0
    left_out: list[LeftOut] = field(default_factory=list)

    def reasons(self) -> dict[str, int]:
        """Count the omissions by reason, most frequent first."""
        return dict(Counter(row.reason for row in self.left_out).most_common())


def render_bel(graph: Graph, name: str) -> Script:
    """Render the graph as a BEL script."""
    script = Script()
    namespaces: set[str] = set()
    terms = [_term(graph, n) for n in range(graph.n_nodes)]
    body: list[str] = []
    for e in range(graph.n_edges):
        head, tail = int(graph.head[e]), int(graph.tail[e])
        relation = graph.relations[graph.relation[e]]

        def leave(reason: str, h: int = head, r: str = relation, t: int = tail) -> None:
            script.left_out.append(LeftOut(graph.names[h], r, graph.names[t], reason))

        subject, object_ = terms[head], terms[tail]
        if graph.negated[e]:
            leave("denied")
            continue
        if subject is None or object_ is None:
            lacking = TYPES[graph.types[head if subject is None else tail]].value
            leave(f"no BEL function for {lacking}")
            continue
        statement = _statement(relation, POLARITIES[graph.polarity[e]], subject, object_)
        if statement is None:
            leave(f"no BEL relation for {relation}")
            continue
        for support in graph.supports(e):
            citation = _citation(support.evidence)
            if support.evidence.retracted:
                leave("retracted paper")
            elif citation is None:
                leave("paper without identifier")
            else:
                namespaces |= {subject.namespace, object_.namespace}
                certainty = "speculative" if support.speculative else "stated"
                body += [
                    f"SET Citation = {citation}",
                    f"SET Evidence = {_quote(support.evidence.text)}",
                    f'SET Certainty = "{certainty}"',
                    statement,
                    "",
                ]
                script.statements += 1
    script.text = "\n".join([*_head(name, sorted(namespaces)), "", *body])
    return script


@dataclass(frozen=True, slots=True)
class _Term:
    function: str
    namespace: str
    inner: str

    def __str__(self) -> str:
        return f"{self.function}({self.inner})"


def _term(graph: Graph, n: int) -> _Term | None:
    """Render a concept as a BEL term, with its public identifier or else its name in SAGE."""
    function = _FUNCTIONS.get(TYPES[graph.types[n]])
    known = references(graph.node_rows[int(graph.node_row[n])].get("identifiers", {}))
    if function is None:
        return None
    if TYPES[graph.types[n]] == T.TREATMENT:
        known = [row for row in known if row[0] in _SUBSTANCES]
        if not known:
            return None
    if not known:
        return _Term(function, _OWN, f"{_OWN}:{_quote(graph.names[n])}")
    prefix, local, _ = known[0]
    return _Term(function, prefix, f"{prefix}:{_word(local)} ! {_quote(graph.names[n])}")


def _statement(relation: str, sign: Polarity, head: _Term, tail: _Term) -> str | None:
    if relation == "binds":
        bound = {head.function, tail.function} <= {"p", "a"}
        return f"complex({head}, {tail})" if bound else None
    if relation in _CORRELATIVE:
        verb = _CORRELATIVE[relation]
        if verb == "prognosticBiomarkerFor" and tail.function != "path":
            return None
        if verb == "association" and sign != Polarity.NEUTRAL:
            verb = f"{sign.value}Correlation"
        return f"{head} {verb} {tail}"
    if relation not in _CAUSAL:
        return None
    changed = str(tail)
    if tail.function == "p":
        if relation in ("activates", "inhibits"):
            changed = f"act({tail})"
        elif relation == "phosphorylates":
            changed = f"p({tail.inner}, pmod(Ph))"
        elif relation == "secretes":
            changed = f"sec({tail})"
    return f"{head} {_BY_SIGN[sign]} {changed}"


def _citation(evidence: Evidence) -> str | None:
    title = _quote(evidence.title or "untitled")
    if evidence.pmid:
        return f'{{"PubMed", {title}, "{evidence.pmid}"}}'
    if evidence.doi:
        return f'{{"DOI", {title}, {_quote(evidence.doi)}}}'
    return None


def _head(name: str, namespaces: list[str]) -> list[str]:
    return [
        f"SET DOCUMENT Name = {_quote(name)}",
        'SET DOCUMENT Version = "1.0.0"',
        'SET DOCUMENT Description = "Relations that texts state, read by SAGE"',
        'SET DOCUMENT Authors = "SAGE"',
        'SET DOCUMENT ContactInfo = "none"',
        "",
        *(f'DEFINE NAMESPACE {namespace} AS PATTERN ".+"' for namespace in namespaces),
        'DEFINE ANNOTATION Certainty AS LIST {"stated", "speculative"}',
    ]


def _word(value: str) -> str:
    return value if re.fullmatch(r"\w+", value, re.ASCII) else _quote(value)


def _quote(value: str) -> str:
    """Render a single-line BEL string, escaping quotation marks and backslashes."""
    line = " ".join(value.split()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{line}"'
