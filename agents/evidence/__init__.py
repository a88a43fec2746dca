"""Clients that gather evidence for feasibility."""
