"""Gathering of papers on a topic into a folder: search, screening, full texts, and outcomes."""
