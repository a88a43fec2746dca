"""Embedding of texts as unit vectors, cached by content."""
