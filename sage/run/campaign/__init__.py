"""Campaigns: rounds of runs that learn from each other, under a shared error rate."""
