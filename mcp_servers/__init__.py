"""The tool registry, the servers that offer it, the workers that run it."""
