"""Training of patch classifiers, as a separate tool suite."""

TOOL_MODULES = ("train",)
