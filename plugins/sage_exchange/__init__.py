"""Exchange with other programs: knowledge graphs, vocabularies, slide maps, and R analyses."""

TOOL_MODULES = ("spatial.tool",)
