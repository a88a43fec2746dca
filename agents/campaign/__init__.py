"""The policy of a campaign."""
