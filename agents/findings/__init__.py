"""Findings: typed statements on a result, rendered by SAGE and held against the results."""
