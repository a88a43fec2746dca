"""Hypothesis expansion and revision."""
