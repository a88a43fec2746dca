"""Validation from start to end: prepared inputs, protocol and runner."""
