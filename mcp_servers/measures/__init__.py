"""Measurements on maps of cells, objects and regions: language, computation and quality gate."""
