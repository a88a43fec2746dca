"""Literature: further services, registries for feasibility, gathering of corpora on a topic."""
