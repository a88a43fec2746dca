"""A topic becomes concepts with their synonyms, and papers are scored by them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kg.lexicon.ontology import Ontology
from kg.literature.topic import parse_topic
from sage.core.errors import InputError

ONTOLOGY = Ontology.load(Path(__file__).parents[2] / "data" / "ontology")


def test_only_names_that_have_a_plural_are_searched_in_it() -> None:
    query = parse_topic("survival, stroma and B cells in bladder cancer", ONTOLOGY)
    asked = {name for group in query.groups() for name in group}
    assert {"B cell", "B cells", "bladder cancers", "urothelial carcinomas"} <= asked
    assert "cancer of the bladder" in asked
    silly = re.compile(r"(?:survival|stroma|stromal|presence|bladder|cause|imaging|learning)s$")
    assert not [name for name in asked if silly.search(name)]


@pytest.mark.parametrize("topic", ["of the in", "膀胱癌"])
def test_a_topic_without_a_word_is_refused(topic: str) -> None:
    with pytest.raises(InputError, match="no word to search for; describe"):
        parse_topic(topic, ONTOLOGY)


@pytest.mark.parametrize("topic", ["PD-L1 NOT mouse", '"TLS" OR CXCL13', "(NOT mouse) PD-L1"])
def test_an_exclusion_is_refused_and_not_turned_into_a_demand(topic: str) -> None:
    with pytest.raises(InputError, match="not supported in a topic"):
        parse_topic(topic, ONTOLOGY)
    assert parse_topic("PD-L1 AND mouse", ONTOLOGY).phrases == ("PD-L1", "mouse")
