"""Tools that query the `kg` graph and its ontology, and tools that control a SAGE run."""

TOOL_MODULES = ("graphs", "terms")
