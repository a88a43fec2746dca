"""Coding instructions, and the covariates that the feasibility agent demands."""
