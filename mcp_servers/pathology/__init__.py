"""The pathology suite: tools that read slides."""

from __future__ import annotations

TOOL_MODULES = ("slides", "tissue", "tiles", "nuclei", "tls", "tumor", "surroundings", "measure")
