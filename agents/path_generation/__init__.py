"""Path generation: from the question to a query on the graph (SAGE, 3.2.2)."""
