"""Coding instructions, and the covariates that feasibility demands."""
