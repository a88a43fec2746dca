"""Training of patch classifiers; a suite of tools of its own."""

TOOL_MODULES = ("train",)
