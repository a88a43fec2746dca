"""Measurements on maps of cells, objects and regions: their language, computation and gate."""
