"""Campaigns: rounds of runs that learn from each other, under one error rate."""
