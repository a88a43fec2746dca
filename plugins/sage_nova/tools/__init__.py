"""NOVA's tools under their own names, built on SAGE's slide tools (the `nova` suite).

Names, keys, and files follow the paper (NOVA, appendix E), so that programs written for
NOVA work unchanged: a SpatialData zarr store per slide, GeoJSON for tissue, and HDF5 for
coordinates and features as written by Trident. docs/nova.md names SAGE's counterpart of
each tool.
"""

from __future__ import annotations

ON_REQUEST = True
TOOL_MODULES = ("folder", "slide", "contents", "space", "text", "roi", "supervised", "documents")
