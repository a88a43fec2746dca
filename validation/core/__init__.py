"""Types shared throughout validation: findings, the data dictionary, hypotheses."""
