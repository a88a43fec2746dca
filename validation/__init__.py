"""Contracts, cohorts, statistics, controls, verdicts."""
