"""The pathology suite: tools that read slides."""

from __future__ import annotations

TOOL_MODULES = (
    "listing",
    "properties",
    "tissue",
    "tiles",
    "nuclei",
    "tls",
    "tumor",
    "til",
    "stroma",
    "measure",
)
