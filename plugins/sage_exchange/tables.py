"""Export of nodes and edges as two tables: tab-separated KGX (Biolink) or CSV for Neo4j."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from kg.graph.arrays import TYPES
from kg.graph.belief import CAUSAL, POLARITIES
from kg.graph.identifiers import list_papers, references
from kg.types import Polarity
from sage.core.files import write_text
from sage_exchange.biolink import CATEGORIES, PREDICATES, choose_references

if TYPE_CHECKING:
    from kg.graph.model import Graph


def write_tables(graph: Graph, folder: Path, format: str) -> None:
    """Write `nodes` and `edges` to a folder; lists in a cell are separated by `|` (KGX) or `;`.

    In KGX, a concept has its public identifier, or an identifier under `sage:` if it has
    none. Edges keep SAGE's own `relation` with its sign, belief, papers, and years; denied
    edges are marked `negated`. The Neo4j headers are those of `neo4j-admin database import`.
    """
    nodes, edges = (_kgx if format == "kgx" else _neo4j)(graph)
    ending = ".tsv" if format == "kgx" else ".csv"
    for name, rows in (("nodes", nodes), ("edges", edges)):
        text = io.StringIO()
        if format == "kgx":  # read without quoting
            text.writelines("\t".join(map(_join_lines, row)) + "\n" for row in rows)
        else:
            csv.writer(text, lineterminator="\n").writerows(rows)
        write_text(folder / f"{name}{ending}", text.getvalue())


_Rows = list[Sequence[object]]


def _join_lines(value: object) -> str:
    return " ".join(str(value).split())


def _kgx(graph: Graph) -> tuple[_Rows, _Rows]:
    nodes: _Rows = [("id", "category", "name", "description", "xref", "synonym")]
    curies = {}
    chosen = choose_references(graph.node_rows[int(row)] for row in graph.node_row)
    for n, (id_, first) in enumerate(zip(graph.ids, chosen, strict=True)):
        row = graph.node_rows[int(graph.node_row[n])]
        own = quote(id_.replace(":", ".", 1), safe="")  # a CURIE has a single colon and no slash
        curies[id_] = f"{first[0]}:{first[1]}" if first else f"sage:{own}"
        category = f"biolink:{CATEGORIES.get(TYPES[graph.types[n]], 'NamedThing')}"
        known = "|".join(f"{p}:{v}" for p, v, _ in references(row.get("identifiers", {})))
        names = "|".join([*row.get("aliases", ()), *row.get("synonyms", ())])
        definition = row.get("definition") or ""
        nodes.append((curies[id_], category, graph.names[n], definition, known, names))
    edges: _Rows = [(
        "id", "subject", "predicate", "object", "relation", "polarity", "negated", "belief",
        "publications", "first_year", "last_year", "knowledge_level", "agent_type",
    )]  # fmt: skip
    for e, (head, relation, tail) in enumerate(_ends(graph)):
        edges.append((
            f"sage:{e}", curies[head], f"biolink:{_predicate(graph, e)}", curies[tail], relation,
            POLARITIES[graph.polarity[e]].value, str(bool(graph.negated[e])).lower(),
            f"{graph.belief[e]:.6g}", "|".join(list_papers(graph, e)), *_years(graph, e),
            "not_provided", "text_mining_agent",
        ))  # fmt: skip
    return nodes, edges


def _neo4j(graph: Graph) -> tuple[_Rows, _Rows]:
    nodes: _Rows = [("id:ID", "name", "definition", "aliases:string[]", ":LABEL")]
    for n, id_ in enumerate(graph.ids):
        row = graph.node_rows[int(graph.node_row[n])]
        aliases = ";".join(name.replace(";", ",") for name in row.get("aliases", ()))
        kind = TYPES[graph.types[n]].value
        nodes.append((id_, graph.names[n], row.get("definition") or "", aliases, kind))
    edges: _Rows = [(
        ":START_ID", ":END_ID", ":TYPE", "polarity", "negated:boolean", "belief:double",
        "papers:string[]", "first_year:int", "last_year:int",
    )]  # fmt: skip
    for e, (head, relation, tail) in enumerate(_ends(graph)):
        edges.append((
            head, tail, relation.upper(), POLARITIES[graph.polarity[e]].value,
            str(bool(graph.negated[e])).lower(), f"{graph.belief[e]:.6g}",
            ";".join(p.replace(";", "%3B") for p in list_papers(graph, e)), *_years(graph, e),
        ))  # fmt: skip
    return nodes, edges


def _ends(graph: Graph) -> list[tuple[str, str, str]]:
    return [
        (graph.ids[h], graph.relations[r], graph.ids[t])
        for h, r, t in zip(
            graph.head.tolist(), graph.relation.tolist(), graph.tail.tolist(), strict=True
        )
    ]


def _predicate(graph: Graph, edge: int) -> str:
    relation = graph.relations[graph.relation[edge]]
    if relation in PREDICATES:
        return PREDICATES[relation]
    if relation in CAUSAL:
        return "affects"
    signed = POLARITIES[graph.polarity[edge]] != Polarity.NEUTRAL
    return "associated_with" if signed else "related_to"  # a sign alone does not imply a cause


def _years(graph: Graph, edge: int) -> tuple[object, object]:
    return int(graph.first_year[edge]) or "", int(graph.last_year[edge]) or ""
