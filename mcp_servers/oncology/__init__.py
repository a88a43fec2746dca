"""Clinical oncology tools over the statistics of `validation`.

Results are aggregates: never a patient's row, never the size of a group under five.
"""

TOOL_MODULES = ("cohorts", "describe", "survival", "competing", "models", "signatures")
