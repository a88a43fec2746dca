"""The pathology suite of slide-reading tools."""

from __future__ import annotations

TOOL_MODULES = ("slides", "tissue", "tiles", "nuclei", "tls", "tumor", "surroundings", "measure")
