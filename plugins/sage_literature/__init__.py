"""Literature: more services, registries for feasibility, and gathering of corpora on a topic."""
