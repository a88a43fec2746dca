"""A second implementation of the analysis, and its comparison with SAGE's own numbers."""
