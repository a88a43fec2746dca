"""Tumor board: a model reads one patient's dated files with the board's tools."""
