"""Tool that exports results on a slide as a SpatialData store."""

TOOL_MODULES = ("tool",)
