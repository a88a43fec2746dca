"""Simulated cohorts and slides with planted mechanisms, traps and metastases."""
