"""Path generation: from the question to a graph query (SAGE, 3.2.2)."""
