"""Names of many documents become the nodes of one graph."""
