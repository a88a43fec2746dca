"""Normalization of identifiers as written by people; invalid values become None."""

from __future__ import annotations

import re

_DOI = re.compile(r"10\.\d{4,9}/[^\s\"<>{}]+")


def clean_doi(value: str | None) -> str | None:
    """Extract the bare DOI: `https://doi.org/10.1/x.` becomes `10.1/x`; case is unchanged."""
    if not value:
        return None
    match = _DOI.search(value.replace("\\_", "_").replace("{\\_}", "_"))
    if not match:
        return None
    doi = match.group().rstrip(".,;")
    while doi.endswith(")") and doi.count("(") < doi.count(")"):
        doi = doi[:-1]
    return doi


def clean_pmid(value: str | None) -> str | None:
    """Extract the digits of a PubMed id."""
    match = re.fullmatch(r"\s*(?:PMID:?\s*)?(\d{1,8})(?:\.0)?\s*", value or "", re.IGNORECASE)
    return match.group(1) if match else None


def clean_pmcid(value: str | None) -> str | None:
    """Normalize a PMC id to `PMC` followed by digits."""
    match = re.search(r"(?:PMC)?\s*(\d{3,9})", value or "", re.IGNORECASE)
    return f"PMC{match.group(1)}" if match else None


def clean_year(value: str | None) -> int | None:
    """Parse a year between 1500 and 2200."""
    match = re.search(r"(?<!\d)(1[5-9]\d\d|2[01]\d\d)(?!\d)", value or "")
    return int(match.group(1)) if match else None
