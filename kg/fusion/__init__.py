"""Fusion of names from many documents into the nodes of a single graph."""
