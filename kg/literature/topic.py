"""Topics as sets of concepts with synonyms, and the relevance of papers to a topic."""

from __future__ import annotations

import re

from kg.lexicon.ontology import Ontology
from kg.literature.expansion import make_expander
from kg.literature.text import words
from kg.literature.types import Query, Record
from sage.core.errors import InputError

_OPERATOR = re.compile(r"\b(?:NOT|OR)\b")
# Symbols, endings that take no plain -s, qualities, adjectives, and phrases whose noun comes first.
_UNCOUNTED = re.compile(
    r"(?:ss|us|is|[yxh]|ing|[ae]nce|ism|ics|ology|plasia|blockade|[hp]ibition|pression|(?<!sign)(?<!tri)(?<!anim)al|stromas?|[^\W\d]ed)$"
    r"|,| (?:of|in|from|by|to|for|with|on|at|after|before) "
)
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+")


def parse_topic(topic: str, ontology: Ontology) -> Query:
    """Parse a topic into concepts that must all occur: ontology names, then words.

    Raises
    ------
    InputError
        If the topic has no word to search for, or contains exclusions or alternatives.
    """
    if operator := _OPERATOR.search(topic):
        raise InputError(
            f"{operator[0]} is not supported in a topic: all concepts are required, and synonyms "
            "are added automatically; list only concepts, and put alternatives in "
            "separate folders"
        )
    phrases, end = [], 0
    for match in [*ontology.find_all(topic), None]:
        start = match.start if match else len(topic)
        # Words between names; those that carry no meaning ("in") are no concept.
        phrases += [word for word in re.findall(r"[\w-]+", topic[end:start]) if words(word)]
        if match:
            phrases.append(topic[match.start : match.end])
            end = match.end
    if not phrases:
        raise InputError(f'the topic "{topic}" has no word to search for; describe it in English')
    query = make_expander(ontology)(Query(text=topic, phrases=tuple(dict.fromkeys(phrases))))
    both = tuple(tuple(n for name in names for n in _numbers(name)) for names in query.groups())
    return query.model_copy(update={"any_of": both})


def _numbers(name: str) -> tuple[str, ...]:
    """Return a name's singular and plural, because catalogs match phrases literally."""
    if len(name) < 4 or not name[-1].islower() or _UNCOUNTED.search(name):
        return (name,)
    return (name, name[:-1]) if name.endswith("s") else (name, f"{name}s")


def score_relevance(query: Query, record: Record) -> float:
    """Compute the share of the topic's concepts that are named in the title or abstract.

    A concept is named if all words in its name or in a synonym occur in the same sentence, in
    any inflection.
    """
    sentences = [set(words(part)) for part in (record.title, *_SENTENCE.split(record.abstract))]
    groups = [[set(words(name)) for name in names] for names in query.groups()]
    named = sum(
        any(name and name <= said for name in names for said in sentences) for names in groups
    )
    return named / len(groups)
