"""Fusion of the names in many documents into the nodes of one graph."""
