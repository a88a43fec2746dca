"""Communities of a graph, and what its statements say of each."""
