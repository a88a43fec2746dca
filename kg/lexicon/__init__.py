"""Vocabularies, the ontology, and the index that finds their terms in text."""
