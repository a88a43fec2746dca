"""Ray: tools run on the machines of a Ray cluster."""
