"""Stains: separation of dyes, normalization of colors, immunohistochemistry."""

TOOL_MODULES = ("ihc", "separation")
