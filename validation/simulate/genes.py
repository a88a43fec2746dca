"""Genes in a simulated cohort: co-expressed modules with loadings on latent factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validation.statistics.base import FloatArray

FACTORS = ("tls", "tcell", "basal", "stroma", "proliferation", "proteasome")

# Genes driven by each latent factor: (factor, loading, genes). A negative loading runs against
# the factor (luminal markers against the basal one). A gene may appear under several factors.
MODULES: tuple[tuple[str, float, str], ...] = (
    (
        "tls",
        0.85,
        "CXCL13 MS4A1 CD19 CD79A CD79B CR2 CCL19 CCL21 CXCR5 SELL LTB LTA CCR7 MZB1 BCL6",
    ),
    ("tls", 0.45, "CCL2 CCL3 CCL4 CCL5 CCL8 CCL18 CXCL9 CXCL10 CXCL11 CD40LG CD40 LAMP3"),
    ("tcell", 0.80, "CD3D CD3E CD8A CD8B CD4 GZMA GZMB PRF1 NKG7 PDCD1 LAG3 TIGIT CTLA4 FOXP3"),
    ("tcell", 0.60, "CCL5 CXCL9 CXCL10 CXCL11 HAVCR2 IFNG STAT1 IDO1 CD274 TOX ENTPD1 PSMB8 PSMB9"),
    ("tcell", 0.40, "CXCL13 PSMB10 HLA-DRA CD68 CD163 CSF1R"),
    ("basal", 0.80, "FABP5 KRT5 KRT6A KRT14 CD44 EGFR S100A8 S100A9"),
    ("basal", -0.75, "GATA3 PPARG UPK1A UPK1B UPK2 UPK3A FOXA1 KRT20 FGFR3 NECTIN4 ERBB2 FABP4"),
    ("stroma", 0.85, "COL1A1 COL1A2 COL3A1 COL5A1 FN1 POSTN FAP ACTA2 VIM TGFB1"),
    ("proliferation", 0.80, "MKI67 TOP2A CCNB1 CDK1 AURKA BUB1 PCNA MCM2"),
    ("proteasome", 0.80, "ADRM1 PSMD1 PSMD2 PSMD4 PSMA1 PSMB5 UCHL5"),
)
# Genes without a module, at their usual high level.
STEADY = "ACTB GAPDH TBP HPRT1 B2M HLA-A HLA-B CDH1 TP53 RB1 CDKN2A TNFRSF13B"
LEVELS = {
    "ACTB": 12.5, "GAPDH": 12.0, "B2M": 12.8, "HLA-A": 11.0, "HLA-B": 11.2, "KRT5": 8.0,
    "COL1A1": 9.5, "COL3A1": 9.3, "FN1": 9.6, "VIM": 9.8, "FABP5": 7.6, "ADRM1": 6.6,
    "CXCL13": 3.4, "MS4A1": 2.6, "XIST": 6.0, "RPS4Y1": 6.3, "DDX3Y": 4.6, "KDM5D": 3.7,
}  # fmt: skip
FILLER = 240


@dataclass(frozen=True)
class Genes:
    """Symbols, loadings on the factors (genes, factors), and each gene's log2 mean and SD."""

    symbols: tuple[str, ...]
    loadings: FloatArray
    mean: FloatArray
    sd: FloatArray


def gene_table(rng: np.random.Generator) -> Genes:
    """Build the gene table for a world. SIMGENE… genes represent the rest of the genome."""
    rows: dict[str, FloatArray] = {}
    for factor, loading, names in MODULES:
        for name in names.split():
            row = rows.setdefault(name, np.zeros(len(FACTORS)))
            row[FACTORS.index(factor)] += loading
    for name in STEADY.split():
        rows.setdefault(name, np.zeros(len(FACTORS)))
    for number in range(FILLER):
        row = np.zeros(len(FACTORS))
        if number % 3 == 0:
            row[int(rng.integers(len(FACTORS)))] = float(rng.uniform(-0.5, 0.5))
        rows[f"SIMGENE{number + 1:03d}"] = row
    symbols = tuple(sorted(rows))
    loadings = np.array([rows[name] for name in symbols])
    # Factors may explain at most 85% of a gene's variance.
    size = np.sqrt((loadings**2).sum(axis=1, keepdims=True))
    loadings = loadings * np.minimum(1.0, 0.92 / np.maximum(size, 1e-9))
    usual = np.array([LEVELS.get(name, float("nan")) for name in symbols])
    mean = np.where(np.isnan(usual), rng.gamma(6.0, 0.9, len(symbols)), usual)
    sd = np.where(np.abs(loadings).sum(axis=1) > 0.3, rng.uniform(0.9, 1.7, len(symbols)), 0.5)
    return Genes(symbols, loadings, mean, sd)


def factors(n: int, rng: np.random.Generator) -> FloatArray:
    """Draw (n, factors) latent factors with mean 0 and SD 1, correlated as in tumors."""
    correlation = np.eye(len(FACTORS))

    def pair(a: str, b: str, value: float) -> None:
        i, j = FACTORS.index(a), FACTORS.index(b)
        correlation[i, j] = correlation[j, i] = value

    pair("tls", "tcell", 0.55)
    pair("tcell", "basal", 0.25)
    pair("tls", "stroma", 0.15)
    pair("basal", "proliferation", 0.20)
    pair("proliferation", "proteasome", 0.30)
    return rng.standard_normal((n, len(FACTORS))) @ np.linalg.cholesky(correlation).T


def expression(
    genes: Genes, latent: FloatArray, male: FloatArray, rng: np.random.Generator
) -> tuple[tuple[str, ...], FloatArray]:
    """Draw (n, genes) log2 expression, returned with the gene symbols.

    Sex-linked genes follow the patient's sex.

    Parameters
    ----------
    latent : (n, factors) the patients' standard normal factors
    male : (n,) 1 for men
    """
    noise = np.sqrt(np.maximum(1.0 - (genes.loadings**2).sum(axis=1), 0.0))
    z = latent @ genes.loadings.T + noise * rng.standard_normal((len(latent), len(genes.symbols)))
    values = np.maximum(genes.mean + genes.sd * z, 0.0)
    linked = ("DDX3Y", "KDM5D", "RPS4Y1", "XIST")
    columns = []
    for name in linked:
        on = male < 0.5 if name == "XIST" else male > 0.5
        level = np.where(on, LEVELS[name], 0.2)
        columns.append(np.maximum(level + 0.4 * rng.standard_normal(len(male)), 0.0))
    return (*genes.symbols, *linked), np.column_stack((values, *columns))
