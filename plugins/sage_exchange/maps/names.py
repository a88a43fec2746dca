"""Mapping of other programs' names for types and kinds."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from mcp_servers.measures.maps import Name
from sage.core.errors import InputError, explain_validation

TYPES = {
    "neoplastic": ("neoplastic", "tumor", "tumour", "tumor_cell", "tumor_cells", "cancer"),
    "lymphoid": ("lymphoid", "lymphocyte", "lymphocytes", "til", "tils"),
    "inflammatory": ("inflammatory", "immune_cells", "immune"),
    "stromal": ("stromal", "stroma", "connective", "fibroblast", "fibroblasts"),
    "epithelial": ("epithelial", "non_neoplastic_epithelial", "benign_epithelial"),
    "dead": ("dead", "necrotic", "apoptotic"),
    "b_cell": ("b_cell", "b_cells", "cd19_positive", "cd20_positive"),
    "t_cell": ("t_cell", "t_cells", "cd3_positive"),
    "cd4_t_cell": ("cd4_t_cell", "cd4_positive", "helper_t_cells"),
    "cd8_t_cell": ("cd8_t_cell", "cd8_positive", "cytotoxic_cd8", "cytotoxic_t_cells"),
    "regulatory_t_cell": ("regulatory_t_cell", "foxp3_positive", "treg", "tregs"),
    "macrophage": ("macrophage", "macrophages", "cd68_positive"),
    "nk_cell": ("nk_cell", "nk_cells"),
    "plasma_cell": ("plasma_cell", "plasma_cells"),
    "neutrophil": ("neutrophil", "neutrophils"),
    "eosinophil": ("eosinophil", "eosinophils"),
    "mitosis": ("mitosis", "mitotic_figure"),
}
OBJECTS = {
    "tls": ("tls", "tertiary_lymphoid_structure", "lymphoid_aggregate"),
    "germinal_center": ("germinal_center", "germinal_centre", "gc"),
    "gland": ("gland", "glands"),
    "vessel": ("vessel", "vessels", "blood_vessel"),
}
REGIONS = {
    "tumor": ("tumor", "tumour", "carcinoma", "cancer"),
    "stroma": ("stroma",),
    "necrosis": ("necrosis", "necrotic"),
    "peritumoral": ("peritumoral",),
    "rest": ("rest",),
}
WINDOW = ("tissue", "region", "region*", "roi")
"""Annotation classes whose outlines enclose all of the analyzed tissue."""
PANNUKE = {"1": "neoplastic", "2": "inflammatory", "3": "stromal", "4": "dead", "5": "epithelial"}
"""PanNuke types by number, as used by HoVer-Net and CellViT."""
LONGEST = 50


def slug(text: str) -> str:
    """Reduce text to lower-case letters, digits, and underscores: "CD8+" becomes "cd8_positive"."""
    plain = unicodedata.normalize("NFKD", text.strip()).encode("ascii", "ignore").decode().lower()
    plain = re.sub(r"\+(?=$|[\s:/,])", " positive", plain)
    plain = re.sub(r"(?<=\w)-(?=$|[\s:/,])", " negative", plain)
    return re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:LONGEST].rstrip("_")


def match_name(text: str, known: Mapping[str, tuple[str, ...]], own: Mapping[str, str]) -> str:
    """Match a type or kind to the caller's own name, a known name, or else `other_` and the text.

    A derived class ("Tumor: Positive") gets the name of its first part followed by the rest.
    Names that this function returned are left unchanged when they are read again.

    Parameters
    ----------
    known : spellings by name, as in `TYPES`
    own : maps text in the file to the caller's name
    """
    if text in own:
        return own[text]
    base, colon, rest = text.partition(":")
    if colon and rest.strip():
        return f"{match_name(base, known, own)}_{slug(rest)}"[: LONGEST + 9].rstrip("_")
    plain = slug(text)
    if plain == "other" or plain.startswith(("other_", *(f"{name}_" for name in known))):
        return plain  # a standard name, or a more specific one
    for name, spellings in known.items():
        if plain in spellings:
            return name
    return f"other_{plain}" if plain else "other"


def check_own(own: Mapping[str, str]) -> None:
    """Raise `InputError` if any of the caller's names cannot be used in maps."""
    adapter = TypeAdapter(dict[str, Name])
    try:
        adapter.validate_python(dict(own))
    except ValidationError as error:
        raise InputError(f"type {explain_validation(error)}") from None
