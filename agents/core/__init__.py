"""Agents as data, their reasoners, and the disclosure check before every prompt."""
