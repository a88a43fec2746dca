"""Textbook statistics computed on arrays."""
