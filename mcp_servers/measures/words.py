"""Names of cells, objects and regions for use in sentences."""

from __future__ import annotations

CELLS = {
    "b_cell": "B cell",
    "t_cell": "T cell",
    "cd4_t_cell": "CD4+ T cell",
    "cd8_t_cell": "CD8+ T cell",
    "lymphoid": "lymphoid cell",
    "neoplastic": "neoplastic cell",
    "nk_cell": "NK cell",
    "other": "cell of another type",
}
PLURALS = {"cell of another type": "cells of other types"}
OBJECTS = {"tls": "tertiary lymphoid structure", "germinal_center": "germinal center"}
INSPECTED = "inspected_"
"""Prefix of a cell type for a reader's looks: "inspected_tumor" are regions inspected for tumor."""
READ = "read_"
"""Prefix of an object kind for what a reader found: "read_tls"."""
REGIONS = {
    "tumor": "the tumor",
    "stroma": "the stroma",
    "necrosis": "the necrosis",
    "peritumoral": "the peritumoral tissue",
}


def singular(source: str, name: str) -> str:
    """Return the singular noun: "B cell" for "b_cell", "germinal center" for "germinal_center"."""
    plain = name.replace("_", " ")
    if source == "objects":
        if name.startswith(READ):
            what = plain.partition(" ")[2]
            return f"{'figure' if what == 'mitosis' else 'region'} read as {what}"
        return OBJECTS.get(name, plain)
    if name in CELLS:
        return CELLS[name]
    if name.startswith(INSPECTED):
        return f"region inspected for {plain.partition(' ')[2]}"
    is_cell = plain.endswith(("cell", "cyte", "phage", "blast", "phil"))
    return plain if is_cell else f"{plain} cell"


def plural(source: str, name: str) -> str:
    """Return the plural noun: "B cells" for "b_cell"."""
    noun = singular(source, name)
    if noun in PLURALS:
        return PLURALS[noun]
    if name.startswith((INSPECTED, READ)):
        head, _, rest = noun.partition(" ")
        return f"{head}s {rest}"
    return noun[:-1] + "ies" if noun.endswith("y") else f"{noun}s"


def area_words(region: str) -> str:
    """Return the noun phrase for a region: "the tumor", or "the X region" if not listed."""
    return REGIONS.get(region, f"the {region.replace('_', ' ')} region")


def with_article(noun: str) -> str:
    """Add the article to a noun: "a B cell", "an immune cell"; initialisms are not recognized."""
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"
