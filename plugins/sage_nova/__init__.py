"""NOVA: its tool suite under its own names, and an agent that answers questions by program."""
