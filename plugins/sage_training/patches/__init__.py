"""Training of patch classifiers, as a separate suite of tools."""

TOOL_MODULES = ("train",)
