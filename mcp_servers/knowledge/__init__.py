"""Knowledge tools over the graph of `kg` and its ontology, and tools that drive a run of SAGE."""

TOOL_MODULES = ("graphs", "terms")
