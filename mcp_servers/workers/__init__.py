"""Where tools run: a local pool of processes, or a Ray cluster."""
