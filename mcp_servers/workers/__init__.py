"""Workers that run tools: a local pool of processes, or workers from a plugin."""
