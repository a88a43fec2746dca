"""Ray: running tools on the machines of a Ray cluster."""
