"""Rules that derive a verdict from results."""
