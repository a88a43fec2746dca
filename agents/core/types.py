"""Values that agents exchange."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from agents.core.base import View
from agents.core.words import ModelText, Words
from kg.types import EntityType, Polarity
from sage.core.models import Name, Passage
from validation.core.dictionary import DataDictionary, Endpoint, Variable, find_levels
from validation.core.hypothesis import Direction, Exposure, Hypothesis
from validation.core.signature import read_signature
from validation.disclosure import MIN_COUNT, shown_endpoint, shown_variable

if TYPE_CHECKING:
    from kg.literature.types import Record
    from kg.types import Evidence

STUDY_SIZE = re.compile(
    r"\bn\s*=\s*(\d[\d,]*)|(?<![\w.])(\d[\d,]*)\s+(?:\w+[ -]){0,3}?"
    r"(?:patients|cases|women|men|individuals|tumou?rs|specimens|samples)\b",
    re.IGNORECASE,
)


class Citation(View):
    """A source record to which a sentence of the report may refer."""

    title: Name
    year: int | None = None
    doi: str | None = None
    pmid: str | None = None
    quote: Passage = ""
    retracted: bool = False

    @classmethod
    def of(cls, source: Evidence | Record, quote: str) -> Citation:
        """Cite a record or the evidence of an edge with a sentence of it."""
        names = ("title", "year", "doi", "pmid", "retracted")
        return cls(quote=quote, **{name: getattr(source, name) for name in names})

    @property
    def key(self) -> str:
        """The identifier of the source: DOI, else PMID, else title and year."""
        if self.doi:
            return f"doi:{self.doi.lower()}"
        if self.pmid:
            return f"pmid:{self.pmid}"
        return f"title:{self.title.lower()}:{self.year}"

    @property
    def study_size(self) -> int | None:
        """The largest number of patients, tumors or samples that the quotation names."""
        found = [int((a or b).replace(",", "")) for a, b in STUDY_SIZE.findall(self.quote)]
        return max(found, default=None)


class Definition(View):
    """Definition of a term. `grounded` is False if no ontology entry was found."""

    term: Name
    type: EntityType
    definition: Words
    grounded: bool
    identifiers: dict[str, str] = Field(default_factory=dict)


class Relationship(View):
    """An edge of a path as a process, with evidence for and against it.

    `chain` is the number of the path (from 1) to which the edge belongs, `step` its position there.
    `supported` is false if graphs with the links swapped at random have as strong a chain: the
    claim then has no support in the graph. `remark` restates the edge in a model's words.
    """

    chain: int
    step: int
    head: Name
    head_type: EntityType
    relation: str
    tail: Name
    tail_type: EntityType
    process: str
    remark: ModelText | None = None
    polarity: Polarity
    forward: bool = True
    belief: float
    contradicted: bool = False
    supported: bool = True
    evidence: tuple[Citation, ...] = ()
    contradicting: tuple[Citation, ...] = ()


class OntologyBrief(View):
    """Definitions and relationships that ground the paths."""

    definitions: tuple[Definition, ...]
    relationships: tuple[Relationship, ...]


class DictionaryView(View):
    """The part of a cohort's data dictionary that an agent's task needs.

    Contains variables, endpoints and counts; never a patient. `genes` are the expression variables
    that the task mentions, out of `genes_available` in the cohort.
    """

    cohort: Name
    title: Name
    simulated: bool
    n_patients: int
    variables: tuple[Variable, ...]
    genes: tuple[str, ...]
    genes_available: int
    expression_unit: Name | None = None
    expression_n: int = 0
    endpoints: tuple[Endpoint, ...]
    slides: int = 0
    notes: tuple[Passage, ...] = ()

    def keys(self) -> set[str]:
        """Return the keys of all variables in this view."""
        return {variable.key for variable in self.variables} | {
            f"expression:{gene}" for gene in self.genes
        }

    def has_variable(self, key: str) -> bool:
        """Check whether `key` names a variable of this view, or a score of its genes."""
        signature = read_signature(key)
        if signature is not None:
            return not signature.split_measured(set(self.genes))[1]
        return key in self.keys() or find_levels(self.variables, key) is not None

    def names(self) -> tuple[str, ...]:
        """Return the names of the cohort, its variables and its endpoints."""
        return (
            self.title,
            self.cohort,
            *(name for variable in self.variables for name in (variable.key, variable.label)),
            *(name for endpoint in self.endpoints for name in (endpoint.key, endpoint.label)),
        )


def dictionary_view(
    dictionary: DataDictionary, terms: list[str], min_count: int = MIN_COUNT
) -> DictionaryView:
    """Reduce `dictionary` to its endpoints, its variables and the genes that `terms` mention.

    A cohort may hold twenty thousand genes; a prompt includes only those that the task mentions.
    Variables and outcomes known in fewer than `min_count` patients are omitted, and so are smaller
    event counts; levels with fewer patients are pooled, and all counts rounded to its multiples.
    """
    wanted = {word.upper() for term in terms for word in _words(term)}
    genes = tuple(symbol for symbol in dictionary.expression if symbol.upper() in wanted)
    return DictionaryView(
        cohort=dictionary.cohort,
        title=dictionary.title,
        simulated=dictionary.simulated,
        n_patients=dictionary.n_patients,
        variables=tuple(
            shown_variable(variable, dictionary.n_patients, min_count)
            for variable in dictionary.variables
            if variable.n >= min_count
        ),
        genes=genes,
        genes_available=len(dictionary.expression),
        expression_unit=dictionary.expression_unit,
        expression_n=dictionary.expression_n,
        endpoints=tuple(
            shown_endpoint(endpoint, dictionary.n_patients, min_count)
            for endpoint in dictionary.endpoints
            if endpoint.n >= min_count
        ),
        slides=dictionary.slides,
        notes=dictionary.notes,
    )


def _words(term: str) -> list[str]:
    cleaned = "".join(char if char.isalnum() or char in "-_" else " " for char in term)
    return [term.strip(), *cleaned.split()]


class EffectView(View):
    """An effect with its 95% interval, on the scale given in its contract."""

    estimate: float
    lower: float
    upper: float
    scale: str


class EarlierClaim(View):
    """A claim tested in an earlier round, its outcome, and what that suggests.

    `verdict` is the verdict's word (supported, not supported, inconclusive, infeasible), `reason`
    explains it in a sentence, and `suggests` says what to try or avoid next.
    """

    statement: str
    exposures: tuple[str, ...]
    endpoint: str
    verdict: str
    reason: str = ""
    effect: EffectView | None = None
    suggests: str = ""


class History(View):
    """Claims and outcomes of earlier rounds, oldest first.

    `next` is what the campaign's policy would test now; the rules follow it.
    """

    claims: tuple[EarlierClaim, ...] = ()
    next: tuple[Hypothesis, ...] = ()


class Reported(View):
    """Risk of a worse outcome with more of a variable, as a paper reports it; "none" if denied."""

    variable: str
    risk: Literal["higher", "lower", "none"]
    citation: Citation

    def supports(self, hypothesis: Hypothesis) -> bool | None:
        """Check whether this is the claim's direction; None if the claim has none on this."""
        level = next((x.level for x in hypothesis.exposures if x.variable == self.variable), None)
        directed = hypothesis.direction is not Direction.EITHER
        if level is None or not directed or hypothesis.comparison.is_product:
            return None
        higher = (level == "high") == (hypothesis.direction is Direction.HIGHER_RISK)
        return self.risk == ("higher" if higher else "lower")


class Draft(View):
    """A hypothesis with its literature, and ways to sharpen it, as the reviewer sees it.

    `refinements` are further exposures that belong to the mechanism; expansion may bring them in
    when the critics ask for a sharper claim. `concepts` are the literature's names for what the
    hypothesis combines. `support_absent` says that no search result supports it. `remark` is a
    model's reason for proposing it. `reported` lists what papers report on its exposures.
    """

    hypothesis: Hypothesis
    remark: ModelText | None = None
    mechanism: tuple[str, ...] = ()
    citations: tuple[Citation, ...] = ()
    contradicting: tuple[Citation, ...] = ()
    refinements: tuple[Exposure, ...] = ()
    concepts: tuple[Name, ...] = ()
    support_absent: bool = False
    reported: tuple[Reported, ...] = ()


class ReviewedHypothesis(Draft):
    """A hypothesis that passed the human checkpoint."""

    review: Literal["approved", "edited", "auto-approved"]
    comment: Passage = ""


class ExpandedHypothesis(View):
    """The reviewed hypothesis with background, mechanism and clinical meaning.

    `parts` are the concepts whose combination is claimed to be new.
    """

    hypothesis: Hypothesis
    background: Words
    mechanism: Words
    clinical_interpretation: Words
    improvements: tuple[Words, ...] = ()
    parts: tuple[Name, ...]
    citations: tuple[Citation, ...] = ()
