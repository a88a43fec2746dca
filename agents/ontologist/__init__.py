"""The ontologist, which grounds paths in definitions (SAGE, 3.2.2)."""
