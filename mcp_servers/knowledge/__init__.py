"""Knowledge tools over the graph of `kg`, and tools that drive a run of SAGE."""

TOOL_MODULES = ("graphs",)
