"""Recorded sessions: where a reader looked on a slide, and the reader's actions there."""

TOOL_MODULES = ("tool",)
"""Modules that define tools for the registry."""
