"""A score computed from several measured genes, named by its computation.

The key of a score contains its method and genes ("signature:mean_z(CD8A,GZMB)"), so that
two hypotheses with the same score refer to the same variable, regardless of the name they
use.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Literal

from pydantic import Field, model_validator

from sage.core.errors import InputError
from sage.core.models import Strict

Method = Literal["mean_z", "rank", "weighted"]
WORDS: dict[Method, str] = {
    "mean_z": "mean z-score",
    "rank": "rank score",
    "weighted": "weighted z-score",
}
COMPOSED = re.compile(r"signature:(mean_z|rank|weighted)\((.+)\)", re.DOTALL)
SYMBOL = re.compile(r"[^\s(),*#\"]{1,40}")
NAMED = 8
"""Number of genes that a sentence lists before it only counts the rest."""


class GeneSignature(Strict):
    """Genes, and the method that combines them into a score per patient.

    `mean_z`: the mean of the genes' z-scores over the cohort. `weighted`: the sum of weight
    times z-score, divided by the sum of the absolute weights; `weights` follow the order of
    `genes`. `rank`: the single-sample enrichment score, from the ranks of all genes within
    the patient (Barbie and others 2009, Nature). `min_measured` is the minimum share of the
    genes that a cohort must have.
    """

    genes: tuple[str, ...] = Field(min_length=2, max_length=200)
    method: Method = "mean_z"
    weights: tuple[float, ...] = ()
    min_measured: float = Field(default=0.8, gt=0, le=1)

    @model_validator(mode="after")
    def _is_a_score(self) -> GeneSignature:
        for gene in self.genes:
            if not SYMBOL.fullmatch(gene):
                raise ValueError(f'signature: "{gene}" is not a gene symbol')
        if len(set(self.genes)) != len(self.genes):
            twice = next(gene for gene in self.genes if self.genes.count(gene) > 1)
            raise ValueError(f'signature: gene "{twice}" is listed twice; keep only one entry')
        if (self.method == "weighted") != bool(self.weights):
            raise ValueError(
                'signature: `weights` are required if `method` is "weighted", and '
                "not allowed otherwise"
            )
        if self.weights and len(self.weights) != len(self.genes):
            raise ValueError(
                f"signature: got {len(self.weights)} weights for {len(self.genes)} genes; give one "
                "weight per gene, in the same order"
            )
        if any(weight == 0 or abs(weight) == float("inf") or weight != weight
               for weight in self.weights):  # fmt: skip
            raise ValueError("signature: a weight must be a finite number other than 0")
        return self

    @property
    def key(self) -> str:
        """Return the score's key.

        Equal scores have equal keys, regardless of the order of genes and the unit of weights.
        """
        if not self.weights:
            return f"signature:{self.method}({','.join(sorted(self.genes))})"
        largest = max(abs(weight) for weight in self.weights)
        pairs = sorted(zip(self.genes, self.weights, strict=True))
        parts = ",".join(f"{gene}*{weight / largest:.6g}" for gene, weight in pairs)
        return f"signature:weighted({parts})"

    def split_measured(self, matrix: Container[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the genes that a matrix contains, and those it lacks."""
        held = tuple(gene for gene in self.genes if gene in matrix)
        return held, tuple(gene for gene in self.genes if gene not in matrix)

    def of_measured(self, matrix: Container[str]) -> GeneSignature:
        """Return the same score, restricted to the genes in a matrix."""
        held, _ = self.split_measured(matrix)
        weights = dict(zip(self.genes, self.weights, strict=False))
        kept = tuple(weights[gene] for gene in held) if weights else ()
        return self.model_copy(update={"genes": held, "weights": kept})

    def require_measured(self, matrix: Container[str], label: str, cohort: str) -> None:
        """Reject a score if too few of its genes are measured.

        Raises `InputError` naming the missing genes.
        """
        held, lacking = self.split_measured(matrix)
        if len(held) < 2 or len(held) < self.min_measured * len(self.genes):
            raise InputError(
                f'exposure "{label}": cohort "{cohort}" measures only {len(held)} of the '
                f"{len(self.genes)} signature genes, but at least "
                f"{self.min_measured:.0%} are required; not measured: "
                f"{', '.join(lacking)}. Remove these genes, or lower `min_measured`"
            )

    @property
    def text(self) -> str:
        """Describe the score: "mean z-score of CD8A and GZMB"."""
        if self.method == "weighted":
            pairs = zip(self.genes, self.weights, strict=True)
            named = [f"{weight:+g} {gene}" for gene, weight in pairs]
        else:
            named = list(self.genes)
        more = len(named) - NAMED
        if more > 1:
            named = [*named[:NAMED], f"{more} other genes"]
        return f"{WORDS[self.method]} of {', '.join(named[:-1])} and {named[-1]}"


def read_signature(key: str) -> GeneSignature | None:
    """Parse a score from its key; return None for any other variable's key."""
    found = COMPOSED.fullmatch(key)
    if found is None:
        return None
    parts = [part.partition("*") for part in found[2].split(",")]
    try:
        return GeneSignature.model_validate(
            {
                "genes": [gene for gene, _, _ in parts],
                "method": found[1],
                "weights": [float(weight) for _, star, weight in parts if star],
            }
        )
    except ValueError:
        return None


def genes_of(key: str) -> frozenset[str]:
    """Return the genes in a variable's key: a single gene, the genes in a score, or none."""
    if key.startswith("expression:"):
        return frozenset({key.removeprefix("expression:")})
    found = read_signature(key)
    return frozenset() if found is None else frozenset(found.genes)
