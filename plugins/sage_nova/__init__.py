"""NOVA: its tool suite by name, and an agent that answers questions by writing programs."""
