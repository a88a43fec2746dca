"""The summary of a run (SAGE, Table 5)."""
