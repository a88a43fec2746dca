"""Summaries of communities, written by rule or by a model whose sentences are checked.

A model's sentence is kept only if it cites statements from its input, mentions nothing
else, contains no number, and expresses each cited statement (direction, sign, denial)
according to the rules that check quotations. Every statement that the extraction rules
find in it must also be cited. Sentences that fail are dropped and counted. If none are
left, the rule-based text is used, with a note.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kg.communities.find import Cited, Community
from kg.communities.types import Sentence
from kg.extract.rules import RulesExtractor
from kg.extract.verify import Claim, Verifier
from kg.lexicon.ontology import Ontology
from kg.types import Polarity
from sage.core.errors import FaultError, InputError
from sage.core.llm.budget import BudgetError
from sage.core.llm.client import Model
from sage.core.llm.messages import Message, ModelChoice, Request
from sage.core.llm.repair import fit, read_object
from sage.core.models import Strict
from sage.core.printable import one_line, quote_text

PROMPT = "community.v1.md"
_ATTEMPTS = 2
_NAMED = 12  # number of concepts listed in the prompt


class Summary(Strict):
    """A community's text, its author, and the reasons why a model's sentences were dropped."""

    sentences: tuple[Sentence, ...]
    written_by: str
    dropped: dict[str, int] = Field(default_factory=dict)
    note: str | None = None


class _ModelSentence(BaseModel):
    model_config = ConfigDict(extra="ignore")

    text: str
    cites: list[int]


class _ModelReply(BaseModel):
    sentences: list[_ModelSentence]


def summarize_by_rule(community: Community) -> Summary:
    """Summarize the best supported statements, followed by the contradicted statements."""
    agreed = [s for s in community.statements if not s.contradicted and not s.negated][:3]
    disputed = [s for s in community.statements if s.contradicted and not s.negated][:2]
    denied = [s for s in community.statements if s.negated and not s.contradicted][:1]
    lines = [Sentence(text=f"{_describe_statement(s)}.", cites=(s.number,)) for s in agreed]
    lines += [
        Sentence(text=f"{_describe_statement(s)}; other papers contradict this.", cites=(s.number,))
        for s in disputed
    ]
    lines += [
        Sentence(text=f"Denied: {_describe_statement(s)}.", cites=(s.number,)) for s in denied
    ]
    return Summary(sentences=tuple(lines), written_by="rules")


def _describe_statement(cited: Cited) -> str:
    papers = f"{len(cited.papers)} paper{'s' * (len(cited.papers) != 1)}"
    years = ""
    if cited.first_year and cited.last_year:
        same = cited.first_year == cited.last_year
        years = f", {cited.first_year}" + ("" if same else f" to {cited.last_year}")
    words = cited.words().removeprefix("not: ")
    return f"{words} ({papers}{years}, belief {cited.belief:.2f})"


class ChatSummaries:
    """Summarizer that uses a language model."""

    def __init__(self, client: Model, model: ModelChoice, ontology: Ontology) -> None:
        self._client = client
        self._model = model
        self._check = Checker(ontology)
        self._system = (Path(__file__).parent / "prompts" / PROMPT).read_text(encoding="utf-8")

    def summarize(self, community: Community) -> Summary:
        """Summarize with the model, or by rule with a note if no sentence passes the checks.

        Raises
        ------
        BudgetError
            If the next call could exceed the cost limit.
        """
        listed = "\n".join(f"{s.number}. {quote_text(s.words())}" for s in community.statements)
        concepts = quote_text(", ".join(community.concepts[:_NAMED]))
        user = f"Concepts: {concepts}\n\nStatements:\n{listed}"
        complaint, failed = "", "the model returned no sentence"
        for _ in range(_ATTEMPTS):
            request = Request(
                agent="communities",
                model=self._model,
                messages=(
                    Message(role="system", text=self._system),
                    Message(role="user", text=user + complaint),
                ),
                schema=_ModelReply.model_json_schema(),
                title="summary",
            )
            try:
                answer = self._client.ask(request)
                reply = fit(read_object(answer.reply.content), _ModelReply)
            except BudgetError:
                raise
            except (InputError, FaultError) as failure:
                failed = str(failure)
                break
            except (ValidationError, ValueError) as invalid:
                failed = f"the reply does not match the schema: {one_line(str(invalid))[:200]}"
                complaint = f"\n\nYour last reply was rejected: {failed}. Reply again."
                continue
            kept, dropped = self._select_sentences(reply, community.statements)
            if kept:
                return Summary(sentences=kept, written_by=self._model.name, dropped=dropped)
            reasons = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
            failed = f"no sentence from the model passed ({reasons or 'none given'})"
            complaint = f"\n\nYour last reply was rejected: {failed}. Reply again."
        return summarize_by_rule(community).model_copy(update={"note": failed})

    def _select_sentences(
        self, reply: _ModelReply, statements: Sequence[Cited]
    ) -> tuple[tuple[Sentence, ...], dict[str, int]]:
        kept: list[Sentence] = []
        dropped: Counter[str] = Counter()
        for sentence in reply.sentences:
            text = " ".join(sentence.text.split())
            fault = self._check.fault(text, sentence.cites, statements)
            if fault:
                dropped[fault] += 1
            else:
                kept.append(Sentence(text=text, cites=tuple(dict.fromkeys(sentence.cites))))
        return tuple(kept), dict(dropped)


class Checker:
    """Checks that a sentence agrees with the statements it cites and adds nothing."""

    def __init__(self, ontology: Ontology) -> None:
        self._ontology = ontology
        self._verifier = Verifier(ontology)
        self._rules = RulesExtractor(ontology)

    def fault(self, text: str, cites: Sequence[int], statements: Sequence[Cited]) -> str | None:
        """Return a reason to reject a sentence, or None if there is none."""
        given = {statement.number: statement for statement in statements}
        if not cites:
            return "cites nothing"
        if any(number not in given for number in cites):
            return "cites a statement that was not given"
        cited = [given[number] for number in cites]
        names = {name for s in cited for name in (s.head, s.tail)}
        mentions = self._rules.mentions.find(text)
        if {self._resolve_name(m.name) for m in mentions} - {
            self._resolve_name(name) for name in names
        }:
            return "mentions something that it does not cite"
        if not all(self._supports(statement, text) for statement in cited):
            return "does not express a statement that it cites"
        stated = {(self._pair(s.head, s.tail), s.negated) for s in cited}
        for said in self._rules.read_text(text, mentions):
            if (self._pair(said.head, said.tail), said.negated) not in stated:
                return "says more than the cited statements"
        relations = {word for s in cited for word in s.relation.split("_")}
        if self._further(text, names, relations):
            return "says more than the cited statements"
        return None

    def _supports(self, statement: Cited, text: str) -> bool:
        """Check whether the text makes the statement, using the relation's phrase or first word."""
        sign = Polarity.NEUTRAL if statement.negated else statement.polarity
        return any(
            self._verifier.fault(
                Claim(statement.head, phrase, statement.relation, statement.tail, sign,
                      statement.negated),
                text, (0, len(text)), least=3,
            ) is None
            for phrase in _phrases(statement.relation)
        )  # fmt: skip

    def _further(self, text: str, names: set[str], relations: set[str]) -> list[str]:
        """List words that are neither in the cited statements nor mere connectives."""
        for name in sorted(names | self._synonyms(names), key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?:s|es)?(?!\w)", " ", text, flags=re.I)
        stems = {word[:6].casefold() for word in relations}
        spoken = re.findall(r"[^\W_]+", text.casefold())
        return [word for word in spoken if word not in _JOINING and word[:6] not in stems]

    def _synonyms(self, names: set[str]) -> set[str]:
        entries = filter(None, map(self._ontology.find, names))
        return {name for entry in entries for name in (entry.name, *entry.synonyms)}

    def _resolve_name(self, name: str) -> str:
        entry = self._ontology.find(name)
        return (entry.name if entry else name).casefold()

    def _pair(self, head: str, tail: str) -> frozenset[str]:
        return frozenset({self._resolve_name(head), self._resolve_name(tail)})


def _phrases(relation: str) -> set[str]:
    """List the wordings with which a sentence may state a relation."""
    first = relation.split("_")[0]
    return {relation.replace("_", " "), first, first.removesuffix("s")}


#: Words allowed in a sentence besides names and relations: they join, deny, or give a sign.
_JOINING = frozenset(re.findall(r"\w+", """
    a about according across activity after all also although among an and another are as at be
    both but by common community concepts contradict contradicted contradicts denied denies deny
    did disagree disputed do does each evidence expression for found from group has have high
    higher however in inverse inversely is it its itself level levels longer low lower many more
    most negative negatively neither no nor not of on one only or other others paper papers
    patients positive positively presence several shorter show shown shows so some stated
    statement states such supported than that the their them these they this those to together
    too two under was well were where whereas which while with worse better within
"""))  # fmt: skip
