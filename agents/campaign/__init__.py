"""Policy of a campaign."""
