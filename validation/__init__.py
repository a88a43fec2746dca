"""Contracts, cohorts, statistics, controls and verdicts of the validation."""
