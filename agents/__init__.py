"""Agents, each in its own folder with its input, output, prompt and rule."""
