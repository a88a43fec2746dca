"""Knowledge graph built from the literature, and scored paths through it."""
