"""The second implementation and its comparison with SAGE's own numbers."""
