"""Exchange with other programs: knowledge graphs, vocabularies, maps of slides, analyses in R."""

TOOL_MODULES = ("spatial.tool",)
