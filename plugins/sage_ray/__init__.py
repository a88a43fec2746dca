"""Ray: running tools on the machines in a Ray cluster."""
