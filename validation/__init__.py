"""Contracts, cohorts, statistics, controls and verdicts for validating claims."""
