"""A small simulated cohort, graph and literature for tests of the scientist's tools."""

from __future__ import annotations

import csv
import random
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from agents.core.base import Resources
from agents.core.types import Definition, History, OntologyBrief, Relationship, dictionary_view
from agents.question.types import Intent, Part, PartRole, Question
from agents.scientist.blind import BlindCohort
from agents.scientist.tools import Workbench
from agents.scientist.views import ScientistInput
from kg.literature.local import LocalIndex
from kg.literature.search import Literature
from kg.paths.find import PathOptions
from kg.types import EntityType, Polarity
from tests.kg.gr_helpers import EMBEDDER, bladder, graph
from tests.kg.in_helpers import ontology
from validation import cohort as cohorts
from validation.cohort.cohort import Cohort
from validation.simulate import write_world

DATA = Path(__file__).resolve().parents[2] / "data"
ONTOLOGY = ontology()
RESOURCES = Resources(ontology=ONTOLOGY)
OUTCOMES = {
    "OS": ("OS.time", "OS"),
    "PFI": ("PFI.time", "PFI"),
    "DSS": ("DSS.time", "DSS", "cause_of_death"),
    "nodes": ("nodes",),
}
"""Columns of clinical.csv that each outcome is made of."""


@lru_cache(maxsize=1)
def index() -> LocalIndex:
    """The demonstration corpus."""
    return LocalIndex.from_folder(DATA / "corpus")


def world(folder: Path, patients: int = 160) -> Cohort:
    """A simulated cohort, written to `folder`."""
    shutil.copytree(_written(patients), folder, dirs_exist_ok=True)
    return cohorts.load(folder)


@lru_cache
def _written(patients: int) -> Path:
    """A copy to take others from."""
    folder = Path(tempfile.mkdtemp()) / "world"
    write_world(folder, seed=5, patients=patients)
    return folder


def clinical(folder: Path) -> list[dict[str, str]]:
    """The rows of a simulated cohort's clinical table."""
    with (folder / "clinical.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def write_clinical(folder: Path, rows: list[dict[str, str]]) -> None:
    """Write the rows back."""
    with (folder / "clinical.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def with_permuted_outcomes(folder: Path, seed: int) -> Cohort:
    """The cohort with every outcome handed to another patient, each outcome by its own draw."""
    rows = clinical(folder)
    rng = random.Random(seed)
    for columns in OUTCOMES.values():
        order = rng.sample(range(len(rows)), len(rows))
        taken = [{column: rows[at][column] for column in columns} for at in order]
        for row, values in zip(rows, taken, strict=True):
            row |= values
    write_clinical(folder, rows)
    return cohorts.load(folder)


def bench(cohort: Cohort, history: History | None = None, minimum: int = 5) -> Workbench:
    """A workbench on `cohort`, a small graph and the demonstration corpus."""
    return Workbench(
        graph=graph(bladder()),
        literature=Literature((), None, local=index()),
        cohort=BlindCohort(cohort, minimum),
        ontology=ONTOLOGY,
        embedder=lambda: EMBEDDER,
        paths=PathOptions(),
        history=history,
    )


TLS = Part(
    words="TLS", role=PartRole.EXPOSURE, name="tertiary lymphoid structure",
    graph_node="TLS", variables=("imaging:tls_density",),
)  # fmt: skip
FABP5 = Part(words="FABP5", role=PartRole.EXPOSURE, name="FABP5", variables=("expression:FABP5",))
OS = Part(words="survival", role=PartRole.ENDPOINT, name="overall survival", endpoint="OS")


def question(*parts: Part, **more: Any) -> Question:
    """A question of these parts."""
    return Question(prompt="a question", intent=Intent.RELATE, parts=parts, **more)


def relationship(chain: int, step: int, head: str, tail: str, **more: Any) -> Relationship:
    """A relationship of the brief."""
    fields: dict[str, Any] = {
        "head_type": EntityType.GENE, "tail_type": EntityType.CLINICAL_ENDPOINT,
        "relation": "associated_with", "process": f"{head} goes with {tail}",
        "polarity": Polarity.NEGATIVE, "belief": 0.8,
    } | more  # fmt: skip
    return Relationship(chain=chain, step=step, head=head, tail=tail, **fields)


def brief(*edges: Relationship) -> OntologyBrief:
    """A brief of these relationships, every name defined."""
    names = dict.fromkeys(
        pair
        for edge in edges
        for pair in ((edge.head, edge.head_type), (edge.tail, edge.tail_type))
    )
    return OntologyBrief(
        definitions=tuple(
            Definition(term=name, type=kind, definition="d", grounded=True) for name, kind in names
        ),
        relationships=edges,
    )


EDGES = (
    relationship(1, 1, "CXCL13", "overall survival", polarity=Polarity.POSITIVE),
    relationship(2, 1, "CXCR5", "overall survival"),
)


def given(cohort: Cohort, *parts: Part, wanted: int = 12, **more: Any) -> ScientistInput:
    """Input of the scientist for a question on `cohort`."""
    return ScientistInput(
        question=question(*parts) if parts else Question(prompt=""),
        brief=brief(*EDGES),
        dictionary=dictionary_view(cohort.dictionary(), ["CXCL13", "CXCR5", "FABP5"]),
        wanted=wanted,
        **more,
    )
