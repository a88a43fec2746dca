"""From a question to scored paths."""
