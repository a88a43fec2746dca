"""Search for scored paths that answer a question."""
