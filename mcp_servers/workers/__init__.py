"""Workers that run tools: a local pool of processes, or those of a plugin."""
