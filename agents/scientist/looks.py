"""Inputs and outputs of the scientist's tools."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from pydantic import Field

from agents.core.base import View
from agents.scientist.blind import BlindCohort, DesignPower, Distribution
from kg.types import EntityType
from validation.core.hypothesis import Hypothesis
from validation.core.signature import Method


class GraphSearch(View):
    """A name to look up."""

    text: str = Field(min_length=1, max_length=200, description="a gene, cell, feature, disease")
    limit: int = Field(default=5, ge=1, le=20)


class Entity(View):
    """A graph node; `measured` lists the cohort variables that measure it."""

    name: str
    type: EntityType
    degree: int
    aliases: tuple[str, ...] = ()
    definition: str = ""
    measured: tuple[str, ...] = ()
    score: float


class Entities(View):
    """Matching nodes, best first."""

    entities: tuple[Entity, ...]


class GraphNeighbors(View):
    """A node whose neighbors are requested."""

    name: str = Field(min_length=1, max_length=200)
    types: tuple[EntityType, ...] = Field(default=(), description="only these; none for all")
    measured_only: bool = Field(default=False, description="only what the cohort measures")
    limit: int = Field(default=15, ge=1, le=40)

    @classmethod
    def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the schema without cell lines, since no patient has them."""
        schema = super().model_json_schema(*args, **options)
        schema["$defs"]["EntityType"]["enum"].remove(EntityType.CELL_LINE)
        return schema


class NeighborNode(View):
    """An adjacent node. `forward` is true if the relation leads from the queried node to it."""

    name: str
    type: EntityType
    relations: tuple[str, ...]
    forward: bool
    belief: float
    measured: tuple[str, ...] = ()


class Neighborhood(View):
    """The neighbors of a node, with the most strongly believed relations first."""

    name: str
    neighbors: tuple[NeighborNode, ...]


class GraphPaths(View):
    """Two concepts to connect by paths."""

    source: str = Field(min_length=1, max_length=200)
    target: str = Field(min_length=1, max_length=200)
    limit: int = Field(default=3, ge=1, le=10)


class Quotation(View):
    """A sentence from a source, and its citation key."""

    key: str
    quote: str


class FoundPath(View):
    """A path as a sentence, its weakest belief, and a quotation for each step.

    `supported` is false if graphs with randomly swapped links contain an equally strong path.
    """

    sentence: str
    supported: bool
    weakest_belief: float
    contradicted: bool
    quotations: tuple[Quotation, ...]


class FoundPaths(View):
    """Paths between two concepts, and notes on the search."""

    paths: tuple[FoundPath, ...]
    notes: tuple[str, ...] = ()


class LiteratureSearch(View):
    """Literature query; all `phrases` must occur."""

    query: str = Field(min_length=1, max_length=300)
    phrases: tuple[str, ...] = Field(default=(), max_length=5)
    limit: int = Field(default=6, ge=1, le=12)


class Source(View):
    """A record with its key and its sentences relevant to the query."""

    key: str
    title: str
    year: int | None = None
    retracted: bool = False
    quotations: tuple[str, ...] = ()


class Sources(View):
    """Records, best first.

    `together` counts records that contain every requested phrase; `covered` describes the
    sources searched.
    """

    sources: tuple[Source, ...]
    together: int | None = None
    covered: str
    missing: tuple[str, ...] = ()


class CohortDescribe(View):
    """Variables to describe; `joint` names two or three whose combinations are counted."""

    variables: tuple[str, ...] = Field(min_length=1, max_length=40)
    joint: tuple[str, ...] = Field(default=(), max_length=3)
    cut: Literal["median", "tertile"] = "median"


class DesignClaims(View):
    """Claims whose power is to be estimated; statement and rationale may be empty."""

    claims: tuple[Hypothesis, ...] = Field(min_length=1, max_length=40)

    @classmethod
    def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the schema with hypotheses as references to the reply format sent with it."""
        schema = super().model_json_schema(*args, **options)
        del schema["$defs"]
        form = {"type": "object", "description": "a candidate's `hypothesis`, as in the reply"}
        schema["properties"]["claims"]["items"] = form
        return schema


class Designs(View):
    """The power of each claim, in the order requested."""

    designs: tuple[DesignPower, ...]


class SignatureDefine(View):
    """Genes to score as a variable, and the method."""

    genes: tuple[str, ...] = Field(min_length=2, max_length=100)
    method: Method = "mean_z"
    weights: tuple[float, ...] = Field(
        default=(), max_length=100, description='for "weighted", one for each gene'
    )


class SignatureCheck(View):
    """The score as a variable, its measured genes, and their coherence.

    `variable` is the key by which claims and queries name the score of the measured genes.
    `coherence` is the mean rank correlation among up to forty genes. `refused` explains why
    it cannot be used.
    """

    variable: str = ""
    words: str = ""
    measured: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    undetected: tuple[str, ...] = ()
    coherence: float | None = None
    score: Distribution | None = None
    refused: str = ""


class MeasurementDefine(View):
    """Formulas to be measured on the slide maps."""

    formulas: tuple[str, ...] = Field(
        min_length=1,
        max_length=8,
        description="such as mean(nearest(cells.b_cell, cells.neoplastic, median))",
    )


class MeasurementCheck(View):
    """A measurement: its key, its meaning, and the findings from the quality gate.

    `variable` is the key by which claims and queries name it. `stability` is the agreement
    (intraclass correlation) with the original after each perturbation of the maps. `refused`
    explains why it cannot be used.
    """

    formula: str
    variable: str = ""
    sentence: str = ""
    unit: str = ""
    missing: float | None = None
    stability: dict[str, float | None] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    score: Distribution | None = None
    refused: str = ""


class MeasurementChecks(View):
    """The measurements in the order requested."""

    checks: tuple[MeasurementCheck, ...]


class Measures(Protocol):
    """Measurement of formulas on the maps of the cohort's patients, without reading any outcome."""

    @property
    def holds(self) -> str:
        """Description of the map contents."""
        ...

    def define(self, formulas: tuple[str, ...]) -> tuple[tuple[MeasurementCheck, ...], BlindCohort]:
        """Measure each formula; return the checks and the cohort with the accepted variables."""
        ...


class HistoryAsked(View):
    """History query; no argument is required, and a variable's key narrows the result."""

    variable: str = Field(default="", max_length=200)
