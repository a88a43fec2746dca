"""The base layer: every package may import it, and it imports none of SAGE's other packages."""
