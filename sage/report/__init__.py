"""The report: every number by key, every citation from a source record, or no report."""
