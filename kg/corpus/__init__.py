"""Pipeline from sources to a store of documents and extractions, and from there to a graph."""
