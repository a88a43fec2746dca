"""The graph as arrays: reading, writing, lookup, and reconstruction as of a past year."""
