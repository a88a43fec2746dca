"""Base layer, which every package may import and which imports no other SAGE package."""
