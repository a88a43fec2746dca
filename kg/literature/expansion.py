"""Synonyms for queries and matching: MeSH entry terms and names of this field."""

from __future__ import annotations

from functools import cache

from kg.literature.text import phrase_key
from kg.literature.types import Query

_GROUPS: tuple[tuple[str, ...], ...] = (
    (
        "bladder cancer",
        "urinary bladder neoplasms",
        "bladder carcinoma",
        "urothelial carcinoma",
        "urothelial cancer",
        "bladder urothelial carcinoma",
        "urothelial bladder cancer",
        "BLCA",
    ),
    ("muscle-invasive bladder cancer", "MIBC", "muscle invasive bladder cancer"),
    ("non-muscle-invasive bladder cancer", "NMIBC", "non muscle invasive bladder cancer"),
    (
        "tertiary lymphoid structure",
        "tertiary lymphoid structures",
        "tertiary lymphoid organ",
        "ectopic lymphoid structure",
        "TLS",
    ),
    (
        "tumor-infiltrating lymphocytes",
        "lymphocytes, tumor-infiltrating",
        "tumour-infiltrating lymphocytes",
        "TIL",
        "TILs",
    ),
    ("overall survival", "OS", "death from any cause"),
    ("progression-free survival", "progression-free interval", "PFS", "PFI"),
    ("tumor stroma", "tumour stroma", "stromal", "desmoplasia"),
    ("immune checkpoint inhibitor", "immune checkpoint blockade", "PD-1 blockade", "anti-PD-L1"),
    ("whole-slide image", "whole slide imaging", "histology image", "H&E"),
)


@cache
def _index() -> dict[str, tuple[str, ...]]:
    return {phrase_key(name): group for group in _GROUPS for name in group}


def synonyms(phrase: str) -> tuple[str, ...]:
    """`phrase` first, then its known synonyms."""
    return tuple(dict.fromkeys((phrase, *_index().get(phrase_key(phrase), ()))))


def expand(query: Query) -> Query:
    """The query with synonyms as alternatives to each of its phrases."""
    return query.model_copy(
        update={"any_of": tuple(synonyms(phrase)[1:] for phrase in query.phrases)}
    )
