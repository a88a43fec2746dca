"""Drafting of a frozen contract from a hypothesis: covariates, tests, power, amendments."""
