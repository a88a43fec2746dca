"""Textbook statistics on arrays."""
