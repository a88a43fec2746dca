"""Findings: typed statements on a result, rendered by SAGE and checked against the results."""
