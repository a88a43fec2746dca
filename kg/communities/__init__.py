"""Communities in a graph, and summaries of the statements in each."""
