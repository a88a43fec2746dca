"""Findings: typed statements about a result, rendered by SAGE and checked against the results."""
