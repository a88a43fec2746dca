"""Screening of papers (SAGE, A.1): a score with its parts, and the reason a paper is dropped.

Four parts, each in [0, 1]: keyword frequency, semantic proximity to the topic, venue, and text
substance (a letter or a stub says little). The sum is weighted; the threshold is set so that about
40% of a broad retrieval is dropped, and is an option because corpora differ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from kg.types import Document
from sage.core.models import Strict

if TYPE_CHECKING:
    from kg.embedding.embed import Embedder

KEYWORDS: dict[str, tuple[str, ...]] = {
    "disease": (
        "bladder cancer", "urothelial", "bladder carcinoma", "bladder tumor", "bladder tumour",
        "cystectomy", "transurethral", "muscle-invasive", "muscle invasive", "NMIBC", "MIBC",
        "carcinoma", "tumor", "tumour", "cancer",
    ),
    "pathology": (
        "pathology", "histology", "histopatholog", "whole-slide", "whole slide", "H&E",
        "hematoxylin", "immunohistochem", "deep learning", "image analysis", "digital patholog",
        "segmentation", "convolutional", "multiple instance learning", "foundation model",
    ),
    "biology": (
        "tumor microenvironment", "tumour microenvironment", "tertiary lymphoid", "lymphocyte",
        "macrophage", "fibroblast", "stroma", "collagen", "immune", "checkpoint", "PD-L1",
        "expression", "mutation", "pathway", "chemokine", "biomarker", "proliferation",
    ),
    "outcome": (
        "survival", "prognos", "recurrence", "progression", "metasta", "response", "biomarker",
        "hazard ratio", "cohort", "immunotherapy", "chemotherapy", "BCG", "cisplatin",
    ),
}  # fmt: skip
TOPIC = (
    "bladder cancer and urothelial carcinoma: tumor microenvironment, biomarkers, survival",
    "computational pathology: deep learning on whole-slide images of tumors",
)
VENUES: dict[str, float] = {
    "nature": 1.0, "cell": 1.0, "science": 1.0, "lancet": 1.0, "jama": 0.9, "clinical cancer": 0.9,
    "cancer research": 0.9, "european urology": 0.9, "oncogene": 0.8, "oncoimmunology": 0.8,
    "modern pathology": 0.8, "laboratory investigation": 0.7, "bladder": 0.7, "urolog": 0.7,
    "patholog": 0.7, "cancer": 0.7, "oncolog": 0.7, "tumor": 0.6, "tumour": 0.6, "immun": 0.6,
    "genom": 0.6, "medicine": 0.6, "biolog": 0.5, "plos": 0.6, "frontiers": 0.5, "bmc": 0.5,
}  # fmt: skip


class ScreenOptions(Strict):
    """Keyword sets, weights and threshold of screening.

    `weights` of the parts `keywords`, `semantic`, `venue`, `substance`; they are normalized.
    """

    threshold: float = Field(default=0.35, ge=0.0, le=1.0)
    keywords: dict[str, tuple[str, ...]] = Field(default_factory=lambda: dict(KEYWORDS))
    topic: tuple[str, ...] = TOPIC
    venues: dict[str, float] = Field(default_factory=lambda: dict(VENUES))
    weights: dict[str, float] = Field(
        default_factory=lambda: {
            "keywords": 0.5,
            "semantic": 0.3,
            "venue": 0.1,
            "substance": 0.1,
        }
    )


class Screened(Strict):
    """The score of one paper with its parts, and why it was dropped if it was."""

    doc_id: str
    path: str
    title: str
    year: int | None
    score: float
    parts: dict[str, float]
    matched: tuple[str, ...]
    kept: bool
    reason: str | None = None


def screen(
    documents: Sequence[Document],
    options: ScreenOptions | None = None,
    embedder: Embedder | None = None,
) -> list[Screened]:
    """Score every document and say which are kept.

    Without an embedder the semantic part is left out and the other weights are scaled up; the
    parts then have no `semantic` entry.
    """
    options = options or ScreenOptions()
    semantic = _semantic(documents, options, embedder) if embedder and documents else None
    results = []
    for index, document in enumerate(documents):
        keyword_score, matched, missing = _keywords(document, options.keywords)
        parts = {
            "keywords": keyword_score,
            "venue": _venue(document.venue, options.venues),
            "substance": _substance(document),
        }
        if semantic is not None:
            parts["semantic"] = semantic[index]
        total = sum(options.weights.get(name, 0.0) for name in parts) or 1.0
        score = sum(options.weights.get(name, 0.0) * value for name, value in parts.items()) / total
        reason = None
        if document.retracted:
            reason = "retracted"
        elif score < options.threshold:
            low = min(parts, key=lambda name: parts[name] / max(options.weights[name], 1e-9))
            reason = f"score {score:.2f} below {options.threshold:.2f}; weakest part: {low}"
            if missing:
                reason += f"; no keyword of: {', '.join(missing)}"
        results.append(
            Screened(
                doc_id=document.id,
                path=document.path,
                title=document.title,
                year=document.year,
                score=round(score, 4),
                parts={name: round(value, 4) for name, value in sorted(parts.items())},
                matched=matched,
                kept=reason is None,
                reason=reason,
            )
        )
    return results


def _keywords(
    document: Document, sets: Mapping[str, Sequence[str]]
) -> tuple[float, tuple[str, ...], list[str]]:
    """Mean over keyword sets of a saturating frequency per thousand words (title counts thrice)."""
    text = f"{document.title}\n{document.title}\n{document.title}\n{document.text}".lower()
    words = max(60, len(text.split()))
    scores, matched, missing = [], [], []
    for name, keywords in sets.items():
        hits = 0
        for keyword in keywords:
            count = len(re.findall(rf"(?<!\w){re.escape(keyword.lower())}", text))
            if count:
                hits += count
                matched.append(keyword)
        if not hits:
            missing.append(name)
        scores.append(1.0 - math.exp(-1000.0 * hits / words / 8.0))
    return sum(scores) / max(1, len(scores)), tuple(dict.fromkeys(matched)), missing


def _venue(venue: str | None, table: Mapping[str, float]) -> float:
    """Reputation by words of the venue's name; unknown venues are neutral (0.4)."""
    if not venue:
        return 0.4
    name = venue.lower()
    return max((value for key, value in table.items() if key in name), default=0.4)


def _substance(document: Document) -> float:
    """How much text there is, saturating at about an abstract."""
    return min(1.0, len(document.text) / 800.0)


def _semantic(
    documents: Sequence[Document], options: ScreenOptions, embedder: Embedder
) -> list[float]:
    """Cosine of title and opening to the nearest topic sentence, mapped from [0, 0.6] to [0, 1]."""
    texts = [f"{document.title}. {document.text[:600]}" for document in documents]
    vectors = embedder.embed([*texts, *options.topic])
    papers, topics = vectors[: len(texts)], vectors[len(texts) :]
    best = (papers @ topics.T).max(axis=1)
    return [float(min(1.0, max(0.0, value / 0.6))) for value in best]
