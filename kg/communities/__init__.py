"""Communities of a graph and summaries of the statements in each."""
