"""Rules that turn results into a verdict."""
