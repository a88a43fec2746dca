"""Conversion of a cohort and a contract into arrays that are ready to analyze."""
