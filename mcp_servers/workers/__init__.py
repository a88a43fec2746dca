"""Workers that run tools: a local pool of processes, or a Ray cluster."""
