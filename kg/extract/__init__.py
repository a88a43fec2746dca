"""Triple extraction by two extractors, `rules` and `chat`, that share a protocol."""
