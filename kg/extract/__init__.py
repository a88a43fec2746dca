"""Triple extraction by two extractors, `rules` and `chat`, that share one protocol."""
