"""Tumor board, in which a model reads one patient's dated files with the board's tools."""
