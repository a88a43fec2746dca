"""From sources to a store of documents and readings, and from it to a graph."""
