"""Workers that run tools, from a local process pool or a plugin."""
