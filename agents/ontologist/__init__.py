"""The ontologist: grounds paths in definitions (SAGE, 3.2.2)."""
