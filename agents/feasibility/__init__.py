"""Feasibility before any computation: data, tools, logic and resources (SAGE, 3.2.4, Table 6)."""
