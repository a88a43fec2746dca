"""Class names that mean tumor, for every tool that reads a class by its name."""

from __future__ import annotations

TUMOR = frozenset(
    ("tumor", "tumour", "carcinoma", "cancer", "neoplasm", "malignant"),
)


def means_tumor(label: str) -> bool:
    """True if a class of this name is tumor and nothing else.

    Exact names only, in any case, spaces, underscores and hyphens around them aside; and QuPath's
    derived classes of them ("Tumor: Positive"). Every other name that holds such a word is not:
    "non_tumor", "tumor stroma", "tumor-free", "peritumoral" and "tumor necrosis" all mean that the
    place is no tumor. What is meant by any other name, the user says.
    """
    base = label.casefold().partition(":")[0]
    return base.strip(" \t\r\n_-") in TUMOR
