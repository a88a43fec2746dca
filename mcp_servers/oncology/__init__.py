"""Clinical oncology tools built on the statistics of `validation`.

Results are aggregates; they never include a patient's row or the size of a group smaller
than five.
"""

TOOL_MODULES = ("cohorts", "survival", "competing", "models", "signatures")
