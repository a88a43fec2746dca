"""Agents as data, their reasoners, and the gate before every prompt."""
