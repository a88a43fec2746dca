"""NOVA's tools by their own names, over SAGE's slide tools. A suite of its own: `nova`.

Names, keys and files follow the paper (NOVA, appendix E), so that a program written for
NOVA finds what it expects: a zarr store of SpatialData per slide, GeoJSON of tissue, HDF5 of
coordinates and features as Trident writes them. docs/nova.md says which of SAGE's tools does what.
"""

from __future__ import annotations

ON_REQUEST = True
TOOL_MODULES = (
    "datasets",
    "jobs",
    "wsi",
    "checks",
    "space",
    "text",
    "captions",
    "roi",
    "supervised",
    "documents",
)
