"""NOVA's tools under their own names, built on SAGE's slide tools (the suite `nova`).

Names, keys, and files follow the paper (NOVA, appendix E), so that programs written for NOVA work
unchanged: a zarr store of SpatialData per slide, GeoJSON of tissue, HDF5 of coordinates and
features as Trident writes them. docs/nova.md names SAGE's counterpart of each tool.
"""

from __future__ import annotations

ON_REQUEST = True
TOOL_MODULES = (
    "datasets", "jobs", "wsi", "checks", "space", "text", "captions", "roi", "supervised",
    "documents",
)  # fmt: skip
