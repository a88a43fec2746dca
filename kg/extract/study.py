"""Study design, named cohorts and sample size from an abstract."""

from __future__ import annotations

import re
from functools import lru_cache

from sage.core.models import Strict

_OPENING = 4000  # characters: an abstract, or the beginning of an article

# The first that matches names the study; evidence syntheses and trials before what they include.
_DESIGNS = (
    ("meta-analysis", r"meta-?analys[ie]s|systematic review"),
    ("randomized trial", r"randomi[sz]ed|randomly assigned|phase (?:3|iii)\b"),
    ("single-arm trial", r"single-arm|phase (?:1|2|i|ii|1/2|1b|ib)\b[^.]{0,40}(?:trial|study)"),
    ("case-control study", r"case[- ]control|cases and controls"),
    ("cross-sectional study", r"cross-sectional"),
    ("prospective cohort", r"prospective(?:ly)?\b"),
    ("retrospective cohort", r"retrospective(?:ly)?\b|medical records?"),
    ("cohort study", r"cohorts?\b|consecutive patients"),
    ("case report", r"case reports?|case series|we (?:report|describe|present) (?:a|the|an|two)"
                    r" (?:\w+ ){0,4}(?:case|patient|man|woman|boy|girl)s?\b"),
    ("animal study", r"\b(?:mice|mouse|murine|rats?|xenografts?|zebrafish|rabbits?|in vivo)\b"),
    ("in vitro study", r"\bcell lines?\b|\bin vitro\b|cultured cells"),
    ("review", r"\breview\b"),
)  # fmt: skip
_DESIGN = [(name, re.compile(rf"\b(?:{words})", re.IGNORECASE)) for name, words in _DESIGNS]
_COHORT = re.compile(
    r"\b(?:TCGA(?:-[A-Z]{3,4})?|The Cancer Genome Atlas|GSE\d{3,}|E-MTAB-\d+|IMvigor ?\d+|METABRIC"
    r"|KEYNOTE-? ?\d+|CheckMate[- ]?\d+|SEER|NHANES|UK Biobank|CPTAC|ICGC|Oncomine|Framingham)\b"
)
_N = re.compile(r"\b[nN] ?= ?(\d{1,3}(?:,\d{3})+|\d+)\b")
_COUNTED = re.compile(
    r"\b(\d{1,3}(?:,\d{3})+|\d+) (?:(?!of\b|to\b|and\b|or\b)[\w-]+ ){0,4}?(?:patients|cases"
    r"|subjects|participants|individuals|specimens|samples|tumou?rs|women|men|children|families|biopsies)\b"
)


class Study(Strict):
    """A study as described by its own abstract; fields that it does not state are None."""

    design: str | None = None
    cohort: str | None = None
    n: int | None = None


def parse_study(text: str) -> Study:
    """Parse study design, cohort and sample size from the opening of a document."""
    return _study(text[:_OPENING])


@lru_cache(maxsize=4096)  # a server adds a paper to the same corpus again and again
def _study(opening: str) -> Study:
    design = next((name for name, pattern in _DESIGN if pattern.search(opening)), None)
    cohorts = dict.fromkeys(match.group() for match in _COHORT.finditer(opening))
    counts = [_number(match.group(1)) for match in _COUNTED.finditer(opening)]
    counts = [count for count in counts if count >= 3 and not 1900 <= count <= 2035]
    stated = parse_size(opening)
    return Study(
        design=design,
        cohort=", ".join(cohorts) or None,
        n=max(counts, default=None) if counts else stated,
    )


def parse_size(sentence: str) -> int | None:
    """Parse the sample size from "(n = 210)" in a sentence with exactly one such statement."""
    found = {_number(match.group(1)) for match in _N.finditer(sentence)}
    return found.pop() if len(found) == 1 else None


def _number(digits: str) -> int:
    return int(digits.replace(",", ""))
