"""Agents: a folder each, with its input, its output, its prompt and its rule."""
