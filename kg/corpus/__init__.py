"""The pipeline from sources to a store of documents and readings, and from there to a graph."""
