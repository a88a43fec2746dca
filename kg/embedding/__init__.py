"""Text to unit vectors, kept by content."""
