"""Recorded sessions: where a reader looked on a slide, and what was done there."""

TOOL_MODULES = ("tool",)
"""Modules with tools for the registry."""
