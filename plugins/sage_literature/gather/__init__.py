"""Gathering papers on a topic into a folder: search, screening, full texts, and results."""
