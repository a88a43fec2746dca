"""Tumor board: a model answers questions over a patient's dated files."""
