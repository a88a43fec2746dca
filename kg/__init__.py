"""Literature to knowledge graph to scored paths."""
