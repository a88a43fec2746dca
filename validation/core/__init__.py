"""Types that all of validation shares: findings, the data dictionary, hypotheses."""
