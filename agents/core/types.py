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
    """A source record that a sentence in the report may cite."""

    title: Name
    year: int | None = None
    doi: str | None = None
    pmid: str | None = None
    quote: Passage = ""
    retracted: bool = False

    @classmethod
    def of(cls, source: Evidence | Record, quote: str) -> Citation:
        """Cite a record or an edge's evidence by quoting a sentence from it."""
        names = ("title", "year", "doi", "pmid", "retracted")
        return cls(quote=quote, **{name: getattr(source, name) for name in names})

    @property
    def key(self) -> str:
        """Source identifier: DOI, else PMID, else title and year."""
        if self.doi:
            return f"doi:{self.doi.lower()}"
        if self.pmid:
            return f"pmid:{self.pmid}"
        return f"title:{self.title.lower()}:{self.year}"

    @property
    def study_size(self) -> int | None:
        """The largest number of patients, tumors or samples mentioned in the quotation."""
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
    """A path edge described as a process, with evidence for and against it.

    `chain` is the number (from 1) of the path that contains the edge, and `step` is its
    position there. `supported` is false if graphs with randomly swapped links contain an
    equally strong chain: the claim then has no support in the graph. `remark` restates the
    edge in a model's words.
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
    """The part of a cohort's data dictionary that an agent needs for its task.

    Contains variables, endpoints and counts; never a patient. `genes` are the expression
    variables mentioned in the task, out of `genes_available` in the cohort.
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
        """Check whether `key` names a variable in this view, or a score based on its genes."""
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
    """Reduce `dictionary` to its endpoints, its variables and the genes mentioned in `terms`.

    A cohort may contain twenty thousand genes; a prompt includes only those mentioned in the
    task. Variables and outcomes known in fewer than `min_count` patients are omitted, and so
    are smaller event counts; levels with fewer patients are pooled, and all counts are
    rounded to multiples of `min_count`.
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
    """A claim tested in an earlier round, its outcome, and its implication for the next round.

    `verdict` is the verdict as text (supported, not supported, inconclusive, infeasible),
    `reason` explains it in a sentence, and `suggests` states what to try or avoid next.
    """

    statement: str
    exposures: tuple[str, ...]
    endpoint: str
    verdict: str
    reason: str = ""
    effect: EffectView | None = None
    suggests: str = ""


class History(View):
    """Claims and outcomes from earlier rounds, oldest first.

    `next` is the test that the campaign policy would choose now; the rules follow it.
    """

    claims: tuple[EarlierClaim, ...] = ()
    next: tuple[Hypothesis, ...] = ()


class Reported(View):
    """Risk of a worse outcome with more of a variable, as reported in a paper; "none" if denied."""

    variable: str
    risk: Literal["higher", "lower", "none"]
    citation: Citation

    def supports(self, hypothesis: Hypothesis) -> bool | None:
        """Check whether this agrees with the claim's direction; None if the claim has none here."""
        level = next((x.level for x in hypothesis.exposures if x.variable == self.variable), None)
        directed = hypothesis.direction is not Direction.EITHER
        if level is None or not directed or hypothesis.comparison.is_product:
            return None
        higher = (level == "high") == (hypothesis.direction is Direction.HIGHER_RISK)
        return self.risk == ("higher" if higher else "lower")


class Draft(View):
    """A hypothesis with its literature, and ways to sharpen it, as seen by the reviewer.

    `refinements` are further exposures in the same mechanism; expansion may add them when the
    critics ask for a sharper claim. `concepts` are the names used in the literature for the
    combined elements of the hypothesis. `support_absent` states that no search result
    supports the hypothesis. `remark` is a model's reason for proposing it. `reported` lists
    the findings in papers on its exposures.
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

    `parts` are the concepts whose combination is claimed to be novel.
    """

    hypothesis: Hypothesis
    background: Words
    mechanism: Words
    clinical_interpretation: Words
    improvements: tuple[Words, ...] = ()
    parts: tuple[Name, ...]
    citations: tuple[Citation, ...] = ()
