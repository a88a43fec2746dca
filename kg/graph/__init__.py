"""The graph as arrays: reading, writing, looking up, as it was in a past year."""
