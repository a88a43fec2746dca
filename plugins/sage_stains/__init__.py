"""Stains: dye separation, color normalization, and immunohistochemistry."""

TOOL_MODULES = ("ihc", "separation")
