"""Triple extraction: two extractors, `rules` and `chat`, behind one protocol."""
