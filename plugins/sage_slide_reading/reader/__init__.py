"""Reading a slide as a pathologist does: navigate, describe, reflect, zoom or explore (PathAgent).

Source: J. Chen et al., "PathAgent: Toward Interpretable Analysis of Whole-slide Pathology Images
via Large Language Model-based Agentic Reasoning".
"""

TOOL_MODULES = ("tools",)
"""Modules that define tools for the registry."""
