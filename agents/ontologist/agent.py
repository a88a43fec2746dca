"""The ontologist, which defines terms in paths and restates edges as processes (SAGE, 3.2.2)."""

from __future__ import annotations

from agents.core.base import Agent, Resources, Role, View, prompt_file
from agents.core.types import Citation, Definition, OntologyBrief, Relationship
from agents.core.words import ModelText, Words
from agents.question.types import Question
from kg.types import Evidence, PathNode, ScoredPath


class OntologistInput(View):
    """Input to the ontologist: the question, and the paths with their passages."""

    question: Question = Question(prompt="")
    paths: tuple[ScoredPath, ...]


EVIDENCE_PER_EDGE = 3


class TermDefinition(View):
    """A term used in the paths and its meaning, in a sentence or two."""

    term: str
    definition: Words
    grounded: bool


class ProcessStatement(View):
    """An edge (path number and step, both from 1) restated as a biological process."""

    chain: int
    step: int
    process: Words


class Grounding(View):
    """The ontologist's reply: text for terms and edges. Evidence remains with the edges."""

    definitions: tuple[TermDefinition, ...]
    processes: tuple[ProcessStatement, ...]


def ground_paths(given: OntologistInput, resources: Resources) -> Grounding:
    """Define every entity in the paths and restate each edge as a biological process.

    Entities without a definition are kept and marked ungrounded, so that the scientist does
    not build on them unknowingly.
    """
    definitions: dict[str, TermDefinition] = {}
    processes = []
    for chain, path in enumerate(given.paths, 1):
        for node in path.nodes:
            if node.name not in definitions:
                text = node.definition or resources.ontology.definition(node.name)
                definitions[node.name] = TermDefinition(
                    term=node.name,
                    definition=text or "no definition in the ontology",
                    grounded=bool(text),
                )
        for step in range(1, len(path.edges) + 1):
            processes.append(
                ProcessStatement(chain=chain, step=step, process=_describe_edge(path, step))
            )
    return Grounding(definitions=tuple(definitions.values()), processes=tuple(processes))


def _ends(path: ScoredPath, index: int) -> tuple[PathNode, PathNode]:
    """Return the head and tail of the edge after node `index`, in its original direction."""
    first, second = path.nodes[index], path.nodes[index + 1]
    return (first, second) if path.edges[index].forward else (second, first)


def _describe_edge(path: ScoredPath, step: int) -> str:
    """Describe the edge in a sentence, using the graph's own wording."""
    edge = path.edges[step - 1]
    head, tail = _ends(path, step - 1)
    process = f"{head.name} {edge.relation.replace('_', ' ')} {tail.name}"
    return process + ("; the literature disagrees on the sign" if edge.contradicted else "")


def _steps(given: OntologistInput) -> set[tuple[int, int]]:
    return {
        (chain, step)
        for chain, path in enumerate(given.paths, 1)
        for step in range(1, len(path.edges) + 1)
    }


def check_grounding(given: OntologistInput, answer: Grounding) -> list[str]:
    """Check that exactly the given terms are defined and exactly the given edges restated."""
    problems = []
    names = {node.name for path in given.paths for node in path.nodes}
    missing = sorted(names - {definition.term for definition in answer.definitions})
    if missing:
        problems.append(f"definitions are missing for: {', '.join(missing)}")
    steps = _steps(given)
    said = {(process.chain, process.step) for process in answer.processes}
    if said - steps:
        problems.append(f"there are no such edges (chain, step): {sorted(said - steps)}")
    if steps - said:
        problems.append(f"processes are missing for (chain, step): {sorted(steps - said)}")
    return problems


def cite(evidence: Evidence) -> Citation:
    """Convert evidence to a citation, with the sentence in which it was found."""
    return Citation.of(evidence, evidence.text.strip().lstrip("-•* "))


def compose_brief(given: OntologistInput, answer: Grounding) -> OntologyBrief:
    """Combine the ontologist's text with the edges' own evidence.

    The process and citations come from the graph; a model's description of an edge is a
    separate remark.
    """
    words = {definition.term: definition for definition in answer.definitions}
    processes = {(process.chain, process.step): process.process for process in answer.processes}
    definitions: dict[str, Definition] = {}
    relationships = []
    for chain, path in enumerate(given.paths, 1):
        for node in path.nodes:
            said = words.get(node.name)
            definitions[node.name] = Definition(
                term=node.name,
                type=node.type,
                definition=said.definition if said else "no definition",
                grounded=bool(said and said.grounded),
                identifiers=node.identifiers,
            )
        for step, edge in enumerate(path.edges, 1):
            head, tail = _ends(path, step - 1)
            remark = processes.get((chain, step))
            relationships.append(
                Relationship(
                    chain=chain,
                    step=step,
                    head=head.name,
                    head_type=head.type,
                    relation=edge.relation,
                    tail=tail.name,
                    tail_type=tail.type,
                    process=_describe_edge(path, step),
                    remark=remark if isinstance(remark, ModelText) else None,
                    polarity=edge.polarity,
                    forward=edge.forward,
                    belief=round(edge.belief, 4),
                    contradicted=edge.contradicted,
                    supported=path.supported,
                    evidence=tuple(cite(item) for item in edge.evidence[:EVIDENCE_PER_EDGE]),
                    contradicting=tuple(
                        cite(item) for item in edge.contradicting[:EVIDENCE_PER_EDGE]
                    ),
                )
            )
    return OntologyBrief(
        definitions=tuple(definitions.values()), relationships=tuple(relationships)
    )


ONTOLOGIST = Agent(
    name="ontologist",
    role=Role.MINI,
    reads=OntologistInput,
    returns=Grounding,
    prompt=prompt_file(__file__, "ontologist.md"),
    rule=ground_paths,
    check=check_grounding,
)
