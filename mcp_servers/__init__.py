"""Tool registry, the servers that expose it, and the workers that run its tools."""
