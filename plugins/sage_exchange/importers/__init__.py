"""Dated relations of other collections, read into one graph."""
