"""Tool for gene signatures in a cohort: coverage, distribution and correlation.

It never reports a patient's score.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.oncology.common import CohortChoice, finite, open_cohort
from mcp_servers.spec import Resources, Validity, tool
from sage.core.errors import InputError
from validation.disclosure import MIN_COUNT, round_count, round_to_error, winsorized


class SignatureInput(CohortChoice):
    """Signatures to score; by default, all whose genes the cohort has."""

    signatures: list[str] = Field(default_factory=list, max_length=50)
    genes: list[str] = Field(
        default_factory=list, max_length=500, description="Your own signature, as a list of genes"
    )


class SignatureRow(BaseModel):
    """A signature over the cohort; quantiles are those of the patients' scores."""

    key: str
    label: str
    source: str
    genes_present: int
    genes_total: int
    missing_genes: list[str]
    n: int | None
    mean: float
    sd: float
    quantile_10: float
    quantile_25: float
    median: float
    quantile_75: float
    quantile_90: float
    unit: str


class Pair(BaseModel):
    """Spearman correlation of two signatures."""

    first: str
    second: str
    spearman: float | None
    n: int | None


class SignatureResult(BaseModel):
    """Signatures in a cohort. `key` can be used in the survival tools."""

    cohort: str
    signatures: list[SignatureRow]
    correlations: list[Pair]
    note: str


@tool(
    "signature_scores",
    "oncology",
    "1.0.0",
    "Score gene signatures (TLS chemokines, B cells, cytolytic activity, stroma and others, or a "
    "gene list) in a cohort's expression data: coverage, distribution and correlations.",
    Resources(cpu=1, memory_mb=2048, seconds_per_item=5),
    Validity(
        known_failures=(
            "Bulk expression confounds purity with biology",
            "Mean z-scores are relative to this cohort and cannot be compared between cohorts",
        )
    ),
    title="Gene signature scores",
)
def signature_scores(given: SignatureInput, context: ToolContext) -> SignatureResult:
    """Score every patient, and report only the distribution."""
    import pandas as pd

    from validation.cohort.derive import mean_z, signatures

    cohort = open_cohort(given, context)
    matrix = cohort.expression
    if matrix is None:
        raise InputError(f'cohort "{cohort.id}" has no expression matrix')
    known = signatures()
    keys = cohort.keys()
    available = [name for name in known if f"signature:{name}" in keys]
    wanted = given.signatures or ([] if given.genes else available)
    unknown = sorted(set(wanted) - set(available))
    if unknown:
        raise InputError(
            f"signatures {', '.join(unknown)} are unknown or not covered by this cohort's genes; "
            f"available: {', '.join(available)}"
        )
    columns: dict[str, pd.Series] = {}
    rows = []
    for at, name in enumerate(wanted):
        context.progress(at / len(wanted), name)
        signature = known[name]
        values = cohort.column(f"signature:{name}").dropna()
        columns[f"signature:{name}"] = values
        rows.append(
            _row(
                f"signature:{name}",
                signature.label,
                signature.source,
                list(signature.genes),
                matrix,
                values,
                "mean z-score" if signature.method == "mean_z" else "enrichment score",
            )
        )
    if given.genes:
        genes = list(dict.fromkeys(given.genes))
        present = [gene for gene in genes if gene in matrix]
        if len(present) < max(2, len(genes) / 2):
            raise InputError(
                f"the cohort has only {len(present)} of the {len(genes)} genes, which is too few "
                "to score"
            )
        values = pd.Series(mean_z(matrix.block(present)), index=matrix.patients).dropna()
        columns["own"] = values
        rows.append(_row("own", "own", "given", genes, matrix, values, "mean z-score"))
    pairs = []
    names = list(columns)
    for at, first in enumerate(names):
        for second in names[at + 1 :]:
            both = pd.concat([columns[first], columns[second]], axis=1).dropna()
            value = float(both.iloc[:, 0].rank().corr(both.iloc[:, 1].rank()))
            pairs.append(
                Pair(
                    first=first,
                    second=second,
                    spearman=finite(np.round(value, 2)),
                    n=round_count(len(both)),
                )
            )
    return SignatureResult(
        cohort=cohort.id,
        signatures=rows,
        correlations=pairs,
        note="Patients' scores stay in the cohort; pass a key to kaplan_meier, cox or concordance.",
    )


def _row(
    key: str, label: str, source: str, genes: list[str], matrix: object, values: object, unit: str
) -> SignatureRow:
    numbers = np.asarray(values, dtype=float)
    if len(numbers) < 2 * MIN_COUNT:
        raise InputError(f"{key}: fewer than {2 * MIN_COUNT} patients have expression data")
    missing = [gene for gene in genes if gene not in matrix]  # type: ignore[operator]
    inner = winsorized(numbers)
    error = float(inner.std(ddof=1)) / math.sqrt(len(inner))
    quantiles = [
        round_to_error(float(item), error)
        for item in np.quantile(inner, [0.1, 0.25, 0.5, 0.75, 0.9])
    ]
    return SignatureRow(
        key=key,
        label=label,
        source=source,
        genes_present=len(genes) - len(missing),
        genes_total=len(genes),
        missing_genes=missing,
        n=round_count(len(numbers)),
        mean=round_to_error(float(inner.mean()), error),
        sd=round_to_error(float(inner.std(ddof=1)), error),
        quantile_10=quantiles[0],
        quantile_25=quantiles[1],
        median=quantiles[2],
        quantile_75=quantiles[3],
        quantile_90=quantiles[4],
        unit=unit,
    )
