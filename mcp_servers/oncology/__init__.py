"""Clinical oncology tools over the statistics of `validation`."""

TOOL_MODULES: tuple[str, ...] = ()
