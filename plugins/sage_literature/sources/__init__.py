"""Literature services: what can be searched, and what can be read to its last page."""
