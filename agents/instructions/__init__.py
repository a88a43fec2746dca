"""Coding instructions, and the covariates required by the feasibility agent."""
