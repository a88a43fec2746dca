"""Agents, each in a folder of its own with its input, output, prompt and rule."""
