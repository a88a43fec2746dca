"""The results interpreter (SAGE, 3.3, Table 8)."""
