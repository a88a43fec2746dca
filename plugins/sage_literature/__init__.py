"""Literature: more services, registries for feasibility, and topic corpora."""
